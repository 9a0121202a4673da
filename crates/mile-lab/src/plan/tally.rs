//! What a job will send, and how long it will take in modelled time, counted before it runs.

use super::{Job, JobClock, Plan};
use crate::error::LabError;

/// Verbs and edges, over all jobs, after which the rounds that are left are taken to cost what those before them did.
const MOST: f64 = 3e7;

/// What a job that is run to its last round costs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tally {
    /// Bytes that all agents together send.
    pub bytes: u64,
    /// Seconds of modelled time, if the experiment models it.
    pub modelled_s: Option<f64>,
}

/// Counts the costs of a job.
pub(super) fn tally(plan: &Plan, job: Job) -> Result<Tally, LabError> {
    let (epochs, rounds) = (plan.membership.epochs(), plan.spec.rounds);
    let mut clock = JobClock::counting(plan, job)?;
    // What the rounds that are not gone through cost.
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for (k, epoch) in epochs.iter().enumerate().filter(|(_, epoch)| epoch.round < rounds.max(1)) {
        if k > 0 {
            clock.enter(k)?;
        }
        let end = epochs.get(k + 1).map_or(rounds, |next| next.round.min(rounds));
        let network = &epoch.network;
        let visited =
            if network.varies() || plan.time.is_some() { network.graph().edges().count() } else { 0 };
        let work = 4.0 * plan.spec.algorithms[job.algorithm].steps_per_round() + visited as f64;
        let most = (MOST / plan.jobs().len() as f64 / work).ceil() as u64;
        let (all, counted) = (end - epoch.round, most.min(end - epoch.round));
        let before = clock.spent();
        clock.rounds(counted)?;
        let after = clock.spent();
        let left = (all - counted) as f64 / counted.max(1) as f64;
        bytes += (after.0 - before.0) as f64 * left;
        seconds += (after.1 - before.1) * left;
    }
    let spent = clock.spent();
    let modelled_s = clock.has_time().then_some(spent.1 + seconds);
    Ok(Tally { bytes: spent.0 + bytes as u64, modelled_s })
}
