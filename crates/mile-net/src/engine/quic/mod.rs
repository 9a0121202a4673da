//! The QUIC transport, by iroh: direct connections, no relay unless one is given, no other service is contacted.

mod congestion;
mod line;
mod stream;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use iroh::endpoint::{
    AfterHandshakeOutcome, BindOpts, ConnectingError, EndpointHooks, IncomingAddr, InvalidSocketAddr, presets,
};
use iroh::{EndpointAddr, RelayMode, RelayUrl, TransportAddr};
use tokio::time::timeout;

pub use self::line::quic_settings;
pub(super) use self::stream::{Connection, Receiver, Sender};

use self::stream::{REFUSED, ended};
use super::admission::{Admission, HANDSHAKE, Listed};
use super::close::{LinkEnd, NOT_LISTED};
use super::purpose::Purpose;
use super::start::Start;
use super::{NetworkEngineError, Peer, reach};

/// An endpoint of iroh.
pub(super) struct Endpoint {
    endpoint: iroh::Endpoint,
    address: SocketAddr,
    relay: Option<RelayUrl>,
    listed: Listed,
    admission: Arc<Admission>,
}

impl Endpoint {
    pub(super) async fn bind(start: Start) -> Result<Self, NetworkEngineError> {
        let Start { key, listen, relay, listed, admission } = start;
        let failed =
            |source: Box<dyn std::error::Error + Send + Sync>| NetworkEngineError::Bind { listen, source };
        let mode = relay.as_ref().map_or(RelayMode::Disabled, |url| RelayMode::custom([url.clone()]));
        let invalid = |error: InvalidSocketAddr| failed(error.into());
        let mut builder = iroh::Endpoint::builder(presets::Minimal)
            .secret_key(key)
            .alpns(Purpose::alpns())
            .relay_mode(mode)
            .transport_config(quic_settings())
            .hooks(AllowList { listed: listed.clone(), admission: admission.clone() })
            .clear_ip_transports()
            .bind_addr(listen)
            .map_err(invalid)?;
        if let Some(twin) = other_family(listen) {
            let optional = BindOpts::default().set_is_required(false);
            builder = builder.bind_addr_with_opts(twin, optional).map_err(invalid)?;
        }
        let endpoint = builder.bind().await.map_err(|error| failed(error.into()))?;
        let address = endpoint.bound_sockets().first().copied().unwrap_or(listen);
        Ok(Self { endpoint, address, relay, listed, admission })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn connect(&self, peer: &Peer, purpose: Purpose) -> Result<Connection, LinkEnd> {
        let (found, problems) = reach::resolve(&peer.addresses).await;
        let relays = self.relay.clone().map(TransportAddr::Relay);
        let addresses: Vec<TransportAddr> =
            relays.into_iter().chain(found.iter().copied().map(TransportAddr::Ip)).collect();
        if addresses.is_empty() {
            return Err(LinkEnd::Lost(reach::no_address(&problems)));
        }
        let connecting = async {
            let address = EndpointAddr::from_parts(peer.key, addresses);
            let connecting = self.endpoint.connect(address, purpose.alpn()).await;
            let connection = connecting.map_err(|error| LinkEnd::Lost(self.explain(&error, peer)))?;
            let streams = connection.open_bi().await.map_err(ended)?;
            Ok(Connection::new(connection, streams))
        };
        let unreachable = async {
            match self.relay {
                None => reach::refusals(&found).await,
                Some(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            connected = timeout(reach::ATTEMPT, connecting) => {
                connected.unwrap_or_else(|_| Err(LinkEnd::Lost(self.silence(peer))))
            }
            why = unreachable => Err(LinkEnd::Lost(why)),
        }
    }

    /// Where a neighbour is looked for: its addresses, and the relay.
    fn places(&self, peer: &Peer) -> String {
        let relay = self.relay.iter().map(|relay| format!("the relay {relay}"));
        relay.chain(peer.addresses.iter().cloned()).collect::<Vec<_>>().join(", ")
    }

    fn silence(&self, peer: &Peer) -> String {
        reach::silence(&self.places(peer), "UDP")
    }

    /// What an error of the library means.
    fn explain(&self, error: &dyn std::error::Error, peer: &Peer) -> String {
        match chain(error) {
            text if text.contains("timed out") => self.silence(peer),
            text if text.contains("invalid peer certificate") => reach::another_key(&self.places(peer)),
            text => text,
        }
    }

    pub(super) async fn accept(&self) -> Option<Incoming> {
        let incoming = self.endpoint.accept().await?;
        Some(Incoming { incoming, listed: self.listed.clone(), admission: self.admission.clone() })
    }

    pub(super) async fn close(&self) {
        self.endpoint.close().await;
    }
}

/// A first packet.
pub(super) struct Incoming {
    incoming: iroh::endpoint::Incoming,
    listed: Listed,
    admission: Arc<Admission>,
}

impl Incoming {
    /// None if it comes through a relay.
    pub(super) fn source(&self) -> Option<IpAddr> {
        match self.incoming.remote_addr() {
            IncomingAddr::Ip(address) => Some(address.ip()),
            _ => None,
        }
    }

    /// Ignored rather than refused: a neighbour's next packet may be admitted.
    pub(super) fn ignore(self) {
        self.incoming.ignore();
    }

    pub(super) fn with_proven_address(self) -> Option<Self> {
        if self.incoming.remote_addr_validated() {
            return Some(self);
        }
        let _ = self.incoming.retry();
        None
    }

    pub(super) async fn admit(self) -> Option<(usize, Purpose, Connection)> {
        let failed = || self.admission.count_failed_handshake();
        let Ok(accepting) = self.incoming.accept() else {
            failed();
            return None;
        };
        let connection = match timeout(HANDSHAKE, accepting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(ConnectingError::LocallyRejected { .. })) => return None,
            Ok(Err(_)) | Err(_) => {
                failed();
                return None;
            }
        };
        let neighbour = self.listed.get(&connection.remote_id()).copied()?;
        let purpose = Purpose::agreed(Some(connection.alpn()))?;
        match timeout(HANDSHAKE, connection.accept_bi()).await {
            Ok(Ok(streams)) => Some((neighbour, purpose, Connection::new(connection, streams))),
            _ => {
                failed();
                None
            }
        }
    }
}

/// Admits connections from listed keys only.
struct AllowList {
    listed: Listed,
    admission: Arc<Admission>,
}

impl std::fmt::Debug for AllowList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllowList").field("listed", &self.listed.len()).finish_non_exhaustive()
    }
}

