//! Which connections are admitted: listed keys only, and a limited number of handshakes at a time. Those refused are
//! counted, and logged with a limit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use iroh::PublicKey;

use crate::protocol::Fault;
use crate::status::RefusedConnections;

/// How long a handshake may take, and a first stream to be opened.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes from one address: at once, and per second.
const HANDSHAKES: (f64, f64) = (20.0, 4.0);
/// Addresses that are counted separately.
const SOURCES: usize = 256;
/// Log lines about refused connections: at once, and per second.
const LINES: (f64, f64) = (5.0, 0.1);
/// Unlisted keys that are remembered, so that each is logged once.
const STRANGERS: usize = 64;

/// A rate limit (a token bucket): a number at once, and a number per second.
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

/// Counts refused connections, and logs them with a limit.
pub(super) struct Admission {
    strangers: AtomicU64,
    flooded: AtomicU64,
    broken: AtomicU64,
    faults: AtomicU64,
    log: Mutex<(Bucket, BTreeSet<PublicKey>)>,
}

impl Admission {
    pub(super) fn new() -> Self {
        Self {
            strangers: AtomicU64::new(0),
            flooded: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            log: Mutex::new((Bucket::full(LINES, Instant::now()), BTreeSet::new())),
        }
    }

    pub(super) fn refused(&self) -> RefusedConnections {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        RefusedConnections {
            strangers: count(&self.strangers),
            flooded: count(&self.flooded),
            broken: count(&self.broken),
            faults: count(&self.faults),
        }
    }

    /// A connection to a listed neighbour was closed because it broke the protocol.
    pub(super) fn count_fault(&self, neighbour: usize, fault: &Fault) {
        self.faults.fetch_add(1, Relaxed);
        if self.may_log() {
            tracing::warn!(neighbour, "refused agent {neighbour}: {fault}");
        }
    }

    /// A neighbour's message is not believed, and its edge is about to be skipped.
    pub(super) fn note_refused_message(&self, neighbour: usize, why: &str) {
        if self.may_log() {
            tracing::warn!(neighbour, "refused a message of agent {neighbour}: {why}");
        }
    }

    /// A handshake failed, or took too long.
    pub(super) fn count_failed_handshake(&self) {
        self.broken.fetch_add(1, Relaxed);
    }

    /// A connection was ignored because there are too many.
    pub(super) fn count_flooded(&self) {
        self.flooded.fetch_add(1, Relaxed);
    }

    /// A connection was refused because its key, which is proven, is not listed.
    pub(super) fn count_stranger(&self, key: PublicKey) {
        self.strangers.fetch_add(1, Relaxed);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let (bucket, seen) = &mut *log;
        if seen.len() < STRANGERS && seen.insert(key) && bucket.take(LINES, Instant::now()) {
            tracing::warn!(%key, "refused a connection: its key is not listed as a neighbour");
        }
    }

    fn may_log(&self) -> bool {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.0.take(LINES, Instant::now())
    }
}

/// Neighbours by key.
pub(super) type Listed = Arc<BTreeMap<PublicKey, usize>>;

/// Limits the handshakes from each address. Its size is bounded: addresses beyond it share one limit.
#[derive(Default)]
pub(super) struct Sources(HashMap<Option<IpAddr>, Bucket>);

impl Sources {
    pub(super) fn admits(&mut self, source: Option<IpAddr>, now: Instant) -> bool {
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
