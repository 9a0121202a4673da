//! Randomness as a pure function of (seed, purpose, index, step).
//!
//! There is no generator that advances with history: whoever knows the four numbers draws the same
//! stream, so a run can be resumed, replayed, and spread over processes without changing a bit.

use rand::RngExt;
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

/// A random order of `0..len` that is asked for one place at a time, without storing it.
///
/// Six rounds of a Feistel network over an even power of two, walked until the value is in range: an epoch's order of samples is a function of its key, and costs no memory.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; 6],
}

impl Permutation {
    /// The order drawn from a stream.
    pub fn new(len: usize, mut random: ChaCha8Rng) -> Self {
        let bits = (len.max(2) as u64 - 1).ilog2() + 1;
        Self {
            len: len as u64,
            half_bits: bits.div_ceil(2).max(4),
            keys: std::array::from_fn(|_| random.random()),
        }
    }

    /// What stands at a place of the order.
    ///
    /// # Panics
    /// If `place` is not below the length.
    pub fn at(&self, place: usize) -> usize {
        assert!((place as u64) < self.len, "place {place} of {}", self.len);
        let mut value = self.scramble(place as u64);
        while value >= self.len {
            value = self.scramble(value);
        }
        value as usize
    }

    fn scramble(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (finalise(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every output bit depends on every input bit.
fn finalise(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_holds_every_place_once_and_depends_on_its_key() {
        for len in [1usize, 2, 3, 5, 16, 17, 1000] {
            let order = |key| -> Vec<usize> {
                let permutation = Permutation::new(len, stream(key, Purpose::Batch, 0, 0));
                (0..len).map(|k| permutation.at(k)).collect()
            };
            let mut sorted = order(1);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..len).collect::<Vec<_>>());
            assert!(len < 10 || order(1) != order(2));
        }
    }

    #[test]
    fn places_of_a_permutation_are_close_to_uniform() {
        let (len, draws) = (7, 14_000);
        let mut counts = [0usize; 7];
        for key in 0..draws {
            counts[Permutation::new(len, stream(key, Purpose::Batch, 0, 0)).at(3)] += 1;
        }
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }
}
