//! Why agents cannot be hosted.

use crate::verbs::MOST_VECTORS;

/// Agents, a problem and a starting point that do not go together, or do not fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulatorError {
    /// The problem is for another number of agents.
    #[error(
        "the problem has objectives for {problem} agents and the network has {network}: make them the same number"
    )]
    Agents {
        /// Objectives of the problem.
        problem: usize,
        /// Agents of the network.
        network: usize,
    },
    /// A starting point of another shape.
    #[error(
        "the starting point has {got} numbers, takes {dim} (one point for all agents) or {agents} times as many (one for each)"
    )]
    Start {
        /// Numbers given.
        got: usize,
        /// Dimension of the problem.
        dim: usize,
        /// Number of agents.
        agents: usize,
    },
    /// Vectors that no memory can hold.
    #[error(
        "{vectors} vectors of dimension {dim} for {agents} agents do not fit into memory: use fewer agents, a smaller problem, or agents on several machines"
    )]
    TooLarge {
        /// Number of agents.
        agents: usize,
        /// Dimension of the problem.
        dim: usize,
        /// Vectors the method works with.
        vectors: usize,
    },
    /// A method that works with no vectors, or with more than an engine has room for.
    #[error("the method works with {vectors} vectors, takes from 1 to {MOST_VECTORS}")]
    Vectors {
        /// Vectors the method works with.
        vectors: usize,
    },
    /// A problem with a penalty, and a method that would minimise without it.
    #[error(
        "the problem has a penalty, and the method has no proximal step: use Extra, Ed, ProxNids, Dsgd or LocalDsgd"
    )]
    Penalty,
}
