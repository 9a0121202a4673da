//! What the computing thread and the network tasks share: the session behind a lock, and who waits for what.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mile::real::Real;
use tokio::sync::{Notify, oneshot};

use super::door::Door;
use super::link::End;
use crate::gossip::Estimate;
use crate::hello::Mark;
use crate::session::{Fault, Finished, Link, Millis, Session};
use crate::status::Activity;

/// Most links to one neighbour, those included that have not said HELLO or are being closed.
const LINKS: usize = 4;
/// A link that lived for this long did not fail.
const LIVED: Duration = Duration::from_secs(1);

pub(super) struct Shared<T> {
    pub(super) me: usize,
    pub(super) run: String,
    pub(super) incarnation: u64,
    pub(super) begun: Instant,
    pub(super) door: Arc<Door>,
    core: Mutex<Core<T>>,
    /// Wakes the computing thread.
    over: Condvar,
}

pub(super) struct Core<T> {
    pub(super) session: Session<T>,
    pub(super) finished: Option<Finished<T>>,
    pub(super) lines: BTreeMap<Link, Line>,
    pub(super) edges: BTreeMap<usize, Edge>,
    pub(super) view: View,
    /// All is said: links end when nothing is left to be written.
    pub(super) leaving: bool,
    next: Link,
}

/// A link's tasks.
pub(super) struct Line {
    neighbour: usize,
    opened: Instant,
    write: Arc<Notify>,
    read: Arc<Notify>,
    close: Option<oneshot::Sender<Fault>>,
}

/// What a link's tasks listen to.
pub(super) struct Signals {
    pub(super) link: Link,
    pub(super) write: Arc<Notify>,
    pub(super) read: Arc<Notify>,
    pub(super) close: oneshot::Receiver<Fault>,
}

/// What whoever dials a neighbour must know.
#[derive(Default)]
pub(super) struct Edge {
    pub(super) changed: Arc<Notify>,
    /// Attempts that failed since a link last lived.
    pub(super) failures: u32,
    /// Whether the last one was refused, by either end.
    pub(super) refused: bool,
    pub(super) refusal: Option<String>,
    pub(super) ended: Option<Instant>,
}

/// What people see.
pub(super) struct View {
    pub(super) job: usize,
    pub(super) mark: Mark,
    pub(super) rounds: Option<u64>,
    pub(super) activity: Activity,
    pub(super) since: Millis,
    pub(super) gossips: bool,
    pub(super) estimate: Option<Estimate>,
}

impl<T: Real> Shared<T> {
    pub(super) fn new(
        (me, run, incarnation): (usize, String, u64),
        session: Session<T>,
        neighbours: impl Iterator<Item = usize>,
        mark: Mark,
        door: Arc<Door>,
    ) -> Self {
        let view = View {
            job: 0,
            mark,
            rounds: None,
            activity: Activity::Computing,
            since: 0,
            gossips: false,
            estimate: None,
        };
        let core = Core {
            session,
            finished: None,
            lines: BTreeMap::new(),
            edges: neighbours.map(|id| (id, Edge::default())).collect(),
            view,
            leaving: false,
            next: 0,
        };
        let begun = Instant::now();
        Self { me, run, incarnation, begun, door, core: Mutex::new(core), over: Condvar::new() }
    }

    pub(super) fn now(&self) -> Millis {
        self.begun.elapsed().as_millis() as Millis
    }

    /// To look, without changing anything that others wait for.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core<T>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change something; whoever waits for it is woken.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Core<T>, Millis) -> R) -> R {
        let mut core = self.lock();
        let result = act(&mut core, self.now());
        if core.settle() {
            self.over.notify_all();
        }
        result
    }

    /// The computing thread sleeps until there is something for it, or for so long.
    pub(super) fn wait<'a>(&self, core: MutexGuard<'a, Core<T>>, limit: Duration) -> MutexGuard<'a, Core<T>> {
        self.over.wait_timeout(core, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// A connection to a neighbour can carry frames, unless there are too many already.
    pub(super) fn open(&self, neighbour: usize, dialled: bool) -> Option<Signals> {
        self.with(|core, _| {
            let links = core.lines.values().filter(|line| line.neighbour == neighbour).count();
            if core.leaving || links >= LINKS {
                return None;
            }
            let link = core.next;
            core.next += 1;
            core.session.opened(link, neighbour, dialled);
            let (write, read) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (close, closed) = oneshot::channel();
            let (opened, close) = (Instant::now(), Some(close));
            core.lines
                .insert(link, Line { neighbour, opened, write: write.clone(), read: read.clone(), close });
            Some(Signals { link, write, read, close: closed })
        })
    }

    /// A link is of no use any more; its connection is still being closed.
    pub(super) fn ended(&self, link: Link, end: &End) {
        self.with(|core, now| {
            core.session.closed(link, now);
            let Some(line) = core.lines.get(&link) else { return };
            let Some(edge) = core.edges.get_mut(&line.neighbour) else { return };
            edge.ended = Some(Instant::now());
            edge.note(end, line.opened.elapsed() >= LIVED);
        });
    }

    /// Its connection is closed.
    pub(super) fn closed(&self, link: Link) {
        self.with(|core, _| {
            let line = core.lines.remove(&link);
            if let Some(edge) = line.and_then(|line| core.edges.get(&line.neighbour)) {
                edge.changed.notify_one();
            }
        });
    }
}

impl<T: Real> Core<T> {
    /// Passes on what a change has brought about. Returns whether the computing thread has something to do.
    fn settle(&mut self) -> bool {
        for (link, fault) in self.session.closing() {
            if let Some(close) = self.lines.get_mut(&link).and_then(|line| line.close.take()) {
                let _ = close.send(fault);
            }
        }
        if self.finished.is_none() {
            self.finished = self.session.finish();
        }
        for line in self.lines.values() {
            line.write.notify_one();
            line.read.notify_one();
        }
        let departing = self.view.activity == Activity::Leaving;
        self.finished.is_some() || departing || self.session.unsaved_decisions().is_some()
    }

    /// Whether there is, or may soon be, a link to a neighbour.
    pub(super) fn busy(&self, neighbour: usize) -> bool {
        self.session.linked(neighbour) || self.lines.values().any(|line| line.neighbour == neighbour)
    }
}

impl Edge {
    pub(super) fn note(&mut self, end: &End, lived: bool) {
        self.refused = matches!(end, End::Fault(Fault::Refuse(_) | Fault::Refused(_)));
        match end {
            End::Fault(Fault::Superseded(_)) => {
                self.failures = self.failures.max(1);
                return;
            }
            End::Fault(fault) => self.refusal = Some(fault.to_string()),
            End::Left | End::Lost(_) | End::Said => self.refusal = None,
        }
        self.failures = if lived && !self.refused { 0 } else { self.failures.saturating_add(1) };
    }
}
