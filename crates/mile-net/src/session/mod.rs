//! The protocol of one agent, without sockets and without a clock.
//!
//! Whoever owns a session tells it what happened (a link opened or closed, a frame arrived, time passed, an
//! exchange begins, a state is on disk) and asks it what to do (the next frame of a link, links to close, whether
//! the exchange is over). The rules that make restarts exact:
//!
//! 1. An agent keeps each of its messages until every neighbour it went to has said that a later state of its own
//!    is on disk ([`Kind::Have`]). What it keeps is part of its own state on disk.
//! 2. The first frame of a link says which exchange its sender needs next, and the other end starts there. What
//!    arrives twice is passed over; it is equal to the bit, because a message is a function of the run and the exchange.
//! 3. Arrivals are folded in increasing agent, element by element, into the sums the method asked for. A piece that
//!    comes before its turn is held, one for each link, and its link is not read until it is used.
//! 4. A new link replaces an old one if the other end has been started anew, or if the end with the smaller id
//!    dialled it: both ends come to the same choice.
//!
//! With [`Missing::Skip`], an edge may be skipped in a round; see [`edge`](crate::edge).

mod agreement;
mod exchange;
mod links;
mod standing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mile::real::Real;

pub use self::exchange::Finished;
pub use self::links::control;
pub use self::standing::{Standing, Waiting};

use self::exchange::Current;
use crate::edge::Decisions;
use crate::frame::{CHUNK, Head, Kind};
use crate::hello::{Mark, Terms};
use crate::outbox::{Kept, Message, Outbox};

/// Names a link for as long as the process runs.
pub type Link = u64;

/// Milliseconds since the owner's own beginning of time.
pub type Millis = u64;

/// What to do about a neighbour that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Wait for it.
    Wait,
    /// Skip its edge for the round once it has been without a link for this long, if this end decides.
    Skip {
        /// How long.
        after: Millis,
    },
}

/// What a session begins with.
#[derive(Clone, Debug)]
pub struct Setup<T> {
    /// Id of this agent.
    pub me: usize,
    /// How often it has been started.
    pub incarnation: u64,
    /// What the run is.
    pub terms: Terms,
    /// Neighbours by id, each with the weight of its edge.
    pub neighbours: BTreeMap<usize, f64>,
    /// What to do about those that are away.
    pub missing: Missing,
    /// What was on disk.
    pub memory: Memory<T>,
}

/// What a session must not forget: part of every checkpoint.
#[derive(Clone, Debug)]
pub struct Memory<T> {
    /// The next exchange and round.
    pub mark: Mark,
    /// What each neighbour was known to have on disk.
    pub known: BTreeMap<usize, Mark>,
    /// Own messages that may still be asked for.
    pub outbox: Vec<Kept<T>>,
    /// Decisions about edges.
    pub decisions: BTreeMap<usize, Decisions>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { mark: Mark::default(), known: BTreeMap::new(), outbox: Vec::new(), decisions: BTreeMap::new() }
    }
}

/// A frame that has arrived.
#[derive(Clone, Debug)]
pub enum Arrival<T> {
    /// Any but a piece of a message.
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
    /// Head and payload.
    Control(Vec<u8>),
    /// A head, to be followed by elements of a message.
    Data {
        /// The head as it travels.
        head: Head,
        /// The message.
        message: Arc<Message<T>>,
        /// Which of its elements.
        from: usize,
        /// Up to which.
        to: usize,
    },
}

/// Why a link must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The other end refused us.
    #[error("refused by the other end: {0}")]
    Refused(String),
    /// We refuse the other end; the text is for it to read, too.
    #[error("{0}")]
    Refuse(String),
    /// Nothing wrong: another link took its place, or a message is needed again from its start.
    #[error("{0}")]
    Superseded(&'static str),
}

