//! Who is let in: listed keys only, so many at a time, and whoever is kept out is counted and hardly logged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use iroh::endpoint::{
    AfterHandshakeOutcome, ConnectingError, Connection, EndpointHooks, Incoming, IncomingAddr,
};
use iroh::{Endpoint, PublicKey};
use mile::real::Real;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::link::{self, End, REFUSED};
use super::shared::Shared;
use crate::status::Refused;

/// Connections whose handshake or first byte is still to come.
const UNFINISHED: usize = 32;
/// How long these may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes from one address: at once, and a second.
const HANDSHAKES: (f64, f64) = (20.0, 4.0);
/// Addresses that are told apart.
const SOURCES: usize = 256;
/// Log lines about those kept out: at once, and a second.
const LINES: (f64, f64) = (5.0, 0.1);
/// Strangers whose keys are remembered, to be logged once.
const STRANGERS: usize = 64;

/// So many at once, and so many a second.
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn full((size, _): (f64, f64), now: Instant) -> Self {
        Self { tokens: size, filled: now }
    }

    fn take(&mut self, (size, rate): (f64, f64), now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * rate;
        self.tokens = (self.tokens + gained).min(size);
        self.filled = now;
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

/// Counts and, sparingly, logs what is kept out.
pub(super) struct Door {
    strangers: AtomicU64,
    flooded: AtomicU64,
    broken: AtomicU64,
    faults: AtomicU64,
    log: Mutex<(Bucket, BTreeSet<PublicKey>)>,
}

impl Door {
    pub(super) fn new() -> Self {
        Self {
            strangers: AtomicU64::new(0),
            flooded: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            log: Mutex::new((Bucket::full(LINES, Instant::now()), BTreeSet::new())),
        }
    }

    pub(super) fn refused(&self) -> Refused {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        Refused {
            strangers: count(&self.strangers),
            flooded: count(&self.flooded),
            broken: count(&self.broken),
            faults: count(&self.faults),
        }
    }

    /// A listed neighbour said something wrong.
    pub(super) fn fault(&self, neighbour: usize, end: &End) {
        self.faults.fetch_add(1, Relaxed);
        if let End::Fault(fault) = end
            && self.may_log()
        {
            tracing::warn!(neighbour, "refused agent {neighbour}: {fault}");
        }
    }

    fn stranger(&self, key: PublicKey) {
        self.strangers.fetch_add(1, Relaxed);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let (bucket, seen) = &mut *log;
        if seen.len() < STRANGERS && seen.insert(key) && bucket.take(LINES, Instant::now()) {
            tracing::warn!(%key, "refused a stranger: its key is not listed");
        }
    }

    fn may_log(&self) -> bool {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.0.take(LINES, Instant::now())
    }
}

/// Neighbours by key.
pub(super) type Listed = Arc<BTreeMap<PublicKey, usize>>;

/// Lets listed keys through the handshake, and nobody else.
pub(super) struct AllowList {
    pub(super) listed: Listed,
    pub(super) door: Arc<Door>,
}

impl std::fmt::Debug for AllowList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllowList").field("listed", &self.listed.len()).finish_non_exhaustive()
    }
}

impl EndpointHooks for AllowList {
    async fn after_handshake<'a>(&'a self, connection: &'a Connection) -> AfterHandshakeOutcome {
        let key = connection.remote_id();
        if self.listed.contains_key(&key) {
            return AfterHandshakeOutcome::Accept;
        }
        self.door.stranger(key);
        let reason = b"your key is not listed as a neighbour here".to_vec();
        AfterHandshakeOutcome::Reject { error_code: REFUSED, reason }
    }
}

/// How many handshakes each address has had of late. Its size is bounded: the rest share one bucket.
#[derive(Default)]
struct Sources(HashMap<Option<IpAddr>, Bucket>);

impl Sources {
    fn admits(&mut self, source: Option<IpAddr>, now: Instant) -> bool {
        if self.0.len() >= SOURCES && !self.0.contains_key(&source) {
            let (size, rate) = HANDSHAKES;
            let idle = Duration::from_secs_f64(size / rate);
            self.0.retain(|_, bucket| now.saturating_duration_since(bucket.filled) < idle);
        }
        let known = self.0.len() < SOURCES || self.0.contains_key(&source);
        let bucket = self.0.entry(source.filter(|_| known));
        bucket.or_insert_with(|| Bucket::full(HANDSHAKES, now)).take(HANDSHAKES, now)
    }
}

/// Lets neighbours in until the endpoint is closed.
pub(super) async fn watch<T: Real>(shared: Arc<Shared<T>>, endpoint: Endpoint, listed: Listed) {
    let unfinished = Arc::new(Semaphore::new(UNFINISHED));
    let mut sources = Sources::default();
    while let Some(incoming) = endpoint.accept().await {
        let source = match incoming.remote_addr() {
            IncomingAddr::Ip(address) => Some(address.ip()),
            _ => None,
        };
        // Silence rather than a refusal: a neighbour's next packet may find the door open.
        let permit = unfinished.clone().try_acquire_owned().ok();
        let Some(permit) = permit.filter(|_| sources.admits(source, Instant::now())) else {
            shared.door.flooded.fetch_add(1, Relaxed);
            incoming.ignore();
            continue;
        };
        if unfinished.available_permits() < UNFINISHED / 2 && !incoming.remote_addr_validated() {
            let _ = incoming.retry();
            continue;
        }
        tokio::spawn(enter(shared.clone(), incoming, permit, listed.clone()));
    }
}

async fn enter<T: Real>(
    shared: Arc<Shared<T>>,
    incoming: Incoming,
    permit: OwnedSemaphorePermit,
    listed: Listed,
) {
    let broken = || {
        shared.door.broken.fetch_add(1, Relaxed);
    };
    let Ok(accepting) = incoming.accept() else { return broken() };
    let connection = match timeout(HANDSHAKE, accepting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(ConnectingError::LocallyRejected { .. })) => return,
        Ok(Err(_)) | Err(_) => return broken(),
    };
    let Some(neighbour) = listed.get(&connection.remote_id()).copied() else { return };
    match timeout(HANDSHAKE, connection.accept_bi()).await {
        Ok(Ok(streams)) => {
            drop(permit);
            link::run(&shared, &connection, streams, neighbour, false).await;
        }
        _ => broken(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_a_trickle() {
        let begun = Instant::now();
        let mut bucket = Bucket::full((3.0, 2.0), begun);
        let taken = |bucket: &mut Bucket, after| {
            let now = begun + Duration::from_millis(after);
            (0..100).filter(|_| bucket.take((3.0, 2.0), now)).count()
        };
        assert_eq!(taken(&mut bucket, 0), 3);
        assert_eq!(taken(&mut bucket, 400), 0);
        assert_eq!(taken(&mut bucket, 1000), 2);
        assert_eq!(taken(&mut bucket, 100_000), 3);
    }

    #[test]
    fn a_flood_from_everywhere_takes_bounded_memory() {
        let begun = Instant::now();
        let mut sources = Sources::default();
        let admitted =
            (0..100_000u32).filter(|k| sources.admits(Some(IpAddr::V4((*k).into())), begun)).count();
        assert!(sources.0.len() <= SOURCES + 1);
        assert!(admitted <= SOURCES + HANDSHAKES.0 as usize);
        assert!(sources.admits(Some(IpAddr::V4(7.into())), begun), "one that was there before");
        let later = begun + Duration::from_secs(60);
        assert!(sources.admits(Some(IpAddr::V4(200_000.into())), later), "old ones are forgotten");
    }
}
