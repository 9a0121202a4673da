//! Frames on a TLS connection. QUIC has its own keep-alives and reasons for closing; here they are two more kinds of frames, which the
//! session never sees.
//!
//! An end that has nothing more to send says so with TLS's `close_notify`. A process that is killed does not: its system ends the TCP
//! connection alone.

use std::io::ErrorKind;

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsStream;

use crate::engine::close::{IDLE, KEEP_ALIVE, LAST_FRAME, LinkEnd};
use crate::frame::{HEAD, TEXT};
use crate::protocol::Fault;

/// The kind of a frame that only shows that its sender is alive.
const ALIVE: u8 = 254;
/// The kind of a last frame, with a code and a reason.
const CLOSE: u8 = 255;
/// Closed because one end refuses the other.
const REFUSED: u8 = 1;
/// Closed because another connection takes its place.
const SUPERSEDED: u8 = 2;
/// Bytes read at a time while waiting for the neighbour to close.
const REST: usize = 16 << 10;

/// The head of one of this transport's own frames.
fn own_head(kind: u8, code: u8, length: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    (head[0], head[8]) = (kind, code);
    head[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    head
}

/// The length of the payload that a head announces.
fn length(head: &[u8; HEAD]) -> usize {
    u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize
}

/// A TLS connection.
pub(in crate::engine) struct Connection {
    pub(in crate::engine) sender: Sender,
    pub(in crate::engine) receiver: Receiver,
}

/// The sending half, with what is left of a frame whose sending was interrupted.
pub(in crate::engine) struct Sender {
    stream: WriteHalf<TlsStream<TcpStream>>,
    rest: Chain<Bytes, Bytes>,
    sent: Instant,
}

/// The receiving half, with what has arrived of a head, and how much of a payload has not.
pub(in crate::engine) struct Receiver {
    stream: ReadHalf<TlsStream<TcpStream>>,
    head: [u8; HEAD],
    arrived: usize,
    left: usize,
}

impl Connection {
    pub(super) fn new(stream: TlsStream<TcpStream>) -> Self {
        let (receive, send) = tokio::io::split(stream);
        let nothing = Bytes::new().chain(Bytes::new());
        Self {
            sender: Sender { stream: send, rest: nothing, sent: Instant::now() },
            receiver: Receiver { stream: receive, head: [0; HEAD], arrived: 0, left: 0 },
        }
    }

    pub(in crate::engine) async fn close(mut self, end: LinkEnd) -> bool {
        let parted = matches!(end, LinkEnd::ClosedByNeighbour);
        let closing = async {
            match end {
                LinkEnd::Fault(Fault::RefusedByUs(text) | Fault::Ended(text)) => {
                    self.say_last(REFUSED, &text).await
                }
                LinkEnd::Fault(Fault::Superseded(text)) => self.say_last(SUPERSEDED, text).await,
                // The neighbour closes when it has read everything, or has nothing more to send either.
                LinkEnd::ClosedByUs => matches!(self.receiver.drain().await, LinkEnd::ClosedByNeighbour),
                LinkEnd::ClosedByNeighbour => {
                    let _ = self.sender.finish().await;
                    true
                }
                // Without `close_notify`, which the neighbour would take for a regular end.
                LinkEnd::Fault(Fault::RefusedByNeighbour(_)) | LinkEnd::Lost(_) => false,
            }
        };
        timeout(LAST_FRAME, closing).await.unwrap_or(parted)
    }

    /// Tells the neighbour why the connection is closed. What it still sends is read until it closes too: the system would answer
    /// with a reset otherwise, which may overtake the reason. Neither end has sent everything it had to send.
    async fn say_last(&mut self, code: u8, why: &str) -> bool {
        let why = Bytes::copy_from_slice(&why.as_bytes()[..why.len().min(TEXT)]);
        let head = Bytes::copy_from_slice(&own_head(CLOSE, code, why.len()));
        if self.sender.send(head, why).await.is_ok() && self.sender.finish().await.is_ok() {
            self.receiver.drain().await;
        }
        false
    }
}

impl Sender {
    /// If this is interrupted, the rest of the frame is sent before anything else.
    pub(in crate::engine) async fn send(&mut self, head: Bytes, payload: Bytes) -> Result<(), LinkEnd> {
        if self.rest.has_remaining() {
            self.send_rest().await?;
        }
        self.rest = head.chain(payload);
        self.send_rest().await
    }

    async fn send_rest(&mut self) -> Result<(), LinkEnd> {
        let sent = async {
            self.stream.write_all_buf(&mut self.rest).await?;
            self.stream.flush().await
        };
        sent.await.map_err(failed)?;
        self.sent = Instant::now();
        Ok(())
    }

    pub(in crate::engine) async fn keep_alive(&mut self) -> LinkEnd {
        loop {
            sleep_until(self.sent + KEEP_ALIVE).await;
            let alive = Bytes::copy_from_slice(&own_head(ALIVE, 0, 0));
            if let Err(end) = self.send(alive, Bytes::new()).await {
                return end;
            }
        }
    }

    pub(in crate::engine) async fn finish(&mut self) -> Result<(), LinkEnd> {
        self.send_rest().await?;
        self.stream.shutdown().await.map_err(failed)
    }
}

impl Receiver {
    pub(in crate::engine) async fn head(&mut self) -> Result<[u8; HEAD], LinkEnd> {
        loop {
            while self.arrived < HEAD {
                let mut part = [0; HEAD];
                match self.read(&mut part[self.arrived..]).await? {
                    0 if self.arrived == 0 => return Err(LinkEnd::ClosedByNeighbour),
                    0 => return Err(LinkEnd::within_a_frame()),
                    count => {
                        let to = self.arrived + count;
                        self.head[self.arrived..to].copy_from_slice(&part[self.arrived..to]);
                        self.arrived = to;
                    }
                }
            }
            self.arrived = 0;
            match self.head[0] {
                ALIVE if length(&self.head) == 0 => {}
                CLOSE => return Err(self.reason().await),
                _ => return Ok(self.head),
            }
        }
    }

    pub(in crate::engine) async fn payload(&mut self, bytes: &mut [u8]) -> Result<(), LinkEnd> {
        self.left = bytes.len();
        while self.left > 0 {
            let from = bytes.len() - self.left;
            match self.read(&mut bytes[from..]).await? {
                0 => return Err(LinkEnd::within_a_frame()),
                count => self.left -= count,
            }
        }
        Ok(())
    }

    /// What the neighbour's last frame says.
    async fn reason(&mut self) -> LinkEnd {
        let (code, length) = (self.head[8], length(&self.head));
        let mut words = vec![0; length.min(TEXT)];
        match self.payload(&mut words).await {
            Err(end) => end,
            Ok(()) if code == REFUSED => LinkEnd::refused_by_neighbour(&words),
            Ok(()) if code == SUPERSEDED => LinkEnd::superseded_by_neighbour(),
            Ok(()) => LinkEnd::Lost(format!("closed by the neighbour with the unknown code {code}")),
        }
    }

    /// Reads what still arrives. Returns how the neighbour closed.
    async fn drain(&mut self) -> LinkEnd {
        let mut rest = [0; REST];
        loop {
            while self.left > 0 {
                let part = self.left.min(REST);
                match self.read(&mut rest[..part]).await {
                    Err(end) => return end,
                    // In the middle of a frame that is no longer needed.
                    Ok(0) => return LinkEnd::ClosedByNeighbour,
                    Ok(count) => self.left -= count,
                }
            }
            match self.head().await {
                Ok(head) => self.left = length(&head),
                Err(end) => return end,
            }
        }
    }

    /// Reads some bytes; 0 if the neighbour has announced that it has sent everything.
    async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, LinkEnd> {
        match timeout(IDLE, self.stream.read(bytes)).await {
            Ok(read) => read.map_err(failed),
            Err(_) => Err(LinkEnd::Lost(format!("no sign of life for {} s", IDLE.as_secs_f64()))),
        }
    }
}

/// What an error of the connection means.
fn failed(error: std::io::Error) -> LinkEnd {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            LinkEnd::not_closed()
        }
        _ => LinkEnd::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Head, Malformed};

    #[test]
    fn the_kinds_of_this_transport_are_not_those_of_the_session() {
        for kind in [ALIVE, CLOSE] {
            let head = own_head(kind, REFUSED, 5);
            assert_eq!(Head::decode::<f32>(&head), Err(Malformed::Kind(kind)));
            assert_eq!(length(&head), 5);
        }
    }
}
