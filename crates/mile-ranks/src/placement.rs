//! Which agents are on which rank.
//!
//! Ranks have equal shares of the agents, to within one. Agents stay in the order of their numbers, in contiguous blocks, unless
//! that sends more than necessary: then blocks are cut from an order in which neighbours are near each other (Cuthill and McKee
//! 1969), and agents of two ranks are swapped as long as this lets fewer edges cross. Every rank computes the same placement by itself.

use std::collections::BTreeSet;
use std::ops::Range;

use mile::graph::Graph;

/// An order other than that of the numbers must reduce what is sent by at least this fraction.
const WORTH: f64 = 0.05;
/// Passes over all agents in which some may be swapped.
const PASSES: usize = 8;
/// Agents of the other rank that are tried for a swap.
const TRIED: usize = 64;

/// Agents on ranks: every rank hosts a range of *places*, and every place an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The agent in each place; within a rank they increase.
    agents: Vec<usize>,
    /// The place of each agent.
    places: Vec<usize>,
    /// The first place of each rank, and the number of agents.
    starts: Vec<usize>,
    /// The rank of each agent.
    ranks: Vec<usize>,
}

/// What crosses ranks in an exchange of one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// Edges of the graph.
    pub edges: usize,
    /// Those between agents on different ranks.
    pub crossing: usize,
    /// Rows that are sent to another rank, each once to every rank that needs it.
    pub rows: usize,
    /// Rows sent by the rank that sends most.
    pub most_rows: usize,
    /// Messages: ordered pairs of ranks, the first of which sends to the second.
    pub messages: usize,
}

impl Placement {
    /// Places the agents of a graph on `ranks` ranks, at least one and at most as many as there are agents.
    pub fn of(graph: &Graph, ranks: usize) -> Self {
        let numbered = Self::in_order(graph.agents(), ranks);
        if ranks <= 1 || ranks >= graph.agents() {
            return numbered;
        }
        let mut parts = numbered.ranks_along(&near_each_other(graph));
        improve(graph, ranks, &mut parts);
        let other = Self::new(ranks, parts);
        let worth = (1.0 - WORTH) * numbered.cut(graph).rows as f64;
        if (other.cut(graph).rows as f64) < worth { other } else { numbered }
    }

    /// Contiguous blocks in the order of the agents' numbers.
    pub fn in_order(agents: usize, ranks: usize) -> Self {
        let ranks = ranks.clamp(1, agents.max(1));
        let starts = shares(agents, ranks);
        let parts = (0..ranks).flat_map(|rank| vec![rank; starts[rank + 1] - starts[rank]]).collect();
        Self::new(ranks, parts)
    }

    fn new(ranks: usize, parts: Vec<usize>) -> Self {
        let mut agents: Vec<usize> = (0..parts.len()).collect();
        agents.sort_by_key(|agent| (parts[*agent], *agent));
        let mut places = vec![0; agents.len()];
        agents.iter().enumerate().for_each(|(place, agent)| places[*agent] = place);
        let first = |rank: usize| agents.partition_point(|agent| parts[*agent] < rank);
        Self { starts: (0..=ranks).map(first).collect(), agents, places, ranks: parts }
    }

