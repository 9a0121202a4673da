//! Running a method: steps, communication rounds, costs, and resuming.

use std::collections::VecDeque;

use crate::agents::{Agents, AgentsError, Costs, Step, Vector};
use crate::engine::Engine;
use crate::method::{Layout, Method, Pairwise};
use crate::pairing::{Pairings, Turn};
use crate::real::Real;
use crate::schedule::Schedule;

/// Progress of a run. Together with the state vectors it is everything needed to resume.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Updates done since x(0).
    pub step: u64,
    /// Communication rounds done: steps in which the agents exchanged vectors.
    pub round: u64,
    /// The current step size, to which the corrections ([`Unit::StepSize`](crate::method::Unit)) are scaled.
    pub step_size: f64,
    /// What the run has cost so far.
    pub costs: Costs,
}

/// A run of a [`Method`] on [`Agents`].
#[derive(Debug)]
pub struct Run<'m> {
    method: &'m dyn Method,
    layout: Layout,
    schedule: Schedule,
    progress: Progress,
    pairings: Option<Pairings>,
    /// What is left of a round of pairings.
    turns: VecDeque<Turn>,
}

impl<'m> Run<'m> {
    /// Starts a run: the method's start-up takes the agents from their starting point to x(0).
    pub fn start(
        method: &'m dyn Method,
        schedule: Schedule,
        agents: &mut dyn Agents,
    ) -> Result<Self, AgentsError> {
        let step_size = schedule.at(0);
        let progress = Progress { step_size, ..Progress::default() };
        let mut run = Self::resume(method, schedule, progress);
        run.within_step(agents, 0, |method, step| method.start(step))?;
        agents.settle()?;
        Ok(run)
    }

    /// Continues an earlier run; the agents must hold the state vectors it stopped with.
    pub fn resume(method: &'m dyn Method, schedule: Schedule, progress: Progress) -> Self {
        let turns = VecDeque::new();
        Self { method, layout: method.layout(), schedule, progress, pairings: None, turns }
    }

    /// With the pairings of a method whose agents exchange in [pairs](crate::pairing), of which the rounds so far have been taken.
    pub fn with_pairings(self, pairings: Option<Pairings>) -> Self {
        Self { pairings, ..self }
    }

    /// The pairings, if its agents exchange in pairs.
    pub fn pairings(&self) -> Option<&Pairings> {
        self.pairings.as_ref()
    }

    /// Restarts the method from the agents' models: this is how an epoch of the [membership](crate::membership) begins. Any models are a
    /// starting point, so whatever the method guarantees it guarantees from here on. Rounds, and with them step sizes, continue.
    ///
    /// An agent that has no model yet, given with the sum of the weights of its edges, gets the mean of its neighbours' models with
    /// these weights.
    pub fn renew<T: Real>(
        &mut self,
        newcomer: Option<(usize, f64)>,
        engine: &mut dyn Engine<T>,
    ) -> Result<(), AgentsError> {
        if let Some((agent, weight)) = newcomer {
            self.give_model(agent, weight, engine)?;
        }
        self.restart(engine)
    }

    /// The same, where every agent has a model.
    pub fn restart(&mut self, agents: &mut dyn Agents) -> Result<(), AgentsError> {
        for other in (1..self.layout.state.len()).map(Vector) {
            agents.combine(other, 0.0, &[])?;
        }
        self.progress.step = 0;
        self.progress.step_size = self.schedule.at(self.progress.round);
        self.within_step(agents, 0, |method, step| method.start(step))?;
        agents.settle()
    }

    /// Gives an agent the mean of its neighbours' models: an exchange pulls it there from zero, scaled by the weight of its edges.
    fn give_model<T: Real>(
        &mut self,
        agent: usize,
        weight: f64,
        engine: &mut dyn Engine<T>,
    ) -> Result<(), AgentsError> {
        let (models, pulled) = (Vector(0), Vector(self.layout.state.len()));
        let dim = engine.dim();
        let place = engine.hosted().map(|place| engine.agent_at(place)).position(|hosted| hosted == agent);
        let row = place.map(|place| place * dim..(place + 1) * dim);
        if let Some(row) = row.clone() {
            let mut rows = engine.vector(models)?.into_owned();
            rows[row].fill(T::zero());
            engine.set_vector(models, &rows)?;
        }
        engine.pull(self.progress.round, &[(models, pulled)])?;
        engine.settle()?;
        if let Some(row) = row.filter(|_| weight > 0.0) {
            let sum = engine.vector(pulled)?[row.clone()].to_vec();
            let mut rows = engine.vector(models)?.into_owned();
            rows[row].iter_mut().zip(sum).for_each(|(x, sum)| *x = T::of(sum.wide() / weight));
            engine.set_vector(models, &rows)?;
        }
        Ok(())
    }

