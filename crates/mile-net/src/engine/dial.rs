//! Connecting to a neighbour, and reconnecting: both ends dial at the start, later the one with the smaller id does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mile::real::Real;
use tokio::time::timeout;

use super::Peer;
use super::link;
use super::purpose::Purpose;
use super::shared::Shared;
use super::transport::Endpoint;

/// The pause before a retry after a failure: the first, which is doubled each time, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The same after a refusal.
const RETRY_REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long the end with the larger id waits for the other to dial.
const DEFER: Duration = Duration::from_secs(3);
/// How often the state of a link is checked without a notification.
const CHECK: Duration = Duration::from_secs(1);

/// Keeps a connection to a neighbour until the agent leaves, in the rounds in which there is an edge to it.
pub(super) async fn keep_connected<T: Real>(
    shared: Arc<Shared<T>>,
    endpoint: Arc<Endpoint>,
    id: usize,
    peer: Peer,
) {
    let changed = match shared.lock().edges.get(&id) {
        Some(edge) => edge.changed.clone(),
        None => return,
    };
    loop {
        let wait = {
            let core = shared.lock();
            let edge = core.edges.get(&id);
            match edge {
                _ if core.leaving && core.parted(id) => return,
                Some(edge) if !core.busy(id) && core.session.needs(id) => {
                    edge.ended.map_or(Duration::ZERO, |ended| {
                        let pause = pause(edge.failures, edge.refused, shared.me < id);
                        pause.saturating_sub(ended.elapsed())
                    })
                }
                _ => CHECK,
            }
        };
        if !wait.is_zero() {
            let _ = timeout(wait, changed.notified()).await;
            continue;
        }
        match endpoint.connect(&peer, Purpose::Link).await {
            Ok(connection) => link::run(&shared, connection, id, true).await,
            Err(why) => {
                tracing::debug!(neighbour = id, "cannot connect: {why}");
                if let Some(edge) = shared.lock().edges.get_mut(&id) {
                    edge.ended = Some(Instant::now());
                    edge.note(&why, false);
                }
            }
        }
    }
}

/// The pause between the end of a connection, or of an attempt, and the next attempt.
fn pause(failures: u32, refused: bool, smaller: bool) -> Duration {
    let (first, longest) = if refused { RETRY_REFUSED } else { RETRY };
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest);
    match failures {
        0 if smaller => Duration::ZERO,
        _ if smaller || refused => doubled,
        _ => DEFER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_id_dials_at_once_and_then_ever_more_rarely_and_the_larger_waits() {
        let seconds = |failures, refused, smaller| pause(failures, refused, smaller).as_secs_f64();
        assert_eq!([0, 1, 2, 3, 6, 60].map(|k| seconds(k, false, true)), [0.0, 0.1, 0.2, 0.4, 2.0, 2.0]);
        assert_eq!([0, 1, 60].map(|k| seconds(k, false, false)), [3.0; 3]);
        assert_eq!([1, 2, 3, 60].map(|k| seconds(k, true, true)), [1.0, 2.0, 4.0, 30.0]);
        assert_eq!([1, 60].map(|k| seconds(k, true, false)), [1.0, 30.0]);
    }
}
