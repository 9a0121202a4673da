//! The protocol between neighbours, seen from one agent, without sockets and without a clock.
//!
//! A *link* is a connection to a neighbour. The owner of a session tells it what happened (a link opened or closed, a frame
//! arrived, time passed, an exchange begins, a checkpoint is on disk) and asks it what to do (the next frame to send on a link,
//! links to close, whether the exchange is over). The rules that make restarts exact:
//!
//! 1. An agent keeps each of its messages until every neighbour it was sent to has its own later checkpoint on disk
//!    ([`Kind::Have`]), and for `keep` rounds more. The messages it keeps are part of its own checkpoint. If a neighbour has not
//!    confirmed the messages of as many rounds as [`Limits::outbox`] says, the agent waits for it: the memory and the disk that
//!    a neighbour can make it use are bounded.
//! 2. The handshake of a link says which exchange each end needs next, and the other end starts there. What arrives a
//!    second time is ignored: it has the same bits, because a message is a function of the run and the exchange.
//! 3. Messages are added up in increasing agent id, element by element. A piece that arrives before its turn is held, one for
//!    each link, and its link is not read until the piece is used.
//! 4. A new link replaces an old one if the neighbour has been restarted, or if the end with the smaller id opened it: both
//!    ends make the same choice.
//!
//! 5. A message is believed if its elements are finite and within a range of what was seen ([`Limits::range`]). If it is not, its edge is
//!    missing: both ends wait, or both skip it.
//!
//! With [`MissingPolicy::Skip`], an edge may be skipped in a round; see [`edge`](crate::edge).

mod agreement;
mod compressed;
mod exchange;
mod links;
mod neighbour_status;
mod plausible;
mod verdicts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mile::membership::Edge;
use mile::real::Real;

pub use self::exchange::Finished;
pub use self::neighbour_status::NeighbourStatus;
pub use self::plausible::MESSAGE_RANGE;

use self::exchange::Current;
use self::plausible::Scales;
use self::verdicts::Verdict;
use crate::edge::Decisions;
use crate::frame::{CHUNK, Head, Kind, control};
use crate::handshake::{Mark, Terms};
use crate::outbox::{Content, KeptMessage, Outbox, StoredMessage};
use crate::status::Traffic;

/// The number of a link, never used again by this process.
pub type Link = u64;

/// Milliseconds since the process started, or since any other moment that the owner chooses.
pub type Millis = u64;

/// What to do about a neighbour that is away, that is, without a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingPolicy {
    /// Wait for it.
    Wait,
    /// Skip its edge for the round, if this end decides; see [`edge`](crate::edge).
    Skip {
        /// Once it has been away for this long.
        after: Millis,
    },
}

/// How many rounds of messages are kept, and why; and which messages are believed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Rounds from one checkpoint of this agent to the next.
    pub checkpoint_every: u64,
    /// Rounds for which messages are kept that every neighbour has confirmed: a neighbour can be restored from a copy of its
    /// folder that is as many rounds old. Not with [`MissingPolicy::Skip`].
    pub keep: u64,
    /// Most rounds of messages that a neighbour has not confirmed; then this agent waits for it.
    pub outbox: u64,
    /// How far an element of a message may be from this agent's own: this many times the larger of 1 and of what was seen
    /// so far, that is, the agent's own elements and the differences that it has accepted.
    pub range: f64,
}

impl Limits {
    /// Checkpoints at this interval of rounds, nothing kept longer than needed, and room for neighbours that do the same.
    pub fn of(checkpoint_every: u64) -> Self {
        let checkpoint_every = checkpoint_every.max(1);
        let outbox = checkpoint_every.saturating_mul(2).max(64);
        Self { checkpoint_every, keep: 0, outbox, range: MESSAGE_RANGE }
    }
}

/// What a session is made from.
#[derive(Clone, Debug)]
pub struct Setup<T> {
    /// Id of this agent.
    pub me: usize,
    /// How often it has been started.
    pub incarnation: u64,
    /// What all agents of the run must agree on.
    pub terms: Terms,
    /// All that are neighbours at one time or another, by id, each with its edge.
    pub neighbours: BTreeMap<usize, Edge>,
    /// What to do about those that are away.
    pub on_missing: MissingPolicy,
    /// How many rounds of messages are kept.
    pub limits: Limits,
    /// The session's part of the checkpoint; empty at the first start.
    pub memory: Memory<T>,
}

/// The session's part of a checkpoint.
#[derive(Clone, Debug)]
pub struct Memory<T> {
    /// The next exchange and round.
    pub mark: Mark,
    /// The latest checkpoint that each neighbour has confirmed.
    pub known: BTreeMap<usize, Mark>,
    /// Own messages that neighbours may still ask for.
    pub outbox: Vec<KeptMessage<T>>,
    /// Decisions about edges.
    pub decisions: BTreeMap<usize, Decisions>,
    /// The scale of each vector of a message, by which neighbours' messages are judged.
    pub scales: Vec<f64>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self {
            mark: Mark::default(),
            known: BTreeMap::new(),
            outbox: Vec::new(),
            decisions: BTreeMap::new(),
            scales: Vec::new(),
        }
    }
}

