//! The named topologies.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::{Graph, GraphError};
use crate::random::{Purpose, stream};

/// Most attempts at drawing a connected random regular graph.
const DRAWS: u64 = 200;

/// A family of graphs. [`build`](Self::build) makes the graph for a number of agents and, if it is random, a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Topology {
    /// A cycle.
    Ring,
    /// A line.
    Path,
    /// Agent 0 is the neighbour of all others.
    Star,
    /// Every pair of agents is connected.
    Complete,
    /// A rectangular grid, as close to a square as the number of agents allows.
    Grid,
    /// A grid with periodic borders.
    Torus,
    /// Agents whose numbers differ in one bit; the number of agents must be a power of two.
    Hypercube,
    /// Agents at distances 1, 2, 4, ... on a cycle.
    Exponential,
    /// Each edge exists with probability `p`, independently.
    ErdosRenyi {
        /// Probability of an edge, in (0, 1].
        p: f64,
    },
    /// A random graph in which every agent has `degree` neighbours, close to uniformly distributed.
    RandomRegular {
        /// Neighbours of each agent.
        degree: usize,
    },
    /// Watts and Strogatz: a ring of `degree` nearest neighbours, each edge rewired with probability
    /// `rewire`.
    SmallWorld {
        /// Neighbours of each agent before rewiring, an even number.
        degree: usize,
        /// Probability that an edge is moved, in [0, 1].
        rewire: f64,
    },
}

impl Topology {
    /// Its name in experiment files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Path => "path",
            Self::Star => "star",
            Self::Complete => "complete",
            Self::Grid => "grid",
            Self::Torus => "torus",
            Self::Hypercube => "hypercube",
            Self::Exponential => "exponential",
            Self::ErdosRenyi { .. } => "erdos-renyi",
            Self::RandomRegular { .. } => "random-regular",
            Self::SmallWorld { .. } => "small-world",
        }
    }

    /// The graph on `agents` agents, one or more; an error if it is disconnected.
    pub fn build(&self, agents: usize, seed: u64) -> Result<Graph, GraphError> {
        let n = agents;
        if n <= 1 {
            return Graph::from_edges(n, []);
        }
        let edges: Vec<(usize, usize)> = match *self {
            Self::Ring => (0..n).map(|i| (i, (i + 1) % n)).collect(),
            Self::Path => (1..n).map(|i| (i - 1, i)).collect(),
            Self::Star => (1..n).map(|i| (0, i)).collect(),
            Self::Complete => (0..n).flat_map(|i| (0..i).map(move |j| (j, i))).collect(),
            Self::Grid => lattice(n, false),
            Self::Torus => lattice(n, true),
            Self::Hypercube => hypercube(n)?,
            Self::Exponential => exponential(n),
            Self::ErdosRenyi { p } => erdos_renyi(n, p, seed)?,
            Self::RandomRegular { degree } => return random_regular(n, degree, seed)?.connected(),
            Self::SmallWorld { degree, rewire } => small_world(n, degree, rewire, seed)?,
        };
        Graph::from_edges(n, edges)?.connected()
    }

    /// The simpler topology that this one equals with `agents` agents, if there is one: a grid or torus of a prime number of agents has
    /// one row.
    pub fn simpler(&self, agents: usize) -> Option<Self> {
        match self {
            Self::Grid if agents > 3 && rows(agents) == 1 => Some(Self::Path),
            Self::Torus if agents > 3 && rows(agents) == 1 => Some(Self::Ring),
            _ => None,
        }
    }

    /// The number of edges on `agents` agents; for a random graph, or a hypercube that does not exist, about that.
    pub fn mean_edges(&self, agents: usize) -> f64 {
        let n = agents as f64;
        let pairs = n * (n - 1.0) / 2.0;
        let edges = match *self {
            Self::Ring => n,
            Self::Path | Self::Star => n - 1.0,
            Self::Complete => pairs,
            Self::Grid | Self::Torus => 2.0 * n,
            Self::Hypercube => n * n.max(1.0).log2() / 2.0,
            Self::Exponential => n * n.max(1.0).log2(),
            Self::ErdosRenyi { p } => p * pairs,
            Self::RandomRegular { degree } | Self::SmallWorld { degree, .. } => n * degree as f64 / 2.0,
        };
        edges.min(pairs).max(0.0)
    }

    fn refuse(&self, parameter: &'static str, got: impl ToString, expected: impl Into<String>) -> GraphError {
        GraphError::Parameter {
            topology: self.name(),
            parameter,
            got: got.to_string(),
            expected: expected.into(),
        }
    }
}

