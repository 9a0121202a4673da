//! Which rows go where in an exchange.
//!
//! A rank sends each other rank the rows of its agents that have a neighbour there, each row once, in increasing agent; for several
//! vectors, an agent's rows follow each other. Short rows are packed into one message. Both ends know the lists, even for edges that
//! are down, so messages have no header.

use std::collections::BTreeMap;

use mile::network::Network;

use crate::placement::Placement;

/// Where a neighbour's row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In this row of the block hosted here.
    Here(usize),
    /// In the message of this peer, at this position.
    From(usize, usize),
}

/// Another rank with which rows are exchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankPeer {
    /// Its rank number.
    pub rank: usize,
    /// The rows hosted here that it gets, in increasing order.
    pub sends: Vec<usize>,
    /// The agents whose rows it sends, in increasing order.
    pub receives: Vec<usize>,
}

/// What one rank exchanges, and what it adds up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Crossing {
    /// The ranks it exchanges rows with, in increasing order.
    pub peers: Vec<RankPeer>,
    round: u64,
    /// Messages that the hosted agents send along edges, as counted when all agents are in one process.
    pub messages: u64,
    /// The terms of hosted row `k` are `terms[starts[k]..starts[k + 1]]`.
    starts: Vec<usize>,
    terms: Vec<(f64, Source)>,
    /// Rows that need nothing from elsewhere, and the others.
    inner: Vec<usize>,
    border: Vec<usize>,
}

impl Crossing {
    /// The exchange for the agents of a rank, with the edges that are up in a round.
    pub fn of(network: &Network, placement: &Placement, rank: usize, seed: u64, round: u64) -> Self {
        let first = placement.places(rank).start;
        let here = |agent: usize| placement.rank_of(agent) == rank;
        let rows = network.mixing().rows();
        let mut peers: BTreeMap<usize, RankPeer> = BTreeMap::new();
        let mut up: Vec<Vec<(usize, f64)>> = Vec::new();
        for (k, agent) in placement.agents(rank).iter().enumerate() {
            let others = rows.row(*agent).iter().filter(|(j, _)| j != agent);
            let weight = |(j, _): &(usize, f64)| {
                network.weight_in_round(seed, (*agent, *j), round).map(|weight| (*j, weight))
            };
            let row: Vec<(usize, f64)> = others.filter_map(weight).collect();
            for (j, _) in row.iter().filter(|(j, _)| !here(*j)) {
                let other = placement.rank_of(*j);
                let peer =
                    peers.entry(other).or_insert_with(|| RankPeer { rank: other, ..RankPeer::default() });
                peer.receives.push(*j);
                if peer.sends.last() != Some(&k) {
                    peer.sends.push(k);
                }
            }
            up.push(row);
        }
        let mut peers: Vec<RankPeer> = peers.into_values().collect();
        for peer in &mut peers {
            peer.receives.sort_unstable();
            peer.receives.dedup();
        }
        let source = |j: usize| {
            if here(j) {
                return Source::Here(placement.place_of(j) - first);
            }
            let peer = peers.partition_point(|peer| peer.rank < placement.rank_of(j));
            Source::From(peer, peers[peer].receives.partition_point(|agent| *agent < j))
        };
        let mut crossing = Self { round, starts: vec![0], ..Self::default() };
        for (k, row) in up.iter().enumerate() {
            crossing.messages += row.len() as u64;
            let of_row: Vec<(f64, Source)> =
                row.iter().filter(|(_, w)| *w != 0.0).map(|(j, w)| (*w, source(*j))).collect();
            let is_inner = of_row.iter().all(|(_, source)| matches!(source, Source::Here(_)));
            if is_inner { &mut crossing.inner } else { &mut crossing.border }.push(k);
            crossing.terms.extend(of_row);
            crossing.starts.push(crossing.terms.len());
        }
        Self { peers, ..crossing }
    }

    /// Becomes that of another round, if some edges are up only in some rounds.
    pub fn turn_to(&mut self, round: u64, network: &Network, placement: &Placement, rank: usize, seed: u64) {
        if self.round != round && network.varies() {
            *self = Self::of(network, placement, rank, seed, round);
        }
    }

    /// The weights and neighbours of a hosted row along the edges that are up, in increasing agent.
    pub fn terms(&self, row: usize) -> &[(f64, Source)] {
        &self.terms[self.starts[row]..self.starts[row + 1]]
    }

    /// The number of hosted rows.
    pub fn rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The same with other weights, computed from a hosted row, its weight and its neighbour.
    pub fn weighed(&self, weight: impl Fn(usize, f64, Source) -> f64) -> Self {
        let mut found = self.clone();
        for row in 0..self.rows() {
            for (old, source) in &mut found.terms[self.starts[row]..self.starts[row + 1]] {
                *old = weight(row, *old, *source);
            }
        }
        found
    }

    /// The hosted rows that need nothing from elsewhere.
    pub fn inner(&self) -> &[usize] {
        &self.inner
    }

    /// The hosted rows that need a row of another rank.
    pub fn border(&self) -> &[usize] {
        &self.border
    }
}

#[cfg(test)]
mod tests {
    use mile::graph::{Graph, Topology};
    use mile::mixing::Rule;

    use super::*;

    #[test]
    fn what_one_rank_sends_is_what_the_other_expects_and_no_term_is_missing() {
        let star = Graph::from_edges(7, (1..7).map(|i| (0, i)).chain([(1, 2), (5, 6), (2, 6)])).unwrap();
        let regular = Topology::RandomRegular { degree: 4 }.build(20, 1).unwrap();
        for (graph, drop_rate) in [(star.clone(), 0.0), (star, 0.4), (regular.clone(), 0.0), (regular, 0.3)] {
            let network = Network::new(graph, Rule::Metropolis).unwrap().with_drop_rate(drop_rate).unwrap();
            for ranks in [1, 2, 3, 7] {
                let placement = Placement::of(network.graph(), ranks);
                for round in 0..10 {
                    let of = |rank: usize| Crossing::of(&network, &placement, rank, 5, round);
                    let all: Vec<Crossing> = (0..ranks).map(of).collect();
                    let mut messages = 0;
                    for (rank, own) in all.iter().enumerate() {
                        messages += own.messages;
                        for peer in &own.peers {
                            let sent: Vec<usize> =
                                peer.sends.iter().map(|k| placement.agents(rank)[*k]).collect();
                            let other = all[peer.rank].peers.iter().find(|other| other.rank == rank).unwrap();
                            assert_eq!(sent, other.receives);
                            assert!(!sent.is_empty() && sent.is_sorted());
                        }
                        for (k, agent) in placement.agents(rank).iter().enumerate() {
                            let named = |(w, source): &(f64, Source)| match source {
                                Source::Here(row) => (placement.agents(rank)[*row], *w),
                                Source::From(peer, row) => (own.peers[*peer].receives[*row], *w),
                            };
                            let found: Vec<(usize, f64)> = own.terms(k).iter().map(named).collect();
                            let mut row = network.mixing().rows().row(*agent).to_vec();
                            network.row_in_round(5, *agent, round, &mut row);
                            row.retain(|(j, w)| j != agent && *w != 0.0);
                            assert_eq!(found, row);
                            assert_eq!(own.inner().contains(&k), !own.border().contains(&k));
                        }
                    }
                    assert_eq!(messages % 2, 0);
                    if drop_rate == 0.0 {
                        assert_eq!(messages as usize, 2 * network.graph().edges().count());
                    }
                }
            }
        }
    }
}
