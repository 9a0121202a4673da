//! How steady the differences between neighbours are, from one exchange to the next.
//!
//! Agents that drift apart because their data differ differ in the same way in every exchange; agents that differ by the noise of
//! their gradients do not. With `d_ij = v_j - v_i` of this exchange and `d'_ij` of the last one, `cos_ij` is the cosine of the angle
//! between them, and every agent keeps a running mean r_i of the cosines of its edges:
//!
//! ```text
//! rho_ij = max(0, (r_i + r_j)/2)
//! r_i    = (1 - fresh) r_i + fresh * sum_j w_ij cos_ij / sum_j w_ij
//! ```
//!
//! Both ends of an edge compute the same rho_ij to the bit: it is symmetric in numbers that both have.
//!
//! An agent sends its *summary* along with v: r_i and the sketches of the v of this exchange and of the last. A sketch has up to
//! [`SKETCH`] numbers: element e is added, with a pseudo-random sign, to number e mod [`SKETCH`], in increasing e. A cosine of sketches of s numbers
//! has a standard error of at most 1/sqrt(s), 0.06, and vectors of up to [`SKETCH`] + 1 elements are their own sketches, without error.
//!
//! An agent remembers the v of the last exchange in one vector, in which r_i replaces the first element; sketches leave the
//! first element out.

use rayon::prelude::*;

use crate::block::CHUNK;
use crate::random::finalise;
use crate::real::Real;
use crate::sparse::SparseRows;

/// Most numbers of a sketch.
pub const SKETCH: usize = 256;
/// Signs that are drawn together.
const WORD: usize = u64::BITS as usize;

/// Numbers in a sketch of vectors with this many elements.
fn sketch_len(dim: usize) -> usize {
    dim.saturating_sub(1).min(SKETCH)
}

/// Numbers in a summary of vectors with this many elements.
pub fn summary_len(dim: usize) -> usize {
    1 + 2 * sketch_len(dim)
}

/// Bytes that an agent sends to a neighbour in a [`SteadyPull`](crate::agents::SteadyPull).
pub fn message_bytes<T: Real>(dim: usize) -> usize {
    dim * size_of::<T>() + summary_len(dim) * size_of::<f64>()
}

/// The signs of elements `WORD * word` and on of a sketch, a bit each: 1 is negative.
pub fn signs(word: usize) -> u64 {
    finalise((word as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Adds a row, without its first element, to its sketch.
fn add_sketch<T: Real>(row: &[T], sketch: &mut [f64]) {
    let elements = row.get(1..).unwrap_or_default();
    for (k, block) in elements.chunks(sketch.len().max(1)).enumerate() {
        for (w, (block, sketch)) in block.chunks(WORD).zip(sketch.chunks_mut(WORD)).enumerate() {
            let signs = signs(k * SKETCH / WORD + w);
            for (bit, (v, sum)) in block.iter().zip(sketch).enumerate() {
                *sum += f64::from_bits(v.wide().to_bits() ^ (signs >> bit << 63));
            }
        }
    }
}

/// The summary of an agent with this v and this memory: r, and the sketches of v and of the v that it remembers.
pub fn summary<T: Real>(v: &[T], memory: &[T]) -> Vec<f64> {
    let mut summary = vec![0.0; summary_len(v.len())];
    write_summary(v, memory, &mut summary);
    summary
}

fn write_summary<T: Real>(v: &[T], memory: &[T], summary: &mut [f64]) {
    let Some((r, sketches)) = summary.split_first_mut() else { return };
    *r = memory.first().map_or(0.0, |r| r.wide());
    let (now, last) = sketches.split_at_mut(sketches.len() / 2);
    add_sketch(v, now);
    add_sketch(memory, last);
}

/// rho of the edge between two agents, from their summaries; the same for both.
pub fn share(one: &[f64], other: &[f64]) -> f64 {
    let mean = 0.5 * (one[0] + other[0]);
    if mean < 0.0 { 0.0 } else { mean }
}

/// The cosine of the angle between the differences of two agents in this exchange and in the last; the same for both. If
/// both differences are zero, the agents agree and it is 1.
fn cosine(one: &[f64], other: &[f64]) -> f64 {
    let half = one.len() / 2;
    let (mut product, mut now_sq, mut last_sq) = (0.0, 0.0, 0.0);
    for k in 1..=half {
        let (now, last) = (one[k] - other[k], one[half + k] - other[half + k]);
        product += now * last;
        now_sq += now * now;
        last_sq += last * last;
    }
    match (now_sq == 0.0, last_sq == 0.0) {
        (true, true) => 1.0,
        (false, false) => (product / (now_sq.sqrt() * last_sq.sqrt())).clamp(-1.0, 1.0),
        // The product is zero or NaN.
        _ => product.clamp(-1.0, 1.0),
    }
}

/// The r of an agent after an exchange, from its summary and those of the neighbours whose edge was used, with their weights, in
/// increasing agent. Without any it stays the same.
pub fn steadiness<'s>(own: &[f64], fresh: f64, others: impl Iterator<Item = (f64, &'s [f64])>) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (weight, other) in others {
        sum += weight * cosine(own, other);
        weights += weight;
    }
    if weights == 0.0 { own[0] } else { (1.0 - fresh) * own[0] + fresh * (sum / weights) }
}

