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

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mile::block;
use mile::real::Real;

use crate::edge::{Decisions, Range};
use crate::frame::{CHUNK, Head, Kind, TEXT};
use crate::hello::{Hello, Mark, Terms, VERSION};
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

/// How it stands with a neighbour, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its id.
    pub id: usize,
    /// Whether there is a link that has said HELLO.
    pub linked: bool,
    /// Since when there is none, or there is one.
    pub since: Millis,
    /// When something was last heard from it.
    pub heard: Option<Millis>,
    /// The latest exchange it sent something for.
    pub exchange: u64,
    /// What it has on disk.
    pub durable: Mark,
    /// Bytes of messages received from it.
    pub received: u64,
    /// Bytes of messages handed to its link.
    pub sent: u64,
    /// What the current exchange waits for from it.
    pub waiting: Option<Waiting>,
    /// Why the last attempt to talk failed.
    pub refusal: Option<String>,
    /// Rounds in which its edge was skipped.
    pub skipped: u64,
}

/// What is missing from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Its message, or the rest of it.
    Message,
    /// Its decision whether the edge is used.
    Decision,
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

/// The exchange under way.
struct Current<T> {
    own: Arc<Message<T>>,
    sums: Vec<Vec<T>>,
    dim: usize,
    /// Neighbours whose edge is used, in increasing id, each with the number of elements folded.
    row: Vec<(usize, usize)>,
}

impl<T: Real> Current<T> {
    fn total(&self) -> usize {
        self.own.vectors.len()
    }

    /// Folds a piece from the k-th neighbour up to an element; says whether the piece is used up.
    fn fold(&mut self, k: usize, weight: f64, piece: &Piece<T>, limit: usize) -> Result<bool, &'static str> {
        let (folded, total) = (self.row[k].1, self.total());
        if piece.at.exchange > self.own.mark.exchange {
            return if folded < total { Err("a message was left out") } else { Ok(false) };
        }
        let start = piece.at.offset as usize;
        let end = start + piece.elements.len();
        if end > total {
            return Err("a message longer than was agreed on");
        }
        if start > folded {
            return Err("a message with a gap");
        }
        let to = end.min(limit);
        for (own, sum, from) in pieces(&self.own.vectors, &mut self.sums, self.dim, folded, to) {
            block::fold((weight, &piece.elements[from - start..][..own.len()]), own, sum, k == 0);
        }
        self.row[k].1 = folded.max(to);
        Ok(folded.max(to) >= end)
    }
}

/// An exchange that is over.
#[derive(Debug)]
pub struct Finished<T> {
    /// `sum_j w_ij (v_j - v_i)` for each vector.
    pub sums: Vec<Vec<T>>,
    /// The neighbours whose edge was used.
    pub used: Vec<usize>,
    /// The gossip of the neighbours whose edge was used, with their weights, in increasing id.
    pub gossip: Vec<(f64, Vec<f64>)>,
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

    // Links.

    /// A link to a listed neighbour is open; `dialled` says whether by this end.
    pub fn opened(&mut self, link: Link, neighbour: usize, dialled: bool) {
        let need = self.need(neighbour);
        let hello = self.hello(neighbour, need);
        let text = serde_json::to_vec(&hello).unwrap_or_default();
        let state = LinkState {
            neighbour,
            dialled_by_smaller: dialled == (self.me < neighbour),
            control: VecDeque::from([control(Kind::Hello, 0, 0, &text)]),
            greeted: None,
            send: Cursor { exchange: 0, offset: 0 },
            gossiped: None,
            told: 0,
            receive: need,
            held: None,
        };
        self.links.insert(link, state);
    }

    /// A link is gone.
    pub fn closed(&mut self, link: Link, now: Millis) {
        self.links.remove(&link);
        self.closing.retain(|(other, _)| *other != link);
        for neighbour in self.neighbours.values_mut().filter(|neighbour| neighbour.line == Some(link)) {
            neighbour.line = None;
            neighbour.since = now;
        }
    }

    /// Links that are to be closed, each with the reason.
    pub fn closing(&mut self) -> Vec<(Link, Fault)> {
        std::mem::take(&mut self.closing)
    }

