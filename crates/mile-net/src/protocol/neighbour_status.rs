//! The state of every neighbour, for status reports and for deciding how long to wait.

use mile::real::Real;

use super::{Millis, MissingPolicy, Neighbour, Protocol};
use crate::handshake::Mark;
use crate::status::{Awaited, Traffic};

/// What a session knows about a neighbour.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NeighbourStatus {
    /// Its id.
    pub id: usize,
    /// Whether there is a link whose handshake is over.
    pub linked: bool,
    /// Since when there is one, or none.
    pub since: Millis,
    /// When a frame last arrived from it.
    pub heard: Option<Millis>,
    /// The latest exchange for which it sent something.
    pub exchange: u64,
    /// The latest checkpoint that it has confirmed.
    pub durable: Mark,
    /// What was received from it.
    pub received: Traffic,
    /// What was sent to it.
    pub sent: Traffic,
    /// Whether it may still ask for a message that it was sent.
    pub unconfirmed: bool,
    /// What the current exchange waits for from it.
    pub waiting: Option<Awaited>,
    /// Why its last link was refused, by either end.
    pub refusal: Option<String>,
    /// Rounds in which its edge was skipped.
    pub skipped: u64,
    /// Messages of it that were not believed.
    pub refused_messages: u64,
    /// Why the last one was not.
    pub refused_why: Option<String>,
    /// How far the elements of its last message were from the agent's own, at most.
    pub distance: Option<f64>,
}

impl<T: Real> Protocol<T> {
    /// What the session knows about each neighbour, in increasing id; without those whose edge is not used yet or any more.
    pub fn neighbour_statuses(&self) -> Vec<NeighbourStatus> {
        let status = |(id, neighbour): (&usize, &Neighbour)| NeighbourStatus {
            id: *id,
            linked: neighbour.link.is_some(),
            since: neighbour.since,
            heard: neighbour.heard,
            exchange: neighbour.exchange,
            durable: neighbour.confirmed,
            received: neighbour.received,
            sent: neighbour.sent,
            unconfirmed: self.owes_any_confirmation(*id, neighbour),
            waiting: self.awaited(*id, neighbour),
            refusal: neighbour.refusal.clone(),
            skipped: neighbour.skipped,
            refused_messages: neighbour.refused_messages,
            refused_why: neighbour.refused_why.clone(),
            distance: neighbour.distance,
        };
        self.neighbours.iter().filter(|(id, _)| self.needs(**id)).map(status).collect()
    }

    fn awaited(&self, id: usize, neighbour: &Neighbour) -> Option<Awaited> {
        let current = self.current.as_ref()?;
        let (_, folded) = current.row.iter().find(|(other, _)| *other == id)?;
        let decided = neighbour.decisions.get(current.own.mark.round).is_some();
        // A piece that has arrived waits for its turn, that is, for another neighbour.
        let here =
            neighbour.link.and_then(|link| self.links.get(&link)).is_some_and(|state| state.held.is_some());
        if *folded < current.total() {
            (!here).then_some(Awaited::Message)
        } else if self.on_missing != MissingPolicy::Wait && !decided {
            Some(Awaited::Decision)
        } else if self.owes_confirmation(id, neighbour) {
            Some(Awaited::Confirmation)
        } else {
            None
        }
    }
}
