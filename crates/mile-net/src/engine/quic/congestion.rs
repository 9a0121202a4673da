//! Congestion control for lines that lose packets although they are not congested.
//!
//! CUBIC treats every lost packet as a sign of a full line and sends less: with 5% loss and a round trip of 200 ms that leaves 26 kB/s on
//! any line. Here CUBIC is told of a loss only if there is another sign: packets take longer than the shortest time seen, because
//! they wait in a queue, or more than a tenth of all are lost, as where a line is policed without a queue.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iroh::endpoint::{Controller, ControllerFactory, ControllerMetrics, RttEstimator};
use noq_proto::congestion::CubicConfig;

/// There is a queue if the round trip is longer than the shortest by this factor and this much.
const LONGER: f64 = 1.25;
const MUCH: Duration = Duration::from_millis(2);
/// The fraction of all bytes that may be lost.
const PART: f64 = 0.1;
/// Bytes over which it is counted; then both counts are halved.
const COUNTED: u64 = 1 << 20;

/// Makes the controllers of new connections.
#[derive(Debug, Default)]
pub(super) struct LossTolerant {
    cubic: Arc<CubicConfig>,
}

impl ControllerFactory for LossTolerant {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let cubic = self.cubic.clone().build(now, current_mtu);
        Box::new(Tolerant { cubic, line: Line::default() })
    }
}

/// What is known about a line.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    shortest: Duration,
    latest: Duration,
    acknowledged: u64,
    lost: u64,
}

impl Line {
    fn acknowledge(&mut self, bytes: u64, shortest: Duration, latest: Duration) {
        (self.shortest, self.latest) = (shortest, latest);
        self.acknowledged += bytes;
        if self.acknowledged + self.lost > COUNTED {
            self.acknowledged /= 2;
            self.lost /= 2;
        }
    }

    /// Whether the loss of this many more bytes means that too much is sent.
    fn is_full(&mut self, lost: u64) -> bool {
        self.lost += lost;
        let queue = self.latest > self.shortest.mul_f64(LONGER) + MUCH;
        let sent = (self.acknowledged + self.lost) as f64;
        // With few packets a tenth means nothing.
        let many = self.lost as f64 > PART * sent && self.lost > COUNTED / 8;
        queue || many
    }
}

/// CUBIC that is not told of every loss.
#[derive(Debug)]
struct Tolerant {
    cubic: Box<dyn Controller>,
    line: Line,
}

impl Controller for Tolerant {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.cubic.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.cubic.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        self.cubic.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.line.acknowledge(bytes, rtt.min(), rtt.get());
        self.cubic.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        if self.line.is_full(lost_bytes) || is_persistent_congestion || is_ecn {
            let persistent = is_persistent_congestion;
            self.cubic.on_congestion_event(now, sent, persistent, is_ecn, lost_bytes, largest_lost_pn);
        }
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.cubic.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.cubic.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.cubic.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { cubic: self.cubic.clone_box(), line: self.line })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets on a line and says how often a loss counted as a full line.
    fn alarms(every: u64, latest: Duration) -> usize {
        let mut line = Line::default();
        (1..2000u64)
            .filter(|packet| {
                line.acknowledge(1200, Duration::from_millis(100), latest);
                packet.is_multiple_of(every) && line.is_full(1200)
            })
            .count()
    }

    #[test]
    fn a_loss_counts_if_there_is_a_queue_or_if_there_are_many() {
        let quick = Duration::from_millis(110);
        assert_eq!(alarms(20, quick), 0, "5% on a line without a queue");
        assert_eq!(alarms(20, Duration::from_millis(130)), 1999 / 20, "the same with a queue");
        assert!(alarms(4, quick) > 100, "a line that takes four fifths");
    }

    #[test]
    fn cubic_sends_less_only_if_it_is_told_of_a_loss() {
        let now = Instant::now();
        let mut controller = Arc::new(LossTolerant::default()).build(now, 1200);
        let before = controller.window();
        controller.on_congestion_event(now, now, false, false, 1200, 1);
        assert_eq!(controller.window(), before);
        controller.on_congestion_event(now, now, false, true, 0, 2);
        assert!(controller.window() < before);
    }
}
