//! Time-varying graphs: which edges of a graph are used in a communication round.
//!
//! In a round, the edges that are not used have weight 0 and both their agents keep that weight for themselves. So the
//! mixing matrix of every round is symmetric and doubly stochastic, and what is exact at a fixed point for one such
//! matrix is exact for all: methods that keep corrections with sum zero (`sum c = 0`) stay exact.

use std::fmt;

use rand::RngExt;

use crate::graph::Graph;
use crate::random::{Purpose, stream};

/// How the graph changes from round to round.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TimeVarying {
    /// A random matching in each round: every agent has at most one neighbour. Each edge draws a number, and those with
    /// the smallest number at both their ends are used.
    RandomMatching,
    /// These graphs one after the other, then again from the first.
    InTurn(Vec<Graph>),
}

impl TimeVarying {
    /// The edges of a graph as matchings, one after the other: every edge is used once in a cycle, and no agent has two
    /// neighbours in a round. On a hypercube these are its dimensions.
    ///
    /// ```
    /// use mile::{graph::Topology, varying::TimeVarying};
    /// let TimeVarying::InTurn(graphs) = TimeVarying::matchings(&Topology::Hypercube.build(8, 0)?) else { unreachable!() };
    /// assert_eq!(graphs.len(), 3);
    /// assert!(graphs.iter().all(|graph| graph.max_degree() == 1));
    /// # Ok::<(), mile::graph::GraphError>(())
    /// ```
    pub fn matchings(graph: &Graph) -> Self {
        let mut turns: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut taken: Vec<Vec<bool>> = Vec::new();
        let mut edges: Vec<(usize, usize)> = graph.edges().collect();
        // By the difference of their numbers: a hypercube's edges come dimension by dimension.
        edges.sort_by_key(|(i, j)| (i.abs_diff(*j), *i));
        for (i, j) in edges {
            let free = taken.iter().position(|taken| !taken[i] && !taken[j]).unwrap_or(turns.len());
            if free == turns.len() {
                turns.push(Vec::new());
                taken.push(vec![false; graph.agents()]);
            }
            turns[free].push((i, j));
            (taken[free][i], taken[free][j]) = (true, true);
        }
        let matching = |edges| Graph::from_edges(graph.agents(), edges).ok();
        Self::InTurn(turns.into_iter().filter_map(matching).collect())
    }

    /// Whether an edge of `graph` is used in a round; both ends get the same answer.
    pub(crate) fn uses(&self, graph: &Graph, seed: u64, (i, j): (usize, usize), round: u64) -> bool {
        match self {
            Self::RandomMatching => {
                choice(graph, seed, i, round) == Some(j) && choice(graph, seed, j, round) == Some(i)
            }
            Self::InTurn(graphs) => turn(graphs, round).has_edge(i, j),
        }
    }

    /// For each agent the neighbour that it would choose in a round, where that decides which edges are used.
    pub(crate) fn choices(&self, graph: &Graph, seed: u64, round: u64) -> Option<Vec<usize>> {
        let of = |agent| choice(graph, seed, agent, round).unwrap_or(agent);
        (*self == Self::RandomMatching).then(|| (0..graph.agents()).map(of).collect())
    }

    /// The mean number of edges used in a round.
    pub(crate) fn mean_edges(&self, graph: &Graph) -> f64 {
        match self {
            // Each of the edges that meet this one, including itself, is equally likely to have the smallest number.
            Self::RandomMatching => {
                graph.edges().map(|(i, j)| 1.0 / (graph.degree(i) + graph.degree(j) - 1) as f64).sum()
            }
            Self::InTurn(graphs) => {
                graphs.iter().map(|graph| graph.edges().count()).sum::<usize>() as f64
                    / graphs.len().max(1) as f64
            }
        }
    }
}

impl fmt::Display for TimeVarying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RandomMatching => write!(f, "random-matching"),
            Self::InTurn(graphs) => write!(f, "{} graphs in turn", graphs.len()),
        }
    }
}

/// The graph of a round.
fn turn(graphs: &[Graph], round: u64) -> &Graph {
    &graphs[(round % graphs.len() as u64) as usize]
}

/// The neighbour at the other end of an agent's edge with the smallest number.
fn choice(graph: &Graph, seed: u64, agent: usize, round: u64) -> Option<usize> {
    let number = |j: &usize| {
        let edge = (agent.min(*j) * graph.agents() + agent.max(*j)) as u64;
        (stream(seed, Purpose::Matching, edge, round).random::<u64>(), edge)
    };
    graph.neighbours(agent).iter().copied().min_by_key(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Topology;

    #[test]
    fn a_random_matching_gives_nobody_two_neighbours_and_every_edge_its_share() {
        let graph = Topology::Torus.build(20, 0).unwrap();
        let (mut used, rounds) = (0, 400);
        for round in 0..rounds {
            let choices = TimeVarying::RandomMatching.choices(&graph, 3, round).unwrap();
            let mut neighbours = [0; 20];
            for (i, j) in graph.edges() {
                let up = TimeVarying::RandomMatching.uses(&graph, 3, (i, j), round);
                assert_eq!(up, TimeVarying::RandomMatching.uses(&graph, 3, (j, i), round));
                assert_eq!(up, choices[i] == j && choices[j] == i);
                if up {
                    (neighbours[i], neighbours[j], used) = (neighbours[i] + 1, neighbours[j] + 1, used + 1);
                }
            }
            assert!(neighbours.iter().all(|n| *n <= 1));
            assert!(neighbours.contains(&1), "the edge with the smallest number of all is used");
        }
        let (mean, expected) = (used as f64 / rounds as f64, TimeVarying::RandomMatching.mean_edges(&graph));
        assert!((mean - expected).abs() < 0.05 * expected, "{mean} {expected}");
    }

    #[test]
    fn matchings_in_turn_use_every_edge_once() {
        for (topology, agents) in
            [(Topology::Ring, 7), (Topology::Star, 6), (Topology::Torus, 12), (Topology::Path, 1)]
        {
            let graph = topology.build(agents, 0).unwrap();
            let TimeVarying::InTurn(turns) = TimeVarying::matchings(&graph) else { panic!("graphs in turn") };
            assert!(turns.iter().all(|turn| turn.max_degree() == 1));
            let mut all: Vec<_> = turns.iter().flat_map(|turn| turn.edges()).collect();
            all.sort_unstable();
            assert_eq!(all, graph.edges().collect::<Vec<_>>());
        }
    }
}
