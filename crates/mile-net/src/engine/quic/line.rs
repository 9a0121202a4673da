//! The line of a connection: its settings, and how many bytes may be on their way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iroh::endpoint::{Connection, QuicTransportConfig, VarInt};

use super::congestion::LossTolerant;
use crate::engine::close::{IDLE, KEEP_ALIVE};

/// Most bytes on their way to this agent on a short line. They fit in the buffer of its socket: what does not is lost, and the loss of
/// the last packets of a message is noticed after QUIC's 25 ms, or twice that. Asking for quicker acknowledgements
/// (`ack_frequency_config`) hides it too, but noq-proto 1.4.0 writes the frame for that without looking at the space that is left,
/// and panics.
const SHORT: u32 = 256 << 10;
/// The same on a long line. 3 MiB or more break connections in iroh 1.4.1 ("too many gaps in stream buffer").
const LONG: u32 = 2 << 20;
/// Bytes per second that a long line may carry.
const RATE: f64 = 1e7;
/// How often the length of a line is measured.
const LOOK: Duration = Duration::from_millis(500);

/// The settings of a QUIC connection: one bidirectional stream, and a loss is noticed within seconds.
pub fn quic_settings() -> QuicTransportConfig {
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

/// Keeps the number of bytes in flight suited to the length of the line. What counts is the shortest round trip that was seen: a
/// longer one may be that of a busy machine, whose buffers are no larger.
pub(super) struct Watch {
    shortest: Duration,
    window: u32,
    looked: Option<Instant>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { shortest: Duration::MAX, window: SHORT, looked: None }
    }

    /// Looks at the line, if it is time to. The first look is before any vector is on its way.
    pub(super) fn look(&mut self, connection: &Connection) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        let selected = connection.paths().iter().find(|path| path.is_selected()).map(|path| path.rtt());
        let Some(there_and_back) = selected else { return };
        self.shortest = self.shortest.min(there_and_back);
        let window = window(self.shortest);
        if window != self.window {
            connection.set_receive_window(VarInt::from_u32(window));
            self.window = window;
        }
    }
}

/// The bytes that may be on their way on a line with this round-trip time, in steps of powers of two.
fn window(there_and_back: Duration) -> u32 {
    let bytes = (there_and_back.as_secs_f64() * RATE).min(f64::from(LONG)) as u32;
    bytes.next_power_of_two().clamp(SHORT, LONG)
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
        let settings = format!("{:?}", quic_settings());
        assert!(settings.contains("ack_frequency_config: None"), "{settings}");
    }
}
