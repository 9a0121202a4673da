//! The transport of TLS 1.3 over TCP, for neighbours that reach each other directly on a lossless line: one machine, a
//! cluster, a LAN.

mod stream;
mod tls;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use iroh::SecretKey;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, CommonState, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

pub(super) use self::stream::{Connection, Receiver, Sender};
pub use self::tls::tls_client;

use super::admission::{Admission, HANDSHAKE, Listed};
use super::close::{LinkEnd, NOT_LISTED};
use super::purpose::Purpose;
use super::start::Start;
use super::{NetworkEngineError, Peer, reach};
use crate::protocol::Fault;

/// Most connections that the system has made and that wait to be accepted.
const BACKLOG: i32 = 128;
/// The pause after the system has refused to accept, for instance because too many files are open.
const REFUSED: Duration = Duration::from_millis(500);

/// A listening socket, and what is needed to prove this agent's key.
pub(super) struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    key: SecretKey,
    tls: Arc<ServerConfig>,
    listed: Listed,
    admission: Arc<Admission>,
}

impl Endpoint {
    /// Call within the runtime.
    pub(super) fn bind(start: Start) -> Result<Self, NetworkEngineError> {
        let Start { key, listen, relay: _, listed, admission } = start;
        let failed =
            |source: Box<dyn std::error::Error + Send + Sync>| NetworkEngineError::Bind { listen, source };
        let listener = listen_on(listen).map_err(|error| failed(error.into()))?;
        let address = listener.local_addr().map_err(|error| failed(error.into()))?;
        let tls = tls::server(&key).map_err(|error| failed(error.into()))?;
        Ok(Self { listener, address, key, tls, listed, admission })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tries the addresses one after the other.
    pub(super) async fn connect(&self, peer: &Peer, purpose: Purpose) -> Result<Connection, LinkEnd> {
        let (found, mut problems) = reach::resolve(&peer.addresses).await;
        if found.is_empty() {
            return Err(LinkEnd::Lost(reach::no_address(&problems)));
        }
        let tls =
            tls::client(&self.key, peer.key, purpose).map_err(|error| LinkEnd::Lost(error.to_string()))?;
        for address in found {
            match timeout(reach::ATTEMPT, dial(address, tls.clone(), purpose)).await {
                Ok(Ok(stream)) => return Ok(Connection::new(stream)),
                Ok(Err(error)) => problems.push(explain(&error, address)),
                Err(_) => problems.push(reach::silence(&address.to_string(), "TCP")),
            }
        }
        Err(LinkEnd::Lost(problems.join("; ")))
    }

    pub(super) async fn accept(&self) -> Incoming {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let (tls, listed) = (self.tls.clone(), self.listed.clone());
                    return Incoming { stream, from, tls, listed, admission: self.admission.clone() };
                }
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => sleep(REFUSED).await,
            }
        }
    }
}

/// A connection on which nothing has been sent yet.
pub(super) struct Incoming {
    stream: TcpStream,
    from: SocketAddr,
    tls: Arc<ServerConfig>,
    listed: Listed,
    admission: Arc<Admission>,
}

impl Incoming {
    pub(super) fn source(&self) -> IpAddr {
        self.from.ip().to_canonical()
    }

    pub(super) async fn admit(self) -> Option<(usize, Purpose, Connection)> {
        let handshake = async {
            self.stream.set_nodelay(true).ok()?;
            let stream = TlsAcceptor::from(self.tls).accept(self.stream).await.ok()?;
            let state: &CommonState = stream.get_ref().1;
            let (key, purpose) = (tls::key_of(state.peer_certificates())?, agreed(state)?);
            Some((key, purpose, Connection::new(TlsStream::Server(stream))))
        };
        let Some((key, purpose, connection)) = timeout(HANDSHAKE, handshake).await.ok().flatten() else {
            self.admission.count_failed_handshake();
            return None;
        };
        match self.listed.get(&key) {
            Some(neighbour) => Some((*neighbour, purpose, connection)),
            None => {
                self.admission.count_stranger(key);
                connection.close(LinkEnd::Fault(Fault::RefusedByUs(NOT_LISTED.into()))).await;
                None
            }
        }
    }
}

/// Connects, and makes sure that the neighbour answers.
async fn dial(
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    purpose: Purpose,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    // The system may choose the very port that is dialled, if no process listens on it.
    if stream.local_addr()? == address {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(ServerName::IpAddress(address.ip().into()), stream).await?;
    if agreed(stream.get_ref().1) != Some(purpose) {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "another protocol"));
    }
    Ok(TlsStream::Client(stream))
}

/// What both ends have agreed on.
fn agreed(state: &CommonState) -> Option<Purpose> {
    Purpose::agreed(state.alpn_protocol())
}

/// What it means that a connection could not be made.
fn explain(error: &std::io::Error, address: SocketAddr) -> String {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::ConnectionRefused => reach::nobody(address, "TCP", "tcp"),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable => {
            reach::no_route(address, error)
        }
        ErrorKind::TimedOut => reach::silence(&address.to_string(), "TCP"),
        ErrorKind::InvalidData if text.contains("invalid peer certificate") => {
            reach::another_key(&address.to_string())
        }
        ErrorKind::InvalidData => format!("the process that answers at {address} is not an agent ({text})"),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            format!("{address} closed the connection during the handshake ({text})")
        }
        _ => format!("cannot connect to {address}: {text}"),
    }
}

/// A socket that listens on an address. All addresses of one kind include those of the other, if the system has them.
fn listen_on(address: SocketAddr) -> std::io::Result<TcpListener> {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    let bound = match address.ip().is_unspecified() {
        true => listening(everywhere).or_else(|_| listening(address)),
        false => listening(address),
    };
    TcpListener::from_std(bound?)
}

fn listening(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // An agent that was killed may be started again at once.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