/// What an agent remembers after an exchange: v, with its first element replaced by r.
pub fn remember<T: Real>(memory: &mut [T], v: &[T], r: f64) {
    memory.copy_from_slice(v);
    memory.iter_mut().take(1).for_each(|first| *first = T::of(r));
}

/// The summaries of several agents.
#[derive(Clone, Debug)]
pub struct Summaries {
    len: usize,
    numbers: Vec<f64>,
}

impl Summaries {
    /// The summaries of agents whose vectors are rows of these blocks.
    pub fn of<T: Real>(v: &[T], memory: &[T], dim: usize) -> Self {
        let len = summary_len(dim);
        let rows = v.len() / dim.max(1);
        let mut numbers = vec![0.0; rows * len];
        let write = |((summary, v), memory): ((&mut [f64], &[T]), &[T])| write_summary(v, memory, summary);
        if v.len() <= 2 * CHUNK {
            let rows = numbers.chunks_exact_mut(len).zip(v.chunks_exact(dim.max(1)));
            rows.zip(memory.chunks_exact(dim.max(1))).for_each(write);
        } else {
            let rows = numbers.par_chunks_exact_mut(len).zip(v.par_chunks_exact(dim));
            rows.zip(memory.par_chunks_exact(dim)).for_each(write);
        }
        Self { len, numbers }
    }

    /// Summaries computed elsewhere, one after the other, for vectors with `dim` elements.
    pub fn from_numbers(numbers: Vec<f64>, dim: usize) -> Self {
        Self { len: summary_len(dim), numbers }
    }

    /// All numbers, agent after agent.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// The summary of one agent.
    pub fn agent(&self, agent: usize) -> &[f64] {
        &self.numbers[agent * self.len..(agent + 1) * self.len]
    }

    /// The weights `w_ij rho_ij` of all edges; those on the diagonal mean nothing.
    pub fn shares(&self, weights: &SparseRows) -> SparseRows {
        let row =
            |i: usize| weights.row(i).iter().map(move |&(j, w)| (j, w * share(self.agent(i), self.agent(j))));
        SparseRows { starts: weights.starts.clone(), entries: (0..weights.rows()).flat_map(row).collect() }
    }