impl EndpointHooks for AllowList {
    async fn after_handshake<'a>(
        &'a self,
        connection: &'a iroh::endpoint::Connection,
    ) -> AfterHandshakeOutcome {
        let key = connection.remote_id();
        if self.listed.contains_key(&key) {
            return AfterHandshakeOutcome::Accept;
        }
        self.admission.count_stranger(key);
        AfterHandshakeOutcome::Reject { error_code: REFUSED, reason: NOT_LISTED.into() }
    }
}

/// All addresses of the other family, if `listen` is all of one: neighbours may have either kind.
fn other_family(listen: SocketAddr) -> Option<SocketAddr> {
    match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => Some((Ipv6Addr::UNSPECIFIED, v4.port()).into()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Some((Ipv4Addr::UNSPECIFIED, v6.port()).into()),
        _ => None,
    }
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_listens_everywhere_does_so_for_both_kinds_of_addresses() {
        let twin = |text: &str| other_family(text.parse().unwrap()).map(|twin| twin.to_string());
        assert_eq!(twin("0.0.0.0:7100").as_deref(), Some("[::]:7100"));
        assert_eq!(twin("[::]:7100").as_deref(), Some("0.0.0.0:7100"));
        assert_eq!((twin("127.0.0.1:7100"), twin("[::1]:7100")), (None, None));
    }
}
