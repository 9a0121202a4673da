//! What the computing thread and the network tasks share: the session behind a lock, and the means to wake each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mile::real::Real;
use tokio::sync::{Notify, oneshot};

use super::admission::Admission;
use super::close::LinkEnd;
use super::notice_board::Notices;
use crate::checkpoint::CheckpointError;
use crate::gossip::Estimate;
use crate::handshake::Mark;
use crate::protocol::{Fault, Finished, Link, Millis, Protocol};
use crate::status::{Activity, Spent};

/// Most links to one neighbour, including those before their handshake and those being closed.
const LINKS: usize = 4;
/// A link that lasted this long counts as a success: the next retry is not delayed.
const LASTED: Duration = Duration::from_secs(1);

/// The state of an engine.
pub(super) struct Shared<T> {
    pub(super) me: usize,
    pub(super) run: String,
    pub(super) incarnation: u64,
    pub(super) begun: Instant,
    pub(super) admission: Arc<Admission>,
    /// The name of the network's threads.
    pub(super) threads: String,
    /// What agents say about themselves, if they gossip.
    pub(super) notices: Option<Notices>,
    core: Mutex<Core<T>>,
    /// Wakes the computing thread.
    ready: Condvar,
}

/// The part of it that is behind the lock.
pub(super) struct Core<T> {
    pub(super) session: Protocol<T>,
    pub(super) finished: Option<Finished<T>>,
    pub(super) tasks: BTreeMap<Link, LinkTask>,
    pub(super) edges: BTreeMap<usize, Edge>,
    pub(super) view: View,
    /// The agent leaves: links are closed when nothing is left to be sent.
    pub(super) leaving: bool,
    /// Why this agent cannot go on, if its messages cannot be read from disk.
    pub(super) failed: Option<CheckpointError>,
    next: Link,
}

/// How to reach the task of a link.
pub(super) struct LinkTask {
    neighbour: usize,
    opened: Instant,
    write: Arc<Notify>,
    read: Arc<Notify>,
    close: Option<oneshot::Sender<Fault>>,
    route: Route,
}

/// Says whether a connection goes through the relay now, if that is known.
pub(super) type Route = Box<dyn Fn() -> Option<bool> + Send>;

/// What the task of a link listens to.
pub(super) struct Signals {
    pub(super) link: Link,
    pub(super) write: Arc<Notify>,
    pub(super) read: Arc<Notify>,
    pub(super) close: oneshot::Receiver<Fault>,
}

/// What is needed to decide when to dial a neighbour.
#[derive(Default)]
pub(super) struct Edge {
    pub(super) changed: Arc<Notify>,
    /// Whether the last link that was in use ended cleanly, with nothing left to send.
    pub(super) parted: bool,
    /// Attempts that failed since the last link that lasted.
    pub(super) failures: u32,
    /// Whether the last one was refused, by either end.
    pub(super) refused: bool,
    pub(super) refusal: Option<String>,
    /// Why the last link, or the last attempt to open one, ended.
    pub(super) trouble: Option<String>,
    pub(super) ended: Option<Instant>,
}

/// What a status report shows of the work.
pub(super) struct View {
    pub(super) job: usize,
    pub(super) mark: Mark,
    pub(super) rounds: Option<u64>,
    pub(super) activity: Activity,
    pub(super) since: Millis,
    pub(super) gossips: bool,
    pub(super) estimate: Option<Estimate>,
    /// The round of the last checkpoint.
    pub(super) saved: Option<u64>,
    /// The round in which the model was found to have diverged.
    pub(super) diverged: Option<u64>,
    pub(super) own_loss: Option<f64>,
    /// Where the time went up to `since`.
    pub(super) spent: Spent,
}

impl<T: Real> Shared<T> {
    pub(super) fn new(
        (me, run, incarnation): (usize, String, u64),
        session: Protocol<T>,
        neighbours: impl Iterator<Item = usize>,
        mark: Mark,
        admission: Arc<Admission>,
        threads: String,
        agents: Option<usize>,
    ) -> Self {
        let view = View {
            job: 0,
            mark,
            rounds: None,
            activity: Activity::Computing,
            since: 0,
            gossips: false,
            estimate: None,
            saved: (mark.round > 0).then_some(mark.round),
            diverged: None,
            own_loss: None,
            spent: Spent::default(),
        };
        let core = Core {
            session,
            finished: None,
            tasks: BTreeMap::new(),
            edges: neighbours.map(|id| (id, Edge::default())).collect(),
            view,
            leaving: false,
            failed: None,
            next: 0,
        };
        let begun = Instant::now();
        let (core, ready) = (Mutex::new(core), Condvar::new());
        let notices = agents.map(|agents| Notices::new(me, agents));
        Self { me, run, incarnation, begun, admission, threads, notices, core, ready }
    }

