//! A method at work: steps, rounds, costs, and what is needed to go on later.

use crate::agents::{Agents, AgentsError, Costs, Step};
use crate::method::Method;
use crate::schedule::Schedule;

/// How far a run has come: together with the state vectors, all that is needed to resume it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Updates done since x(0).
    pub step: u64,
    /// Exchanges of the method done: a round is a step in which agents talk.
    pub round: u64,
    /// The step size in force, to which corrections in units of x belong.
    pub step_size: f64,
    /// What it has cost.
    pub costs: Costs,
}

/// Drives a [`Method`] over [`Agents`], wherever they live.
#[derive(Debug)]
pub struct Run<'m> {
    method: &'m dyn Method,
    schedule: Schedule,
    progress: Progress,
}

impl<'m> Run<'m> {
    /// Brings the agents from their starting point to x(0), by the method's own start-up.
    pub fn start(
        method: &'m dyn Method,
        schedule: Schedule,
        agents: &mut dyn Agents,
    ) -> Result<Self, AgentsError> {
        let step_size = schedule.at(0);
        let progress = Progress { step_size, ..Progress::default() };
        let mut run = Self { method, schedule, progress };
        run.within_step(agents, 0, |method, step| method.start(step))?;
        agents.settle()?;
        Ok(run)
    }

    /// Goes on from where an earlier run stopped; the agents hold the state it had then.
    pub fn resume(method: &'m dyn Method, schedule: Schedule, progress: Progress) -> Self {
        Self { method, schedule, progress }
    }

    /// How far it has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// One update; true if the agents talked, that is, if a round is complete.
    pub fn step(&mut self, agents: &mut dyn Agents) -> Result<bool, AgentsError> {
        let mixed = self.advance(agents)?;
        agents.settle()?;
        Ok(mixed)
    }

    /// Updates up to and including the next exchange.
    pub fn round(&mut self, agents: &mut dyn Agents) -> Result<(), AgentsError> {
        while !self.advance(agents)? {}
        agents.settle()
    }

    fn advance(&mut self, agents: &mut dyn Agents) -> Result<bool, AgentsError> {
        let step_size = self.schedule.at(self.progress.round);
        if step_size != self.progress.step_size {
            let ratio = step_size / self.progress.step_size;
            for c in self.method.layout().corrections() {
                agents.combine(c, ratio, &[])?;
            }
            self.progress.step_size = step_size;
        }
        let draw = self.progress.step + 1;
        let mixed = self.within_step(agents, draw, |method, step| method.step(step))?;
        self.progress.step += 1;
        self.progress.round += u64::from(mixed);
        Ok(mixed)
    }

    fn within_step(
        &mut self,
        agents: &mut dyn Agents,
        draw: u64,
        work: impl FnOnce(&dyn Method, &mut Step) -> Result<(), AgentsError>,
    ) -> Result<bool, AgentsError> {
        for scratch in self.method.layout().scratch_vectors() {
            agents.forget(scratch)?;
        }
        let mut step = Step {
            t: self.progress.step,
            step_size: self.progress.step_size,
            round: self.progress.round,
            draw,
            agents,
            costs: &mut self.progress.costs,
            mixed: false,
        };
        work(self.method, &mut step)?;
        Ok(step.mixed)
    }
}
