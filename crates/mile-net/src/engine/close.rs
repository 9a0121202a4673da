//! How links end, and the codes with which their connections are closed.

use iroh::endpoint::{ConnectionError, VarInt};

use crate::session::Fault;

/// Closed in good order.
pub(super) const GOODBYE: VarInt = VarInt::from_u32(0);
/// Closed because one end refuses the other.
pub(super) const REFUSED: VarInt = VarInt::from_u32(1);
/// Closed because another connection takes its place.
pub(super) const SUPERSEDED: VarInt = VarInt::from_u32(2);

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
    /// What the loss of a connection means.
    pub(super) fn of(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) if close.error_code == REFUSED => {
                let text: String = String::from_utf8_lossy(&close.reason).escape_debug().collect();
                Self::Fault(Fault::RefusedByNeighbour(text))
            }
            ConnectionError::ApplicationClosed(close) if close.error_code == SUPERSEDED => {
                Self::Fault(Fault::Superseded("closed by the neighbour for another connection"))
            }
            // What the library sends for a connection that is dropped.
            ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => {
                Self::Lost("the neighbour ended without closing it".into())
            }
            ConnectionError::ApplicationClosed(_) => Self::ClosedByNeighbour,
            error => Self::Lost(error.to_string()),
        }
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