    pub(super) fn now(&self) -> Millis {
        self.begun.elapsed().as_millis() as Millis
    }

    /// For reading, and for changes that no thread waits for.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core<T>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For changes: whatever waits for them is woken.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Core<T>, Millis) -> R) -> R {
        let mut core = self.lock();
        let result = act(&mut core, self.now());
        if core.propagate() {
            self.ready.notify_all();
        }
        for (neighbour, why) in core.session.take_refusals() {
            self.admission.note_refused_message(neighbour, &why);
        }
        result
    }

    /// The agent cannot go on: its work ends with this error.
    pub(super) fn fail(&self, error: CheckpointError) {
        tracing::error!("{error}");
        self.lock().failed.get_or_insert(error);
        self.ready.notify_all();
    }

    /// Waits until the computing thread has something to do, or until the limit.
    pub(super) fn wait<'a>(&self, core: MutexGuard<'a, Core<T>>, limit: Duration) -> MutexGuard<'a, Core<T>> {
        self.ready.wait_timeout(core, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Opens a link over a connection to a neighbour, unless there are too many already.
    pub(super) fn open(&self, neighbour: usize, dialled: bool, route: Route) -> Option<Signals> {
        self.with(|core, _| {
            let links = core.tasks.values().filter(|task| task.neighbour == neighbour).count();
            if core.leaving && core.parted(neighbour) || links >= LINKS {
                return None;
            }
            let link = core.next;
            core.next += 1;
            core.session.opened(link, neighbour, dialled);
            let (write, read) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (close, closed) = oneshot::channel();
            let (opened, close) = (Instant::now(), Some(close));
            core.tasks.insert(
                link,
                LinkTask { neighbour, opened, write: write.clone(), read: read.clone(), close, route },
            );
            Some(Signals { link, write, read, close: closed })
        })
    }

    /// A link has ended; its connection is still being closed.
    pub(super) fn ended(&self, link: Link, end: &LinkEnd) {
        self.with(|core, now| {
            let used = core.session.is_in_use(link);
            core.session.closed(link, now);
            let Some(task) = core.tasks.get(&link) else { return };
            let Some(edge) = core.edges.get_mut(&task.neighbour) else { return };
            edge.ended = Some(Instant::now());
            edge.parted &= !used;
            edge.note(end, task.opened.elapsed() >= LASTED);
        });
    }

    /// The connection of a link is closed, cleanly or not.
    pub(super) fn closed(&self, link: Link, parted: bool) {
        self.with(|core, _| {
            let task = core.tasks.remove(&link);
            if let Some(edge) = task.and_then(|task| core.edges.get_mut(&task.neighbour)) {
                edge.parted |= parted;
                edge.changed.notify_one();
            }
        });
    }
}

impl<T: Real> Core<T> {
    /// Passes on the effects of a change. Returns whether the computing thread has something to do.
    fn propagate(&mut self) -> bool {
        for (link, fault) in self.session.closing() {
            if let Some(close) = self.tasks.get_mut(&link).and_then(|task| task.close.take()) {
                let _ = close.send(fault);
            }
        }
        if self.finished.is_none() {
            self.finished = self.session.finish();
        }
        for task in self.tasks.values() {
            task.write.notify_one();
            task.read.notify_one();
        }
        let departing = self.view.activity == Activity::Leaving;
        self.finished.is_some() || departing || self.session.unsaved_decisions().is_some()
    }

    /// Whether the newest connection to a neighbour goes through the relay, if that is known.
    pub(super) fn is_relayed(&self, neighbour: usize) -> Option<bool> {
        let newest = self.tasks.values().rev().find(|task| task.neighbour == neighbour);
        newest.and_then(|task| (task.route)())
    }

    /// Whether there has ever been a link.
    pub(super) fn was_linked(&self) -> bool {
        self.next > 0
    }

    /// Whether there is a link to a neighbour, in use, opening or closing.
    pub(super) fn busy(&self, neighbour: usize) -> bool {
        self.session.linked(neighbour) || self.tasks.values().any(|task| task.neighbour == neighbour)
    }
}

impl Edge {
    /// Notes how a link, or an attempt to open one, ended.
    pub(super) fn note(&mut self, end: &LinkEnd, lasted: bool) {
        self.refused = matches!(end, LinkEnd::Fault(Fault::RefusedByUs(_) | Fault::RefusedByNeighbour(_)));
        match end {
            LinkEnd::Fault(Fault::Superseded(_)) => {
                self.failures = self.failures.max(1);
                return;
            }
            LinkEnd::Fault(fault) => self.refusal = Some(fault.to_string()),
            LinkEnd::ClosedByNeighbour | LinkEnd::ClosedByUs | LinkEnd::Lost(_) => self.refusal = None,
        }
        self.trouble = Some(end.to_string());
        self.failures = if lasted && !self.refused { 0 } else { self.failures.saturating_add(1) };
    }
}
