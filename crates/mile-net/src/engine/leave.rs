//! Leaving a run: an agent stays until each neighbour has everything it needs from it, and knows it.
//!
//! A neighbour has what it needs when it has confirmed the last message, and when its link has ended cleanly: then it also has
//! this agent's own confirmation. One whose link was lost may have been killed before that, and is waited for, up to the linger
//! time. What is known is noted on disk ([`Farewell`]): an agent that is killed here, or is started again later, does not wait for
//! neighbours that may have left since.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mile::real::Real;

use super::panics;
use super::shared::{Core, Shared};
use super::wait::{CHECK, TICK, WaitWarning};
use crate::checkpoint::Folder;
use crate::farewell::Farewell;
use crate::protocol::{Millis, NeighbourStatus};
use crate::status::Activity;

/// How long closing all links may take.
const CLOSING: Duration = Duration::from_secs(5);
/// How long an agent that is started again stays for a neighbour that had confirmed the last message, but may not have learned that
/// this agent has confirmed its own: if it still waits, it connects within this time.
const REVISIT: Duration = Duration::from_secs(5);

/// An agent that leaves.
pub(super) struct Leaving<'a, T> {
    shared: &'a Shared<T>,
    folder: &'a Folder,
    /// What is on disk.
    noted: Option<Farewell>,
    warning: WaitWarning,
    begun: Millis,
}

impl<'a, T: Real> Leaving<'a, T> {
    pub(super) fn new(shared: &'a Shared<T>, folder: &'a Folder) -> Self {
        let (mark, begun) = shared.with(|core, now| {
            core.view.begin(Activity::Leaving, now);
            (core.session.confirmations().0, now)
        });
        // It may be of an earlier end of the run, which has been given more rounds since.
        let noted = Farewell::read(folder.path()).filter(|noted| noted.mark == mark);
        if let Some(noted) = &noted {
            let mut core = shared.lock();
            let edges = core.edges.iter_mut();
            edges.for_each(|(id, edge)| edge.parted |= noted.parted.contains(id));
        }
        Self { shared, folder, noted, warning: WaitWarning::new(), begun }
    }

    /// Waits until all neighbours have what they need, or have been away for the linger time, or silent for the timeout; then closes
    /// all links. Returns the neighbours that have not confirmed the last message.
    pub(super) fn leave(mut self, linger: Duration, limit: Option<Duration>) -> Vec<usize> {
        let known_before = self.noted.is_some().then(|| {
            let statuses = self.shared.lock().session.neighbour_statuses();
            statuses.iter().filter(|status| !status.unconfirmed).map(|status| status.id).collect()
        });
        let unconfirmed = self.await_confirmations(linger, limit);
        let linger = if unconfirmed.is_empty() { linger } else { Duration::ZERO };
        self.part(linger, &known_before.unwrap_or_default());
        unconfirmed
    }

    /// Waits until all neighbours have confirmed the last message. Returns those that have not in the time they were given.
    fn await_confirmations(&mut self, linger: Duration, limit: Option<Duration>) -> Vec<usize> {
        let (linger, limit) = (linger.as_millis() as Millis, limit.map(|limit| limit.as_millis() as Millis));
        let begun = self.begun;
        loop {
            self.note();
            let core = self.shared.lock();
            let now = self.shared.now();
            let statuses = core.session.neighbour_statuses();
            let owing: Vec<_> = statuses.iter().filter(|status| status.unconfirmed).collect();
            let worth_it = |status: &&&NeighbourStatus| {
                let silent = now - status.heard.unwrap_or(0).max(begun).min(now);
                let patience = if status.linked { limit } else { Some(linger) };
                let since = if status.linked { silent } else { now - status.since.max(begun).min(now) };
                patience.is_none_or(|patience| since < patience)
            };
            let gone = core.failed.is_some() || panics::noted(&self.shared.threads).is_some();
            if gone || owing.iter().filter(worth_it).count() == 0 {
                return owing.iter().map(|status| status.id).collect();
            }
            drop(self.shared.wait(core, CHECK.min(Duration::from_millis(linger.max(1)))));
            self.warning.log_if_due(self.shared);
        }
    }

    /// Closes all links. Stays for neighbours whose last link did not end cleanly, up to the linger time.
    fn part(&mut self, linger: Duration, known_before: &BTreeSet<usize>) {
        let begun = self.shared.with(|core, now| {
            core.leaving = true;
            now
        });
        let mut closing = None;
        loop {
            self.note();
            let core = self.shared.lock();
            let now = self.shared.now();
            let stays_for = |status: &NeighbourStatus| {
                let known = known_before.contains(&status.id);
                let patience = if known { linger.min(REVISIT) } else { linger }.as_millis() as Millis;
                !core.parted(status.id) && now - status.since.max(begun).min(now) < patience
            };
            let gone = core.failed.is_some() || panics::noted(&self.shared.threads).is_some();
            if gone || !core.session.neighbour_statuses().iter().any(stays_for) {
                let since: &mut Instant = closing.get_or_insert_with(Instant::now);
                if core.tasks.is_empty() || since.elapsed() >= CLOSING {
                    break;
                }
            }
            drop(self.shared.wait(core, TICK));
            self.warning.log_if_due(self.shared);
        }
        self.note();
    }

    /// Notes on disk what is known of the neighbours, if that has changed.
    fn note(&mut self) {
        let farewell = {
            let core = self.shared.lock();
            let (mark, known) = core.session.confirmations();
            let parted = core.edges.iter().filter(|(_, edge)| edge.parted).map(|(id, _)| *id).collect();
            Farewell { mark, known, parted }
        };
        if self.noted.as_ref() == Some(&farewell) {
            return;
        }
        if let Err(error) = farewell.write(self.folder.path()) {
            tracing::warn!("{error}; if this agent is started again, it will wait for its neighbours");
        }
        self.noted = Some(farewell);
    }
}

impl<T> Core<T> {
    /// Whether the last link to a neighbour ended cleanly.
    pub(super) fn parted(&self, neighbour: usize) -> bool {
        self.edges.get(&neighbour).is_some_and(|edge| edge.parted)
    }
}
