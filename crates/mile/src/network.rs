//! A graph with its mixing matrix and the drop rate of its edges.

use std::sync::OnceLock;

use rand::RngExt;

use crate::graph::{Graph, GraphError};
use crate::mixing::{MixingError, MixingMatrix, Rule};
use crate::random::{Purpose, stream};
use crate::sparse::SparseRows;
use crate::spectrum::{self, Extremes, Spectrum};

/// A communication network: a connected graph, a mixing matrix on it, and the probability that an edge drops.
#[derive(Clone, Debug)]
pub struct Network {
    graph: Graph,
    mixing: MixingMatrix,
    drop_rate: f64,
    spectrum: OnceLock<Spectrum>,
}

/// Why a network is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The graph is invalid or disconnected.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The mixing matrix violates Assumption 3 or does not match the graph.
    #[error(transparent)]
    Mixing(#[from] MixingError),
    /// The drop rate is not in [0, 1).
    #[error("drop_rate = {0} is out of range: it must be a probability in [0, 1)")]
    DropRate(f64),
}

impl Network {
    /// A connected graph with the mixing matrix of a rule.
    ///
    /// ```
    /// use mile::{graph::Topology, mixing::Rule, network::Network};
    /// let ring = Network::new(Topology::Ring.build(10, 0)?, Rule::Metropolis)?;
    /// assert!((ring.extremes().lambda_n + 1.0 / 3.0).abs() < 1e-12);
    /// # Ok::<(), mile::network::NetworkError>(())
    /// ```
    pub fn new(graph: Graph, rule: Rule) -> Result<Self, NetworkError> {
        let graph = graph.connected()?;
        let mixing = rule.matrix(&graph)?;
        Self::with_matrix(graph, mixing)
    }

    /// A connected graph with a mixing matrix of your own, made for this graph.
    pub fn with_matrix(graph: Graph, mixing: MixingMatrix) -> Result<Self, NetworkError> {
        let graph = graph.connected()?;
        mixing.check_graph(&graph)?;
        Ok(Self { graph, mixing, drop_rate: 0.0, spectrum: OnceLock::new() })
    }

    /// The same network, in which each edge is down in a communication round with this probability.
    pub fn with_drop_rate(mut self, drop_rate: f64) -> Result<Self, NetworkError> {
        if !(0.0..1.0).contains(&drop_rate) {
            return Err(NetworkError::DropRate(drop_rate));
        }
        self.drop_rate = drop_rate;
        Ok(self)
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        self.graph.agents()
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The mixing matrix.
    pub fn mixing(&self) -> &MixingMatrix {
        &self.mixing
    }

    /// Probability that an edge is down in a round.
    pub fn drop_rate(&self) -> f64 {
        self.drop_rate
    }

    /// The eigenvalues of the mixing matrix, computed at the first call.
    pub fn spectrum(&self) -> &Spectrum {
        self.spectrum.get_or_init(|| spectrum::spectrum(self.mixing.rows()))
    }

    /// The largest, second largest and smallest eigenvalue of the mixing matrix.
    pub fn extremes(&self) -> Extremes {
        self.spectrum().extremes()
    }

    /// Whether one exchange gives every agent the average over all agents: W = 11'/N.
    pub fn averages_at_once(&self) -> bool {
        let n = self.agents();
        let share = 1.0 / n as f64;
        let rows = self.mixing.rows();
        rows.entries.len() == n * n && rows.entries.iter().all(|(_, w)| (w - share).abs() < 1e-12)
    }

    /// Whether the edge between two agents is up in a communication round: a function of (seed, edge, round), so
    /// that both agents get the same answer without communicating.
    pub fn edge_is_up(&self, seed: u64, i: usize, j: usize, round: u64) -> bool {
        if self.drop_rate == 0.0 {
            return true;
        }
        let edge = (i.min(j) * self.agents() + i.max(j)) as u64;
        !stream(seed, Purpose::Drop, edge, round).random_bool(self.drop_rate)
    }

    /// The rows of W.
    pub fn rows(&self) -> SparseRows {
        self.mixing.rows().clone()
    }

    /// One agent's row of W in a communication round, with weight 0 for every edge that is down. Since an edge is
    /// down at both ends, the average over agents is preserved. Returns the number of edges that are up.
    pub fn row_in_round(&self, seed: u64, agent: usize, round: u64, row: &mut [(usize, f64)]) -> u64 {
        row.copy_from_slice(self.mixing.rows().row(agent));
        let mut up = 0;
        for (j, w) in row.iter_mut().filter(|(j, _)| *j != agent) {
            if self.edge_is_up(seed, agent, *j, round) {
                up += 1;
            } else {
                *w = 0.0;
            }
        }
        up
    }

    /// The rows of all agents in a communication round, in place; returns the number of messages sent.
    pub(crate) fn rows_in_round(&self, seed: u64, round: u64, rows: &mut SparseRows) -> u64 {
        let n = self.agents();
        if self.drop_rate == 0.0 {
            return (rows.entries.len() - n) as u64;
        }
        let mut messages = 0;
        for agent in 0..n {
            let range = rows.starts[agent]..rows.starts[agent + 1];
            messages += self.row_in_round(seed, agent, round, &mut rows.entries[range]);
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Topology;

    #[test]
    fn an_edge_is_down_at_both_its_ends() {
        let network = Network::new(Topology::Ring.build(9, 0).unwrap(), Rule::Metropolis).unwrap();
        let network = network.with_drop_rate(0.4).unwrap();
        let (mut rows, mut down) = (network.rows(), 0);
        for round in 0..200 {
            let messages = network.rows_in_round(5, round, &mut rows);
            assert_eq!(messages % 2, 0);
            down += 18 - messages;
            for i in 0..9 {
                for &(j, w) in rows.row(i) {
                    let back = rows.row(j).iter().find(|(k, _)| *k == i).unwrap().1;
                    assert_eq!(w, back);
                }
            }
        }
        let rate = down as f64 / (18.0 * 200.0);
        assert!((rate - 0.4).abs() < 0.05, "{rate}");
    }

    #[test]
    fn drop_rates_outside_their_range_are_refused() {
        let network = Network::new(Topology::Ring.build(3, 0).unwrap(), Rule::Metropolis).unwrap();
        for bad in [-0.1, 1.0, f64::NAN] {
            assert!(network.clone().with_drop_rate(bad).is_err());
        }
    }
}