/// A frame that has arrived.
#[derive(Clone, Debug)]
pub enum Arrival<T> {
    /// Any frame but a piece of a message.
    Control(Head, Vec<u8>),
    /// A piece of the message of an exchange, from an element on.
    Data {
        /// Which exchange.
        exchange: u64,
        /// From which element on.
        offset: u64,
        /// The elements.
        piece: Vec<T>,
    },
}

/// A frame to be sent.
#[derive(Clone, Debug)]
pub enum Outgoing<T> {
    /// A whole frame: head and payload.
    Control(Vec<u8>),
    /// A head, to be followed by elements of a message.
    Data {
        /// The head.
        head: Head,
        /// The message.
        message: Content<T>,
        /// Which of its elements.
        from: usize,
        /// Up to which.
        to: usize,
    },
}

/// Why a link must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The neighbour refused us.
    #[error("refused by the neighbour: {0}")]
    RefusedByNeighbour(String),
    /// We refuse the neighbour, and send it the reason.
    #[error("{0}")]
    RefusedByUs(String),
    /// This agent ends before its work is done, and sends the neighbour the reason.
    #[error("{0}")]
    Ended(String),
    /// Nothing is wrong: another link takes its place, or a message is needed again from its start.
    #[error("{0}")]
    Superseded(&'static str),
}

struct Neighbour {
    edge: Edge,
    link: Option<Link>,
    since: Millis,
    heard: Option<Millis>,
    exchange: u64,
    /// Its latest checkpoint. It is earlier than `durable` if the neighbour was restored from a copy.
    confirmed: Mark,
    /// The latest checkpoint that it has ever confirmed.
    durable: Mark,
    received: Traffic,
    sent: Traffic,
    gossip: BTreeMap<u64, Vec<f64>>,
    decisions: Decisions,
    skipped: u64,
    refusal: Option<String>,
    /// What this end has said about one of its messages, and the other end about one of this agent's.
    given: Option<Verdict>,
    heard_verdict: Option<Verdict>,
    /// Messages of it that were refused, and why the last one was.
    refused_messages: u64,
    refused_why: Option<String>,
    /// How far the elements of its last message were from the agent's own, at most.
    distance: Option<f64>,
}

impl Neighbour {
    /// Refuses it for a reason; the link is to be closed with it.
    fn give_up(&mut self, link: Link, now: Millis, why: String) -> (Link, Fault) {
        (self.link, self.since, self.refusal) = (None, now, Some(why.clone()));
        (link, Fault::RefusedByUs(why))
    }
}

struct LinkState<T> {
    neighbour: usize,
    dialled_by_smaller: bool,
    control: VecDeque<Vec<u8>>,
    /// Incarnation of the other end, once its HELLO has arrived and the link is in use.
    greeted: Option<u64>,
    /// What the other end is to be sent next.
    send: Cursor,
    /// The exchange whose gossip has been sent.
    gossiped: Option<u64>,
    /// Decisions for rounds before this one have been sent.
    told: u64,
    /// The latest checkpoint that the other end has confirmed on this link.
    have: Mark,
    /// What is expected next.
    receive: Cursor,
    held: Option<Piece<T>>,
}

/// A place in the messages of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    exchange: u64,
    offset: u64,
}

struct Piece<T> {
    at: Cursor,
    elements: Vec<T>,
}

/// One agent's side of the protocol.
pub struct Protocol<T> {
    me: usize,
    incarnation: u64,
    terms: Terms,
    on_missing: MissingPolicy,
    neighbours: BTreeMap<usize, Neighbour>,
    links: BTreeMap<Link, LinkState<T>>,
    closing: Vec<(Link, Fault)>,
    outbox: Outbox<T>,
    next: u64,
    /// The round of the last exchange, or of the checkpoint.
    round: u64,
    durable: Mark,
    current: Option<Current<T>>,
    /// Whether there are decisions that are not on disk yet.
    unsaved: bool,
    limits: Limits,
    /// What was seen in messages so far.
    scales: Scales,
    /// Messages refused since the owner last asked: whose, and why.
    refusals: Vec<(usize, String)>,
    now: Millis,
    /// Most elements in a frame.
    piece: usize,
    spare: Vec<Vec<T>>,
}

