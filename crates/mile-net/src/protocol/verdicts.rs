//! What the ends of an edge say about each other's messages.
//!
//! A message that is not believed makes its edge missing, for both ends. If agents wait for missing neighbours, its link is closed with
//! the reason, and both ends wait. If they skip edges, the end that decides uses an edge only if the other end has accepted its
//! message ([`Kind::Verdict`]); a refusal at either end makes it skip the edge in this round.

use mile::real::Real;

use super::{MissingPolicy, Neighbour, Protocol};
use crate::frame::{Kind, REASON, control};
use crate::words::words;

/// What one end says about a message of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    exchange: u64,
    /// Why it is refused, if it is.
    refused: Option<String>,
}

impl Verdict {
    fn frame(&self) -> Vec<u8> {
        let why = self.refused.as_deref().unwrap_or_default().as_bytes();
        let mut payload = vec![u8::from(self.refused.is_none())];
        payload.extend_from_slice(&why[..why.len().min(REASON)]);
        control(Kind::Verdict, self.exchange, 0, &payload)
    }
}

impl Neighbour {
    /// Whether the other end has accepted this agent's message of an exchange.
    pub(super) fn has_accepted(&self, exchange: u64) -> bool {
        self.heard_verdict.as_ref().is_some_and(|said| said.exchange == exchange && said.refused.is_none())
    }

    /// Whether its message of an exchange was refused here, and its edge is about to be skipped.
    pub(super) fn is_refused(&self, exchange: u64) -> bool {
        self.given.as_ref().is_some_and(|given| given.exchange == exchange && given.refused.is_some())
    }
}

impl<T: Real> Protocol<T> {
    /// Messages that were refused since the last call: whose, and why.
    pub fn take_refusals(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.refusals)
    }

    /// Refuses the messages of these neighbours in the current exchange. Returns whether others may be added up now.
    pub(super) fn refuse_messages(&mut self, refused: Vec<(usize, String)>) -> bool {
        let Some(mark) = self.current.as_ref().map(|current| current.own.mark) else { return false };
        for (id, why) in &refused {
            let Some(neighbour) = self.neighbours.get_mut(id) else { continue };
            let why = format!("the message of round {} is refused: {why}", mark.round);
            neighbour.refused_messages += 1;
            neighbour.refused_why = Some(why.clone());
            // An edge that both ends have used in an earlier exchange of the round cannot be skipped any more.
            let may_skip =
                self.on_missing != MissingPolicy::Wait && neighbour.decisions.get(mark.round).is_none();
            if may_skip {
                self.give_verdict(*id, Verdict { exchange: mark.exchange, refused: Some(why.clone()) });
                self.refusals.push((*id, why));
                if self.me < *id {
                    self.decide(*id, mark.round, false);
                }
            } else if let Some(link) = neighbour.link {
                let given_up = neighbour.give_up(link, self.now, why);
                self.links.remove(&link);
                self.closing.push(given_up);
            }
        }
        if !refused.is_empty() {
            self.apply_decisions();
        }
        !refused.is_empty()
    }

    /// A message of the end that decides is in the sums.
    pub(super) fn accept_message(&mut self, id: usize, exchange: u64) {
        let verdict = Verdict { exchange, refused: None };
        if self.neighbours.get(&id).is_some_and(|neighbour| neighbour.given.as_ref() != Some(&verdict)) {
            self.give_verdict(id, verdict);
        }
    }

    fn give_verdict(&mut self, id: usize, verdict: Verdict) {
        if let Some(neighbour) = self.neighbours.get_mut(&id) {
            neighbour.given = Some(verdict);
        }
        self.tell_verdict(id);
    }

    /// Tells a neighbour the last verdict on its messages, again on a new link.
    pub(super) fn tell_verdict(&mut self, id: usize) {
        let Some(neighbour) = self.neighbours.get(&id) else { return };
        let state = neighbour.link.and_then(|link| self.links.get_mut(&link));
        if let (Some(verdict), Some(state)) = (&neighbour.given, state) {
            state.control.push_back(verdict.frame());
        }
    }

    /// The other end says what it thinks of a message of this agent.
    pub(super) fn hear_verdict(&mut self, id: usize, exchange: u64, payload: &[u8]) {
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        if neighbour.heard_verdict.as_ref().is_some_and(|known| known.exchange > exchange) {
            return;
        }
        let refused = (payload.first() != Some(&1)).then(|| words(payload.get(1..).unwrap_or_default()));
        neighbour.heard_verdict = Some(Verdict { exchange, refused: refused.clone() });
        neighbour.refusal = refused.map(|why| format!("refused by the neighbour: {why}"));
        self.advance();
    }

    /// Skips the edges for which this end decides and the other has refused this agent's message. Returns whether there was one.
    pub(super) fn skip_refused_edges(&mut self) -> bool {
        let (MissingPolicy::Skip { .. }, Some(current)) = (self.on_missing, &self.current) else {
            return false;
        };
        let mark = current.own.mark;
        let refuses = |(id, _): &&(usize, usize)| {
            let neighbour = &self.neighbours[id];
            let said = neighbour.heard_verdict.as_ref();
            let refused = said.is_some_and(|said| said.exchange == mark.exchange && said.refused.is_some());
            self.me < *id && refused && neighbour.decisions.get(mark.round).is_none()
        };
        let refusing: Vec<usize> = current.row.iter().filter(refuses).map(|(id, _)| *id).collect();
        refusing.iter().for_each(|id| self.decide(*id, mark.round, false));
        if !refusing.is_empty() {
            self.apply_decisions();
        }
        !refusing.is_empty()
    }
}
