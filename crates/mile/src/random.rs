//! Randomness as a pure function of (seed, purpose, index, step).
//!
//! There is no generator that advances with history: whoever knows the four numbers draws the same
//! stream, so a run can be resumed, replayed, and spread over processes without changing a bit.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// What a stream of random numbers is for. Two purposes never share a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
#[non_exhaustive]
pub enum Purpose {
    /// Edges of a random graph.
    Graph = 1,
    /// Which edges are down in a round.
    Drop = 2,
    /// Generated data of a problem.
    Data = 3,
    /// How samples are divided among agents.
    Partition = 4,
    /// Starting points.
    Start = 5,
    /// Samples of a mini-batch.
    Batch = 6,
    /// Dropout masks.
    Dropout = 7,
    /// The coin all agents share (ProxSkip).
    Coin = 8,
    /// Directions of probing: smoothness estimates, stability tests.
    Probe = 9,
}

/// The random stream for one purpose: `index` is usually an agent, `step` a draw, round or class.
///
/// ```
/// use mile::random::{Purpose, stream};
/// use rand::RngExt;
/// let a: u64 = stream(7, Purpose::Batch, 3, 12).random();
/// let b: u64 = stream(7, Purpose::Batch, 3, 12).random();
/// let c: u64 = stream(7, Purpose::Batch, 3, 13).random();
/// assert_eq!(a, b);
/// assert_ne!(a, c);
/// ```
pub fn stream(seed: u64, purpose: Purpose, index: u64, step: u64) -> ChaCha8Rng {
    let mut key = [0u8; 32];
    for (slot, word) in key.chunks_exact_mut(8).zip([seed, purpose as u64, index, step]) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}
