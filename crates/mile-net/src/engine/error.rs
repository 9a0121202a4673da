//! Errors of an engine, and how an agent left.

use std::net::SocketAddr;

use crate::checkpoint::CheckpointError;

/// Why an engine does not start, or stops.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkEngineError {
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The address to listen on cannot be bound.
    #[error("cannot listen on {listen}: {source}; choose another address, or stop the process that uses it")]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// What the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The status socket or the metrics cannot be served.
    #[error(
        "cannot serve {what} on {at}: {source}; choose another address or path, or stop the process that uses it"
    )]
    Serve {
        /// Status or metrics.
        what: &'static str,
        /// Where.
        at: String,
        /// What the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Threads cannot be started.
    #[error("cannot start the network threads: {0}")]
    Threads(std::io::Error),
    /// A thread of the network panicked.
    #[error("{}", super::panics::explain(.0))]
    Panicked(String),
    /// A checkpoint could not be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Nothing arrived from some neighbours for as long as the timeout.
    #[error("gave up waiting in round {round}: {}; start the agent again when they are back", .who.join("; "))]
    TimedOut {
        /// In which round.
        round: u64,
        /// For whom, for what and for how long.
        who: Vec<String>,
    },
}

impl NetworkEngineError {
    pub(super) fn serve(
        what: &'static str,
        at: impl std::fmt::Display,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Serve { what, at: at.to_string(), source: source.into() }
    }
}

/// How an agent left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// Neighbours that have not confirmed that the last message is part of a checkpoint. If one of them has to restart from
    /// an earlier one, this agent must be started again, too: its own checkpoint has the messages that are needed.
    pub unconfirmed: Vec<usize>,
}
