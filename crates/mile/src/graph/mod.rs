//! Communication graphs: which agents are neighbours.

pub(crate) mod parse;
mod topology;

pub use topology::Topology;

use crate::refusal;

/// An undirected graph without self-loops; agents are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    neighbours: Vec<Vec<usize>>,
}

/// A graph that cannot be built or used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The number of agents is 0.
    #[error("a network needs at least one agent, got 0")]
    NoAgents,
    /// An edge refers to an agent number that is too large.
    #[error("edge {from}-{to} names an agent that does not exist: agents are numbered 0 to {}", agents - 1)]
    NoSuchAgent {
        /// One end.
        from: usize,
        /// The other end.
        to: usize,
        /// Number of agents.
        agents: usize,
    },
    /// The graph is not connected.
    #[error(
        "the graph is disconnected: {} components, {}; add an edge between them (for a random graph: another network.seed, or more edges)",
        components.len(),
        describe(components)
    )]
    Disconnected {
        /// The agents of each component, largest first.
        components: Vec<Vec<usize>>,
    },
    /// A parameter of a topology is out of range.
    #[error("topology {topology}: {parameter}: {}", refusal::expected(.expected, .got))]
    Parameter {
        /// Name of the topology.
        topology: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// The value given.
        got: String,
        /// The values allowed.
        expected: String,
    },
    /// A line of an edge list or a matrix cannot be read.
    #[error("line {line}: {problem}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

fn describe(components: &[Vec<usize>]) -> String {
    let name = |agents: &Vec<usize>| {
        let shown: Vec<String> = agents.iter().take(8).map(usize::to_string).collect();
        let more = if agents.len() > 8 { format!(", ... {} agents", agents.len()) } else { String::new() };
        format!("{{{}{more}}}", shown.join(", "))
    };
    let shown: Vec<String> = components.iter().take(6).map(name).collect();
    let more = if components.len() > 6 { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

impl Graph {
    /// The graph with these edges; duplicate edges and self-loops are ignored.
    pub fn from_edges(
        agents: usize,
        edges: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<Self, GraphError> {
        if agents == 0 {
            return Err(GraphError::NoAgents);
        }
        let mut neighbours = vec![Vec::new(); agents];
        for (from, to) in edges {
            if from >= agents || to >= agents {
                return Err(GraphError::NoSuchAgent { from, to, agents });
            }
            if from != to {
                neighbours[from].push(to);
                neighbours[to].push(from);
            }
        }
        for list in &mut neighbours {
            list.sort_unstable();
            list.dedup();
        }
        Ok(Self { neighbours })
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        self.neighbours.len()
    }

    /// Neighbours of an agent, in increasing order.
    pub fn neighbours(&self, agent: usize) -> &[usize] {
        &self.neighbours[agent]
    }

    /// Number of neighbours of an agent.
    pub fn degree(&self, agent: usize) -> usize {
        self.neighbours[agent].len()
    }

    /// Largest degree.
    pub fn max_degree(&self) -> usize {
        self.neighbours.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Whether two agents are neighbours.
    pub fn has_edge(&self, i: usize, j: usize) -> bool {
        self.neighbours[i].binary_search(&j).is_ok()
    }

    /// Every edge once, as (smaller, larger), in increasing order.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let later = |i: usize| self.neighbours[i].iter().filter(move |j| **j > i).map(move |j| (i, *j));
        (0..self.agents()).flat_map(later)
    }

    /// The connected components, largest first, each with its agents in increasing order.
    pub fn components(&self) -> Vec<Vec<usize>> {
        let mut seen = vec![false; self.agents()];
        let mut components = Vec::new();
        for first in 0..self.agents() {
            if std::mem::replace(&mut seen[first], true) {
                continue;
            }
            let mut component = vec![first];
            let mut next = 0;
            while next < component.len() {
                for &j in &self.neighbours[component[next]] {
                    if !std::mem::replace(&mut seen[j], true) {
                        component.push(j);
                    }
                }
                next += 1;
            }
            component.sort_unstable();
            components.push(component);
        }
        components.sort_by_key(|component| std::cmp::Reverse(component.len()));
        components
    }

    /// The graph itself if it is connected; otherwise an error with its components.
    pub fn connected(self) -> Result<Self, GraphError> {
        let components = self.components();
        if components.len() == 1 { Ok(self) } else { Err(GraphError::Disconnected { components }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disconnected_graph_is_refused_with_its_components() {
        let graph = Graph::from_edges(5, [(0, 3), (1, 2), (2, 4)]).unwrap();
        let refusal = graph.connected().unwrap_err();
        assert_eq!(refusal, GraphError::Disconnected { components: vec![vec![1, 2, 4], vec![0, 3]] });
    }

    #[test]
    fn duplicate_edges_and_self_loops_are_ignored() {
        let graph = Graph::from_edges(3, [(0, 1), (1, 0), (2, 2), (1, 2)]).unwrap();
        assert_eq!(graph.edges().collect::<Vec<_>>(), [(0, 1), (1, 2)]);
        assert_eq!(Graph::from_edges(0, []), Err(GraphError::NoAgents));
        assert!(matches!(Graph::from_edges(2, [(0, 2)]), Err(GraphError::NoSuchAgent { to: 2, .. })));
    }
}
