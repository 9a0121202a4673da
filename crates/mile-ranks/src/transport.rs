//! What the engine of a rank needs to talk to the other ranks.

use mile::agents::Failure;
use mile::ranks::Ranks;

/// Messages that have arrived so far, in the order of the receives; `None` for those that are under way.
pub type Arrived<'a> = [Option<&'a [u8]>];

/// Bytes at an address, of the host's memory or of a device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where they begin.
    pub at: u64,
    /// How many there are.
    pub bytes: usize,
}

/// Ranks that send each other messages whose lengths both ends know.
pub trait RankTransport: Ranks {
    /// Sends and receives messages, given as (rank, bytes); those between two ranks arrive in the order in which they are given. Receives are
    /// posted first, then sends. `meanwhile` is called again and again with what has arrived: it does a piece of work, and says whether it did any;
    /// the call returns when all has arrived and there is no more work. An empty message is not sent.
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        meanwhile: &mut dyn FnMut(&Arrived<'_>) -> bool,
    ) -> Result<(), Failure>;

    /// Whether [`exchange_regions`](Self::exchange_regions) takes addresses of a device's memory.
    fn takes_device_memory(&self) -> bool;

    /// [`exchange`](Self::exchange) of messages that lie at addresses, without work meanwhile. The other end of a message may give it as bytes.
    ///
    /// # Safety
    /// Until the call returns, the regions are memory of the host, or of a device if it [may be](Self::takes_device_memory), that nothing else
    /// uses, work in the device's queues included; those that are received do not overlap any other. The device is the current one of this thread.
    unsafe fn exchange_regions(
        &self,
        sends: &[(usize, Region)],
        receives: &[(usize, Region)],
    ) -> Result<(), Failure>;
}
