//! Random numbers as a pure function of (seed, purpose, index, step).
//!
//! There is no generator whose state advances during a run: the same four numbers always give the same stream, so
//! a run can be resumed, repeated or distributed over processes with identical results.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// What a stream of random numbers is used for. Different purposes have different streams.
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
    /// The partition of samples among agents.
    Partition = 4,
    /// Starting points.
    Start = 5,
    /// Samples of a mini-batch.
    Batch = 6,
    /// Dropout masks.
    Dropout = 7,
    /// The coin that all agents share, which decides when they communicate (ProxSkip).
    Coin = 8,
    /// Points and directions of smoothness estimates and stability tests, and evaluation subsets.
    Probe = 9,
    /// Which edges are in the random matching of a round.
    Matching = 10,
    /// When bursts of loss begin and end on an edge.
    Burst = 20,
    /// Which rounds within a burst are lost.
    LossInBurst = 21,
    /// When agents are away.
    Absence = 22,
    /// How long local steps take in modelled time.
    StepTime = 23,
    /// How long messages take in modelled time.
    Transit = 24,
    /// What malicious agents choose.
    Attack = 25,
}

/// The random stream of one purpose; `index` is usually an agent, `step` a draw, round or class.
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

/// A random permutation of `0..len`, computed one element at a time without storing it.
///
/// Six rounds of a Feistel network on an even number of bits, repeated until the value is below `len` (cycle
/// walking). It gives the order of the samples in an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; 6],
}

impl Permutation {
    /// A permutation whose keys are drawn from a stream.
    pub fn new(len: usize, mut random: ChaCha8Rng) -> Self {
        let bits = (len.max(2) as u64 - 1).ilog2() + 1;
        Self {
            len: len as u64,
            half_bits: bits.div_ceil(2).max(4),
            keys: std::array::from_fn(|_| random.random()),
        }
    }

    /// The element at position `place`.
    ///
    /// # Panics
    /// If `place` is not below the length.
    pub fn at(&self, place: usize) -> usize {
        assert!((place as u64) < self.len, "position {place} in a permutation of {}", self.len);
        let mut value = self.feistel(place as u64);
        while value >= self.len {
            value = self.feistel(value);
        }
        value as usize
    }

    fn feistel(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (finalise(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every output bit depends on every input bit.
pub(crate) fn finalise(value: u64) -> u64 {
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
