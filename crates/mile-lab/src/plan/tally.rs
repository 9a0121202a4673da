//! What a job will send, counted before it runs: its method goes through its rounds on agents that have no vectors.

use std::marker::PhantomData;
use std::ops::Range;

use mile::agents::{Agents, AgentsError, CompressedPull, Costs, OptimiserStep, SteadyPull, Vector};
use mile::network::Network;
use mile::real::Real;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::sparse::SparseRows;
use mile::steady;

use super::{Job, Plan};
use crate::error::LabError;

/// Verbs and edges, over all jobs, after which the rounds that are left are taken to cost what those before them did.
const MOST: f64 = 3e7;

/// The agents of an epoch, without vectors: every verb succeeds at once.
struct Tally<'n, T> {
    network: &'n Network,
    weights: SparseRows,
    seed: u64,
    /// The round at which the epoch begins.
    from: u64,
    dim: usize,
    precision: PhantomData<T>,
}

impl<T> Tally<'_, T> {
    /// Bytes of an exchange of messages of this length.
    fn exchange(&mut self, round: u64, bytes: usize) -> u64 {
        self.network.rows_in_round(self.seed, self.from + round, &mut self.weights) * bytes as u64
    }
}

impl<T: Real> Agents for Tally<'_, T> {
    fn hosted(&self) -> Range<usize> {
        0..self.network.agents()
    }

    fn gradient(&mut self, _: Vector, _: Vector, _: u64) -> Result<(), AgentsError> {
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

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        Ok(self.exchange(round, pairs.len() * self.dim * size_of::<T>()))
    }

    fn pull_steady(&mut self, round: u64, _: &SteadyPull) -> Result<u64, AgentsError> {
        Ok(self.exchange(round, steady::message_bytes::<T>(self.dim)))
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        Ok(self.exchange(round, pull.by.message_bytes::<T>(self.dim)))
    }
}

/// Bytes that all agents together send in a job that is run to its last round.
pub(super) fn bytes<T: Real>(plan: &Plan, job: Job) -> Result<u64, LabError> {
    let (epochs, rounds) = (plan.membership.epochs(), plan.spec.rounds);
    let mut total = 0.0;
    for (k, epoch) in epochs.iter().enumerate().filter(|(_, epoch)| epoch.round < rounds.max(1)) {
        let end = epochs.get(k + 1).map_or(rounds, |next| next.round.min(rounds));
        let (network, method) = (&epoch.network, plan.method_in(job, k)?);
        let mut agents = Tally::<T> {
            network,
            weights: network.rows(),
            seed: job.seed,
            from: epoch.round,
            dim: plan.size.dim,
            precision: PhantomData,
        };
        let edges = if network.varies() { network.graph().edges().count() } else { 0 };
        let work = 4.0 * plan.spec.algorithms[job.algorithm].steps_per_round() + edges as f64;
        let most = (MOST / plan.jobs().len() as f64 / work).ceil() as u64;
        let (all, counted) = (end - epoch.round, most.min(end - epoch.round));
        let mut run = Run::start(&*method, Schedule::constant(1.0), &mut agents)?;
        let Costs { bytes_sent: at_start, .. } = run.progress().costs;
        (0..counted).try_for_each(|_| run.round(&mut agents))?;
        let sent = (run.progress().costs.bytes_sent - at_start) as f64;
        total += at_start as f64 + sent * (all as f64 / counted.max(1) as f64);
    }
    Ok(total as u64)
}
