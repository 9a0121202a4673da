//! Frames on a QUIC stream, and the codes with which connections are closed.

use bytes::Bytes;
use iroh::endpoint::{
    ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, VarInt, WriteError,
};
use tokio::time::timeout;

use super::line::Watch;
use crate::engine::close::{LAST_FRAME, LinkEnd};
use crate::engine::shared::Route;
use crate::frame::{HEAD, Kind, control};
use crate::protocol::Fault;

/// Closed cleanly.
const GOODBYE: VarInt = VarInt::from_u32(0);
/// Closed because one end refuses the other.
pub(super) const REFUSED: VarInt = VarInt::from_u32(1);
/// Closed because another connection takes its place.
const SUPERSEDED: VarInt = VarInt::from_u32(2);
/// Most bytes of a reason in the packet that closes a connection.
const REASON: usize = 900;
/// Most bytes read at a time while waiting for the neighbour to close.
const REST: usize = 64 << 10;

/// A connection with one stream.
pub(in crate::engine) struct Connection {
    connection: iroh::endpoint::Connection,
    pub(in crate::engine) sender: Sender,
    pub(in crate::engine) receiver: Receiver,
}

/// The sending half of the stream, and whether the last frame has been written completely.
pub(in crate::engine) struct Sender {
    stream: SendStream,
    whole: bool,
}

/// The receiving half.
pub(in crate::engine) struct Receiver {
    stream: RecvStream,
    connection: iroh::endpoint::Connection,
    watch: Watch,
}

impl Connection {
    pub(super) fn new(
        connection: iroh::endpoint::Connection,
        (send, receive): (SendStream, RecvStream),
    ) -> Self {
        let receiver = Receiver { stream: receive, connection: connection.clone(), watch: Watch::new() };
        Self { connection, sender: Sender { stream: send, whole: true }, receiver }
    }

    pub(in crate::engine) fn route(&self) -> Route {
        // Weak, so that the connection ends with its task.
        let connection = self.connection.weak_handle();
        Box::new(move || {
            let connection = connection.upgrade()?;
            connection.paths().iter().find(|path| path.is_selected()).map(|path| path.is_relay())
        })
    }

    pub(in crate::engine) async fn close(mut self, end: LinkEnd) -> bool {
        match end {
            LinkEnd::Fault(Fault::RefusedByUs(text) | Fault::Ended(text)) => {
                if self.sender.whole {
                    let stream = &mut self.sender.stream;
                    let told = async {
                        stream.write_all(&control(Kind::Refuse, 0, 0, text.as_bytes())).await.ok()?;
                        stream.finish().ok()?;
                        stream.stopped().await.ok()
                    };
                    let _ = timeout(LAST_FRAME, told).await;
                }
                self.connection.close(REFUSED, &text.as_bytes()[..text.len().min(REASON)]);
                false
            }
            LinkEnd::Fault(Fault::Superseded(text)) => {
                self.connection.close(SUPERSEDED, text.as_bytes());
                false
            }
            // The neighbour closes when it has read everything, or has nothing more to send either.
            LinkEnd::ClosedByUs => {
                let parted = timeout(LAST_FRAME, self.receiver.read_to_end()).await.unwrap_or(false);
                self.connection.close(GOODBYE, b"goodbye");
                parted
            }
            LinkEnd::Fault(Fault::RefusedByNeighbour(_)) | LinkEnd::ClosedByNeighbour | LinkEnd::Lost(_) => {
                self.connection.close(GOODBYE, b"goodbye");
                matches!(end, LinkEnd::ClosedByNeighbour)
            }
        }
    }
}

impl Sender {
    pub(in crate::engine) async fn send(&mut self, head: Bytes, payload: Bytes) -> Result<(), LinkEnd> {
        self.whole = false;
        let written = self.stream.write_all_chunks(&mut [head, payload]).await;
        written.map_err(|error| match error {
            WriteError::ConnectionLost(error) => ended(error),
            error => LinkEnd::Lost(error.to_string()),
        })?;
        self.whole = true;
        Ok(())
    }

    pub(in crate::engine) fn finish(&mut self) {
        let _ = self.stream.finish();
    }
}

impl Receiver {
    pub(in crate::engine) async fn head(&mut self) -> Result<[u8; HEAD], LinkEnd> {
        self.watch.look(&self.connection);
        let mut bytes = [0; HEAD];
        match self.stream.read_exact(&mut bytes).await {
            Ok(()) => Ok(bytes),
            Err(ReadExactError::FinishedEarly(0)) => Err(LinkEnd::ClosedByNeighbour),
            Err(error) => Err(read_failed(error)),
        }
    }

    pub(in crate::engine) async fn payload(&mut self, bytes: &mut [u8]) -> Result<(), LinkEnd> {
        self.stream.read_exact(bytes).await.map_err(read_failed)
    }

    /// Reads what still arrives. Returns whether the neighbour ended the stream, or closed the connection, cleanly.
    async fn read_to_end(&mut self) -> bool {
        loop {
            match self.stream.read_chunk(REST).await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(ReadError::ConnectionLost(error)) => {
                    return matches!(ended(error), LinkEnd::ClosedByNeighbour);
                }
                Err(_) => return false,
            }
        }
    }
}

fn read_failed(error: ReadExactError) -> LinkEnd {
    match error {
        ReadExactError::ReadError(ReadError::ConnectionLost(error)) => ended(error),
        ReadExactError::FinishedEarly(_) => LinkEnd::within_a_frame(),
        error => LinkEnd::Lost(error.to_string()),
    }
}

/// What the loss of a connection means.
pub(super) fn ended(error: ConnectionError) -> LinkEnd {
    match error {
        ConnectionError::ApplicationClosed(close) if close.error_code == REFUSED => {
            LinkEnd::refused_by_neighbour(&close.reason)
        }
        ConnectionError::ApplicationClosed(close) if close.error_code == SUPERSEDED => {
            LinkEnd::superseded_by_neighbour()
        }
        // What the library sends for a connection that is dropped.
        ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => LinkEnd::not_closed(),
        ConnectionError::ApplicationClosed(_) => LinkEnd::ClosedByNeighbour,
        error => LinkEnd::Lost(error.to_string()),
    }
}
