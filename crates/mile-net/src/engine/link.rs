//! One link: frames from the session to a connection, and from the connection to the session, at the same time.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mile::real::Real;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::close::LinkEnd;
use super::shared::{Shared, Signals};
use super::transport::{Connection, Receiver, Sender};
use crate::checkpoint::unusable;
use crate::frame::{Head, Kind};
use crate::outbox::{Content, Message, StoredMessage};
use crate::protocol::{Arrival, Fault, Link, Outgoing};

/// How long a HELLO may take to arrive.
const GREETING: Duration = Duration::from_secs(10);

/// Serves a link until it ends.
pub(super) async fn run<T: Real>(
    shared: &Shared<T>,
    mut connection: Connection,
    neighbour: usize,
    dialled: bool,
) {
    let Some(Signals { link, write, read, close }) = shared.open(neighbour, dialled, connection.route())
    else {
        connection.close(LinkEnd::Fault(Fault::Superseded("too many connections"))).await;
        return;
    };
    let (mut sender, mut receiver) = connection.halves();
    let end = tokio::select! {
        end = receive_frames(shared, link, &mut receiver, &read) => end,
        end = send_frames(shared, link, &mut sender, &write) => end,
        Ok(fault) = close => LinkEnd::Fault(fault),
    };
    shared.ended(link, &end);
    if let LinkEnd::Fault(fault @ Fault::RefusedByUs(_)) = &end {
        shared.admission.count_fault(neighbour, fault);
    }
    tracing::debug!(neighbour, "connection closed: {end}");
    let parted = connection.close(end).await;
    shared.closed(link, parted);
}

/// Passes frames from the connection to the session.
async fn receive_frames<T: Real>(
    shared: &Shared<T>,
    link: Link,
    receiver: &mut Receiver<'_>,
    wake: &Notify,
) -> LinkEnd {
    let mut greeted = false;
    loop {
        while !shared.lock().session.may_read(link) {
            wake.notified().await;
        }
        let arrival = frame(shared, receiver);
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
async fn frame<T: Real>(shared: &Shared<T>, receiver: &mut Receiver<'_>) -> Result<Arrival<T>, LinkEnd> {
    let head = head::<T>(receiver).await?;
    if head.kind == Kind::Data {
        let mut piece = shared.lock().session.buffer();
        piece.resize(head.length / size_of::<T>(), T::zero());
        receiver.payload(bytemuck::cast_slice_mut(&mut piece)).await?;
        Ok(Arrival::Data { exchange: head.a, offset: head.b, piece })
    } else {
        Ok(Arrival::Control(head, payload(receiver, &head).await?))
    }
}

/// Reads the next frame, where no pieces of messages come.
pub(super) async fn control_frame<T: Real>(receiver: &mut Receiver<'_>) -> Result<(Head, Vec<u8>), LinkEnd> {
    let head = head::<T>(receiver).await?;
    Ok((head, payload(receiver, &head).await?))
}

async fn head<T: Real>(receiver: &mut Receiver<'_>) -> Result<Head, LinkEnd> {
    let bytes = receiver.head().await?;
    Head::decode::<T>(&bytes).map_err(|error| LinkEnd::Fault(Fault::RefusedByUs(error.to_string())))
}

async fn payload(receiver: &mut Receiver<'_>, head: &Head) -> Result<Vec<u8>, LinkEnd> {
    let mut payload = vec![0; head.length];
    receiver.payload(&mut payload).await?;
    Ok(payload)
}

/// Passes frames from the session to the connection.
async fn send_frames<T: Real>(
    shared: &Shared<T>,
    link: Link,
    sender: &mut Sender<'_>,
    wake: &Notify,
) -> LinkEnd {
    loop {
        let (frame, leaving) = {
            let mut core = shared.lock();
            (core.session.next_frame(link), core.leaving)
        };
        let sent = match frame {
            None if leaving => {
                sender.finish().await;
                return LinkEnd::ClosedByUs;
            }
            None => tokio::select! {
                () = wake.notified() => Ok(()),
                end = sender.keep_alive() => Err(end),
            },
            Some(Outgoing::Control(bytes)) => sender.send(bytes.into(), Bytes::new()).await,
            Some(Outgoing::Data { head, message, from, to }) => {
                let head = Bytes::copy_from_slice(&head.encode());
                let piece = match message {
                    Content::Memory(message) => Bytes::from_owner(Piece { message, from, to }),
                    Content::Disk(message) => match read(shared, message, from..to).await {
                        Ok(piece) => piece,
                        Err(end) => return end,
                    },
                };
                sender.send(head, piece).await
            }
        };
        if let Err(end) = sent {
            return end;
        }
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

/// Elements of a message that is on disk. If they cannot be read, nobody can be sent this message again, and the agent's work ends.
async fn read<T: Real>(
    shared: &Shared<T>,
    message: Arc<StoredMessage>,
    elements: Range<usize>,
) -> Result<Bytes, LinkEnd> {
    let path = message.vectors.path().to_owned();
    let reading = tokio::task::spawn_blocking(move || message.vectors.read::<T>(elements));
    match reading.await {
        Ok(Ok(elements)) => Ok(Bytes::from_owner(Part(elements))),
        Ok(Err(error)) => {
            shared.fail(unusable(&path, error));
            Err(LinkEnd::Lost("a message cannot be read from the checkpoint".into()))
        }
        Err(ended) => Err(LinkEnd::Lost(ended.to_string())),
    }
}

/// Elements as bytes.
struct Part<T>(Vec<T>);

impl<T: Real> AsRef<[u8]> for Part<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
