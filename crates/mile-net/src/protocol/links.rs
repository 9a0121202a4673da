//! Links to neighbours: which one is in use, what arrives, what is sent.

use std::collections::VecDeque;

use mile::real::Real;

use super::{Arrival, Cursor, Fault, Link, LinkState, Millis, MissingPolicy, Outgoing, Piece, Protocol};
use crate::edge::RoundRange;
use crate::frame::{Head, Kind, control};
use crate::handshake::{Hello, Mark, VERSION};
use crate::words::words;

impl<T: Real> Protocol<T> {
    /// A link to a listed neighbour is open; `dialled` says whether this end opened it.
    pub fn opened(&mut self, link: Link, neighbour: usize, dialled: bool) {
        let need = self.need(neighbour);
        let text = self.hello(neighbour, need).text();
        let state = LinkState {
            neighbour,
            dialled_by_smaller: dialled == (self.me < neighbour),
            control: VecDeque::from([control(Kind::Hello, 0, 0, &text)]),
            greeted: None,
            send: Cursor { exchange: 0, offset: 0 },
            gossiped: None,
            told: 0,
            have: Mark::default(),
            receive: need,
            held: None,
        };
        self.links.insert(link, state);
    }

    /// A link is closed, for whatever reason.
    pub fn closed(&mut self, link: Link, now: Millis) {
        self.links.remove(&link);
        self.closing.retain(|(other, _)| *other != link);
        for neighbour in self.neighbours.values_mut().filter(|neighbour| neighbour.link == Some(link)) {
            neighbour.link = None;
            neighbour.since = now;
        }
    }

    /// Closes all links because this agent ends before its work is done.
    pub fn give_up(&mut self, why: &str) {
        let links = std::mem::take(&mut self.links).into_keys();
        self.closing.extend(links.map(|link| (link, Fault::Ended(why.to_owned()))));
        for neighbour in self.neighbours.values_mut() {
            neighbour.link = None;
        }
    }

    /// Links that the owner must close, each with the reason.
    pub fn closing(&mut self) -> Vec<(Link, Fault)> {
        std::mem::take(&mut self.closing)
    }

    /// Whether the owner may read from a link now: not while a piece waits for its turn.
    pub fn may_read(&self, link: Link) -> bool {
        self.links.get(&link).is_some_and(|state| state.held.is_none())
    }

    /// Whether a link is the one that is used for its neighbour.
    pub fn is_in_use(&self, link: Link) -> bool {
        self.neighbours.values().any(|neighbour| neighbour.link == Some(link))
    }

    /// Whether there is a link to a neighbour whose handshake is over.
    pub fn linked(&self, neighbour: usize) -> bool {
        self.neighbours.get(&neighbour).is_some_and(|neighbour| neighbour.link.is_some())
    }

    /// Whether there is such a link, and this end has opened it.
    pub fn dialled(&self, neighbour: usize) -> bool {
        let link = self.neighbours.get(&neighbour).and_then(|neighbour| neighbour.link);
        let state = link.and_then(|link| self.links.get(&link));
        state.is_some_and(|state| state.dialled_by_smaller == (self.me < neighbour))
    }

    /// A buffer for the next piece that arrives, of any length and content.
    pub fn buffer(&mut self) -> Vec<T> {
        self.spare.pop().unwrap_or_default()
    }

