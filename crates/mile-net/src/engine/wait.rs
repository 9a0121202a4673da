//! The computing thread waits: for the end of an exchange, or for the end of the run.

use std::time::{Duration, Instant};

use mile::real::Real;

use super::EngineError;
use super::observe::describe;
use super::shared::{Shared, View};
use crate::checkpoint::Folder;
use crate::session::{Finished, Millis, Missing};
use crate::status::Activity;

/// How often a session that may skip edges is told the time.
const TICK: Duration = Duration::from_millis(50);
/// How often a waiting thread looks without being woken.
const LOOK: Duration = Duration::from_millis(500);
/// After how long it is first said who is waited for; then after twice as long, and so on.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long closing all links may take.
const PARTING: Duration = Duration::from_secs(5);

impl View {
    pub(super) fn begin(&mut self, activity: Activity, now: Millis) {
        (self.activity, self.since) = (activity, now);
    }
}

/// Waits until the exchange is over. Decisions about edges are written to disk here, before anybody learns of them.
pub(super) fn exchange<T: Real>(
    shared: &Shared<T>,
    folder: &Folder,
    missing: Missing,
    limit: Option<Duration>,
) -> Result<Finished<T>, EngineError> {
    let mut complaint = Complaint::new();
    let look = if missing == Missing::Wait { LOOK } else { TICK };
    loop {
        let mut core = shared.lock();
        if let Some(finished) = core.finished.take() {
            return Ok(finished);
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
        drop(shared.wait(core, limit.map_or(look, |limit| look.min(limit))));
        if missing != Missing::Wait {
            shared.with(|core, now| core.session.tick(now));
        }
        complaint.utter(shared);
        if let Some(limit) = limit {
            give_up(shared, limit)?;
        }
    }
}

/// An error if somebody has been waited for, without a word, for longer than the limit.
fn give_up<T: Real>(shared: &Shared<T>, limit: Duration) -> Result<(), EngineError> {
    if shared.lock().finished.is_some() {
        return Ok(());
    }
    let status = shared.status();
    let limit = limit.as_secs_f64();
    let silent = |waited: f64, heard: Option<f64>| waited.min(heard.unwrap_or(waited)) >= limit;
    let gone = status
        .neighbours
        .iter()
        .filter(|edge| edge.waiting.is_some() && silent(edge.waiting_s.unwrap_or(0.0), edge.last_heard_s));
    let who: Vec<String> = gone.map(describe).collect();
    if who.is_empty() { Ok(()) } else { Err(EngineError::TimedOut { round: status.round, who }) }
}

/// Waits until all neighbours have what they need, or are given up; then ends all links. Returns the latter.
pub(super) fn leave<T: Real>(shared: &Shared<T>, linger: Duration, limit: Option<Duration>) -> Vec<usize> {
    let begun = shared.with(|core, now| {
        core.view.begin(Activity::Leaving, now);
        now
    });
    let mut complaint = Complaint::new();
    let (linger, limit) = (linger.as_millis() as Millis, limit.map(|limit| limit.as_millis() as Millis));
    let mut core = shared.lock();
    let unconfirmed = loop {
        let now = shared.now();
        let standings = core.session.standings();
        let owing: Vec<_> = standings.iter().filter(|standing| !core.confirmed(standing)).collect();
        let worth_it = |standing: &&&crate::session::Standing| {
            let silent = now - standing.heard.unwrap_or(0).max(begun).min(now);
            let patience = if standing.linked { limit } else { Some(linger) };
            let since = if standing.linked { silent } else { now - standing.since.max(begun).min(now) };
            patience.is_none_or(|patience| since < patience)
        };
        if owing.iter().filter(worth_it).count() == 0 {
            break owing.iter().map(|standing| standing.id).collect();
        }
        core = shared.wait(core, LOOK.min(Duration::from_millis(linger.max(1))));
        drop(core);
        complaint.utter(shared);
        core = shared.lock();
    };
    drop(core);
    shared.with(|core, _| core.leaving = true);
    let deadline = Instant::now() + PARTING;
    let mut core = shared.lock();
    while !core.lines.is_empty() && Instant::now() < deadline {
        core = shared.wait(core, TICK);
    }
    unconfirmed
}

/// Says who is waited for, ever more rarely.
struct Complaint {
    begun: Instant,
    next: Duration,
}

impl Complaint {
    fn new() -> Self {
        Self { begun: Instant::now(), next: PATIENCE }
    }

    fn utter<T: Real>(&mut self, shared: &Shared<T>) {
        if self.begun.elapsed() < self.next {
            return;
        }
        self.next *= 2;
        let status = shared.status();
        for edge in status.neighbours.iter().filter(|edge| edge.waiting.is_some()) {
            tracing::warn!(agent = status.agent, round = status.round, "waiting for {}", describe(edge));
        }
    }
}
