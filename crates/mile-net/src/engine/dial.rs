//! Connecting to a neighbour, and reconnecting: both ends dial at the start, later the one with the smaller id does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iroh::{Endpoint, EndpointAddr, RelayUrl, TransportAddr};
use mile::real::Real;
use tokio::time::timeout;

use super::Peer;
use super::close::LinkEnd;
use super::link;
use super::reach;
use super::shared::Shared;
use super::transport::ALPN;

/// The pause before a retry after a failure: the first, which is doubled each time, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The same after a refusal.
const RETRY_REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long the end with the larger id waits for the other to dial.
const DEFER: Duration = Duration::from_secs(3);
/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How often the state of a link is checked without a notification.
const CHECK: Duration = Duration::from_secs(1);

/// Keeps a connection to a neighbour until the agent leaves, in the rounds in which there is an edge to it.
pub(super) async fn keep_connected<T: Real>(
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
        if let Err(why) = attempt(&shared, &endpoint, id, &peer, relay.as_ref()).await {
            tracing::debug!(neighbour = id, "cannot connect: {why}");
            if let Some(edge) = shared.lock().edges.get_mut(&id) {
                edge.ended = Some(Instant::now());
                edge.note(&why, false);
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

/// Dials, and serves the link until it ends.
async fn attempt<T: Real>(
    shared: &Shared<T>,
    endpoint: &Endpoint,
    id: usize,
    peer: &Peer,
    relay: Option<&RelayUrl>,
) -> Result<(), LinkEnd> {
    let (found, problems) = reach::resolve(&peer.addresses).await;
    let relays = relay.cloned().map(TransportAddr::Relay);
    let addresses: Vec<TransportAddr> =
        relays.into_iter().chain(found.iter().copied().map(TransportAddr::Ip)).collect();
    if addresses.is_empty() {
        let why = if problems.is_empty() { NO_ADDRESS.to_owned() } else { problems.join("; ") };
        return Err(LinkEnd::Lost(why));
    }
    let connecting = async {
        let address = EndpointAddr::from_parts(peer.key, addresses);
        let connection =
            endpoint.connect(address, ALPN).await.map_err(|error| LinkEnd::Lost(explain(&error, peer)))?;
        let streams = connection.open_bi().await.map_err(LinkEnd::of)?;
        Ok((connection, streams))
    };
    let unreachable = async {
        match relay {
            None => reach::refusals(&found).await,
            Some(_) => std::future::pending().await,
        }
    };
    let (connection, streams) = tokio::select! {
        connected = timeout(ATTEMPT, connecting) => connected.map_err(|_| LinkEnd::Lost(silence(peer)))??,
        why = unreachable => return Err(LinkEnd::Lost(why)),
    };
    link::run(shared, &connection, streams, id, true).await;
    Ok(())
}

/// What is told about a neighbour that has no addresses.
const NO_ADDRESS: &str = "it has no address here, so it has to connect to this agent";

fn silence(peer: &Peer) -> String {
    format!(
        "no answer from {}: is the agent running there, and does a firewall let UDP through?",
        peer.addresses.join(", ")
    )
}

/// What an error of the library means.
fn explain(error: &dyn std::error::Error, peer: &Peer) -> String {
    match chain(error) {
        text if text.contains("timed out") => silence(peer),
        text if text.contains("invalid peer certificate") => format!(
            "somebody with another key answers at {}: is the neighbour's key the one that mile keygen --public prints there?",
            peer.addresses.join(", ")
        ),
        text => text,
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
    fn the_smaller_id_dials_at_once_and_then_ever_more_rarely_and_the_larger_waits() {
        let seconds = |failures, refused, smaller| pause(failures, refused, smaller).as_secs_f64();
        assert_eq!([0, 1, 2, 3, 6, 60].map(|k| seconds(k, false, true)), [0.0, 0.1, 0.2, 0.4, 2.0, 2.0]);
        assert_eq!([0, 1, 60].map(|k| seconds(k, false, false)), [3.0; 3]);
        assert_eq!([1, 2, 3, 60].map(|k| seconds(k, true, true)), [1.0, 2.0, 4.0, 30.0]);
        assert_eq!([1, 60].map(|k| seconds(k, true, false)), [1.0, 30.0]);
    }
}
