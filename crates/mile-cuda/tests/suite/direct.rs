//! Ranks in threads that accept messages in device memory: that of emulated devices is the host's.

use std::sync::atomic::{AtomicUsize, Ordering};

use mile::agents::Failure;
use mile::ranks::{Ranks, Together};
use mile_ranks::threads::Threads;
use mile_ranks::transport::{Arrived, RankTransport, Region};

pub struct Direct {
    pub rank: Threads,
    /// Whether it accepts them; otherwise it is an ordinary rank.
    pub is_direct: bool,
    /// Exchanges of messages in the memory of a device.
    pub exchanges: AtomicUsize,
}

impl Ranks for Direct {
    fn rank(&self) -> usize {
        self.rank.rank()
    }

    fn count(&self) -> usize {
        self.rank.count()
    }

    fn name(&self) -> String {
        self.rank.name()
    }

    fn all_gather(&self, together: Together<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        self.rank.all_gather(together, own)
    }

    fn gather(&self, together: Together<'_>, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        self.rank.gather(together, own)
    }

    fn broadcast(&self, together: Together<'_>, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        self.rank.broadcast(together, from, bytes)
    }
}

impl RankTransport for Direct {
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        meanwhile: &mut dyn FnMut(&Arrived<'_>) -> bool,
    ) -> Result<(), Failure> {
        self.rank.exchange(sends, receives, meanwhile)
    }

    fn takes_device_memory(&self) -> bool {
        self.is_direct
    }

    unsafe fn exchange_regions(
        &self,
        sends: &[(usize, Region)],
        receives: &[(usize, Region)],
    ) -> Result<(), Failure> {
        self.exchanges.fetch_add(1, Ordering::Relaxed);
        // SAFETY: promised by the caller; tests use it with host memory only.
        unsafe { self.rank.exchange_regions(sends, receives) }
    }
}
