//! What the engine of a rank needs to talk to the other ranks.

use mile::agents::Failure;
use mile::ranks::Ranks;

/// Messages that have arrived so far, in the order of the receives; `None` for those that are under way.
pub type Arrived<'a> = [Option<&'a [u8]>];

/// Ranks that send each other messages whose lengths both ends know.
pub trait Transport: Ranks {
    /// Sends and receives messages, given as (rank, bytes); those between two ranks arrive in the order in which they are given. Receives are
    /// posted first, then sends. `meanwhile` is called again and again with what has arrived: it does a piece of work, and says whether it did any;
    /// the call returns when all has arrived and there is no more work. An empty message is not sent.
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
        meanwhile: &mut dyn FnMut(&Arrived<'_>) -> bool,
    ) -> Result<(), Failure>;
}
