//! One link: frames from the session to a QUIC stream, and from the stream to the session, at the same time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use iroh::endpoint::{Connection, ReadError, ReadExactError, RecvStream, SendStream, WriteError};
use mile::real::Real;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::close::{GOODBYE, LinkEnd, REFUSED, SUPERSEDED};
use super::shared::{Shared, Signals};
use super::transport::follow_line;
use crate::frame::{HEAD, Head, Kind, control};
use crate::outbox::Message;
use crate::session::{Arrival, Fault, Link, Outgoing};

/// How long a HELLO may take to arrive.
const GREETING: Duration = Duration::from_secs(10);
/// How long the last frame of a link may take to be sent or to arrive.
const LAST_FRAME: Duration = Duration::from_secs(2);
/// Most bytes of a reason in the packet that closes a connection.
const REASON: usize = 900;

/// Most bytes read at a time while waiting for the neighbour to close.
const REST: usize = 64 << 10;

/// Serves a link until it ends.
pub(super) async fn run<T: Real>(
    shared: &Shared<T>,
    connection: &Connection,
    (send, mut receive): (SendStream, RecvStream),
    neighbour: usize,
    dialled: bool,
) {
    let Some(Signals { link, write, read, close }) = shared.open(neighbour, dialled) else {
        connection.close(SUPERSEDED, b"too many connections");
        return;
    };
    let mut writer = Writer { send, whole: true };
    let end = tokio::select! {
        end = receive_frames(shared, link, &mut receive, &read) => end,
        end = writer.send_frames(shared, link, &write) => end,
        Ok(fault) = close => LinkEnd::Fault(fault),
        () = follow_line(connection) => LinkEnd::ClosedByUs,
    };
    shared.ended(link, &end);
    if let LinkEnd::Fault(fault @ Fault::RefusedByUs(_)) = &end {
        shared.admission.count_fault(neighbour, fault);
    }
    tracing::debug!(neighbour, "connection over: {end}");
    let parted = close_connection(connection, writer, receive, end).await;
    shared.closed(link, parted);
}

/// Closes a connection in the way that its end requires. Returns whether both ends have said all that they had to say.
async fn close_connection(
    connection: &Connection,
    mut writer: Writer,
    mut receive: RecvStream,
    end: LinkEnd,
) -> bool {
    match end {
        LinkEnd::Fault(Fault::RefusedByUs(text)) => {
            if writer.whole {
                let told = async {
                    writer.send.write_all(&control(Kind::Refuse, 0, 0, text.as_bytes())).await.ok()?;
                    writer.send.finish().ok()?;
                    writer.send.stopped().await.ok()
                };
                let _ = timeout(LAST_FRAME, told).await;
            }
            connection.close(REFUSED, &text.as_bytes()[..text.len().min(REASON)]);
            false
        }
        LinkEnd::Fault(Fault::Superseded(text)) => {
            connection.close(SUPERSEDED, text.as_bytes());
            false
        }
        // The neighbour closes when it has read everything, or has nothing more to send either.
        LinkEnd::ClosedByUs => {
            let parted = timeout(LAST_FRAME, read_to_end(&mut receive)).await.unwrap_or(false);
            connection.close(GOODBYE, b"goodbye");
            parted
        }
        LinkEnd::Fault(Fault::RefusedByNeighbour(_)) | LinkEnd::ClosedByNeighbour | LinkEnd::Lost(_) => {
            connection.close(GOODBYE, b"goodbye");
            matches!(end, LinkEnd::ClosedByNeighbour)
        }
    }
}

/// Reads what still arrives. Returns whether the neighbour ended the stream, or closed the connection, in good order.
async fn read_to_end(receive: &mut RecvStream) -> bool {
    loop {
        match receive.read_chunk(REST).await {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(ReadError::ConnectionLost(error)) => {
                return matches!(LinkEnd::of(error), LinkEnd::ClosedByNeighbour);
            }
            Err(_) => return false,
        }
    }
}