/// Rows of a grid of n agents: the largest divisor of n up to its square root.
fn rows(n: usize) -> usize {
    (1..=n.isqrt()).rev().find(|rows| n.is_multiple_of(*rows)).unwrap_or(1)
}

fn lattice(n: usize, closed: bool) -> Vec<(usize, usize)> {
    let rows = rows(n);
    let columns = n / rows;
    let mut edges = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let here = row * columns + column;
            if closed || column + 1 < columns {
                edges.push((here, row * columns + (column + 1) % columns));
            }
            if closed || row + 1 < rows {
                edges.push((here, (row + 1) % rows * columns + column));
            }
        }
    }
    edges
}

fn hypercube(n: usize) -> Result<Vec<(usize, usize)>, GraphError> {
    if !n.is_power_of_two() {
        let (below, above) = (n.next_power_of_two() / 2, n.next_power_of_two());
        let expected = format!("a power of two for a hypercube; the nearest are {below} and {above}");
        return Err(Topology::Hypercube.refuse("agents", n, expected));
    }
    let bits = n.trailing_zeros();
    Ok((0..n).flat_map(|i| (0..bits).map(move |bit| (i, i ^ (1 << bit)))).collect())
}

fn exponential(n: usize) -> Vec<(usize, usize)> {
    let hops = (0..usize::BITS).map(|k| 1usize << k).take_while(|hop| *hop < n);
    hops.flat_map(|hop| (0..n).map(move |i| (i, (i + hop) % n))).collect()
}

fn erdos_renyi(n: usize, p: f64, seed: u64) -> Result<Vec<(usize, usize)>, GraphError> {
    if !(p > 0.0 && p <= 1.0) {
        return Err(Topology::ErdosRenyi { p }.refuse("p", p, "a probability in (0, 1]"));
    }
    let mut edges = Vec::new();
    for i in 0..n {
        let mut random = stream(seed, Purpose::Graph, i as u64, 0);
        edges.extend((i + 1..n).filter(|_| random.random_bool(p)).map(|j| (i, j)));
    }
    Ok(edges)
}

/// The pairing of Steger and Wormald: free ends are joined at random, without self-loops and duplicate edges.
fn random_regular(n: usize, degree: usize, seed: u64) -> Result<Graph, GraphError> {
    let topology = Topology::RandomRegular { degree };
    if degree == 0 || degree >= n || !(degree * n).is_multiple_of(2) {
        let expected = format!("a degree from 1 to {} with agents x degree even", n - 1);
        return Err(topology.refuse("degree", degree, expected));
    }
    let mut last = None;
    for draw in 0..DRAWS {
        if let Some(edges) = pair_free_ends(n, degree, seed, draw) {
            match Graph::from_edges(n, edges)?.connected() {
                Ok(graph) => return Ok(graph),
                Err(disconnected) => last = Some(disconnected),
            }
        }
    }
    Err(last.unwrap_or_else(|| {
        topology.refuse("degree", degree, "a smaller degree; or use topology = \"complete\"")
    }))
}

fn pair_free_ends(n: usize, degree: usize, seed: u64, draw: u64) -> Option<Vec<(usize, usize)>> {
    let mut random = stream(seed, Purpose::Graph, draw, 1);
    let mut ends: Vec<usize> = (0..n * degree).map(|k| k / degree).collect();
    let mut edges = std::collections::BTreeSet::new();
    while !ends.is_empty() {
        ends.shuffle(&mut random);
        let before = edges.len();
        let mut left = Vec::new();
        for pair in ends.chunks_exact(2) {
            let edge = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            if edge.0 == edge.1 || !edges.insert(edge) {
                left.extend_from_slice(pair);
            }
        }
        if edges.len() == before {
            return None;
        }
        ends = left;
    }
    Some(edges.into_iter().collect())
}