impl<T: Real> Protocol<T> {
    /// A session without links, at the exchange of its checkpoint.
    pub fn new(setup: Setup<T>, now: Millis) -> Self {
        let Setup { me, incarnation, terms, neighbours, on_missing, mut limits, mut memory } = setup;
        if on_missing != MissingPolicy::Wait {
            // Decisions that are not in the copy would be made a second time, and perhaps differently.
            limits.keep = 0;
        }
        let neighbour = |(id, edge)| {
            let neighbour = Neighbour {
                edge,
                link: None,
                since: now,
                heard: None,
                exchange: 0,
                confirmed: memory.known.get(&id).copied().unwrap_or_default(),
                durable: memory.known.get(&id).copied().unwrap_or_default(),
                received: Traffic::default(),
                sent: Traffic::default(),
                gossip: BTreeMap::new(),
                decisions: memory.decisions.remove(&id).unwrap_or_default(),
                skipped: 0,
                refusal: None,
                given: None,
                heard_verdict: None,
                refused_messages: 0,
                refused_why: None,
                distance: None,
            };
            (id, neighbour)
        };
        let mut outbox = Outbox::new(memory.outbox);
        for (id, _) in neighbours.iter().filter(|(_, edge)| edge.is_lost) {
            outbox.forget(*id);
        }
        Self {
            me,
            incarnation,
            terms,
            on_missing,
            neighbours: neighbours.into_iter().map(neighbour).collect(),
            links: BTreeMap::new(),
            closing: Vec::new(),
            outbox,
            next: memory.mark.exchange,
            round: memory.mark.round,
            durable: memory.mark,
            current: None,
            unsaved: false,
            limits,
            scales: Scales(memory.scales),
            refusals: Vec::new(),
            now,
            piece: CHUNK / size_of::<T>(),
            spare: Vec::new(),
        }
    }

    /// The same with at most this many elements in a frame, for tests.
    pub fn with_pieces_of(mut self, elements: usize) -> Self {
        self.piece = elements.clamp(1, CHUNK / size_of::<T>());
        self
    }

    /// The session's part of a checkpoint at `mark`, between two exchanges.
    pub fn memory(&self, mark: Mark) -> Memory<T> {
        Memory {
            mark,
            known: self.confirmations().1,
            outbox: self.outbox.all().cloned().collect(),
            decisions: self.decisions(),
            scales: self.scales.0.clone(),
        }
    }

    /// Bytes of this agent's own messages that are kept in memory.
    pub fn kept_bytes(&self) -> usize {
        let in_memory = |kept: &KeptMessage<T>| match &kept.content {
            Content::Memory(message) => size_of_val(&message.vectors[..]),
            Content::Disk(_) => 0,
        };
        self.outbox.all().map(in_memory).sum()
    }

    /// Messages are in a checkpoint: they are read from there if they are needed again.
    pub fn stored(&mut self, messages: &[Arc<StoredMessage>]) {
        messages.iter().for_each(|message| self.outbox.stored(message));
    }

    /// The last checkpoint that is on disk, and the latest that each neighbour has confirmed.
    pub fn confirmations(&self) -> (Mark, BTreeMap<usize, Mark>) {
        let known = self.neighbours.iter().map(|(id, neighbour)| (*id, neighbour.durable));
        (self.durable, known.collect())
    }

    /// A checkpoint at `mark`, with the session's [`memory`](Self::memory), is on disk: neighbours are notified.
    pub fn durable(&mut self, mark: Mark) {
        self.durable = mark;
        for state in self.links.values_mut().filter(|state| state.greeted.is_some()) {
            state.control.push_back(control(Kind::Have, mark.exchange, mark.round, &[]));
        }
        self.forget_decisions();
    }

    fn has(&mut self, id: usize, mark: Mark) {
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        neighbour.confirmed = mark;
        neighbour.durable = neighbour.durable.max(mark);
        self.outbox.release(id, neighbour.durable, self.limits.keep);
        self.forget_decisions();
    }

    /// Whether every neighbour has confirmed a checkpoint after the last message that it was sent. One that has left the run is not
    /// waited for unless it is connected.
    pub fn may_leave(&self) -> bool {
        self.neighbours.iter().all(|(id, neighbour)| !self.owes_any_confirmation(*id, neighbour))
    }

    fn owes_any_confirmation(&self, id: usize, neighbour: &Neighbour) -> bool {
        // A neighbour that was sent nothing, because its edge was skipped, has to learn that.
        let untold = self.on_missing != MissingPolicy::Wait && neighbour.confirmed.exchange < self.next;
        let takes_part = neighbour.edge.rounds.contains(&self.round) || neighbour.link.is_some();
        takes_part && (untold || self.outbox.first_for(id, neighbour.confirmed.exchange).is_some())
    }

    /// Whether a link to a neighbour is needed: its edge may be used in this round, or it may still need a message.
    pub fn needs(&self, id: usize) -> bool {
        self.neighbours.get(&id).is_some_and(|neighbour| {
            neighbour.edge.rounds.contains(&self.round)
                || self.outbox.first_for(id, neighbour.confirmed.exchange).is_some()
        })
    }

    /// Whether a neighbour has left as many rounds unconfirmed as this agent keeps messages for.
    fn owes_confirmation(&self, id: usize, neighbour: &Neighbour) -> bool {
        self.outbox.unconfirmed_rounds(id, neighbour.durable) >= self.limits.outbox
    }
}