    /// Whether the owner should read from a link now: not while a piece waits for its turn.
    pub fn may_read(&self, link: Link) -> bool {
        self.links.get(&link).is_some_and(|state| state.held.is_none())
    }

    /// Whether there is a link to a neighbour that has said HELLO.
    pub fn linked(&self, neighbour: usize) -> bool {
        self.neighbours.get(&neighbour).is_some_and(|neighbour| neighbour.line.is_some())
    }

    /// A buffer for the next piece, of any length and content.
    pub fn buffer(&mut self) -> Vec<T> {
        self.spare.pop().unwrap_or_default()
    }

    /// A frame has arrived. An error closes the link.
    pub fn received(&mut self, link: Link, arrival: Arrival<T>, now: Millis) -> Result<(), Fault> {
        let Some(state) = self.links.get(&link) else { return Ok(()) };
        let id = state.neighbour;
        let result = match arrival {
            Arrival::Control(head, payload) => self.control_arrived(link, id, head, &payload, now),
            Arrival::Data { exchange, offset, piece } => {
                self.piece_arrived(link, id, Cursor { exchange, offset }, piece, now)
            }
        };
        if let (Err(fault @ (Fault::Refused(_) | Fault::Refuse(_))), Some(neighbour)) =
            (&result, self.neighbours.get_mut(&id))
        {
            neighbour.refusal = Some(fault.to_string());
        }
        result
    }

