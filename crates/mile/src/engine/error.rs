//! Why an engine cannot host agents.

use crate::agents::Failure;
use crate::verbs::MOST_VECTORS;

/// Why an engine cannot host agents: they do not match the problem, method or starting point, do not fit, or the engine cannot
/// be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The problem is for a different number of agents.
    #[error(
        "agents: expected {problem}, one for each objective of the problem, got a network of {network}; make them the same number"
    )]
    Agents {
        /// Objectives of the problem.
        problem: usize,
        /// Agents of the network.
        network: usize,
    },
    /// A starting point with the wrong shape.
    #[error(
        "starting point: expected {dim} numbers (one point for all agents) or {agents} times as many (one for each), got {got}"
    )]
    Start {
        /// Numbers given.
        got: usize,
        /// Dimension of the problem.
        dim: usize,
        /// Number of agents.
        agents: usize,
    },
    /// Vectors too large for any memory.
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
    #[error("vectors of the method: expected 1 to {MOST_VECTORS}, got {vectors}")]
    Vectors {
        /// Vectors the method works with.
        vectors: usize,
    },
    /// A problem with a penalty, and a method that would ignore it.
    #[error(
        "the problem has a penalty, and the method has no proximal step: use Extra, Ed, ProxNids, Dsgd or LocalDsgd"
    )]
    Penalty,
    /// A method that steps along matrices, and a problem whose variable has none that it knows of.
    #[error(
        "optimizer: expected a problem whose variable consists of matrices, such as a neural network, got one without; use \"adamw\""
    )]
    Matrices,
    /// The device on which agents are to compute cannot be used, or has too little memory.
    #[error("{0}")]
    Device(#[source] Failure),
    /// The engine could not be created.
    #[error("{0}")]
    Engine(#[source] Failure),
}
