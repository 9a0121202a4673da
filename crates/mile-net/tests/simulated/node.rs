//! An agent of the simulated network: its thread, its session, and what survives a kill.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::Scope;

use mile::membership::{Epoch, Membership};
use mile::method::Method;
use mile::network::Network;
use mile::problems::Problem;
use mile::schedule::Schedule;
use mile_net::agent::{self, AgentJob, Failure, Host, RoundEnd, StartFrom, State};
use mile_net::edge::Decisions;
use mile_net::handshake::{Mark, Terms};
use mile_net::outbox::{Content, KeptMessage, Message, StoredMessage};
use mile_net::protocol::{Finished, Limits, Memory, MissingPolicy, Protocol, Setup};
use mile_store::{Array, StateFile};

/// Who takes part in a world, and the method for each network.
pub(crate) struct Script {
    pub(crate) membership: Membership,
    pub(crate) methods: Vec<Box<dyn Method>>,
}

impl Script {
    pub(crate) fn new(membership: Membership, build: impl Fn(&Epoch) -> Box<dyn Method>) -> Self {
        let methods = membership.epochs().iter().map(build).collect();
        Self { membership, methods }
    }

    pub(crate) fn lasting(network: &Network, method: Box<dyn Method>) -> Self {
        Self { membership: Membership::lasting(network.clone()), methods: vec![method] }
    }
}

/// What all agents of a world do.
pub(crate) struct Scene<'a> {
    pub(crate) problem: &'a dyn Problem<f32>,
    pub(crate) script: Script,
    /// What takes the place of the script once all agents have been told.
    pub(crate) told: OnceLock<Script>,
    pub(crate) start: &'a [f32],
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) checkpoint_every: u64,
    /// How many rounds old a copy of a disk may be.
    pub(crate) keep: u64,
    pub(crate) on_missing: MissingPolicy,
    pub(crate) piece: usize,
    pub(crate) gossip_every: u64,
}

impl Scene<'_> {
    pub(crate) fn script(&self) -> &Script {
        self.told.get().unwrap_or(&self.script)
    }

    pub(crate) fn membership(&self) -> &Membership {
        &self.script().membership
    }

    /// Whether messages are read from disk once they are part of a checkpoint, which takes its time.
    fn stores(&self) -> bool {
        self.seed % 32 == 5
    }

    fn limits(&self) -> Limits {
        // As tight as a handshake allows.
        Limits { keep: self.keep, outbox: self.checkpoint_every + 2, ..Limits::of(self.checkpoint_every) }
    }

    fn terms(&self) -> Terms {
        Terms {
            run: "simulated".into(),
            dim: self.problem.dim(),
            precision: "f32".into(),
            facts: BTreeMap::from([("event".into(), format!("{:?}", self.membership().events()).into())]),
        }
    }
}

pub(crate) fn schedule() -> Schedule {
    Schedule::constant(0.05).with_warmup(2)
}

pub(crate) enum Request {
    Exchange(Message<f32>, Vec<(usize, f64)>, Vec<Vec<f32>>),
    RoundOver(Box<State<f32>>, bool),
    Done(Box<State<f32>>),
    Failed,
}

enum Reply {
    Finished(Finished<f32>),
    Go,
}

/// What an agent's thread knows of the world.
struct Line {
    ask: Sender<Request>,
    hear: Receiver<Reply>,
}

impl Host<f32> for Line {
    fn buffer(&mut self) -> Vec<f32> {
        Vec::new()
    }

    fn exchange(
        &mut self,
        message: Message<f32>,
        up: &[(usize, f64)],
        sums: Vec<Vec<f32>>,
    ) -> Result<Finished<f32>, Failure> {
        self.ask.send(Request::Exchange(message, up.to_vec(), sums))?;
        match self.hear.recv()? {
            Reply::Finished(finished) => Ok(finished),
            Reply::Go => Err("an exchange was not answered".into()),
        }
    }

    fn round_over(&mut self, end: &RoundEnd<f32>) -> Result<(), Failure> {
        self.ask.send(Request::RoundOver(Box::new(end.state()), end.last))?;
        self.hear.recv()?;
        Ok(())
    }
}

/// What survives a kill.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    incarnation: u64,
    pub(crate) state: Option<State<f32>>,
    memory: Memory<f32>,
    decisions: BTreeMap<usize, Decisions>,
}

/// Writes a message to a file of its own, or to another one.
fn store(kept: &mut KeptMessage<f32>) -> Arc<StoredMessage> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let shape = [kept.content.elements()];
    let array = match &kept.content {
        Content::Memory(message) => Array::new("outbox", &shape, &message.vectors[..]),
        Content::Disk(message) => Array::stored("outbox", &shape, &message.vectors),
    };
    mile_store::state::write(file.path(), &(), &[array]).unwrap();
    let vectors = StateFile::<()>::open(file.path()).unwrap().unwrap().stored::<f32>("outbox").unwrap();
    let gossip = kept.content.gossip().to_vec();
    let stored = Arc::new(StoredMessage { mark: kept.content.mark(), vectors, gossip });
    kept.content = Content::Disk(stored.clone());
    stored
}

/// An agent that runs.
pub(crate) struct Alive {
    pub(crate) session: Protocol<f32>,
    reply: Sender<Reply>,
    requests: Receiver<Request>,
    /// What its thread waits for.
    pub(crate) pending: Option<Request>,
    pub(crate) exchanging: Option<Mark>,
    pub(crate) done: Option<Box<State<f32>>>,
}