    fn control_arrived(
        &mut self,
        link: Link,
        id: usize,
        head: Head,
        payload: &[u8],
        now: Millis,
    ) -> Result<(), Fault> {
        let refuse = |text: &str| Err(Fault::Refuse(text.to_owned()));
        let greeted = self.links.get(&link).is_some_and(|state| state.greeted.is_some());
        match head.kind {
            Kind::Hello if !greeted => return self.greet(link, id, payload, now),
            Kind::Refuse => {
                let text: String = String::from_utf8_lossy(payload).chars().take(1000).collect();
                return Err(Fault::Refused(text.escape_debug().to_string()));
            }
            _ if !greeted => return refuse("the first frame of a link must be a HELLO"),
            _ => {}
        }
        let (me, next) = (self.me, self.next);
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return Ok(()) };
        neighbour.heard = Some(now);
        match head.kind {
            Kind::Have => {
                let mark = Mark { exchange: head.a, round: head.b };
                if mark < neighbour.durable {
                    return refuse("HAVE went backwards");
                }
                self.has(id, mark);
            }
            Kind::Gossip => {
                let numbers = payload
                    .chunks_exact(8)
                    .map(|bytes| f64::from_le_bytes(std::array::from_fn(|k| bytes[k])));
                neighbour.gossip.retain(|exchange, _| exchange.saturating_add(1) >= next);
                neighbour.gossip.insert(head.a, numbers.collect());
                // At most this exchange's and the next one's are of use; whatever is farther off makes no sense.
                while neighbour.gossip.len() > 4 {
                    neighbour.gossip.pop_last();
                }
                self.advance();
            }
            Kind::Decide => {
                if self.missing == Missing::Wait || me < id {
                    return refuse("a decision from an end that does not decide");
                }
                let range = Range { from: head.a, to: head.b, used: payload == [1] };
                if !neighbour.decisions.add(range) {
                    return refuse("a decision that contradicts an earlier one");
                }
                self.apply_decisions();
                self.advance();
            }
            Kind::Hello => return refuse("a second HELLO"),
            Kind::Refuse | Kind::Data => {}
        }
        Ok(())
    }

    /// The other end's HELLO: the link is in use from here on, or is refused.
    fn greet(&mut self, link: Link, id: usize, payload: &[u8], now: Millis) -> Result<(), Fault> {
        let theirs: Hello = serde_json::from_slice(payload)
            .map_err(|error| Fault::Refuse(format!("a HELLO that cannot be read: {error}")))?;
        let me = self.me;
        self.hello(id, self.need(id)).check(&theirs).map_err(|mismatch| Fault::Refuse(mismatch.0))?;
        let (Some(neighbour), Some(state)) = (self.neighbours.get_mut(&id), self.links.get(&link)) else {
            return Ok(());
        };
        if theirs.exchange < neighbour.durable.exchange || theirs.exchange < theirs.durable.exchange {
            return Err(Fault::Refuse(format!(
                "agent {id} asks for the message of exchange {}, but had said that everything before exchange {} was on \
                 its disk, so agent {me} no longer has it: restore agent {id}'s checkpoint, or start all agents anew",
                theirs.exchange, neighbour.durable.exchange
            )));
        }
        let in_use = neighbour.line.and_then(|line| Some((line, self.links.get(&line)?)));
        if let Some((old, incarnation)) = in_use.and_then(|(line, state)| Some((line, state.greeted?))) {
            let better = theirs.incarnation > incarnation
                || theirs.incarnation == incarnation && state.dialled_by_smaller;
            if !better {
                return Err(Fault::Superseded("there is a link already"));
            }
            self.closing.push((old, Fault::Superseded("a newer link took its place")));
            self.links.remove(&old);
        }
        neighbour.line = Some(link);
        neighbour.since = now;
        neighbour.heard = Some(now);
        neighbour.refusal = None;
        if let Some(state) = self.links.get_mut(&link) {
            state.greeted = Some(theirs.incarnation);
            state.send = Cursor { exchange: theirs.exchange, offset: theirs.offset };
            if self.durable > Mark::default() {
                state.control.push_back(control(Kind::Have, self.durable.exchange, self.durable.round, &[]));
            }
        }
        self.has(id, theirs.durable);
        if me < id && !self.unsaved {
            self.tell_decisions(id);
        }
        Ok(())
    }

    fn piece_arrived(
        &mut self,
        link: Link,
        id: usize,
        at: Cursor,
        elements: Vec<T>,
        now: Millis,
    ) -> Result<(), Fault> {
        let (Some(state), Some(neighbour)) = (self.links.get_mut(&link), self.neighbours.get_mut(&id)) else {
            return Ok(());
        };
        let refuse = |text: String| Err(Fault::Refuse(text));
        if state.greeted.is_none() {
            return refuse("the first frame of a link must be a HELLO".into());
        }
        let next_message = at.exchange > state.receive.exchange && at.offset == 0;
        if !(at == state.receive || next_message) || state.held.is_some() {
            return refuse(format!(
                "a piece of exchange {} from element {}, when exchange {} from element {} was to come",
                at.exchange, at.offset, state.receive.exchange, state.receive.offset
            ));
        }
        neighbour.heard = Some(now);
        neighbour.exchange = neighbour.exchange.max(at.exchange);
        neighbour.received += size_of_val(&elements[..]) as u64;
        state.receive = Cursor { exchange: at.exchange, offset: at.offset + elements.len() as u64 };
        state.held = Some(Piece { at, elements });
        self.advance();
        Ok(())
    }

    /// The next frame to be written to a link, if there is one.
    pub fn next_frame(&mut self, link: Link) -> Option<Outgoing<T>> {
        let state = self.links.get_mut(&link)?;
        if let Some(bytes) = state.control.pop_front() {
            return Some(Outgoing::Control(bytes));
        }
        let neighbour = self.neighbours.get_mut(&state.neighbour)?;
        // A message must not overtake the decisions before it, which wait for the disk.
        if neighbour.line != Some(link) || self.unsaved {
            return None;
        }
        loop {
            let message = self.outbox.first_for(state.neighbour, state.send.exchange)?;
            let exchange = message.mark.exchange;
            if exchange > state.send.exchange {
                state.send = Cursor { exchange, offset: 0 };
            }
            let (from, total) = (state.send.offset as usize, message.vectors.len());
            if from >= total {
                state.send = Cursor { exchange: exchange + 1, offset: 0 };
                continue;
            }
            if from == 0 && !message.gossip.is_empty() && state.gossiped != Some(exchange) {
                state.gossiped = Some(exchange);
                let numbers: Vec<u8> =
                    message.gossip.iter().flat_map(|number| number.to_le_bytes()).collect();
                return Some(Outgoing::Control(control(Kind::Gossip, exchange, 0, &numbers)));
            }
            let to = total.min(from + self.piece);
            state.send.offset = to as u64;
            let length = (to - from) * size_of::<T>();
            neighbour.sent += length as u64;
            let head = Head { kind: Kind::Data, length, a: exchange, b: from as u64 };
            return Some(Outgoing::Data { head, message: message.clone(), from, to });
        }
    }

    /// Whether nothing at all is left to be written to a link.
    pub fn drained(&self, link: Link) -> bool {
        self.links.get(&link).is_none_or(|state| {
            state.control.is_empty()
                && self.outbox.first_for(state.neighbour, state.send.exchange).is_none_or(|message| {
                    message.mark.exchange == state.send.exchange
                        && state.send.offset as usize >= message.vectors.len()
                })
        })
    }

    // Exchanges.

    /// An exchange begins: the message is offered to the neighbours in `up`, and theirs are folded into `sums`, one for
    /// each vector of the message.
    pub fn begin(&mut self, message: Message<T>, up: &[usize], mut sums: Vec<Vec<T>>, now: Millis) {
        self.now = now;
        let (exchange, round) = (message.mark.exchange, message.mark.round);
        let mut row: Vec<(usize, usize)> = Vec::with_capacity(up.len());
        for (id, neighbour) in self.neighbours.iter_mut().filter(|(id, _)| up.contains(id)) {
            if self.missing != Missing::Wait && neighbour.decisions.get(round) == Some(false) {
                neighbour.skipped += 1;
            } else {
                row.push((*id, 0));
            }
        }
        sums.iter_mut().filter(|_| row.is_empty()).for_each(|sum| sum.fill(T::zero()));
        let own = Arc::new(message);
        if !row.is_empty() {
            let recipients = row.iter().map(|(id, _)| *id).collect();
            self.outbox.push(Kept { message: own.clone(), recipients });
        }
        let dim = own.vectors.len() / sums.len().max(1);
        self.current = Some(Current { own, sums, dim, row });
        self.next = exchange + 1;
        self.advance();
        self.tick(now);
    }

    /// An empty buffer for the next message.
    pub fn message_buffer(&mut self) -> Vec<T> {
        let mut buffer = self.outbox.spare();
        buffer.clear();
        buffer
    }

    /// The exchange, if it is over.
    pub fn finish(&mut self) -> Option<Finished<T>> {
        let current = self.current.as_ref()?;
        let (mark, total) = (current.own.mark, current.total());
        let talks = !current.own.gossip.is_empty();
        let complete = |(id, folded): &(usize, usize)| {
            let agreed =
                self.missing == Missing::Wait || self.neighbours[id].decisions.get(mark.round) == Some(true);
            *folded == total && agreed && (!talks || self.has_gossip(*id, mark.exchange))
        };
        if self.unsaved || !current.row.iter().all(complete) {
            return None;
        }
        let mut current = self.current.take()?;
        if current.row.is_empty() {
            current.sums.iter_mut().for_each(|sum| sum.fill(T::zero()));
        }
        let mut gossip = Vec::with_capacity(if talks { current.row.len() } else { 0 });
        for (id, _) in current.row.iter().filter(|_| talks) {
            if let Some(neighbour) = self.neighbours.get_mut(id) {
                gossip.extend(
                    neighbour.gossip.remove(&mark.exchange).map(|numbers| (neighbour.weight, numbers)),
                );
            }
        }
        let used = current.row.iter().map(|(id, _)| *id).collect();
        Some(Finished { sums: current.sums, used, gossip })
    }

    /// Folds what has come as far as the order of agents allows.
    fn advance(&mut self) {
        self.pass_over_what_is_not_needed();
        let Some(current) = &mut self.current else { return };
        let mut limit = current.total();
        for k in 0..current.row.len() {
            let id = current.row[k].0;
            let Some(neighbour) = self.neighbours.get_mut(&id) else { continue };
            if let Some(link) = neighbour.line
                && let Some(state) = self.links.get_mut(&link)
                && let Some(piece) = &state.held
            {
                match current.fold(k, neighbour.weight, piece, limit) {
                    Ok(true) => self.spare.extend(state.held.take().map(|piece| piece.elements)),
                    Ok(false) => {}
                    Err(text) => {
                        neighbour.line = None;
                        neighbour.since = self.now;
                        neighbour.refusal = Some(text.into());
                        self.links.remove(&link);
                        self.closing.push((link, Fault::Refuse(text.into())));
                    }
                }
            }
            limit = current.row[k].1;
        }
        self.decide_use();
    }

    /// Drops pieces of exchanges that are over, and of edges that are not used in this one.
    fn pass_over_what_is_not_needed(&mut self) {
        let needed = |neighbour: usize, exchange: u64| match &self.current {
            Some(current) if exchange == current.own.mark.exchange => {
                current.row.iter().any(|(id, _)| *id == neighbour)
            }
            _ => exchange >= self.next,
        };
        for state in self.links.values_mut() {
            let idle = |piece: &mut Piece<T>| !needed(state.neighbour, piece.at.exchange);
            self.spare.extend(state.held.take_if(idle).map(|piece| piece.elements));
        }
    }

    /// What the neighbour is to send first: the rest of its message of this exchange, or its next one.
    fn need(&self, neighbour: usize) -> Cursor {
        let Some(current) = &self.current else { return Cursor { exchange: self.next, offset: 0 } };
        let exchange = current.own.mark.exchange;
        match current.row.iter().find(|(id, _)| *id == neighbour) {
            // Gossip comes only with the first piece.
            Some(_) if !current.own.gossip.is_empty() && !self.has_gossip(neighbour, exchange) => {
                Cursor { exchange, offset: 0 }
            }
            Some((_, folded)) => Cursor { exchange, offset: *folded as u64 },
            None => Cursor { exchange: exchange + 1, offset: 0 },
        }
    }

    fn has_gossip(&self, neighbour: usize, exchange: u64) -> bool {
        self.neighbours.get(&neighbour).is_some_and(|neighbour| neighbour.gossip.contains_key(&exchange))
    }

    fn hello(&self, to: usize, need: Cursor) -> Hello {
        Hello {
            version: VERSION,
            from: self.me,
            to,
            incarnation: self.incarnation,
            terms: self.terms.clone(),
            weight: self.neighbours.get(&to).map_or(0.0, |neighbour| neighbour.weight),
            skips: self.missing != Missing::Wait,
            durable: self.durable,
            exchange: need.exchange,
            offset: need.offset,
        }
    }

    // Disk.

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

    // Skipping an edge by agreement.

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        self.now = now;
        let (Missing::Skip { after }, Some(current)) = (self.missing, &self.current) else { return };
        let (round, total) = (current.own.mark.round, current.total());
        let away = |(id, folded): &&(usize, usize)| {
            let neighbour = &self.neighbours[id];
            let alone = neighbour.line.is_none() && now.saturating_sub(neighbour.since) >= after;
            self.me < *id && *folded < total && alone && neighbour.decisions.get(round).is_none()
        };
        let gone: Vec<usize> = current.row.iter().filter(away).map(|(id, _)| *id).collect();
        if gone.is_empty() {
            return;
        }
        for id in gone {
            self.decide(id, round, false);
        }
        self.apply_decisions();
        self.advance();
    }

    fn decide_use(&mut self) {
        let (Missing::Skip { .. }, Some(current)) = (self.missing, &self.current) else { return };
        let (round, total) = (current.own.mark.round, current.total());
        let done = |(id, folded): &&(usize, usize)| {
            self.me < *id && *folded == total && self.neighbours[id].decisions.get(round).is_none()
        };
        let heard: Vec<usize> = current.row.iter().filter(done).map(|(id, _)| *id).collect();
        for id in heard {
            self.decide(id, round, true);
        }
    }

    fn decide(&mut self, id: usize, round: u64, used: bool) {
        if let Some(neighbour) = self.neighbours.get_mut(&id) {
            self.unsaved |= neighbour.decisions.add(Range { from: round, to: round, used });
        }
    }

    /// Takes edges out of the exchange that were decided to be skipped.
    fn apply_decisions(&mut self) {
        let Some(current) = &mut self.current else { return };
        let mark = current.own.mark;
        let mut again = false;
        let (neighbours, outbox) = (&mut self.neighbours, &mut self.outbox);
        current.row.retain(|(id, folded)| {
            let Some(neighbour) = neighbours.get_mut(id) else { return true };
            if neighbour.decisions.get(mark.round) != Some(false) {
                return true;
            }
            neighbour.skipped += 1;
            outbox.withdraw(*id, mark.exchange);
            again |= *folded > 0;
            false
        });
        if !again {
            return;
        }
        // Part of a skipped message is in the sums: all messages are folded anew, and asked for again.
        for (id, folded) in &mut current.row {
            *folded = 0;
            let Some(neighbour) = neighbours.get_mut(id) else { continue };
            if let Some(link) = neighbour.line.take() {
                neighbour.since = self.now;
                self.links.remove(&link);
                self.closing.push((link, Fault::Superseded("its message is needed again from the start")));
            }
        }
    }

    /// Decisions that are not on disk yet, with all others; call [`decisions_saved`](Self::decisions_saved) when they are.
    pub fn unsaved_decisions(&self) -> Option<BTreeMap<usize, Decisions>> {
        self.unsaved.then(|| self.decisions())
    }

    /// The decisions are on disk: the other ends may know.
    pub fn decisions_saved(&mut self) {
        self.unsaved = false;
        let others: Vec<usize> = self.neighbours.range(self.me + 1..).map(|(id, _)| *id).collect();
        others.into_iter().for_each(|id| self.tell_decisions(id));
    }

    fn decisions(&self) -> BTreeMap<usize, Decisions> {
        self.neighbours.iter().map(|(id, neighbour)| (*id, neighbour.decisions.clone())).collect()
    }

    fn tell_decisions(&mut self, id: usize) {
        let Some(neighbour) = self.neighbours.get(&id) else { return };
        let Some(state) = neighbour.line.and_then(|line| self.links.get_mut(&line)) else { return };
        for range in neighbour.decisions.ranges().iter().filter(|range| range.to >= state.told) {
            let from = range.from.max(state.told);
            state.control.push_back(control(Kind::Decide, from, range.to, &[u8::from(range.used)]));
        }
        state.told = neighbour.decisions.ranges().last().map_or(state.told, |last| last.to + 1);
    }

    fn forget_decisions(&mut self) {
        for neighbour in self.neighbours.values_mut() {
            neighbour.decisions.forget(self.durable.round.min(neighbour.durable.round));
        }
    }

    // For people.

    /// How it stands with every neighbour.
    pub fn standings(&self) -> Vec<Standing> {
        let waiting = |id: usize, neighbour: &Neighbour| {
            let current = self.current.as_ref()?;
            let (_, folded) = current.row.iter().find(|(other, _)| *other == id)?;
            if *folded < current.total() {
                Some(Waiting::Message)
            } else if self.missing != Missing::Wait
                && neighbour.decisions.get(current.own.mark.round).is_none()
            {
                Some(Waiting::Decision)
            } else {
                None
            }
        };
        let standing = |(id, neighbour): (&usize, &Neighbour)| Standing {
            id: *id,
            linked: neighbour.line.is_some(),
            since: neighbour.since,
            heard: neighbour.heard,
            exchange: neighbour.exchange,
            durable: neighbour.durable,
            received: neighbour.received,
            sent: neighbour.sent,
            waiting: waiting(*id, neighbour),
            refusal: neighbour.refusal.clone(),
            skipped: neighbour.skipped,
        };
        self.neighbours.iter().map(standing).collect()
    }
}

/// The parts of a flat message and of the sums between two of its elements, each with its first element's place.
fn pieces<'a, T>(
    own: &'a [T],
    sums: &'a mut [Vec<T>],
    dim: usize,
    from: usize,
    to: usize,
) -> impl Iterator<Item = (&'a [T], &'a mut [T], usize)> {
    sums.iter_mut().enumerate().filter_map(move |(k, sum)| {
        let (start, end) = (from.max(k * dim), to.min((k + 1) * dim));
        (start < end).then(|| (&own[start..end], &mut sum[start - k * dim..end - k * dim], start))
    })
}

/// A whole frame that is not a piece of a message.
pub fn control(kind: Kind, a: u64, b: u64, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(TEXT)];
    let mut bytes = Head { kind, length: payload.len(), a, b }.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}
