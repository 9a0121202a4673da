//! What can go wrong with an agent's engine.

use std::net::SocketAddr;

use crate::checkpoint::CheckpointError;

/// Why an engine does not start, or stops.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Settings that cannot be meant.
    #[error("{0}")]
    Settings(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {source}; choose another address or end whatever uses it")]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The status socket or the metrics cannot be served.
    #[error("cannot serve {what} on {at}: {source}")]
    Serve {
        /// Status or metrics.
        what: &'static str,
        /// Where.
        at: String,
        /// What the system says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Threads cannot be started.
    #[error("cannot start the network threads: {0}")]
    Threads(std::io::Error),
    /// The disk will not have a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Neighbours were waited for as long as the settings allow.
    #[error("gave up waiting in round {round}: {}", .who.join("; "))]
    TimedOut {
        /// In which round.
        round: u64,
        /// For whom, for how long, and what is known about it.
        who: Vec<String>,
    },
}

impl EngineError {
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
    /// Neighbours that have not said that the last message is on their disk. Should one of them have to restart from
    /// before it, this agent must be started again, too; its checkpoint has what they need.
    pub unconfirmed: Vec<usize>,
}