    /// The ranks of agents when an order is cut into blocks.
    fn ranks_along(&self, order: &[usize]) -> Vec<usize> {
        let mut parts = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, agent)| parts[*agent] = self.ranks[self.agents[place]]);
        parts
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.starts.len() - 1
    }

    /// The places of a rank.
    pub fn places(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    /// The agents of a rank, in increasing order.
    pub fn agents(&self, rank: usize) -> &[usize] {
        &self.agents[self.places(rank)]
    }

    /// The agent in a place.
    pub fn agent_at(&self, place: usize) -> usize {
        self.agents[place]
    }

    /// The place of an agent.
    pub fn place_of(&self, agent: usize) -> usize {
        self.places[agent]
    }

    /// The rank of an agent.
    pub fn rank_of(&self, agent: usize) -> usize {
        self.ranks[agent]
    }

    /// Whether agents are in the order of their numbers.
    pub fn is_in_order(&self) -> bool {
        self.agents.is_sorted()
    }

    /// What crosses ranks.
    pub fn cut(&self, graph: &Graph) -> Cut {
        let edges = || graph.edges();
        let across = |(i, j): &(usize, usize)| self.ranks[*i] != self.ranks[*j];
        let both = |(i, j): (usize, usize)| [(i, self.ranks[j]), (j, self.ranks[i])];
        let rows: BTreeSet<(usize, usize)> = edges().filter(across).flat_map(both).collect();
        let pairs: BTreeSet<(usize, usize)> = rows.iter().map(|(i, to)| (self.ranks[*i], *to)).collect();
        let mut sent = vec![0; self.ranks()];
        rows.iter().for_each(|(i, _)| sent[self.ranks[*i]] += 1);
        Cut {
            edges: edges().count(),
            crossing: edges().filter(across).count(),
            rows: rows.len(),
            most_rows: sent.into_iter().max().unwrap_or(0),
            messages: pairs.len(),
        }
    }
}

/// The first agent of each of `ranks` equal shares, and the end.
fn shares(agents: usize, ranks: usize) -> Vec<usize> {
    (0..=ranks).map(|rank| rank * agents / ranks).collect()
}

/// All agents in an order in which neighbours are near each other: by distance from an agent at the rim, neighbours of
/// earlier agents first, those of low degree first.
fn near_each_other(graph: &Graph) -> Vec<usize> {
    let agents = graph.agents();
    let mut order = Vec::with_capacity(agents);
    let mut seen = vec![false; agents];
    let by_degree = |some: &mut Vec<usize>| some.sort_by_key(|agent| (graph.degree(*agent), *agent));
    let mut all: Vec<usize> = (0..agents).collect();
    by_degree(&mut all);
    for start in all {
        if seen[start] {
            continue;
        }
        let start = rim(graph, start);
        seen[start] = true;
        let mut next = order.len();
        order.push(start);
        while let Some(agent) = order.get(next).copied() {
            next += 1;
            let mut new: Vec<usize> = graph.neighbours(agent).iter().copied().filter(|j| !seen[*j]).collect();
            by_degree(&mut new);
            new.iter().for_each(|j| seen[*j] = true);
            order.extend(new);
        }
    }
    order
}

/// An agent as far from others as a few walks can find.
fn rim(graph: &Graph, from: usize) -> usize {
    let mut best = (0, from);
    for _ in 0..4 {
        let mut distance = vec![usize::MAX; graph.agents()];
        distance[best.1] = 0;
        let (mut queue, mut next) = (vec![best.1], 0);
        while let Some(agent) = queue.get(next).copied() {
            next += 1;
            for j in graph.neighbours(agent) {
                if distance[*j] == usize::MAX {
                    distance[*j] = distance[agent] + 1;
                    queue.push(*j);
                }
            }
        }
        let last = queue.last().copied().unwrap_or(from);
        if distance[last] <= best.0 {
            break;
        }
        best = (distance[last], last);
    }
    best.1
}

