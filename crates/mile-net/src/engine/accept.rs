//! Accepting connections from neighbours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iroh::Endpoint;
use iroh::endpoint::{ConnectingError, Incoming, IncomingAddr};
use mile::real::Real;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::admission::{Listed, Sources};
use super::link;
use super::shared::Shared;

/// Most connections whose handshake or first stream is still to come.
const UNFINISHED: usize = 32;
/// How long each of the two may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Accepts connections from neighbours until the endpoint is closed.
pub(super) async fn run<T: Real>(shared: Arc<Shared<T>>, endpoint: Endpoint, listed: Listed) {
    let unfinished = Arc::new(Semaphore::new(UNFINISHED));
    let mut sources = Sources::default();
    while let Some(incoming) = endpoint.accept().await {
        let source = match incoming.remote_addr() {
            IncomingAddr::Ip(address) => Some(address.ip()),
            _ => None,
        };
        // Ignored rather than refused: a neighbour's next packet may be admitted.
        let permit = unfinished.clone().try_acquire_owned().ok();
        let Some(permit) = permit.filter(|_| sources.admits(source, Instant::now())) else {
            shared.admission.count_flooded();
            incoming.ignore();
            continue;
        };
        if unfinished.available_permits() < UNFINISHED / 2 && !incoming.remote_addr_validated() {
            let _ = incoming.retry();
            continue;
        }
        tokio::spawn(admit(shared.clone(), incoming, permit, listed.clone()));
    }
}

async fn admit<T: Real>(
    shared: Arc<Shared<T>>,
    incoming: Incoming,
    permit: OwnedSemaphorePermit,
    listed: Listed,
) {
    let failed = || shared.admission.count_failed_handshake();
    let Ok(accepting) = incoming.accept() else { return failed() };
    let connection = match timeout(HANDSHAKE, accepting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(ConnectingError::LocallyRejected { .. })) => return,
        Ok(Err(_)) | Err(_) => return failed(),
    };
    let Some(neighbour) = listed.get(&connection.remote_id()).copied() else { return };
    match timeout(HANDSHAKE, connection.accept_bi()).await {
        Ok(Ok(streams)) => {
            drop(permit);
            link::run(&shared, &connection, streams, neighbour, false).await;
        }
        _ => failed(),
    }
}
