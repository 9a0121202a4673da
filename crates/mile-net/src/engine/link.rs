//! One link: frames from the session to a stream, and from a stream to the session, at the same time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use iroh::endpoint::{
    Connection, ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, VarInt, WriteError,
};
use mile::real::Real;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::shared::{Shared, Signals};
use crate::frame::{HEAD, Head, Kind};
use crate::outbox::Message;
use crate::session::{Arrival, Fault, Link, Outgoing, control};

/// Codes with which connections are closed.
pub(super) const GOODBYE: VarInt = VarInt::from_u32(0);
pub(super) const REFUSED: VarInt = VarInt::from_u32(1);
pub(super) const SUPERSEDED: VarInt = VarInt::from_u32(2);

/// How long a link may take to say HELLO.
const GREETING: Duration = Duration::from_secs(10);
/// How long a last word may take to arrive.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Most bytes of a reason in the packet that closes a connection.
const REASON: usize = 900;

/// Most bytes passed over at a time.
const REST: usize = 64 << 10;

/// How a link ended.
#[derive(Debug)]
pub(super) enum End {
    /// One end would not go on.
    Fault(Fault),
    /// The other end has said all it had to say.
    Left,
    /// This end has.
    Said,
    /// The network, or the other end, failed.
    Lost(String),
}

/// Serves a link until it ends.
pub(super) async fn run<T: Real>(
    shared: &Shared<T>,
    connection: &Connection,
    (send, mut receive): (SendStream, RecvStream),
    neighbour: usize,
    dialled: bool,
) {
    let Some(Signals { link, write, read, close }) = shared.open(neighbour, dialled) else {
        connection.close(SUPERSEDED, b"too many links");
        return;
    };
    let mut writer = Writer { send, whole: true };
    let end = tokio::select! {
        end = hear(shared, link, &mut receive, &read) => end,
        end = writer.speak(shared, link, &write) => end,
        Ok(fault) = close => End::Fault(fault),
    };
    shared.ended(link, &end);
    if matches!(end, End::Fault(Fault::Refuse(_))) {
        shared.door.fault(neighbour, &end);
    }
    tracing::debug!(neighbour, ?end, "link over");
    part(connection, writer, receive, end).await;
    shared.closed(link);
}

/// Closes a connection as its end asks for.
async fn part(connection: &Connection, mut writer: Writer, mut receive: RecvStream, end: End) {
    match end {
        End::Fault(Fault::Refuse(text)) => {
            if writer.whole {
                let told = async {
                    writer.send.write_all(&control(Kind::Refuse, 0, 0, text.as_bytes())).await.ok()?;
                    writer.send.finish().ok()?;
                    writer.send.stopped().await.ok()
                };
                let _ = timeout(LAST_WORD, told).await;
            }
            connection.close(REFUSED, &text.as_bytes()[..text.len().min(REASON)]);
        }
        End::Fault(Fault::Superseded(text)) => connection.close(SUPERSEDED, text.as_bytes()),
        // The other end closes when it has read everything, or has no more to say either.
        End::Said => {
            let rest = async { while let Ok(Some(_)) = receive.read_chunk(REST).await {} };
            let _ = timeout(LAST_WORD, rest).await;
            connection.close(GOODBYE, b"goodbye");
        }
        End::Fault(Fault::Refused(_)) | End::Left | End::Lost(_) => connection.close(GOODBYE, b"goodbye"),
    }
}

/// From the stream to the session.
async fn hear<T: Real>(shared: &Shared<T>, link: Link, stream: &mut RecvStream, wake: &Notify) -> End {
    let mut greeted = false;
    loop {
        while !shared.lock().session.may_read(link) {
            wake.notified().await;
        }
        let arrival = frame(shared, stream);
        let arrival = if greeted {
            arrival.await
        } else {
            let late = End::Fault(Fault::Refuse("no HELLO within 10 s".into()));
            timeout(GREETING, arrival).await.unwrap_or(Err(late))
        };
        let result = match arrival {
            Ok(arrival) => shared.with(|core, now| core.session.received(link, arrival, now)),
            Err(End::Fault(Fault::Refused(text))) => {
                let head = Head { kind: Kind::Refuse, length: text.len(), a: 0, b: 0 };
                shared.with(|core, now| {
                    core.session.received(link, Arrival::Control(head, text.into_bytes()), now)
                })
            }
            Err(end) => return end,
        };
        if let Err(fault) = result {
            return End::Fault(fault);
        }
        greeted = true;
    }
}

/// The next frame. Nothing is allocated before its head is known to be in order.
async fn frame<T: Real>(shared: &Shared<T>, stream: &mut RecvStream) -> Result<Arrival<T>, End> {
    let mut bytes = [0; HEAD];
    match stream.read_exact(&mut bytes).await {
        Ok(()) => {}
        Err(ReadExactError::FinishedEarly(0)) => return Err(End::Left),
        Err(error) => return Err(unread(error)),
    }
    let head = Head::decode::<T>(&bytes).map_err(|error| End::Fault(Fault::Refuse(error.to_string())))?;
    if head.kind == Kind::Data {
        let mut piece = shared.lock().session.buffer();
        piece.resize(head.length / size_of::<T>(), T::zero());
        stream.read_exact(bytemuck::cast_slice_mut(&mut piece)).await.map_err(unread)?;
        Ok(Arrival::Data { exchange: head.a, offset: head.b, piece })
    } else {
        let mut payload = vec![0; head.length];
        stream.read_exact(&mut payload).await.map_err(unread)?;
        Ok(Arrival::Control(head, payload))
    }
}

/// The sending half of a stream, and whether the last frame has been written whole.
struct Writer {
    send: SendStream,
    whole: bool,
}

impl Writer {
    /// From the session to the stream.
    async fn speak<T: Real>(&mut self, shared: &Shared<T>, link: Link, wake: &Notify) -> End {
        loop {
            let (frame, leaving) = {
                let mut core = shared.lock();
                (core.session.next_frame(link), core.leaving)
            };
            let written = match frame {
                None if leaving => {
                    let _ = self.send.finish();
                    return End::Said;
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
                return unwritten(error);
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

/// Elements of a message as bytes, where they are: nothing is copied before encryption.
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

fn unread(error: ReadExactError) -> End {
    match error {
        ReadExactError::ReadError(ReadError::ConnectionLost(error)) => lost(error),
        ReadExactError::FinishedEarly(_) => End::Lost("it ended within a frame".into()),
        error => End::Lost(error.to_string()),
    }
}

fn unwritten(error: WriteError) -> End {
    match error {
        WriteError::ConnectionLost(error) => lost(error),
        error => End::Lost(error.to_string()),
    }
}

/// What the loss of a connection means.
pub(super) fn lost(error: ConnectionError) -> End {
    match error {
        ConnectionError::ApplicationClosed(close) if close.error_code == REFUSED => {
            let text: String = String::from_utf8_lossy(&close.reason).escape_debug().collect();
            End::Fault(Fault::Refused(text))
        }
        ConnectionError::ApplicationClosed(close) if close.error_code == SUPERSEDED => {
            End::Fault(Fault::Superseded("closed by the other end for another link"))
        }
        ConnectionError::ApplicationClosed(_) => End::Left,
        error => End::Lost(error.to_string()),
    }
}
