//! Accepting connections from neighbours.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use mile::real::Real;
use tokio::task::AbortHandle;

use super::admission::Sources;
use super::link;
use super::notices;
use super::purpose::Purpose;
use super::shared::Shared;
use super::transport::{Endpoint, Incoming};

/// Most connections whose handshake or first stream is still to come.
const UNFINISHED: usize = 128;
/// With this many unfinished connections or more, QUIC clients must prove their address first.
const CROWDED: usize = UNFINISHED / 2;

/// Accepts connections from neighbours until the endpoint is closed.
pub(super) async fn run<T: Real>(shared: Arc<Shared<T>>, endpoint: Arc<Endpoint>) {
    let mut unfinished = Unfinished::default();
    let mut sources = Sources::default();
    while let Some(incoming) = endpoint.accept().await {
        let source = incoming.source();
        if !sources.admits(source, Instant::now()) {
            shared.admission.count_flooded();
            incoming.ignore();
            continue;
        }
        unfinished.forget_finished();
        let crowded = unfinished.0.len() >= CROWDED;
        let incoming = if crowded { incoming.with_proven_address() } else { Some(incoming) };
        if let Some(incoming) = incoming {
            if unfinished.make_room() {
                shared.admission.count_flooded();
            }
            let handshake = tokio::spawn(admit(shared.clone(), incoming));
            unfinished.0.push((source, handshake.abort_handle()));
        }
    }
}

async fn admit<T: Real>(shared: Arc<Shared<T>>, incoming: Incoming) {
    let Some((neighbour, purpose, connection)) = incoming.admit().await else { return };
    // A separate task: the handshake is over.
    tokio::spawn(async move {
        match purpose {
            Purpose::Link => link::run(&shared, connection, neighbour, false).await,
            Purpose::Notices => drop(notices::run(&shared, connection, neighbour).await),
        }
    });
}

/// Handshakes under way, oldest first, each with its address. A new one always finds a place: whoever holds most of them loses its
/// oldest, so that many clients that never finish cannot keep out a neighbour.
#[derive(Default)]
struct Unfinished(Vec<(Option<IpAddr>, AbortHandle)>);

impl Unfinished {
    fn forget_finished(&mut self) {
        self.0.retain(|(_, handshake)| !handshake.is_finished());
    }

    /// Ends a handshake if there is no place for another. Returns whether it did.
    fn make_room(&mut self) -> bool {
        if self.0.len() < UNFINISHED {
            return false;
        }
        let sources: Vec<Option<IpAddr>> = self.0.iter().map(|(source, _)| *source).collect();
        self.0.remove(excess(&sources)).1.abort();
        true
    }
}

/// The place of the oldest among those of the address that occurs most often.
fn excess(sources: &[Option<IpAddr>]) -> usize {
    let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    sources.iter().for_each(|source| *counts.entry(*source).or_default() += 1);
    let most = counts.values().copied().max();
    sources.iter().position(|source| counts.get(source).copied() == most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_most_handshakes_makes_room() {
        let from = |hosts: &[u32]| -> Vec<Option<IpAddr>> {
            hosts.iter().map(|host| Some(IpAddr::V4((*host).into()))).collect()
        };
        assert_eq!(excess(&from(&[7, 1, 2, 1, 2, 2])), 2);
        assert_eq!(excess(&from(&[7, 1, 2, 2, 1])), 1);
        assert_eq!(excess(&from(&[3, 1, 2])), 0);
        assert_eq!(excess(&[&from(&[3])[..], &[None, None]].concat()), 1);
    }
}
