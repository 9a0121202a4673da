//! A graph with its mixing matrix, which of its edges are used in a round, and their drop rate.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rand::RngExt;

use crate::graph::{Graph, GraphError};
use crate::mixing::{MixingError, MixingMatrix, Rule};
use crate::outages::{Bursts, Outages};
use crate::random::{Purpose, stream};
use crate::sparse::SparseRows;
use crate::spectrum::{self, Extremes, Spectrum};
use crate::varying::{TimeVarying, WeightedGraph};

/// A communication network: a connected graph, a mixing matrix on it, how it changes from round to round, and the
/// probability that an edge drops.
#[derive(Clone, Debug)]
pub struct Network {
    graph: Graph,
    mixing: MixingMatrix,
    varying: Option<TimeVarying>,
    drop_rate: f64,
    bursts: Option<Bursts>,
    absence: Option<Outages>,
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
    #[error("drop_rate: expected a probability in [0, 1), got {0}")]
    DropRate(f64),
    /// A time-varying graph has no graph to use.
    #[error("a time-varying graph needs at least one graph to use in turn")]
    NoTurns,
    /// A graph of a round has an edge that the network does not have.
    #[error("graph {turn} of those used in turn has the edge {i}-{j}, which the network's graph lacks")]
    StrangeEdge {
        /// The number of the graph, from 0.
        turn: usize,
        /// The smaller agent.
        i: usize,
        /// The larger agent.
        j: usize,
    },
    /// Graphs that set their own weights come with their network.
    #[error(
        "graphs that set their own weights cannot be combined with another network: use Network::in_turn"
    )]
    OwnWeights,
    /// An edge of the network is never used.
    #[error("the edge {0}-{1} is in none of the graphs used in turn: leave it out of the network's graph")]
    UnusedEdge(usize, usize),
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
        let (varying, bursts, absence) = (None, None, None);
        Ok(Self { graph, mixing, varying, drop_rate: 0.0, bursts, absence, spectrum: OnceLock::new() })
    }

    /// Graphs that set their own weights, one after the other, then again from the first. The network's graph has the edges of all of them, and its mixing matrix is their
    /// mean.
    ///
    /// ```
    /// use mile::{network::Network, varying::finite};
    /// let network = Network::in_turn(finite::base_k(25, 1))?;
    /// assert_eq!(network.time_varying().map(ToString::to_string).as_deref(), Some("9 graphs with weights in turn"));
    /// # Ok::<(), mile::network::NetworkError>(())
    /// ```
    pub fn in_turn(turns: Vec<WeightedGraph>) -> Result<Self, NetworkError> {
        let Some(first) = turns.first() else { return Err(NetworkError::NoTurns) };
        let agents = first.graph().agents();
        let mut sums: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (i, j, weight) in turns.iter().flat_map(WeightedGraph::edges) {
            *sums.entry((i, j)).or_default() += weight;
        }
        let graph = Graph::from_edges(agents, sums.keys().copied())?.connected()?;
        let mean = |i: usize, j: usize| sums[&(i.min(j), i.max(j))] / turns.len() as f64;
        let mixing = MixingMatrix::from_edges(&graph, mean)?;
        let network = Self::with_matrix(graph, mixing)?;
        Ok(Self { varying: Some(TimeVarying::WeightedInTurn(turns)), ..network })
    }

    /// The same network, with each edge down in a communication round with this probability.
    pub fn with_drop_rate(mut self, drop_rate: f64) -> Result<Self, NetworkError> {
        if !(0.0..1.0).contains(&drop_rate) {
            return Err(NetworkError::DropRate(drop_rate));
        }
        self.drop_rate = drop_rate;
        Ok(self)
    }

    /// The same network, with bursts of loss on each edge.
    pub fn with_bursts(self, bursts: Bursts) -> Self {
        Self { bursts: Some(bursts), ..self }
    }

    /// The same network, with agents that are away now and then: all edges of an agent that is away are down.
    pub fn with_absence(self, absence: Outages) -> Self {
        Self { absence: Some(absence), ..self }
    }

    /// The same network, with only some of its edges used in each round. Their weights are those of the mixing matrix.
    ///
    /// ```
    /// use mile::{graph::Topology, mixing::Rule, network::Network, varying::TimeVarying};
    /// let torus = Network::new(Topology::Torus.build(16, 0)?, Rule::Metropolis)?;
    /// let gossip = torus.with_time_varying(TimeVarying::RandomMatching)?;
    /// let neighbours = |round| (0..16).filter(|j| *j != 3 && gossip.edge_is_up(0, 3, *j, round)).count();
    /// assert!((0..100).all(|round| neighbours(round) <= 1));
    /// # Ok::<(), mile::network::NetworkError>(())
    /// ```
    pub fn with_time_varying(mut self, varying: TimeVarying) -> Result<Self, NetworkError> {
        if let TimeVarying::WeightedInTurn(_) = &varying {
            return Err(NetworkError::OwnWeights);
        }
        if let TimeVarying::InTurn(graphs) = &varying {
            if graphs.is_empty() && self.graph.edges().next().is_some() {
                return Err(NetworkError::NoTurns);
            }
            for (turn, graph) in graphs.iter().enumerate() {
                if let Some((i, j)) =
                    graph.edges().find(|(i, j)| *j >= self.agents() || !self.graph.has_edge(*i, *j))
                {
                    return Err(NetworkError::StrangeEdge { turn, i, j });
                }
            }
            let unused = |(i, j): &(usize, usize)| !graphs.iter().any(|graph| graph.has_edge(*i, *j));
            if let Some((i, j)) = self.graph.edges().find(unused) {
                return Err(NetworkError::UnusedEdge(i, j));
            }
        }
        self.varying = Some(varying);
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

    /// Bursts of loss on its edges, if there are any.
    pub fn bursts(&self) -> Option<&Bursts> {
        self.bursts.as_ref()
    }

    /// When its agents are away, if they ever are.
    pub fn absence(&self) -> Option<&Outages> {
        self.absence.as_ref()
    }

    /// How the graph changes from round to round, if it does.
    pub fn time_varying(&self) -> Option<&TimeVarying> {
        self.varying.as_ref()
    }

    /// Whether the edges that are used differ from round to round.
    pub fn varies(&self) -> bool {
        self.loses_edges() || self.varying.is_some()
    }

    /// Whether edges are down at random: single ones, in bursts, or because an agent is away.
    pub fn loses_edges(&self) -> bool {
        self.drop_rate > 0.0 || self.bursts.is_some() || self.absence.is_some()
    }

    /// The share of the rounds in which an edge that would be used is not down.
    pub fn kept_share(&self) -> f64 {
        let bursts = self.bursts.map_or(0.0, |bursts| bursts.share());
        let away = self.absence.map_or(0.0, |absence| absence.share());
        (1.0 - self.drop_rate) * (1.0 - bursts) * (1.0 - away) * (1.0 - away)
    }

    /// The settings that make the edges differ from round to round, in words.
    pub fn variation(&self) -> String {
        let varying = self.varying.as_ref().map(|varying| format!("time_varying = {varying}"));
        let drops = (self.drop_rate > 0.0).then(|| format!("drop_rate = {}", self.drop_rate));
        let bursts = self.bursts.map(|bursts| {
            let (begin, end) = (bursts.during.begin(), bursts.during.end());
            format!("bursts = {{ begin = {begin}, end = {end}, loss = {} }}", bursts.loss)
        });
        let absence = self
            .absence
            .map(|absence| format!("absence = {{ begin = {}, end = {} }}", absence.begin(), absence.end()));
        let all = [varying, drops, bursts, absence];
        all.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    /// The mean number of messages in an exchange, two for each edge that is used.
    pub fn mean_messages(&self) -> f64 {
        let all = || self.graph.edges().count() as f64;
        let edges = self.varying.as_ref().map_or_else(all, |varying| varying.mean_edges(&self.graph));
        2.0 * edges * self.kept_share()
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
        let uses = |varying: &TimeVarying| varying.uses(&self.graph, seed, (i, j), round);
        self.varying.as_ref().is_none_or(uses) && !self.drops(seed, i, j, round)
    }

    /// The weight of an edge in a communication round, unless it is down.
    pub fn weight_in_round(&self, seed: u64, (i, j): (usize, usize), round: u64) -> Option<f64> {
        let weight = || self.own_weight((i, j), round).unwrap_or_else(|| self.mixing.weight(i, j));
        self.edge_is_up(seed, i, j, round).then(weight)
    }

    fn own_weight(&self, edge: (usize, usize), round: u64) -> Option<f64> {
        self.varying.as_ref().and_then(|varying| varying.own_weight(edge, round))
    }

    fn drops(&self, seed: u64, i: usize, j: usize, round: u64) -> bool {
        if !self.loses_edges() {
            return false;
        }
        let edge = (i.min(j) * self.agents() + i.max(j)) as u64;
        let is_away = |absence: &Outages| {
            [i, j].iter().any(|agent| absence.is_out(seed, Purpose::Absence, *agent as u64, round))
        };
        (self.drop_rate > 0.0 && stream(seed, Purpose::Drop, edge, round).random_bool(self.drop_rate))
            || self.bursts.is_some_and(|bursts| bursts.lose(seed, edge, round))
            || self.absence.as_ref().is_some_and(is_away)
    }

    /// The rows of W.
    pub fn rows(&self) -> SparseRows {
        self.mixing.rows().clone()
    }

    /// One agent's row of W in a communication round, with weight 0 for every edge that is down. Since an edge is
    /// down at both ends, the average over agents is preserved. Returns the number of edges that are up.
    pub fn row_in_round(&self, seed: u64, agent: usize, round: u64, row: &mut [(usize, f64)]) -> u64 {
        self.row_with((agent, round), row, |j| self.edge_is_up(seed, agent, j, round))
    }

    fn row_with(
        &self,
        (agent, round): (usize, u64),
        row: &mut [(usize, f64)],
        is_up: impl Fn(usize) -> bool,
    ) -> u64 {
        row.copy_from_slice(self.mixing.rows().row(agent));
        let mut up = 0;
        for (j, w) in row.iter_mut().filter(|(j, _)| *j != agent) {
            if is_up(*j) {
                up += 1;
                if let Some(own) = self.own_weight((agent, *j), round) {
                    *w = own;
                }
            } else {
                *w = 0.0;
            }
        }
        up
    }

    /// The rows of all agents in a communication round, in place; returns the number of messages sent.
    pub fn rows_in_round(&self, seed: u64, round: u64, rows: &mut SparseRows) -> u64 {
        let n = self.agents();
        if !self.varies() {
            return (rows.entries.len() - n) as u64;
        }
        let choices = self.varying.as_ref().and_then(|varying| varying.choices(&self.graph, seed, round));
        let mut messages = 0;
        for agent in 0..n {
            let row = &mut rows.entries[rows.starts[agent]..rows.starts[agent + 1]];
            messages += match &choices {
                Some(choices) => {
                    let chosen = |j: usize| choices[agent] == j && choices[j] == agent;
                    self.row_with((agent, round), row, |j| chosen(j) && !self.drops(seed, agent, j, round))
                }
                None => self.row_in_round(seed, agent, round, row),
            };
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
    fn rows_of_a_time_varying_graph_are_those_of_its_agents() {
        let ring = Network::new(Topology::Ring.build(9, 0).unwrap(), Rule::Metropolis).unwrap();
        let turns = TimeVarying::matchings(ring.graph());
        for varying in [TimeVarying::RandomMatching, turns] {
            for drop_rate in [0.0, 0.3] {
                let network = ring.clone().with_time_varying(varying.clone()).unwrap();
                let network = network.with_drop_rate(drop_rate).unwrap();
                let (mut rows, mut row, mut total) = (network.rows(), [(0, 0.0); 3], 0);
                for round in 0..300 {
                    let messages = network.rows_in_round(5, round, &mut rows);
                    let mut expected = 0;
                    for agent in 0..9 {
                        let up = network.row_in_round(5, agent, round, &mut row);
                        assert_eq!(rows.row(agent), row);
                        assert!(up <= 1, "a matching");
                        expected += up;
                    }
                    assert_eq!(messages, expected);
                    total += messages;
                }
                let (mean, expected) = (total as f64 / 300.0, network.mean_messages());
                assert!((mean - expected).abs() < 0.1 * expected, "{varying:?}: {mean} {expected}");
            }
        }
    }

    #[test]
    fn graphs_in_turn_have_the_edges_of_the_network_and_no_others() {
        let path = Network::new(Topology::Path.build(3, 0).unwrap(), Rule::Metropolis).unwrap();
        let graph = |edges: &[(usize, usize)]| Graph::from_edges(3, edges.iter().copied()).unwrap();
        let refusal = |graphs| path.clone().with_time_varying(TimeVarying::InTurn(graphs)).unwrap_err();
        assert_eq!(refusal(vec![]), NetworkError::NoTurns);
        assert_eq!(refusal(vec![graph(&[(0, 1)])]), NetworkError::UnusedEdge(1, 2));
        let strange = NetworkError::StrangeEdge { turn: 1, i: 0, j: 2 };
        assert_eq!(refusal(vec![graph(&[(0, 1), (1, 2)]), graph(&[(0, 2)])]), strange);
        let alone = Network::new(Topology::Ring.build(1, 0).unwrap(), Rule::Metropolis).unwrap();
        let turns = TimeVarying::matchings(alone.graph());
        assert_eq!(alone.with_time_varying(turns).unwrap().mean_messages(), 0.0);
    }

    #[test]
    fn drop_rates_outside_their_range_are_refused() {
        let network = Network::new(Topology::Ring.build(3, 0).unwrap(), Rule::Metropolis).unwrap();
        for bad in [-0.1, 1.0, f64::NAN] {
            assert!(network.clone().with_drop_rate(bad).is_err());
        }
    }
}
