//! Mini-batches: which of its samples an agent uses for a stochastic gradient.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::Draw;
use crate::random::{Permutation, Purpose, stream};

/// Size and sampling of the mini-batch of a stochastic gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// All samples: the gradient is exact.
    Full,
    /// This many samples, drawn uniformly with replacement: independent and unbiased, as the theory assumes.
    Size(usize),
    /// This many samples, in epochs: each epoch goes through all samples in a new random order, as is usual in
    /// practice. A batch that reaches the end of an epoch continues with the next one.
    Epoch(usize),
}

impl Batch {
    /// Whether it has at least one sample.
    pub fn is_valid(self) -> bool {
        !matches!(self, Self::Size(0) | Self::Epoch(0))
    }

    /// The mini-batch of an agent with `all` samples, as indices below `all`: a function of (all, agent, draw).
    ///
    /// # Panics
    /// If `all` is 0.
    pub fn samples(self, all: usize, agent: usize, draw: Draw) -> BatchSamples {
        assert!(all > 0, "a batch is chosen from at least one sample");
        let (left, first) = match self {
            Self::Full => (all, 0),
            Self::Size(size) => (size, 0),
            Self::Epoch(size) => (size, u128::from(draw.step) * size as u128),
        };
        let key = match self {
            Self::Epoch(_) => (first / all as u128) as u64,
            _ => draw.step,
        };
        let random = stream(draw.seed, Purpose::Batch, agent as u64, key);
        let order = Permutation::new(all, random.clone());
        BatchSamples {
            batch: self,
            all,
            agent,
            draw,
            left,
            place: (first % all as u128) as usize,
            epoch: key,
            random,
            order,
        }
    }
}

/// An iterator over the samples of one mini-batch.
#[derive(Clone, Debug)]
pub struct BatchSamples {
    batch: Batch,
    all: usize,
    agent: usize,
    draw: Draw,
    left: usize,
    place: usize,
    epoch: u64,
    random: ChaCha8Rng,
    order: Permutation,
}

impl Iterator for BatchSamples {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        if matches!(self.batch, Batch::Size(_)) {
            return Some(self.random.random_range(0..self.all));
        }
        if self.place == self.all {
            self.place = 0;
            self.epoch += 1;
            let random = stream(self.draw.seed, Purpose::Batch, self.agent as u64, self.epoch);
            self.order = Permutation::new(self.all, random);
        }
        self.place += 1;
        Some(match self.batch {
            Batch::Epoch(_) => self.order.at(self.place - 1),
            _ => self.place - 1,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for BatchSamples {}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(batch: Batch, all: usize, step: u64) -> Vec<usize> {
        batch.samples(all, 2, Draw { seed: 4, step }).collect()
    }

    #[test]
    fn every_pass_sees_every_sample_once_even_across_batches() {
        let seen: Vec<usize> = (0..7).flat_map(|step| samples(Batch::Epoch(3), 7, step)).collect();
        assert_eq!(seen.len(), 21);
        for pass in seen.chunks(7) {
            let mut sorted = pass.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6]);
        }
        assert_ne!(seen[..7], seen[7..14]);
        let mut more = samples(Batch::Epoch(10), 5, 3);
        more.sort_unstable();
        assert_eq!(more, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn full_batches_are_everything_in_order_and_others_have_their_size() {
        assert_eq!(samples(Batch::Full, 4, 9), [0, 1, 2, 3]);
        let drawn = samples(Batch::Size(50), 4, 9);
        assert!(drawn.len() == 50 && drawn.iter().all(|k| *k < 4));
        assert_eq!(drawn, samples(Batch::Size(50), 4, 9));
        assert_ne!(drawn, samples(Batch::Size(50), 4, 10));
        assert!(!Batch::Size(0).is_valid() && !Batch::Epoch(0).is_valid() && Batch::Full.is_valid());
    }
}
