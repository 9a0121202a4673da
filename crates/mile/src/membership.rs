//! Who takes part in a run, and when: agents that are replaced, that leave and that join, and the network from then on.
//!
//! Agents keep their numbers forever. A run is a sequence of [epochs](Epoch), each with its members and their network. Within an
//! epoch, members have *places* 0, 1, ... in the order of their numbers: network, engine and vectors use these, so that they need
//! not know about agents that do not take part. [`Present`] shows the objectives of the members by their places.
//!
//! An epoch restarts the method from the models that the members have ([`Run::renew`](crate::run::Run::renew)). Any
//! models are a valid starting point, so whatever a method guarantees for its network it guarantees from there on.

mod events;
mod present;

use std::collections::BTreeMap;
use std::ops::Range;

pub use self::events::{Change, Event, InvalidEvent};
pub use self::present::Present;

use crate::mixing::Rule;
use crate::network::Network;
use crate::real::Real;

/// The members of a run during some rounds, and their network.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Epoch {
    /// The round at whose beginning it starts.
    pub round: u64,
    /// The agents that take part, in increasing order. Their places in it are their numbers in the network.
    pub members: Vec<usize>,
    /// Their network.
    pub network: Network,
    /// The agent that begins it without a model: it starts from the mean of its neighbours' models.
    pub newcomer: Option<usize>,
}

impl Epoch {
    /// The place of an agent, if it is a member.
    pub fn place(&self, agent: usize) -> Option<usize> {
        self.members.binary_search(&agent).ok()
    }

    /// The neighbours of an agent, in increasing order, with the weights of their edges; none if it is not a member.
    pub fn neighbours(&self, agent: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let place = self.place(agent);
        let row = place.map(|place| self.network.mixing().rows().row(place)).unwrap_or_default();
        row.iter().filter(move |(j, _)| Some(*j) != place).map(|(j, weight)| (self.members[*j], *weight))
    }

    /// The rows of its members, from those of the members of the epoch before; a newcomer's is zero.
    pub fn rows_from<T: Real>(&self, before: &Self, rows: &[T]) -> Vec<T> {
        let dim = rows.len() / before.members.len().max(1);
        let zeros = vec![T::zero(); dim];
        let row = |agent: &usize| match before.place(*agent) {
            Some(place) => &rows[place * dim..(place + 1) * dim],
            None => &zeros[..],
        };
        self.members.iter().flat_map(row).copied().collect()
    }

    /// The newcomer's place and the sum of the weights of its edges to these neighbours, from which
    /// [`Run::renew`](crate::run::Run::renew) gives it a model.
    pub fn newcomer_with(&self, takes_part: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
        let newcomer = self.newcomer?;
        let edges = self.neighbours(newcomer).filter(|(id, _)| takes_part(*id));
        Some((self.place(newcomer)?, edges.map(|(_, weight)| weight).sum()))
    }
}

/// An edge between two agents over the epochs of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Edge {
    /// Its weight in the first epoch that has it.
    pub weight: f64,
    /// From the first round in which it may be used to just after the last.
    pub rounds: Range<u64>,
    /// Whether the other end was lost and leaves for good: it will not ask for messages again.
    pub is_lost: bool,
}

impl Edge {
    /// An edge that exists in all rounds.
    pub fn lasting(weight: f64) -> Self {
        Self { weight, rounds: 0..u64::MAX, is_lost: false }
    }
}

/// The epochs of a run.
///
/// ```
/// use mile::membership::{Change, Event, Membership};
/// use mile::{Network, Rule, Topology};
///
/// let ring = Network::new(Topology::Ring.build(10, 0)?, Rule::Metropolis)?;
/// let leaves = Event { round: 100, change: Change::Leave { agent: 3, edges: vec![] }, lost: None };
/// let joins = Event { round: 150, change: Change::Join { agent: 10, neighbours: vec![2, 4] }, lost: None };
/// let membership = Membership::new(ring, Some(Rule::Metropolis), &[leaves, joins])?;
/// assert_eq!(membership.epochs()[1].members, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
/// assert_eq!(membership.epochs()[2].neighbours(10).map(|(agent, _)| agent).collect::<Vec<_>>(), [2, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Membership {
    epochs: Vec<Epoch>,
    events: Vec<Event>,
    numbers: usize,
}