    /// A frame has arrived. An error closes the link.
    pub fn received(&mut self, link: Link, arrival: Arrival<T>, now: Millis) -> Result<(), Fault> {
        let Some(state) = self.links.get(&link) else { return Ok(()) };
        let id = state.neighbour;
        if let Some(neighbour) = self.neighbours.get_mut(&id) {
            match &arrival {
                Arrival::Control(head, payload) => neighbour.received.count(head.kind, payload.len()),
                Arrival::Data { piece, .. } => neighbour.received.count(Kind::Data, size_of_val(&piece[..])),
            }
        }
        let result = match arrival {
            Arrival::Control(head, payload) => self.control_arrived(link, id, head, &payload, now),
            Arrival::Data { exchange, offset, piece } => {
                self.piece_arrived(link, id, Cursor { exchange, offset }, piece, now)
            }
        };
        if let (Err(fault @ (Fault::RefusedByNeighbour(_) | Fault::RefusedByUs(_))), Some(neighbour)) =
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
        let refuse = |text: &str| Err(Fault::RefusedByUs(text.to_owned()));
        let greeted = self.links.get(&link).is_some_and(|state| state.greeted.is_some());
        match head.kind {
            Kind::Hello if !greeted => return self.greet(link, id, payload, now),
            Kind::Refuse => return Err(Fault::RefusedByNeighbour(words(payload))),
            _ if !greeted => return refuse("the first frame of a connection must be a HELLO"),
            _ => {}
        }
        let (me, next) = (self.me, self.next);
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return Ok(()) };
        neighbour.heard = Some(now);
        match head.kind {
            Kind::Have => {
                let mark = Mark { exchange: head.a, round: head.b };
                match self.links.get_mut(&link) {
                    Some(state) if mark < state.have => {
                        return refuse("a HAVE that is earlier than the one before");
                    }
                    Some(state) => state.have = mark,
                    None => {}
                }
                self.has(id, mark);
                self.advance();
            }
            Kind::Gossip => {
                let numbers = payload
                    .chunks_exact(8)
                    .map(|bytes| f64::from_le_bytes(std::array::from_fn(|k| bytes[k])));
                neighbour.gossip.retain(|exchange, _| exchange.saturating_add(1) >= next);
                neighbour.gossip.insert(head.a, numbers.collect());
                // Only this exchange's and the next one's are useful.
                while neighbour.gossip.len() > 4 {
                    neighbour.gossip.pop_last();
                }
                self.advance();
            }
            Kind::Decide => {
                if self.on_missing == MissingPolicy::Wait || me < id {
                    return refuse("a decision about the edge from the wrong end");
                }
                let range = RoundRange { from: head.a, to: head.b, used: payload == [1] };
                if let Err(refused) = neighbour.decisions.add(range) {
                    return refuse(&refused.to_string());
                }
                self.apply_decisions();
                self.advance();
            }
            Kind::Verdict => self.hear_verdict(id, head.a, payload),
            Kind::Hello => return refuse("a second HELLO"),
            Kind::Notices => return refuse("notices have a connection of their own"),
            Kind::Refuse | Kind::Data => {}
        }
        Ok(())
    }

    /// The other end's HELLO has arrived: the link is in use from now on, or is refused.
    fn greet(&mut self, link: Link, id: usize, payload: &[u8], now: Millis) -> Result<(), Fault> {
        let theirs = Hello::read(self.me, id, payload).map_err(|mismatch| Fault::RefusedByUs(mismatch.0))?;
        let me = self.me;
        self.hello(id, self.need(id)).check(&theirs).map_err(|mismatch| Fault::RefusedByUs(mismatch.0))?;
        let (Some(neighbour), Some(state)) = (self.neighbours.get_mut(&id), self.links.get(&link)) else {
            return Ok(());
        };
        let oldest = neighbour.durable.round.saturating_sub(self.limits.keep);
        let too_old = theirs.exchange < neighbour.durable.exchange && theirs.durable.round < oldest;
        if too_old || theirs.exchange < theirs.durable.exchange {
            return Err(Fault::RefusedByUs(format!(
                "agent {id} returned with a checkpoint of round {}, but had confirmed one of round {}, and agent {me} keeps \
                 messages only for a copy of round {oldest} or later (keep = {}); restore a later copy of agent {id}'s folder, or \
                 replace agent {id} (operators' guide, \"Recovery\")",
                theirs.durable.round, neighbour.durable.round, self.limits.keep
            )));
        }
        let in_use = neighbour.link.and_then(|used| Some((used, self.links.get(&used)?)));
        if let Some((old, incarnation)) = in_use.and_then(|(used, state)| Some((used, state.greeted?))) {
            let better = theirs.incarnation > incarnation
                || theirs.incarnation == incarnation && state.dialled_by_smaller;
            if theirs.incarnation < incarnation {
                return Err(Fault::RefusedByUs(format!(
                    "two processes use the key of agent {id}, one of its start {incarnation} and one of its start {}: stop one of them",
                    theirs.incarnation
                )));
            }
            if !better {
                return Err(Fault::Superseded("there is already a connection"));
            }
            self.closing.push((old, Fault::Superseded("replaced by a newer connection")));
            self.links.remove(&old);
        }
        neighbour.link = Some(link);
        neighbour.since = now;
        neighbour.heard = Some(now);
        neighbour.refusal = None;
        if let Some(state) = self.links.get_mut(&link) {
            state.greeted = Some(theirs.incarnation);
            state.have = theirs.durable;
            state.send = Cursor { exchange: theirs.exchange, offset: theirs.offset };
            if self.durable > Mark::default() {
                state.control.push_back(control(Kind::Have, self.durable.exchange, self.durable.round, &[]));
            }
        }
        self.has(id, theirs.durable);
        if me < id && !self.unsaved {
            self.tell_decisions(id);
        }
        self.tell_verdict(id);
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
        let refuse = |text: String| Err(Fault::RefusedByUs(text));
        if state.greeted.is_none() {
            return refuse("the first frame of a connection must be a HELLO".into());
        }
        let next_message = at.exchange > state.receive.exchange && at.offset == 0;
        if !(at == state.receive || next_message) || state.held.is_some() {
            return refuse(format!(
                "expected a piece of exchange {} from element {}, got exchange {} from element {}",
                state.receive.exchange, state.receive.offset, at.exchange, at.offset
            ));
        }
        neighbour.heard = Some(now);
        neighbour.exchange = neighbour.exchange.max(at.exchange);
        state.receive = Cursor { exchange: at.exchange, offset: at.offset + elements.len() as u64 };
        state.held = Some(Piece { at, elements });
        self.advance();
        Ok(())
    }

    /// The next frame to be sent on a link, if there is one.
    pub fn next_frame(&mut self, link: Link) -> Option<Outgoing<T>> {
        let state = self.links.get_mut(&link)?;
        let neighbour = self.neighbours.get_mut(&state.neighbour)?;
        if let Some(bytes) = state.control.pop_front() {
            neighbour.sent.protocol += bytes.len() as u64;
            return Some(Outgoing::Control(bytes));
        }
        // A message must not overtake the decisions before it, which are not on disk yet.
        if neighbour.link != Some(link) || self.unsaved {
            return None;
        }
        loop {
            let message = self.outbox.first_for(state.neighbour, state.send.exchange)?;
            let exchange = message.mark().exchange;
            if exchange > state.send.exchange {
                state.send = Cursor { exchange, offset: 0 };
            }
            let (from, total) = (state.send.offset as usize, message.elements());
            if from >= total {
                state.send = Cursor { exchange: exchange + 1, offset: 0 };
                continue;
            }
            if from == 0 && !message.gossip().is_empty() && state.gossiped != Some(exchange) {
                state.gossiped = Some(exchange);
                let numbers: Vec<u8> =
                    message.gossip().iter().flat_map(|number| number.to_le_bytes()).collect();
                neighbour.sent.count(Kind::Gossip, numbers.len());
                return Some(Outgoing::Control(control(Kind::Gossip, exchange, 0, &numbers)));
            }
            // Up to where the next piece begins if all are sent from the start: parts of a stored message are read once.
            let to = total.min((from / self.piece + 1) * self.piece);
            state.send.offset = to as u64;
            let length = (to - from) * size_of::<T>();
            neighbour.sent.count(Kind::Data, length);
            let head = Head { kind: Kind::Data, length, a: exchange, b: from as u64 };
            return Some(Outgoing::Data { head, message: message.clone(), from, to });
        }
    }

    fn hello(&self, to: usize, need: Cursor) -> Hello {
        Hello {
            version: VERSION,
            from: self.me,
            to,
            incarnation: self.incarnation,
            terms: self.terms.clone(),
            weight: self.neighbours.get(&to).map_or(0.0, |neighbour| neighbour.edge.weight),
            skips: self.on_missing != MissingPolicy::Wait,
            checkpoint_every: self.limits.checkpoint_every,
            outbox: self.limits.outbox,
            durable: self.durable,
            exchange: need.exchange,
            offset: need.offset,
        }
    }
}
