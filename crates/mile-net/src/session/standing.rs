//! How it stands with every neighbour, for people.

use mile::real::Real;

use super::{Millis, Missing, Neighbour, Session};
use crate::hello::Mark;

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

impl<T: Real> Session<T> {
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