    /// The r of every agent after an exchange with these weights.
    pub fn steadiness(&self, weights: &SparseRows, fresh: f64) -> Vec<f64> {
        let others = |i: usize| {
            let used = weights.row(i).iter().filter(move |(j, w)| *j != i && *w != 0.0);
            used.map(|(j, w)| (*w, self.agent(*j)))
        };
        (0..weights.rows()).map(|i| steadiness(self.agent(i), fresh, others(i))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    use crate::random::{Purpose, stream};

    fn vectors(dim: usize, index: u64) -> [Vec<f64>; 2] {
        let mut random = stream(1, Purpose::Probe, index, dim as u64);
        [(); 2].map(|()| (0..dim).map(|_| random.random_range(-1.0..1.0)).collect())
    }

    /// The same from whole vectors, without their first elements.
    fn literal(one: &[Vec<f64>; 2], other: &[Vec<f64>; 2]) -> f64 {
        let [now, last]: [Vec<f64>; 2] =
            std::array::from_fn(|k| one[k].iter().zip(&other[k]).skip(1).map(|(a, b)| a - b).collect());
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        dot(&now, &last) / (dot(&now, &now) * dot(&last, &last)).sqrt()
    }

    #[test]
    fn cosines_are_exact_for_short_vectors_close_for_long_ones_and_the_same_at_both_ends() {
        for (dim, error) in
            [(2, 1e-13), (3, 1e-13), (64, 1e-13), (257, 1e-13), (258, 0.3), (5_000, 0.2), (70_001, 0.2)]
        {
            let (one, other) = (vectors(dim, 0), vectors(dim, 1));
            // Half of the difference stays from one exchange to the next.
            let mix = |[now, last]: [Vec<f64>; 2]| {
                let now = now.iter().zip(&last).map(|(a, b)| 0.5 * (a + b)).collect::<Vec<f64>>();
                [now, last]
            };
            let (one, other) = (mix(one), mix(other));
            let [a, b] = [&one, &other].map(|[now, last]| summary(now, last));
            let found = cosine(&a, &b);
            assert_eq!(found.to_bits(), cosine(&b, &a).to_bits());
            let expected = literal(&one, &other);
            assert!((found - expected).abs() < error, "{dim}: {found} {expected}");
            assert_eq!(share(&a, &b).to_bits(), share(&b, &a).to_bits());
        }
    }

    #[test]
    fn the_error_of_a_cosine_is_that_of_its_sketch() {
        let (dim, draws) = (3_000, 400);
        let mut squares = 0.0;
        for draw in 0..draws {
            let (one, other) = (vectors(dim, 2 * draw), vectors(dim, 2 * draw + 1));
            let [a, b] = [&one, &other].map(|[now, last]| summary(now, last));
            squares += (cosine(&a, &b) - literal(&one, &other)).powi(2);
        }
        let error = (squares / draws as f64).sqrt();
        assert!(error < 1.2 / (SKETCH as f64).sqrt() && error > 0.7 / (SKETCH as f64).sqrt(), "{error}");
    }

    #[test]
    fn differences_that_stay_are_steady_and_nan_is_seen() {
        let [v, _] = vectors(40, 3);
        let mut memory = vec![0.0; 40];
        remember(&mut memory, &v, 0.25);
        assert_eq!((memory[0], &memory[1..]), (0.25, &v[1..]));
        let own = summary(&v, &memory);
        let zero = summary(&[0.0; 40], &[0.0; 40]);
        assert_eq!(own[0], 0.25);
        let next = |other: &[f64], fresh| steadiness(&own, fresh, [(0.3, other)].into_iter());
        assert!((next(&zero, 0.5) - (0.5 * 0.25 + 0.5)).abs() < 1e-14);
        assert_eq!((next(&own, 1.0), next(&zero, 0.0)), (1.0, 0.25));
        assert_eq!(steadiness(&own, 0.5, std::iter::empty()), 0.25);
        // One of the two differences is zero.
        assert_eq!(next(&summary(&[0.0; 40], &memory), 1.0), 0.0);
        let broken = summary(&[f64::NAN; 40], &memory);
        assert!(next(&broken, 0.1).is_nan() && share(&[f64::NAN], &[0.5]).is_nan());
        assert_eq!((share(&[-0.75], &[0.25]), share(&[0.75], &[0.25])), (0.0, 0.5));
        for dim in [0, 1] {
            let [one, other] = [0.0, 1.0].map(|value| summary(&vec![value; dim], &vec![0.5; dim]));
            assert_eq!((one.len(), cosine(&one, &other)), (1, 1.0));
        }
    }
}