struct Neighbour {
    weight: f64,
    line: Option<Link>,
    since: Millis,
    heard: Option<Millis>,
    exchange: u64,
    durable: Mark,
    received: u64,
    sent: u64,
    gossip: BTreeMap<u64, Vec<f64>>,
    decisions: Decisions,
    skipped: u64,
    refusal: Option<String>,
}

struct LinkState<T> {
    neighbour: usize,
    dialled_by_smaller: bool,
    control: VecDeque<Vec<u8>>,
    /// Incarnation of the other end, once it has said HELLO and the link is in use.
    greeted: Option<u64>,
    /// What the other end is to be sent next.
    send: Cursor,
    /// The exchange whose gossip it has been sent.
    gossiped: Option<u64>,
    /// Decisions for rounds before this one have been told.
    told: u64,
    /// What is to come next.
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
pub struct Session<T> {
    me: usize,
    incarnation: u64,
    terms: Terms,
    missing: Missing,
    neighbours: BTreeMap<usize, Neighbour>,
    links: BTreeMap<Link, LinkState<T>>,
    closing: Vec<(Link, Fault)>,
    outbox: Outbox<T>,
    next: u64,
    durable: Mark,
    current: Option<Current<T>>,
    /// Whether there are decisions that are not on disk yet.
    unsaved: bool,
    now: Millis,
    /// Most elements in a frame.
    piece: usize,
    spare: Vec<Vec<T>>,
}

impl<T: Real> Session<T> {
    /// A session without links, at the exchange its memory says.
    pub fn new(setup: Setup<T>, now: Millis) -> Self {
        let Setup { me, incarnation, terms, neighbours, missing, mut memory } = setup;
        let neighbour = |(id, weight)| {
            let neighbour = Neighbour {
                weight,
                line: None,
                since: now,
                heard: None,
                exchange: 0,
                durable: memory.known.get(&id).copied().unwrap_or_default(),
                received: 0,
                sent: 0,
                gossip: BTreeMap::new(),
                decisions: memory.decisions.remove(&id).unwrap_or_default(),
                skipped: 0,
                refusal: None,
            };
            (id, neighbour)
        };
        Self {
            me,
            incarnation,
            terms,
            missing,
            neighbours: neighbours.into_iter().map(neighbour).collect(),
            links: BTreeMap::new(),
            closing: Vec::new(),
            outbox: Outbox::new(memory.outbox),
            next: memory.mark.exchange,
            durable: memory.mark,
            current: None,
            unsaved: false,
            now,
            piece: CHUNK / size_of::<T>(),
            spare: Vec::new(),
        }
    }

    /// The same with at most so many elements in a frame.
    pub fn with_pieces_of(mut self, elements: usize) -> Self {
        self.piece = elements.clamp(1, CHUNK / size_of::<T>());
        self
    }

    /// What must be on disk for this agent to be able to go on from `mark`, between two exchanges.
    pub fn memory(&self, mark: Mark) -> Memory<T> {
        Memory {
            mark,
            known: self.neighbours.iter().map(|(id, neighbour)| (*id, neighbour.durable)).collect(),
            outbox: self.outbox.all().cloned().collect(),
            decisions: self.decisions(),
        }
    }

    /// The state at `mark`, with its [`memory`](Self::memory), is on disk.
    pub fn durable(&mut self, mark: Mark) {
        self.durable = mark;
        for state in self.links.values_mut().filter(|state| state.greeted.is_some()) {
            state.control.push_back(control(Kind::Have, mark.exchange, mark.round, &[]));
        }
        self.forget_decisions();
    }

    fn has(&mut self, id: usize, mark: Mark) {
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        neighbour.durable = neighbour.durable.max(mark);
        self.outbox.release(id, neighbour.durable.exchange);
        self.forget_decisions();
    }

    /// Whether every neighbour has on disk all that this agent has said.
    pub fn may_leave(&self) -> bool {
        self.neighbours.values().all(|neighbour| neighbour.durable.exchange >= self.next)
    }
}
