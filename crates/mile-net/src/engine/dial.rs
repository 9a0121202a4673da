//! Seeing to it that there is a link to a neighbour: everybody dials at the start, later the smaller id does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iroh::{Endpoint, EndpointAddr, RelayUrl, TransportAddr};
use mile::real::Real;
use tokio::time::timeout;

use super::Peer;
use super::link::{self, End};
use super::shared::Shared;
use super::transport::ALPN;

/// The first wait after a failure, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The same, after a refusal.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long the larger id leaves the dialling to the smaller.
const DEFER: Duration = Duration::from_secs(3);
/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How often things are looked at without being told.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps a link to a neighbour for as long as the agent is there.
pub(super) async fn keep<T: Real>(
    shared: Arc<Shared<T>>,
    endpoint: Endpoint,
    id: usize,
    peer: Peer,
    relay: Option<RelayUrl>,
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
                _ if core.leaving => return,
                Some(edge) if !core.busy(id) => edge.ended.map_or(Duration::ZERO, |ended| {
                    let pause = pause(edge.failures, edge.refused, shared.me < id);
                    pause.saturating_sub(ended.elapsed())
                }),
                _ => LOOK,
            }
        };
        if !wait.is_zero() {
            let _ = timeout(wait, changed.notified()).await;
            continue;
        }
        if let Err(why) = attempt(&shared, &endpoint, id, &peer, relay.as_ref()).await {
            tracing::debug!(neighbour = id, "no link: {}", why_not(&why));
            if let Some(edge) = shared.lock().edges.get_mut(&id) {
                edge.ended = Some(Instant::now());
                edge.note(&why, false);
            }
        }
    }
}

/// How long to wait after the end of a link, or of an attempt.
fn pause(failures: u32, refused: bool, smaller: bool) -> Duration {
    let (first, longest) = if refused { REFUSED } else { AGAIN };
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest);
    match failures {
        0 if smaller => Duration::ZERO,
        _ if smaller || refused => doubled,
        _ => DEFER,
    }
}

/// Dials, and serves the link for as long as it lasts.
async fn attempt<T: Real>(
    shared: &Shared<T>,
    endpoint: &Endpoint,
    id: usize,
    peer: &Peer,
    relay: Option<&RelayUrl>,
) -> Result<(), End> {
    let failed = |error: &dyn std::fmt::Display| End::Lost(error.to_string());
    let mut addresses: Vec<TransportAddr> = relay.cloned().map(TransportAddr::Relay).into_iter().collect();
    for name in &peer.addresses {
        match timeout(ATTEMPT, tokio::net::lookup_host(name)).await {
            Ok(Ok(found)) => addresses.extend(found.map(TransportAddr::Ip)),
            Ok(Err(error)) => tracing::debug!(neighbour = id, "cannot resolve {name}: {error}"),
            Err(_) => tracing::debug!(neighbour = id, "cannot resolve {name} in time"),
        }
    }
    if addresses.is_empty() {
        return Err(End::Lost("no address to dial".into()));
    }
    let connecting = async {
        let address = EndpointAddr::from_parts(peer.key, addresses);
        let connection = endpoint.connect(address, ALPN).await.map_err(|error| failed(&error))?;
        let streams = connection.open_bi().await.map_err(link::lost)?;
        Ok((connection, streams))
    };
    let (connection, streams) = timeout(ATTEMPT, connecting).await.map_err(|error| failed(&error))??;
    link::run(shared, &connection, streams, id, true).await;
    Ok(())
}

fn why_not(end: &End) -> String {
    match end {
        End::Fault(fault) => fault.to_string(),
        End::Lost(why) => why.clone(),
        End::Left | End::Said => "it has left".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_id_dials_at_once_then_ever_more_rarely_and_the_larger_defers() {
        let seconds = |failures, refused, smaller| pause(failures, refused, smaller).as_secs_f64();
        assert_eq!([0, 1, 2, 3, 6, 60].map(|k| seconds(k, false, true)), [0.0, 0.1, 0.2, 0.4, 2.0, 2.0]);
        assert_eq!([0, 1, 60].map(|k| seconds(k, false, false)), [3.0; 3]);
        assert_eq!([1, 2, 3, 60].map(|k| seconds(k, true, true)), [1.0, 2.0, 4.0, 30.0]);
        assert_eq!([1, 60].map(|k| seconds(k, true, false)), [1.0, 30.0]);
    }
}
