//! Errors of an engine, and how an agent left.

use std::io::ErrorKind;
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
    #[error("cannot listen on {listen}: {}", cause(&**source))]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// What the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The status socket or the metrics cannot be served.
    #[error("cannot serve {what} on {at}: {}", cause(&**source))]
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

    /// What the system said about an address that cannot be used, such as that another process uses it.
    pub fn address_error(&self) -> Option<ErrorKind> {
        match self {
            Self::Bind { source, .. } | Self::Serve { source, .. } => system_error(&**source),
            _ => None,
        }
    }
}

/// An error and those that caused it, the innermost last.
fn chain<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// What the system said, if it is among the causes of an error.
fn system_error(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    chain(error).filter_map(|cause| cause.downcast_ref::<std::io::Error>()).last().map(std::io::Error::kind)
}

/// Why a socket cannot be used, and what to do.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    match system_error(error) {
        Some(ErrorKind::AddrInUse) => {
            "another process uses it; stop that process, or choose another port or path".into()
        }
        Some(ErrorKind::AddrNotAvailable) => {
            "this machine does not have this address; give one that it has, or 0.0.0.0 for all of them".into()
        }
        Some(ErrorKind::PermissionDenied) => {
            "it is not allowed; choose a port from 1024 on, or a path that you can write to".into()
        }
        _ => format!("{}; choose another address or path", chain(error).last().unwrap_or(error)),
    }
}

/// How an agent left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departure {
    /// Neighbours that have not confirmed that the last message is part of a checkpoint. If one of them has to restart from
    /// an earlier one, this agent must be started again, too: its own checkpoint has the messages that are needed.
    pub unconfirmed: Vec<usize>,
}
