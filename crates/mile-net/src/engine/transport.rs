//! How iroh is set up: direct connections, no relay unless one is given, no other service is contacted.

use std::net::SocketAddr;
use std::time::Duration;

use iroh::endpoint::{AckFrequencyConfig, EndpointHooks, QuicTransportConfig, VarInt, presets};
use iroh::{Endpoint, RelayMode, RelayUrl, SecretKey};

use super::EngineError;

/// Name of the protocol in the handshake.
pub const ALPN: &[u8] = b"mile/1";

/// Most bytes on a stream that are not acknowledged. 3 MiB or more break connections in iroh 1.4.1 ("too many gaps in stream buffer").
const WINDOW: u32 = 1 << 20;
/// A connection on which nothing arrives for this long is lost.
const IDLE: Duration = Duration::from_millis(2500);
const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// How long an acknowledgement may be delayed. With QUIC's 25 ms an exchange of 4 MB on loopback stalled for 25 or 50 ms every
/// other time, and 100 MB took 0.7 to 1.0 s instead of 0.4: the end of a message waited for the other end's timer.
const ACKNOWLEDGE: Duration = Duration::from_millis(2);

/// The settings of a connection: one bidirectional stream, and a loss is noticed within seconds.
pub fn transport() -> QuicTransportConfig {
    let mut acknowledge = AckFrequencyConfig::default();
    acknowledge.max_ack_delay(Some(ACKNOWLEDGE));
    QuicTransportConfig::builder()
        .ack_frequency_config(Some(acknowledge))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW + WINDOW / 4))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IDLE.try_into().ok())
        .default_path_max_idle_timeout(IDLE)
        .keep_alive_interval(KEEP_ALIVE)
        .default_path_keep_alive_interval(KEEP_ALIVE)
        .build()
}

/// Binds an endpoint at an address.
pub(super) async fn bind(
    key: SecretKey,
    listen: SocketAddr,
    relay: Option<&RelayUrl>,
    hooks: impl EndpointHooks + 'static,
) -> Result<Endpoint, EngineError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| EngineError::Bind { listen, source };
    let relay = relay.map_or(RelayMode::Disabled, |url| RelayMode::custom([url.clone()]));
    Endpoint::builder(presets::Minimal)
        .secret_key(key)
        .alpns(vec![ALPN.to_vec()])
        .relay_mode(relay)
        .transport_config(transport())
        .hooks(hooks)
        .clear_ip_transports()
        .bind_addr(listen)
        .map_err(|error| failed(error.into()))?
        .bind()
        .await
        .map_err(|error| failed(error.into()))
}