/// Swaps agents of two ranks as long as this lets fewer edges cross.
fn improve(graph: &Graph, ranks: usize, parts: &mut [usize]) {
    let to = |agent: usize, rank: usize, parts: &[usize]| {
        graph.neighbours(agent).iter().filter(|j| parts[**j] == rank).count() as isize
    };
    for _ in 0..PASSES {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); ranks];
        // Agents at the border are the ones worth swapping.
        for agent in 0..parts.len() {
            if graph.neighbours(agent).iter().any(|j| parts[*j] != parts[agent]) {
                members[parts[agent]].push(agent);
            }
        }
        let mut swapped = false;
        for agent in 0..parts.len() {
            let own = parts[agent];
            let others: BTreeSet<usize> =
                graph.neighbours(agent).iter().map(|j| parts[*j]).filter(|rank| *rank != own).collect();
            let mut best = (0, None);
            for rank in others {
                let gain = to(agent, rank, parts) - to(agent, own, parts);
                for other in members[rank].iter().copied().filter(|other| parts[*other] == rank).take(TRIED) {
                    let between = 2 * isize::from(graph.has_edge(agent, other));
                    let both = gain + to(other, own, parts) - to(other, rank, parts) - between;
                    if both > best.0 {
                        best = (both, Some(other));
                    }
                }
            }
            if let (_, Some(other)) = best {
                parts.swap(agent, other);
                members[parts[agent]].push(agent);
                members[parts[other]].push(other);
                swapped = true;
            }
        }
        if !swapped {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use mile::graph::Topology;
    use proptest::prelude::*;

    use super::*;

    /// The same graph with agents numbered in another order.
    fn renumbered(graph: &Graph, multiplier: usize) -> Graph {
        let n = graph.agents();
        let name = |i: usize| (i * multiplier + 3) % n;
        Graph::from_edges(n, graph.edges().map(|(i, j)| (name(i), name(j)))).unwrap()
    }

    #[test]
    fn rings_and_grids_stay_in_order_and_send_only_at_their_ends() {
        let ring = Topology::Ring.build(12, 0).unwrap();
        let placement = Placement::of(&ring, 3);
        assert!(placement.is_in_order());
        assert_eq!(placement.agents(1), [4, 5, 6, 7]);
        let cut = Cut { edges: 12, crossing: 3, rows: 6, most_rows: 2, messages: 6 };
        assert_eq!(placement.cut(&ring), cut);
        let grid = Topology::Grid.build(64, 0).unwrap();
        assert!(Placement::of(&grid, 4).cut(&grid).rows <= 48);
        assert_eq!(Placement::of(&ring, 12).cut(&ring).rows, 24);
        assert_eq!(Placement::of(&ring, 1).cut(&ring).rows, 0);
    }

    #[test]
    fn a_bad_numbering_is_undone() {
        for (topology, agents, ranks, multiplier) in
            [(Topology::Ring, 100, 4, 37), (Topology::Grid, 144, 6, 29), (Topology::Torus, 144, 4, 55 + 2)]
        {
            let good = topology.build(agents, 0).unwrap();
            let bad = renumbered(&good, multiplier);
            let (numbered, placed) = (Placement::in_order(agents, ranks), Placement::of(&bad, ranks));
            assert!(!placed.is_in_order());
            let (before, after) = (numbered.cut(&bad).rows, placed.cut(&bad).rows);
            let best = numbered.cut(&good).rows;
            assert!(3 * after <= before && after <= 2 * best, "{topology:?}: {before} {after} {best}");
        }
    }

    proptest! {
        #[test]
        fn every_agent_has_one_place_and_shares_are_equal(agents in 2usize..60, ranks in 1usize..60, seed in 0u64..40) {
            let ranks = ranks.min(agents);
            // A ring with random chords.
            let chords = (0..agents as u64).map(|k| ((k * 7 + seed) as usize % agents, (k * k + 3 * seed) as usize % agents));
            let ring = (0..agents).map(|k| (k, (k + 1) % agents));
            let edges = ring.chain(chords).filter(|(i, j)| i != j).map(|(i, j)| (i.min(j), i.max(j)));
            let edges: BTreeSet<(usize, usize)> = edges.collect();
            let graph = Graph::from_edges(agents, edges).unwrap();
            let placement = Placement::of(&graph, ranks);
            prop_assert_eq!(placement.ranks(), ranks);
            let mut seen = vec![0; agents];
            for rank in 0..ranks {
                let here = placement.agents(rank);
                prop_assert!(here.is_sorted() && here.len() >= agents / ranks && here.len() <= agents.div_ceil(ranks));
                for (place, agent) in placement.places(rank).zip(here) {
                    seen[*agent] += 1;
                    prop_assert_eq!(placement.rank_of(*agent), rank);
                    prop_assert_eq!((placement.agent_at(place), placement.place_of(*agent)), (*agent, place));
                }
            }
            prop_assert!(seen.iter().all(|times| *times == 1));
            let (cut, numbered) = (placement.cut(&graph), Placement::in_order(agents, ranks).cut(&graph));
            prop_assert!(cut.rows <= numbered.rows && cut.crossing <= cut.edges);
        }
    }
}