fn small_world(n: usize, degree: usize, rewire: f64, seed: u64) -> Result<Vec<(usize, usize)>, GraphError> {
    let topology = Topology::SmallWorld { degree, rewire };
    if degree < 2 || !degree.is_multiple_of(2) || degree >= n {
        return Err(topology.refuse("degree", degree, format!("an even number from 2 to {}", n - 1)));
    }
    if !(0.0..=1.0).contains(&rewire) {
        return Err(topology.refuse("rewire", rewire, "a probability in [0, 1]"));
    }
    let mut edges: std::collections::BTreeSet<(usize, usize)> = Default::default();
    let ordered = |i: usize, j: usize| (i.min(j), i.max(j));
    let ring = |hop: usize, i: usize| ordered(i, (i + hop) % n);
    edges.extend((1..=degree / 2).flat_map(|hop| (0..n).map(move |i| ring(hop, i))));
    for hop in 1..=degree / 2 {
        for i in 0..n {
            let mut random = stream(seed, Purpose::Graph, i as u64, 1 + hop as u64);
            let free = edges.len() < n * (n - 1) / 2;
            if free && random.random_bool(rewire) && edges.contains(&ring(hop, i)) {
                let mut other = || loop {
                    let j = random.random_range(0..n);
                    if j != i && !edges.contains(&ordered(i, j)) {
                        return j;
                    }
                };
                if (0..n).all(|j| j == i || edges.contains(&ordered(i, j))) {
                    continue;
                }
                let moved = ordered(i, other());
                edges.remove(&ring(hop, i));
                edges.insert(moved);
            }
        }
    }
    Ok(edges.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIXED: [Topology; 7] = [
        Topology::Ring,
        Topology::Path,
        Topology::Star,
        Topology::Complete,
        Topology::Grid,
        Topology::Torus,
        Topology::Exponential,
    ];

    #[test]
    fn one_and_two_agents_are_networks_too() {
        for topology in FIXED.into_iter().chain([Topology::Hypercube, Topology::ErdosRenyi { p: 1.0 }]) {
            assert_eq!(topology.build(1, 0).unwrap().edges().count(), 0, "{topology:?}");
            assert_eq!(topology.build(2, 0).unwrap().edges().count(), 1, "{topology:?}");
        }
        assert_eq!(Topology::Ring.build(0, 0), Err(GraphError::NoAgents));
    }

    #[test]
    fn named_graphs_have_their_degrees() {
        let degrees = |topology: Topology, n: usize| -> Vec<usize> {
            let graph = topology.build(n, 3).unwrap();
            (0..n).map(|i| graph.degree(i)).collect()
        };
        assert_eq!(degrees(Topology::Ring, 5), [2; 5]);
        assert_eq!(degrees(Topology::Star, 4), [3, 1, 1, 1]);
        assert_eq!(degrees(Topology::Grid, 6), [2, 3, 2, 2, 3, 2]);
        assert_eq!(degrees(Topology::Torus, 12), [4; 12]);
        assert_eq!(degrees(Topology::Hypercube, 16), [4; 16]);
        assert_eq!(degrees(Topology::Exponential, 8), [5; 8]);
        assert_eq!(degrees(Topology::RandomRegular { degree: 3 }, 10), [3; 10]);
        let small_world = Topology::SmallWorld { degree: 4, rewire: 0.3 }.build(20, 1).unwrap();
        assert_eq!(small_world.edges().count(), 40);
    }

    #[test]
    fn bad_parameters_are_refused_by_name() {
        let refused = |topology: Topology, n| match topology.build(n, 0).unwrap_err() {
            GraphError::Parameter { parameter, .. } => parameter,
            other => panic!("{other}"),
        };
        assert_eq!(refused(Topology::Hypercube, 10), "agents");
        assert_eq!(refused(Topology::ErdosRenyi { p: 0.0 }, 10), "p");
        assert_eq!(refused(Topology::ErdosRenyi { p: f64::NAN }, 10), "p");
        assert_eq!(refused(Topology::RandomRegular { degree: 3 }, 5), "degree");
        assert_eq!(refused(Topology::RandomRegular { degree: 5 }, 5), "degree");
        assert_eq!(refused(Topology::SmallWorld { degree: 3, rewire: 0.1 }, 9), "degree");
        let sparse = Topology::ErdosRenyi { p: 0.01 }.build(30, 0);
        assert!(matches!(sparse, Err(GraphError::Disconnected { .. })));
    }

    proptest! {
        #[test]
        fn every_topology_is_connected_and_a_function_of_its_seed(n in 1usize..40, seed in 0u64..5) {
            let random = [
                Topology::RandomRegular { degree: 4 },
                Topology::SmallWorld { degree: 4, rewire: 0.2 },
                Topology::ErdosRenyi { p: 0.5 },
            ];
            for topology in FIXED.into_iter().chain(random) {
                if let Ok(graph) = topology.build(n, seed) {
                    prop_assert_eq!(graph.components().len(), 1);
                    prop_assert_eq!(Ok(graph), topology.build(n, seed));
                } else {
                    prop_assert!(!FIXED.contains(&topology));
                }
            }
        }
    }
}
