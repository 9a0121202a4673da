//! What an engine needs from a transport: an endpoint that dials and accepts, and connections that carry frames in both directions.
//!
//! There are two. [`quic`](super::quic) crosses NAT and relays and tolerates lossy lines; [`tcp`](super::tcp) uses a third of the CPU time on
//! networks that need none of that. Keys, admission and frames are the same.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::close::LinkEnd;
use super::purpose::Purpose;
use super::shared::Route;
use super::start::Start;
use super::{NetworkEngineError, Peer, quic, tcp};
use crate::frame::HEAD;

/// The transport between neighbours. Both ends of an edge need the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// QUIC, over UDP.
    #[default]
    Quic,
    /// TLS 1.3 over TCP, for machines that reach each other directly.
    Tcp,
}

/// Dials neighbours, and accepts connections from them.
pub(super) enum Endpoint {
    Quic(quic::Endpoint),
    Tcp(Box<tcp::Endpoint>),
}

impl Endpoint {
    /// Binds the address.
    pub(super) async fn bind(transport: Transport, start: Start) -> Result<Self, NetworkEngineError> {
        match transport {
            Transport::Quic => quic::Endpoint::bind(start).await.map(Self::Quic),
            Transport::Tcp => tcp::Endpoint::bind(start).map(|bound| Self::Tcp(Box::new(bound))),
        }
    }

    /// The address it listens on.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Quic(endpoint) => endpoint.address(),
            Self::Tcp(endpoint) => endpoint.address(),
        }
    }

    /// Connects to a neighbour, whose key is proven when this returns.
    pub(super) async fn connect(&self, peer: &Peer, purpose: Purpose) -> Result<Connection, LinkEnd> {
        match self {
            Self::Quic(endpoint) => endpoint.connect(peer, purpose).await.map(Connection::Quic),
            Self::Tcp(endpoint) => endpoint.connect(peer, purpose).await.map(Connection::Tcp),
        }
    }

    /// The next that connects; none if the endpoint has been closed.
    pub(super) async fn accept(&self) -> Option<Incoming> {
        match self {
            Self::Quic(endpoint) => endpoint.accept().await.map(|first| Incoming::Quic(Box::new(first))),
            Self::Tcp(endpoint) => Some(Incoming::Tcp(endpoint.accept().await)),
        }
    }

    /// Waits until the other ends know that their connections are closed.
    pub(super) async fn close(&self) {
        match self {
            Self::Quic(endpoint) => endpoint.close().await,
            // The system sends what is left.
            Self::Tcp(_) => {}
        }
    }
}

/// A connecting client, of which only the address is known.
pub(super) enum Incoming {
    Quic(Box<quic::Incoming>),
    Tcp(tcp::Incoming),
}

impl Incoming {
    /// Its address.
    pub(super) fn source(&self) -> Option<IpAddr> {
        match self {
            Self::Quic(incoming) => incoming.source(),
            Self::Tcp(incoming) => Some(incoming.source()),
        }
    }

    /// Ignores it. A neighbour tries again.
    pub(super) fn ignore(self) {
        match self {
            Self::Quic(incoming) => incoming.ignore(),
            Self::Tcp(incoming) => drop(incoming),
        }
    }

    /// Sends it back if it has not yet shown that its address is its own.
    pub(super) fn with_proven_address(self) -> Option<Self> {
        match self {
            Self::Quic(incoming) => incoming.with_proven_address().map(|proven| Self::Quic(Box::new(proven))),
            Self::Tcp(_) => Some(self),
        }
    }

    /// The handshake. Returns who it is, what it wants, and the connection; none if it is not listed, or too slow.
    pub(super) async fn admit(self) -> Option<(usize, Purpose, Connection)> {
        match self {
            Self::Quic(incoming) => {
                incoming.admit().await.map(|(id, purpose, by)| (id, purpose, Connection::Quic(by)))
            }
            Self::Tcp(incoming) => {
                incoming.admit().await.map(|(id, purpose, by)| (id, purpose, Connection::Tcp(by)))
            }
        }
    }
}

/// A connection to a neighbour.
pub(super) enum Connection {
    Quic(quic::Connection),
    Tcp(tcp::Connection),
}

impl Connection {
    /// Both directions, to be used at the same time.
    pub(super) fn halves(&mut self) -> (Sender<'_>, Receiver<'_>) {
        match self {
            Self::Quic(by) => (Sender::Quic(&mut by.sender), Receiver::Quic(&mut by.receiver)),
            Self::Tcp(by) => (Sender::Tcp(&mut by.sender), Receiver::Tcp(&mut by.receiver)),
        }
    }

    /// What says whether it goes through the relay.
    pub(super) fn route(&self) -> Route {
        match self {
            Self::Quic(connection) => connection.route(),
            Self::Tcp(_) => Box::new(|| Some(false)),
        }
    }

    /// Closes it in the way that the end of its link requires. Returns whether both ends have sent everything.
    pub(super) async fn close(self, end: LinkEnd) -> bool {
        match self {
            Self::Quic(connection) => connection.close(end).await,
            Self::Tcp(connection) => connection.close(end).await,
        }
    }
}

/// The direction to a neighbour.
pub(super) enum Sender<'a> {
    Quic(&'a mut quic::Sender),
    Tcp(&'a mut tcp::Sender),
}

impl Sender<'_> {
    /// Sends a frame in two parts.
    pub(super) async fn send(&mut self, head: Bytes, payload: Bytes) -> Result<(), LinkEnd> {
        match self {
            Self::Quic(sender) => sender.send(head, payload).await,
            Self::Tcp(sender) => sender.send(head, payload).await,
        }
    }

    /// Shows that this end is alive while it has nothing to send. Returns if the connection is lost.
    pub(super) async fn keep_alive(&mut self) -> LinkEnd {
        match self {
            // The library does so itself.
            Self::Quic(_) => std::future::pending().await,
            Self::Tcp(sender) => sender.keep_alive().await,
        }
    }

    /// Nothing more will be sent.
    pub(super) async fn finish(&mut self) {
        match self {
            Self::Quic(sender) => sender.finish(),
            Self::Tcp(sender) => drop(sender.finish().await),
        }
    }
}

/// The direction from a neighbour.
pub(super) enum Receiver<'a> {
    Quic(&'a mut quic::Receiver),
    Tcp(&'a mut tcp::Receiver),
}

impl Receiver<'_> {
    /// The head of the next frame. If the neighbour has sent its last one, [`LinkEnd::ClosedByNeighbour`].
    pub(super) async fn head(&mut self) -> Result<[u8; HEAD], LinkEnd> {
        match self {
            Self::Quic(receiver) => receiver.head().await,
            Self::Tcp(receiver) => receiver.head().await,
        }
    }

    /// The payload of the frame whose head was the last.
    pub(super) async fn payload(&mut self, bytes: &mut [u8]) -> Result<(), LinkEnd> {
        match self {
            Self::Quic(receiver) => receiver.payload(bytes).await,
            Self::Tcp(receiver) => receiver.payload(bytes).await,
        }
    }
}
