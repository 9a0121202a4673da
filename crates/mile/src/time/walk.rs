//! A run of a method without its vectors: every verb succeeds at once, bytes are counted, and clocks advance.

use std::ops::Range;

use super::{Clock, TimeModel};
use crate::agents::{
    Agents, AgentsError, BlockFunction, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector,
};
use crate::engine::parts::movers;
use crate::membership::Epoch;
use crate::method::Method;
use crate::real::Precision;
use crate::run::{Progress, Run};
use crate::schedule::Schedule;
use crate::sparse::SparseRows;
use crate::{steady, with_precision};

/// What messages and time depend on, besides method and network.
#[derive(Clone, Copy, Debug)]
pub struct Costing<'m> {
    /// The length of a vector.
    pub dim: usize,
    /// The precision of its elements.
    pub precision: Precision,
    /// Seed of the run.
    pub seed: u64,
    /// How long everything takes; without it, no time passes.
    pub time: Option<&'m TimeModel>,
}

/// A run without vectors, in one epoch of the membership after the other.
#[derive(Debug)]
pub struct Walk<'m> {
    costing: Costing<'m>,
    clock: Clock,
    progress: Progress,
}

impl<'m> Walk<'m> {
    /// A walk that has not begun.
    pub fn new(costing: Costing<'m>) -> Self {
        Self { costing, clock: Clock::new(Vec::new()), progress: Progress::default() }
    }

    /// Begins an epoch, as a run does: with the method's start-up.
    pub fn begin(&mut self, epoch: &Epoch, method: &dyn Method) -> Result<(), AgentsError> {
        self.clock = match epoch.round {
            0 => Clock::new(epoch.members.clone()),
            _ => self.clock.with_members(epoch.members.clone()),
        };
        self.progress.round = epoch.round;
        self.with_run(epoch, method, |run, agents| {
            if epoch.newcomer.is_some() {
                // It gets a model from its neighbours.
                let exchange = agents.pull(epoch.round, &[(Vector(0), Vector(1))]);
                exchange.map(drop)?;
            }
            run.restart(agents)
        })
    }

    /// Goes through rounds of the epoch that was begun last.
    pub fn rounds(&mut self, epoch: &Epoch, method: &dyn Method, count: u64) -> Result<(), AgentsError> {
        self.with_run(epoch, method, |run, agents| (0..count).try_for_each(|_| run.round(agents)))
    }

    fn with_run(
        &mut self,
        epoch: &Epoch,
        method: &dyn Method,
        work: impl FnOnce(&mut Run, &mut Unhosted) -> Result<(), AgentsError>,
    ) -> Result<(), AgentsError> {
        let mut agents = Unhosted {
            costing: self.costing,
            epoch,
            own_steps: method.own_steps().unwrap_or_default(),
            only: None,
            weights: epoch.network.rows(),
            clock: &mut self.clock,
        };
        let mut run = Run::resume(method, Schedule::constant(1.0), self.progress);
        let done = work(&mut run, &mut agents);
        self.progress = *run.progress();
        done
    }

    /// Rounds, and costs so far.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The agents' clocks.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// Agents of an epoch without vectors.
struct Unhosted<'a> {
    costing: Costing<'a>,
    epoch: &'a Epoch,
    /// The agents' numbers of local steps, where they differ, and for whom verbs are.
    own_steps: &'a [u64],
    only: Option<u64>,
    weights: SparseRows,
    clock: &'a mut Clock,
}

impl Unhosted<'_> {
    /// An exchange of messages of this length; the bytes of all.
    fn exchange(&mut self, round: u64, bytes: usize) -> u64 {
        let Costing { seed, time, .. } = self.costing;
        let messages = self.epoch.network.rows_in_round(seed, round, &mut self.weights);
        if let Some(model) = time {
            self.clock.exchange(model, seed, &self.weights, bytes);
        }
        messages * bytes as u64
    }
}

impl Agents for Unhosted<'_> {
    fn hosted(&self) -> Range<usize> {
        0..self.epoch.members.len()
    }

    fn gradient(&mut self, _: Vector, _: Vector, _: u64) -> Result<(), AgentsError> {
        if let Some(model) = self.costing.time {
            let moves = |place: &usize| self.only.is_none_or(|own| self.own_steps.get(*place) == Some(&own));
            let moving = self.hosted().filter(moves).collect::<Vec<_>>();
            moving.into_iter().for_each(|place| self.clock.work(model, self.costing.seed, place, 1));
        }
        Ok(())
    }

    fn combine(&mut self, _: Vector, _: f64, _: &[(f64, Vector)]) -> Result<(), AgentsError> {
        Ok(())
    }

    fn prox(&mut self, _: Vector, _: f64) -> Result<(), AgentsError> {
        Ok(())
    }

    fn optimise(&mut self, _: &OptimiserStep) -> Result<(), AgentsError> {
        Ok(())
    }

    fn clip(&mut self, _: Vector, _: f64) -> Result<(), AgentsError> {
        Ok(())
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.only = own;
        Ok(movers(self.hosted(), self.own_steps, own))
    }

    fn apply(&mut self, _: &dyn BlockFunction, _: &[Vector]) -> Result<(), AgentsError> {
        Ok(())
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        let Costing { dim, precision, .. } = self.costing;
        Ok(self.exchange(round, pairs.len() * dim * precision.bytes()))
    }

    fn pull_steady(&mut self, round: u64, _: &SteadyPull) -> Result<u64, AgentsError> {
        let Costing { dim, precision, .. } = self.costing;
        Ok(self.exchange(round, with_precision!(precision, T => steady::message_bytes::<T>(dim))))
    }

    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.pull(round, &[(pull.from, pull.to)])
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        let Costing { dim, precision, .. } = self.costing;
        Ok(self.exchange(round, with_precision!(precision, T => pull.by.message_bytes::<T>(dim))))
    }
}
