//! Time-varying graphs: which edges of a graph are used in a communication round.
//!
//! Either edges keep the weights of the network's mixing matrix, or the graphs of a sequence set the weights, as
//! [finite-time graphs](finite) do.
//!
//! In a round, the edges that are not used have weight 0 and both their agents keep that weight for themselves. So the
//! mixing matrix of every round is symmetric and doubly stochastic, and what is exact at a fixed point for one such
//! matrix is exact for all: methods that keep corrections with sum zero (`sum c = 0`) stay exact.

pub mod finite;

use std::fmt;

use rand::RngExt;

use crate::graph::parse::parse_weights;
use crate::graph::{Graph, GraphError};
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
    /// The same with weights that the graphs set ([`Network::in_turn`](crate::network::Network::in_turn)).
    WeightedInTurn(Vec<WeightedGraph>),
}

/// A graph whose edges have weights, in which agents may have no neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedGraph {
    graph: Graph,
    /// The weights of the edges, in increasing order of their ends.
    weights: Vec<((usize, usize), f64)>,
}

impl WeightedGraph {
    /// The graph with these edges and their weights, each edge once.
    ///
    /// # Errors
    /// If an edge is given twice, joins an agent with itself or has a weight that is not positive, or if the weights of an agent's edges
    /// add up to more than one.
    pub fn new(
        agents: usize,
        edges: impl IntoIterator<Item = (usize, usize, f64)>,
    ) -> Result<Self, WeightedGraphError> {
        let mut weights: Vec<_> = edges.into_iter().map(|(i, j, w)| ((i.min(j), i.max(j)), w)).collect();
        weights.sort_by_key(|(edge, _)| *edge);
        let graph = Graph::from_edges(agents, weights.iter().map(|(edge, _)| *edge))?;
        let mut sums = vec![0.0; agents];
        for (k, &((i, j), weight)) in weights.iter().enumerate() {
            if i == j || k > 0 && weights[k - 1].0 == (i, j) || !(weight > 0.0 && weight <= 1.0) {
                return Err(WeightedGraphError::Edge { i, j, weight });
            }
            sums[i] += weight;
            sums[j] += weight;
        }
        match sums.iter().position(|sum| *sum > 1.0 + 1e-9) {
            Some(agent) => Err(WeightedGraphError::Sum { agent, sum: sums[agent] }),
            None => Ok(Self { graph, weights }),
        }
    }

    /// Reads an edge list with weights: two agent numbers and a weight per line, separated by blanks or commas, `#` for comments. A text
    /// without edges is a round in which nobody communicates.
    ///
    /// ```
    /// use mile::varying::WeightedGraph;
    /// let pair = WeightedGraph::parse("0 2 0.5  # agent 1 has no neighbour", 3)?;
    /// assert_eq!((pair.weight(2, 0), pair.weight(0, 1)), (Some(0.5), None));
    /// # Ok::<(), mile::varying::WeightedGraphError>(())
    /// ```
    ///
    /// # Errors
    /// If a line is not an edge with a weight, or for the reasons of [`new`](Self::new).
    pub fn parse(text: &str, agents: usize) -> Result<Self, WeightedGraphError> {
        Self::new(agents, parse_weights(text, agents)?)
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Every edge once, as (smaller, larger, weight), in increasing order.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        self.weights.iter().map(|&((i, j), w)| (i, j, w))
    }

    /// The weight of an edge, if there is one.
    pub fn weight(&self, i: usize, j: usize) -> Option<f64> {
        let place = self.weights.binary_search_by_key(&(i.min(j), i.max(j)), |(edge, _)| *edge);
        place.ok().map(|place| self.weights[place].1)
    }
}

/// Weights that are not those of a symmetric, doubly stochastic matrix.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightedGraphError {
    /// An agent does not exist.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An edge has no weight in (0, 1], is given twice or has equal ends.
    #[error("edge {i}-{j} with the weight {weight}: expected two agents, once, and a weight in (0, 1]")]
    Edge {
        /// The smaller agent.
        i: usize,
        /// The larger agent.
        j: usize,
        /// The weight.
        weight: f64,
    },
    /// The weights of an agent's edges add up to more than one.
    #[error("the weights of agent {agent}'s edges add up to {sum}: expected at most 1")]
    Sum {
        /// The agent.
        agent: usize,
        /// The sum.
        sum: f64,
    },
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
            Self::WeightedInTurn(graphs) => turn(graphs, round).graph.has_edge(i, j),
        }
    }

    /// The weight that the graph of a round gives an edge.
    pub(crate) fn own_weight(&self, (i, j): (usize, usize), round: u64) -> Option<f64> {
        match self {
            Self::WeightedInTurn(graphs) => turn(graphs, round).weight(i, j),
            Self::RandomMatching | Self::InTurn(_) => None,
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
            Self::InTurn(graphs) => mean(graphs.iter().map(|graph| graph.edges().count())),
            Self::WeightedInTurn(graphs) => mean(graphs.iter().map(|graph| graph.weights.len())),
        }
    }
}

impl fmt::Display for TimeVarying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RandomMatching => write!(f, "random-matching"),
            Self::InTurn(graphs) => write!(f, "{} graphs in turn", graphs.len()),
            Self::WeightedInTurn(graphs) => write!(f, "{} graphs with weights in turn", graphs.len()),
        }
    }
}

fn mean(numbers: impl ExactSizeIterator<Item = usize>) -> f64 {
    let count = numbers.len().max(1) as f64;
    numbers.sum::<usize>() as f64 / count
}

/// The graph of a round.
fn turn<G>(graphs: &[G], round: u64) -> &G {
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
