//! How links end.

use std::time::Duration;

use crate::protocol::Fault;

/// A connection on which nothing arrives for this long is lost.
pub(super) const IDLE: Duration = Duration::from_millis(2500);
/// An end that has nothing to send shows this often that it is alive.
pub(super) const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// How long the last frame of a link may take to be sent or to arrive.
pub(super) const LAST_FRAME: Duration = Duration::from_secs(2);

/// The message to a client whose key is not listed.
pub(super) const NOT_LISTED: &str = "your key is not listed as a neighbour here";

/// How a link ended.
#[derive(Debug)]
pub(super) enum LinkEnd {
    /// One end closed it for a reason.
    Fault(Fault),
    /// The neighbour has nothing more to send, and closed it.
    ClosedByNeighbour,
    /// This agent has nothing more to send, and closed it.
    ClosedByUs,
    /// The network, or the neighbour, failed.
    Lost(String),
}

impl LinkEnd {
    /// The neighbour refuses this agent, with its words.
    pub(super) fn refused_by_neighbour(words: &[u8]) -> Self {
        Self::Fault(Fault::RefusedByNeighbour(crate::words::words(words)))
    }

    /// The neighbour has another connection to this agent.
    pub(super) fn superseded_by_neighbour() -> Self {
        Self::Fault(Fault::Superseded("closed by the neighbour in favour of another connection"))
    }

    /// The neighbour's process ended, or was killed.
    pub(super) fn not_closed() -> Self {
        Self::Lost("the neighbour exited without closing it".into())
    }

    /// An incomplete frame.
    pub(super) fn within_a_frame() -> Self {
        Self::Lost("the stream ended in the middle of a frame".into())
    }
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::ClosedByNeighbour => "closed by the neighbour".fmt(f),
            Self::ClosedByUs => "closed by this agent".fmt(f),
            Self::Lost(why) => why.fmt(f),
        }
    }
}
