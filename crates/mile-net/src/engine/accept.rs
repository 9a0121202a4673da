//! Accepting connections from neighbours.

use std::sync::Arc;
use std::time::Instant;

use mile::real::Real;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::admission::Sources;
use super::link;
use super::shared::Shared;
use super::transport::{Endpoint, Incoming};

/// Most connections whose handshake or first stream is still to come.
const UNFINISHED: usize = 32;

/// Accepts connections from neighbours until the endpoint is closed.
pub(super) async fn run<T: Real>(shared: Arc<Shared<T>>, endpoint: Arc<Endpoint>) {
    let unfinished = Arc::new(Semaphore::new(UNFINISHED));
    let mut sources = Sources::default();
    while let Some(incoming) = endpoint.accept().await {
        let permit = unfinished.clone().try_acquire_owned().ok();
        let Some(permit) = permit.filter(|_| sources.admits(incoming.source(), Instant::now())) else {
            shared.admission.count_flooded();
            incoming.ignore();
            continue;
        };
        let crowded = unfinished.available_permits() < UNFINISHED / 2;
        let incoming = if crowded { incoming.with_proven_address() } else { Some(incoming) };
        if let Some(incoming) = incoming {
            tokio::spawn(admit(shared.clone(), incoming, permit));
        }
    }
}

async fn admit<T: Real>(shared: Arc<Shared<T>>, incoming: Incoming, permit: OwnedSemaphorePermit) {
    let admitted = incoming.admit().await;
    drop(permit);
    if let Some((neighbour, connection)) = admitted {
        link::run(&shared, connection, neighbour, false).await;
    }
}