impl Membership {
    /// The epochs that events create from a network. `rule` computes the mixing matrix of a changed network.
    ///
    /// # Errors
    /// If an event does not fit what precedes it, naming the event and its key.
    pub fn new(network: Network, rule: Option<Rule>, events: &[Event]) -> Result<Self, InvalidEvent> {
        let mut membership = Self::lasting(network);
        for event in events {
            let next = events::follow(&membership, rule, event)?;
            membership.numbers = membership.numbers.max(next.members.last().map_or(0, |last| last + 1));
            membership.epochs.push(next);
            membership.events.push(event.clone());
        }
        Ok(membership)
    }

    /// The agents of a network, from the first round to the last.
    pub fn lasting(network: Network) -> Self {
        let numbers = network.agents();
        let first = Epoch { round: 0, members: (0..numbers).collect(), network, newcomer: None };
        Self { epochs: vec![first], events: Vec::new(), numbers }
    }

    /// The epochs, in increasing round; there is at least one.
    pub fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// What happens at the beginning of each epoch except the first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many agents take part at one time or another: their numbers are below this.
    pub fn numbers(&self) -> usize {
        self.numbers
    }

    /// Whether the members are the same in all epochs.
    pub fn is_lasting(&self) -> bool {
        self.epochs.iter().all(|epoch| epoch.members == self.epochs[0].members)
    }

    /// The epoch that a state after `round` rounds belongs to. What happens at the beginning of the next round has not happened to it yet.
    pub fn at(&self, round: u64) -> usize {
        self.epochs.iter().rposition(|epoch| epoch.round < round).unwrap_or(0)
    }

    /// The epoch that begins when `round` rounds are done, if one does.
    pub fn beginning_at(&self, round: u64) -> Option<usize> {
        (1..self.epochs.len()).find(|k| self.epochs[*k].round == round)
    }

    /// The round before which an agent leaves, if it does.
    pub fn leaves(&self, agent: usize) -> Option<u64> {
        let departs =
            |event: &&Event| matches!(event.change, Change::Leave { agent: who, .. } if who == agent);
        self.events.iter().find(departs).map(|event| event.round)
    }

    /// Whether, on a network, an agent takes no part in a round because it is lost and has not yet been replaced or left.
    pub fn is_absent(&self, agent: usize, round: u64) -> bool {
        self.events.iter().any(|event| {
            event.change.agent() == agent
                && event.lost.is_some_and(|lost| lost <= round)
                && round < event.round
        })
    }

    /// The event, from 0, that makes an agent without state new: the one with which it joins, or the last in which it replaces a lost
    /// one.
    pub fn comes_with(&self, agent: usize) -> Option<usize> {
        let comes = |event: &Event| match event.change {
            Change::Join { agent: who, .. } => who == agent,
            Change::Replace(who) => who == agent && event.lost.is_some(),
            Change::Leave { .. } => false,
        };
        self.events.iter().rposition(comes)
    }

    /// All edges that an agent has at one time or another, by neighbour.
    pub fn edges_of(&self, agent: usize) -> BTreeMap<usize, Edge> {
        let mut edges: BTreeMap<usize, Edge> = BTreeMap::new();
        for (k, epoch) in self.epochs.iter().enumerate() {
            let end = self.epochs.get(k + 1).map_or(u64::MAX, |next| next.round);
            for (id, weight) in epoch.neighbours(agent) {
                let new = || Edge { rounds: epoch.round..end, ..Edge::lasting(weight) };
                edges.entry(id).or_insert_with(new).rounds.end = end;
            }
        }
        for event in self.events.iter().filter(|event| matches!(event.change, Change::Leave { .. })) {
            if let (Some(edge), Some(lost)) = (edges.get_mut(&event.change.agent()), event.lost) {
                (edge.rounds.end, edge.is_lost) = (lost, true);
            }
        }
        edges
    }
}

#[cfg(test)]
mod tests;
