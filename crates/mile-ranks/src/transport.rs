//! What the engine of a rank needs to communicate with the other ranks.

use mile::agents::Failure;
use mile::ranks::Ranks;

/// Messages that have arrived so far, in the order of the receives; `None` for those under way.
pub type Arrived<'a> = [Option<&'a [u8]>];

/// Bytes at an address, in the memory of the host or of a device.
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
    /// posted first, then sends. `meanwhile` is called repeatedly with what has arrived: it does a piece of work, and returns whether it did any.
    /// The call returns when everything has arrived and no work is left. An empty message is not sent.
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        meanwhile: &mut dyn FnMut(&Arrived<'_>) -> bool,
    ) -> Result<(), Failure>;

    /// Whether [`exchange_regions`](Self::exchange_regions) accepts addresses of device memory.
    fn takes_device_memory(&self) -> bool;

    /// [`exchange`](Self::exchange) of messages at addresses, with no work meanwhile. The other end of a message may give it as bytes.
    ///
    /// # Safety
    /// Until the call returns, the regions are host memory, or device memory if that is [accepted](Self::takes_device_memory), that nothing else
    /// uses, including work in the device's queues; regions that receive overlap no other. The device is this thread's current one.
    unsafe fn exchange_regions(
        &self,
        sends: &[(usize, Region)],
        receives: &[(usize, Region)],
    ) -> Result<(), Failure>;
}