    /// Steps, rounds and costs so far.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// One update; true if it completes a round: the agents communicated in it, and if they exchange in pairs, it was the last turn of the
    /// round.
    pub fn step(&mut self, agents: &mut dyn Agents) -> Result<bool, AgentsError> {
        let mixed = self.advance(agents)?;
        agents.settle()?;
        Ok(mixed)
    }

    /// One communication round: updates up to and including the next exchange.
    pub fn round(&mut self, agents: &mut dyn Agents) -> Result<(), AgentsError> {
        self.round_unless(agents, &|| false)
    }

    /// The same, unless it is interrupted: asked before each update. The agents' vectors are then those of no round.
    ///
    /// # Errors
    /// [`AgentsError::Interrupted`], besides those of the agents.
    pub fn round_unless(
        &mut self,
        agents: &mut dyn Agents,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), AgentsError> {
        loop {
            if is_interrupted() {
                return Err(AgentsError::Interrupted);
            }
            if self.advance(agents)? {
                return agents.settle();
            }
        }
    }

    fn advance(&mut self, agents: &mut dyn Agents) -> Result<bool, AgentsError> {
        let step_size = self.schedule.at(self.progress.round);
        if step_size != self.progress.step_size {
            let ratio = step_size / self.progress.step_size;
            for c in self.layout.corrections() {
                agents.combine(c, ratio, &[])?;
            }
            self.progress.step_size = step_size;
        }
        if let Some(pairwise) = self.method.pairwise() {
            return self.turn(pairwise, agents);
        }
        let draw = self.progress.step + 1;
        let mixed = self.within_step(agents, draw, |method, step| method.step(step))?;
        self.progress.step += 1;
        self.progress.round += u64::from(mixed);
        Ok(mixed)
    }

    /// One turn of a round of pairings; true if it was the last.
    fn turn(&mut self, pairwise: &dyn Pairwise, agents: &mut dyn Agents) -> Result<bool, AgentsError> {
        if self.turns.is_empty() {
            let taken = self.pairings.as_mut().filter(|pairings| pairings.rounds() == self.progress.round);
            let problem =
                "its agents exchange in pairs, but the run was not given the pairings of this round";
            let pairings = taken.ok_or_else(|| AgentsError::Method(problem.into()))?;
            self.turns = pairings.next_round()?;
        }
        let Some(turn) = self.turns.pop_front() else { return Ok(false) };
        self.within_step(agents, 0, |_, step| {
            for work in &turn.work {
                step.of_agent(work.agent, |step| pairwise.work(step, work.before, work.steps))?;
            }
            pairwise.exchange(step, &turn.pairs)
        })?;
        if !self.turns.is_empty() {
            return Ok(false);
        }
        self.progress.step = self.pairings.as_ref().map_or(0, Pairings::most_steps);
        self.progress.round += 1;
        // An agent takes part in one exchange in a round, on average.
        self.progress.costs.vectors_sent += 1;
        self.progress.costs.exchanges += 1;
        Ok(true)
    }

    fn within_step(
        &mut self,
        agents: &mut dyn Agents,
        draw: u64,
        work: impl FnOnce(&dyn Method, &mut Step) -> Result<(), AgentsError>,
    ) -> Result<bool, AgentsError> {
        agents.begin(self.progress.step_size);
        for scratch in self.layout.scratch_vectors() {
            agents.forget(scratch)?;
        }
        let mut step = Step {
            t: self.progress.step,
            step_size: self.progress.step_size,
            round: self.progress.round,
            draw,
            movers: agents.hosted().len() as u64,
            agents,
            costs: &mut self.progress.costs,
            mixed: false,
        };
        work(self.method, &mut step)?;
        Ok(step.mixed)
    }
}
