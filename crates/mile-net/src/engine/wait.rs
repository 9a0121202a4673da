//! Waiting for neighbours in an exchange.

use std::time::{Duration, Instant};

use mile::real::Real;

use super::NetworkEngineError;
use super::observe::describe;
use super::panics;
use super::shared::{Shared, View};
use crate::checkpoint::Folder;
use crate::protocol::{Finished, Millis, MissingPolicy};
use crate::status::{Activity, Spent};

/// How often a session that may skip edges checks for neighbours that are away.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// How often a waiting thread checks without being woken.
pub(super) const CHECK: Duration = Duration::from_millis(500);
/// After how long the neighbours it waits for are first logged; then after twice as long, and so on.
const FIRST_WARNING: Duration = Duration::from_secs(5);
/// After how long it is logged what to do about a neighbour that does not come back.
const LONG: Duration = Duration::from_secs(60);

impl View {
    pub(super) fn begin(&mut self, activity: Activity, now: Millis) {
        self.spent = self.spent_by(now);
        (self.activity, self.since) = (activity, now);
    }

    /// Where the time went.
    pub(super) fn spent_by(&self, now: Millis) -> Spent {
        let (mut spent, passed) = (self.spent, now.saturating_sub(self.since) as f64 / 1e3);
        match self.activity {
            Activity::Computing => spent.computing_s += passed,
            Activity::Waiting => spent.exchanging_s += passed,
            Activity::Leaving | Activity::Done => {}
        }
        spent
    }
}

/// Waits until the exchange is over, or until the timeout. Decisions about edges are written to disk here, before neighbours
/// are told.
pub(super) fn exchange<T: Real>(
    shared: &Shared<T>,
    folder: &Folder,
    on_missing: MissingPolicy,
    limit: Option<Duration>,
) -> Result<Finished<T>, NetworkEngineError> {
    let mut warning = WaitWarning::new();
    let check = if on_missing == MissingPolicy::Wait { CHECK } else { TICK };
    loop {
        let mut core = shared.lock();
        if let Some(error) = core.failed.take() {
            return Err(error.into());
        }
        if let Some(finished) = core.finished.take() {
            return Ok(finished);
        }
        if let Some(what) = panics::noted(&shared.threads) {
            return Err(NetworkEngineError::Panicked(what));
        }
        if let Some(decisions) = core.session.unsaved_decisions() {
            drop(core);
            folder.save_decisions(&decisions)?;
            shared.with(|core, _| {
                if core.session.unsaved_decisions().as_ref() == Some(&decisions) {
                    core.session.decisions_saved();
                }
            });
            continue;
        }
        drop(shared.wait(core, limit.map_or(check, |limit| check.min(limit))));
        if on_missing != MissingPolicy::Wait {
            shared.with(|core, now| core.session.tick(now));
        }
        warning.log_if_due(shared);
        if let Some(limit) = limit {
            check_timeout(shared, limit)?;
        }
    }
}

/// An error if nothing has arrived from a neighbour that is waited for, for longer than the timeout.
fn check_timeout<T: Real>(shared: &Shared<T>, limit: Duration) -> Result<(), NetworkEngineError> {
    if shared.lock().finished.is_some() {
        return Ok(());
    }
    let status = shared.status();
    let limit = limit.as_secs_f64();
    let silent = |waited: f64, heard: Option<f64>| waited.min(heard.unwrap_or(waited)) >= limit;
    let silent_ones = status
        .neighbours
        .iter()
        .filter(|edge| edge.waiting.is_some() && silent(edge.waiting_s.unwrap_or(0.0), edge.last_heard_s));
    let who: Vec<String> = silent_ones.map(describe).collect();
    if who.is_empty() { Ok(()) } else { Err(NetworkEngineError::TimedOut { round: status.round, who }) }
}

/// Logs the neighbours it waits for, less and less often.
pub(super) struct WaitWarning {
    begun: Instant,
    next: Duration,
}

impl WaitWarning {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), next: FIRST_WARNING }
    }

    pub(super) fn log_if_due<T: Real>(&mut self, shared: &Shared<T>) {
        if self.begun.elapsed() < self.next {
            return;
        }
        self.next *= 2;
        let status = shared.status();
        for edge in status.neighbours.iter().filter(|edge| edge.waiting.is_some()) {
            tracing::warn!(agent = status.agent, round = status.round, "waiting for {}", describe(edge));
            if !edge.linked && self.begun.elapsed() >= LONG {
                let id = edge.id;
                tracing::warn!(
                    "if agent {id} will not come back, stop all agents and replace it or let it leave (mile status --without {id})"
                );
            }
        }
    }
}
