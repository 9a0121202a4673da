//! How iroh is set up: direct connections, no relay unless one is given, no other service is contacted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use iroh::endpoint::{
    BindOpts, Connection, EndpointHooks, InvalidSocketAddr, QuicTransportConfig, VarInt, presets,
};
use iroh::{Endpoint, RelayMode, RelayUrl, SecretKey};
use tokio::time::sleep;

use super::EngineError;
use super::congestion::LossTolerant;

/// Name of the protocol in the handshake.
pub const ALPN: &[u8] = b"mile/1";

/// Most bytes on their way to this agent on a short line. They fit in the buffer of its socket: what does not is lost, and the loss of
/// the last packets of a message is noticed after QUIC's 25 ms, or twice that. Asking for quicker acknowledgements
/// (`ack_frequency_config`) hides it too, but noq-proto 1.4.0 writes the frame for that without looking at the space that is left,
/// and panics.
const SHORT: u32 = 256 << 10;
/// The same on a long line. 3 MiB or more break connections in iroh 1.4.1 ("too many gaps in stream buffer").
const LONG: u32 = 2 << 20;
/// Bytes a second that a long line may carry.
const RATE: f64 = 1e7;
/// A connection on which nothing arrives for this long is lost.
const IDLE: Duration = Duration::from_millis(2500);
const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// How often the length of a line is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The settings of a connection: one bidirectional stream, and a loss is noticed within seconds.
pub fn transport() -> QuicTransportConfig {
    QuicTransportConfig::builder()
        .congestion_controller_factory(Arc::new(LossTolerant::default()))
        .stream_receive_window(VarInt::from_u32(LONG))
        .receive_window(VarInt::from_u32(SHORT))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IDLE.try_into().ok())
        .default_path_max_idle_timeout(IDLE)
        .keep_alive_interval(KEEP_ALIVE)
        .default_path_keep_alive_interval(KEEP_ALIVE)
        .build()
}

/// Keeps the number of bytes that may be on their way suited to the length of the line; does not end. What counts is the shortest time
/// seen: a longer one may be that of a busy machine, whose buffers are as small as before.
pub(super) async fn follow_line(connection: &Connection) {
    let (mut shortest, mut before) = (Duration::MAX, SHORT);
    loop {
        // The first look is before any vector is on its way.
        let selected = connection.paths().iter().find(|path| path.is_selected()).map(|path| path.rtt());
        if let Some(there_and_back) = selected {
            shortest = shortest.min(there_and_back);
            let window = window(shortest);
            if window != before {
                connection.set_receive_window(VarInt::from_u32(window));
                before = window;
            }
        }
        sleep(LOOK).await;
    }
}

/// The bytes that may be on their way on a line with this time there and back, in steps of powers of two.
fn window(there_and_back: Duration) -> u32 {
    let bytes = (there_and_back.as_secs_f64() * RATE).min(f64::from(LONG)) as u32;
    bytes.next_power_of_two().clamp(SHORT, LONG)
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
    let invalid = |error: InvalidSocketAddr| failed(error.into());
    let mut builder = Endpoint::builder(presets::Minimal)
        .secret_key(key)
        .alpns(vec![ALPN.to_vec()])
        .relay_mode(relay)
        .transport_config(transport())
        .hooks(hooks)
        .clear_ip_transports()
        .bind_addr(listen)
        .map_err(invalid)?;
    if let Some(twin) = other_family(listen) {
        let optional = BindOpts::default().set_is_required(false);
        builder = builder.bind_addr_with_opts(twin, optional).map_err(invalid)?;
    }
    builder.bind().await.map_err(|error| failed(error.into()))
}

/// All addresses of the other family, if `listen` is all of one: neighbours may have either kind.
fn other_family(listen: SocketAddr) -> Option<SocketAddr> {
    match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => Some((Ipv6Addr::UNSPECIFIED, v4.port()).into()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Some((Ipv4Addr::UNSPECIFIED, v6.port()).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_carries_more_at_a_time_than_a_short_one_but_never_too_much() {
        let at = |millis: u64| window(Duration::from_millis(millis));
        assert_eq!([0, 1, 20].map(at), [SHORT; 3]);
        assert_eq!([50, 100, 200, 10_000].map(at), [512 << 10, 1 << 20, LONG, LONG]);
    }

    #[test]
    fn no_frames_are_asked_for_that_the_library_cannot_write() {
        let settings = format!("{:?}", transport());
        assert!(settings.contains("ack_frequency_config: None"), "{settings}");
    }

    #[test]
    fn an_agent_that_listens_everywhere_does_so_for_both_kinds_of_addresses() {
        let twin = |text: &str| other_family(text.parse().unwrap()).map(|twin| twin.to_string());
        assert_eq!(twin("0.0.0.0:7100").as_deref(), Some("[::]:7100"));
        assert_eq!(twin("[::]:7100").as_deref(), Some("0.0.0.0:7100"));
        assert_eq!((twin("127.0.0.1:7100"), twin("[::1]:7100")), (None, None));
    }
}