#[derive(Default)]
pub(crate) struct Node {
    pub(crate) alive: Option<Alive>,
    pub(crate) disk: Disk,
    /// Copies of the disk, as an operator might have made them.
    copies: Vec<Disk>,
    /// Round by round, the neighbours whose edge was used: never to be contradicted by a restart.
    pub(crate) used: BTreeMap<u64, Vec<usize>>,
    /// Its last state, once it has left before the end.
    pub(crate) left: Option<Box<State<f32>>>,
}

impl Node {
    fn round_of(disk: &Disk) -> u64 {
        disk.state.as_ref().map_or(0, |state| state.mark.round)
    }

    /// Replaces the disk by the oldest copy for which neighbours still have the messages.
    pub(crate) fn restore_a_copy(&mut self, scene: &Scene) {
        let newest = self.copies.iter().map(Self::round_of).max().unwrap_or(0);
        let usable = |disk: &&Disk| Self::round_of(disk) + scene.keep >= newest;
        if let Some(copy) = self.copies.iter().find(usable) {
            self.disk = copy.clone();
        }
    }

    /// Its disk is lost.
    pub(crate) fn lose_the_disk(&mut self) {
        (self.disk, self.copies) = (Disk::default(), Vec::new());
    }

    /// The round of its disk.
    pub(crate) fn round(&self) -> u64 {
        Self::round_of(&self.disk)
    }

    /// Starts an agent from its disk.
    pub(crate) fn start<'scope, 'env>(
        &mut self,
        agent: usize,
        scene: &'env Scene<'env>,
        scope: &'scope Scope<'scope, 'env>,
        now: u64,
    ) {
        let Script { membership, methods } = scene.script();
        let disk = &mut self.disk;
        disk.incarnation += 1;
        let mut memory = disk.memory.clone();
        memory.decisions = disk.decisions.clone();
        let new = membership.comes_with(agent).filter(|_| disk.state.is_none());
        if let Some(k) = new {
            let round = membership.events()[k].round;
            memory.mark = Mark { exchange: agent::first_exchange_after(k), round };
        }
        let setup = Setup {
            me: agent,
            incarnation: disk.incarnation,
            terms: scene.terms(),
            neighbours: membership.edges_of(agent),
            on_missing: scene.on_missing,
            limits: scene.limits(),
            memory,
        };
        let session = Protocol::new(setup, now).with_pieces_of(scene.piece);
        let (ask, requests) = channel();
        let (reply, hear) = channel();
        let dim = scene.problem.dim();
        let from = match (disk.state.clone(), new) {
            (Some(state), _) => StartFrom::State(state),
            (None, Some(k)) => StartFrom::Event(k),
            (None, None) => {
                StartFrom::Point(scene.start[agent * dim..(agent + 1) * dim].to_vec(), Mark::default())
            }
        };
        scope.spawn(move || {
            let schedule = schedule();
            let later: Vec<&dyn Method> = methods[1..].iter().map(|method| &**method).collect();
            let job = AgentJob {
                index: 0,
                agent,
                problem: scene.problem,
                membership,
                method: &*methods[0],
                later: &later,
                schedule: &schedule,
                seed: scene.seed,
                rounds: scene.rounds,
                gossip_every: scene.gossip_every,
                tolerance: None,
            };
            let done = ask.clone();
            let outcome = agent::work(&job, from, &mut Line { ask, hear });
            let last = outcome.map_or(Request::Failed, |state| Request::Done(Box::new(state)));
            let _ = done.send(last);
        });
        let mut alive = Alive { session, reply, requests, pending: None, exchanging: None, done: None };
        alive.pending = alive.requests.recv().ok();
        self.alive = Some(alive);
    }

    /// Does what an agent's thread waits for, if it can be done.
    pub(crate) fn serve(&mut self, agent: usize, scene: &Scene, now: u64) -> bool {
        let Self { alive, disk, used, copies, left } = self;
        let Some(alive) = alive else { return false };
        alive.session.tick(now);
        if let Some(decisions) = alive.session.unsaved_decisions() {
            disk.decisions = decisions;
            alive.session.decisions_saved();
        }
        let departs = scene.membership().leaves(agent).is_some_and(|round| round < scene.rounds);
        // Its neighbours may be restored from old copies, and would need its messages again.
        if departs && scene.keep == 0 && alive.done.is_some() && alive.session.may_leave() {
            *left = alive.done.take();
            return true;
        }
        match alive.pending.take() {
            Some(Request::Exchange(message, up, sums)) => {
                alive.exchanging = Some(message.mark);
                alive.session.begin(message, &up, sums, now);
            }
            Some(Request::RoundOver(state, last)) => {
                let due = state.mark.round.is_multiple_of(scene.checkpoint_every) || last;
                if due && state.mark.exchange > 0 {
                    let mark = state.mark;
                    disk.memory = alive.session.memory(mark);
                    disk.state = Some(*state);
                    if scene.stores() {
                        let stored: Vec<_> = disk.memory.outbox.iter_mut().map(store).collect();
                        alive.session.stored(&stored);
                        assert_eq!(alive.session.kept_bytes(), 0);
                    }
                    alive.session.durable(mark);
                    if scene.keep > 0 {
                        copies.push(disk.clone());
                    }
                }
                let _ = alive.reply.send(Reply::Go);
                alive.pending = alive.requests.recv().ok();
            }
            Some(Request::Done(state)) => alive.done = Some(state),
            Some(Request::Failed) => panic!("agent {agent} failed"),
            None => {}
        }
        if let Some(mark) = alive.exchanging
            && let Some(finished) = alive.session.finish()
        {
            let before = used.insert(mark.round, finished.used.clone());
            assert!(before.is_none_or(|before| before == finished.used), "a restart used other edges");
            alive.exchanging = None;
            let _ = alive.reply.send(Reply::Finished(finished));
            alive.pending = alive.requests.recv().ok();
        }
        true
    }
}