/// Passes frames from the stream to the session.
async fn receive_frames<T: Real>(
    shared: &Shared<T>,
    link: Link,
    stream: &mut RecvStream,
    wake: &Notify,
) -> LinkEnd {
    let mut greeted = false;
    loop {
        while !shared.lock().session.may_read(link) {
            wake.notified().await;
        }
        let arrival = frame(shared, stream);
        let arrival = if greeted {
            arrival.await
        } else {
            let late = LinkEnd::Fault(Fault::RefusedByUs("no HELLO within 10 s".into()));
            timeout(GREETING, arrival).await.unwrap_or(Err(late))
        };
        let result = match arrival {
            Ok(arrival) => shared.with(|core, now| core.session.received(link, arrival, now)),
            Err(LinkEnd::Fault(Fault::RefusedByNeighbour(text))) => {
                let head = Head { kind: Kind::Refuse, length: text.len(), a: 0, b: 0 };
                shared.with(|core, now| {
                    core.session.received(link, Arrival::Control(head, text.into_bytes()), now)
                })
            }
            Err(end) => return end,
        };
        if let Err(fault) = result {
            return LinkEnd::Fault(fault);
        }
        greeted = true;
    }
}

/// Reads the next frame. Nothing is allocated before its head has been checked.
async fn frame<T: Real>(shared: &Shared<T>, stream: &mut RecvStream) -> Result<Arrival<T>, LinkEnd> {
    let mut bytes = [0; HEAD];
    match stream.read_exact(&mut bytes).await {
        Ok(()) => {}
        Err(ReadExactError::FinishedEarly(0)) => return Err(LinkEnd::ClosedByNeighbour),
        Err(error) => return Err(read_failed(error)),
    }
    let head =
        Head::decode::<T>(&bytes).map_err(|error| LinkEnd::Fault(Fault::RefusedByUs(error.to_string())))?;
    if head.kind == Kind::Data {
        let mut piece = shared.lock().session.buffer();
        piece.resize(head.length / size_of::<T>(), T::zero());
        stream.read_exact(bytemuck::cast_slice_mut(&mut piece)).await.map_err(read_failed)?;
        Ok(Arrival::Data { exchange: head.a, offset: head.b, piece })
    } else {
        let mut payload = vec![0; head.length];
        stream.read_exact(&mut payload).await.map_err(read_failed)?;
        Ok(Arrival::Control(head, payload))
    }
}

/// The sending half of a stream, and whether the last frame has been written whole.
struct Writer {
    send: SendStream,
    whole: bool,
}

impl Writer {
    /// Passes frames from the session to the stream.
    async fn send_frames<T: Real>(&mut self, shared: &Shared<T>, link: Link, wake: &Notify) -> LinkEnd {
        loop {
            let (frame, leaving) = {
                let mut core = shared.lock();
                (core.session.next_frame(link), core.leaving)
            };
            let written = match frame {
                None if leaving => {
                    let _ = self.send.finish();
                    return LinkEnd::ClosedByUs;
                }
                None => {
                    wake.notified().await;
                    continue;
                }
                Some(Outgoing::Control(bytes)) => self.write(&mut [bytes.into()]).await,
                Some(Outgoing::Data { head, message, from, to }) => {
                    let head = Bytes::copy_from_slice(&head.encode());
                    self.write(&mut [head, Bytes::from_owner(Piece { message, from, to })]).await
                }
            };
            if let Err(error) = written {
                return write_failed(error);
            }
        }
    }

    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), WriteError> {
        self.whole = false;
        self.send.write_all_chunks(chunks).await?;
        self.whole = true;
        Ok(())
    }
}

/// Elements of a message as bytes, without copying them.
struct Piece<T> {
    message: Arc<Message<T>>,
    from: usize,
    to: usize,
}

impl<T: Real> AsRef<[u8]> for Piece<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.message.vectors[self.from..self.to])
    }
}

fn read_failed(error: ReadExactError) -> LinkEnd {
    match error {
        ReadExactError::ReadError(ReadError::ConnectionLost(error)) => LinkEnd::of(error),
        ReadExactError::FinishedEarly(_) => LinkEnd::Lost("the stream ended within a frame".into()),
        error => LinkEnd::Lost(error.to_string()),
    }
}

fn write_failed(error: WriteError) -> LinkEnd {
    match error {
        WriteError::ConnectionLost(error) => LinkEnd::of(error),
        error => LinkEnd::Lost(error.to_string()),
    }
}
