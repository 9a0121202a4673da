//! Exchanges that limit what a few malicious neighbours can do.
//!
//! v_j are the vectors of the neighbours whose edge is up, and at most b of them are believed to be malicious:
//!
//! ```text
//! clip:          d_i = sum_j w_ij s_ij (v_j - v_i) ;  s_ij = min(1, t_i/|v_j - v_i|)
//! threshold:     the same with one t for all agents: s_ij is the same at both ends of an edge
//! trimmed mean:  d_i = sum_j w_ij (v_j - v_i), in each element without the b largest and the b smallest v_j
//! ```
//!
//! The first is the rule CS+ of self-centred clipping (Gaucher, Dieuleveut, Hendrikx, "Unified Breakdown Analysis for Byzantine Robust
//! Gossip", 2025). t_i is the largest distance |v_j - v_i| that is left when the farthest neighbours are left out, as few of them as have at least twice
//! the weight of the b heaviest edges: with equal weights, the 2b farthest are moved to the distance of the next. An agent with no more neighbours than that stays where it is.
//!
//! The trimmed mean is BRIDGE-T (Fang, Yang, Bajwa, "BRIDGE: Byzantine-resilient Decentralized Gradient Descent", 2022) with the weights of W:
//! that of what is left out stays with the agent, as that of a dropped edge does.
//!
//! With b = 0, or an infinite threshold, each has the bits of the plain exchange. What is not a number counts as infinitely far away.

use rayon::prelude::*;

use crate::block::{self, CHUNK};
use crate::real::Real;
use crate::sparse::SparseRows;

/// How an exchange is protected.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Robust {
    /// Each agent shortens the differences to its farthest neighbours.
    Clip {
        /// The largest number of malicious neighbours that an agent may have.
        byzantine: usize,
    },
    /// Both ends of an edge shorten their difference to this norm.
    Threshold(f64),
    /// Each agent leaves out the extreme elements.
    TrimmedMean {
        /// The largest number of malicious neighbours that an agent may have.
        byzantine: usize,
    },
}

impl std::fmt::Display for Robust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clip { byzantine } => write!(f, "clip, byzantine {byzantine}"),
            Self::Threshold(most) => write!(f, "clip, threshold {most}"),
            Self::TrimmedMean { byzantine } => write!(f, "trimmed-mean, byzantine {byzantine}"),
        }
    }
}

impl Robust {
    /// The largest number of malicious neighbours it is made for, if it is made for a number of them.
    pub fn byzantine(self) -> Option<usize> {
        match self {
            Self::Clip { byzantine } | Self::TrimmedMean { byzantine } => Some(byzantine),
            Self::Threshold(_) => None,
        }
    }

    /// `out <- d_i`, from an agent's own vector and the weights and vectors of the neighbours whose edge is up, in increasing agent.
    ///
    /// # Panics
    /// If vectors have different lengths.
    pub fn pull<T: Real>(self, own: &[T], others: &[(f64, &[T])], out: &mut [T]) {
        match self {
            Self::Clip { byzantine } => {
                let far: Vec<f64> = others.iter().map(|(_, v)| distance(own, v)).collect();
                let weights: Vec<f64> = others.iter().map(|(w, _)| *w).collect();
                add_clipped(own, others, &far, own_threshold(&weights, &far, byzantine), out);
            }
            Self::Threshold(most) => {
                let far: Vec<f64> = others.iter().map(|(_, v)| distance(own, v)).collect();
                add_clipped(own, others, &far, most, out);
            }
            Self::TrimmedMean { byzantine } => add_trimmed(own, others, byzantine, out),
        }
    }

    /// [`pull`](Self::pull) for all agents, whose vectors are rows of these blocks.
    ///
    /// # Panics
    /// If a block does not have a row of `dim` elements for each agent.
    pub fn pull_all<T: Real>(self, weights: &SparseRows, v: &[T], out: &mut [T], dim: usize) {
        assert!(v.len() == weights.rows() * dim && out.len() == v.len(), "a row for each agent");
        let row = |agent: usize| &v[agent * dim..(agent + 1) * dim];
        let one = |(agent, out): (usize, &mut [T])| {
            let up = weights.row(agent).iter().filter(|(j, w)| *j != agent && *w != 0.0);
            let others: Vec<(f64, &[T])> = up.map(|(j, w)| (*w, row(*j))).collect();
            self.pull(row(agent), &others, out);
        };
        if v.len() <= 2 * CHUNK {
            out.chunks_exact_mut(dim.max(1)).enumerate().for_each(one);
        } else {
            out.par_chunks_exact_mut(dim).enumerate().for_each(one);
        }
    }
}

/// The norm of the difference of two vectors, with the same bits in both orders; infinite if an element of it is not finite.
fn distance<T: Real>(a: &[T], b: &[T]) -> f64 {
    const LANES: usize = 8;
    assert_eq!(a.len(), b.len(), "vectors of one length");
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            let difference = (*a - *b).wide();
            *sum += difference * difference;
        }
    }
    let norm = sums.iter().sum::<f64>().sqrt();
    if norm.is_nan() { f64::INFINITY } else { norm }
}

/// t_i, from the weights and distances of the neighbours.
fn own_threshold(weights: &[f64], far: &[f64], byzantine: usize) -> f64 {
    let mut heaviest = weights.to_vec();
    heaviest.sort_unstable_by(|a, b| b.total_cmp(a));
    let least = 2.0 * heaviest.iter().take(byzantine).sum::<f64>();
    let mut order: Vec<usize> = (0..far.len()).collect();
    order.sort_unstable_by(|a, b| far[*a].total_cmp(&far[*b]));
    let mut left_out = 0.0;
    // Sums of equal weights are rounded.
    while left_out < least * (1.0 - 1e-9) {
        let Some(farthest) = order.pop() else { break };
        left_out += weights[farthest];
    }
    order.last().map_or(0.0, |nearest| far[*nearest])
}

/// Adds up differences of these norms, none of which counts for more than `most`.
fn add_clipped<T: Real>(own: &[T], others: &[(f64, &[T])], far: &[f64], most: f64, out: &mut [T]) {
    let share = |far: f64| if far <= most { 1.0 } else { most / far };
    let clipped = others.iter().zip(far).map(|((w, v), far)| (w * share(*far), *v, false));
    block::pull_row(out, own, clipped);
}

/// Adds up, in each element, the differences that are not among the b largest or the b smallest.
fn add_trimmed<T: Real>(own: &[T], others: &[(f64, &[T])], byzantine: usize, out: &mut [T]) {
    assert!(
        own.len() == out.len() && others.iter().all(|(_, v)| v.len() == out.len()),
        "vectors of one length"
    );
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(others.len());
    for (e, (y, own)) in out.iter_mut().zip(own).enumerate() {
        order.clear();
        order.extend(others.iter().enumerate().map(|(k, (_, v))| (v[e].wide(), k)));
        order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let end = order.len().saturating_sub(byzantine);
        let kept = order.get_mut(byzantine..end).unwrap_or_default();
        kept.sort_unstable_by_key(|(_, k)| *k);
        let terms = kept.iter().map(|(_, k)| T::of(others[*k].0) * (others[*k].1[e] - *own));
        *y = terms.reduce(|sum, term| sum + term).unwrap_or(T::zero());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights and vectors of neighbours.
    fn others<'v>(weights: &[f64], vectors: &'v [Vec<f64>]) -> Vec<(f64, &'v [f64])> {
        weights.iter().copied().zip(vectors.iter().map(|v| &v[..])).collect()
    }

    fn pull(by: Robust, own: &[f64], others: &[(f64, &[f64])]) -> Vec<f64> {
        let mut out = vec![f64::NAN; own.len()];
        by.pull(own, others, &mut out);
        out
    }

    #[test]
    fn the_two_farthest_of_four_neighbours_are_moved_to_the_distance_of_the_next() {
        let vectors = [vec![3.0, 4.0], vec![0.0, 1.0], vec![-20.0, 0.0], vec![2.0, 0.0]];
        let found = pull(Robust::Clip { byzantine: 1 }, &[0.0, 0.0], &others(&[0.25; 4], &vectors));
        // Distances 5, 1, 20 and 2: all count for at most 2.
        let expected = [0.25 * (3.0 * 0.4 - 2.0 + 2.0), 0.25 * (4.0 * 0.4 + 1.0)];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15), "{found:?}");
        // A heavy edge counts as more: twice its weight are three edges.
        assert_eq!(own_threshold(&[0.3, 0.2, 0.2, 0.2], &[5.0, 1.0, 20.0, 2.0], 1), 1.0);
        assert_eq!(own_threshold(&[0.1; 7], &[7.0, 1.0, 2.0, 6.0, 3.0, 5.0, 4.0], 3), 1.0);
    }

    #[test]
    fn an_agent_with_too_few_neighbours_stays() {
        let vectors = [vec![1.0], vec![2.0]];
        for by in [Robust::Clip { byzantine: 1 }, Robust::TrimmedMean { byzantine: 1 }] {
            assert_eq!(pull(by, &[0.5], &others(&[0.3; 2], &vectors)), [0.0]);
            assert_eq!(pull(by, &[0.5], &[]), [0.0]);
        }
    }

    #[test]
    fn a_trimmed_mean_leaves_out_the_extremes_of_each_element() {
        let vectors = [vec![9.0, 1.0], vec![1.0, -7.0], vec![2.0, 2.0], vec![-5.0, 3.0]];
        let found =
            pull(Robust::TrimmedMean { byzantine: 1 }, &[1.0, 1.0], &others(&[0.1, 0.2, 0.3, 0.4], &vectors));
        assert_eq!(found, [0.2 * 0.0 + 0.3 * 1.0, 0.1 * 0.0 + 0.3 * 1.0]);
    }

    #[test]
    fn with_nobody_malicious_or_an_infinite_threshold_it_is_the_plain_exchange_to_the_bit() {
        let own: Vec<f32> = (0..37).map(|k| (k as f32).sin()).collect();
        let vectors: Vec<Vec<f32>> =
            (1..6).map(|j| (0..37).map(|k| ((k * j) as f32).cos() * j as f32).collect()).collect();
        let others: Vec<(f64, &[f32])> = vectors.iter().map(|v| (1.0 / 6.0, &v[..])).collect();
        let mut plain = vec![0.0; 37];
        block::pull_row(&mut plain, &own, others.iter().map(|(w, v)| (*w, *v, false)));
        let none = [
            Robust::Clip { byzantine: 0 },
            Robust::TrimmedMean { byzantine: 0 },
            Robust::Threshold(f64::INFINITY),
        ];
        for by in none {
            let mut out = vec![f32::NAN; 37];
            by.pull(&own, &others, &mut out);
            assert_eq!(out, plain, "{by}");
        }
        let mut out = vec![f32::NAN; 37];
        Robust::Threshold(0.5).pull(&own, &others, &mut out);
        assert_ne!(out, plain);
    }

    #[test]
    fn both_ends_of_an_edge_move_by_exactly_opposite_amounts_with_one_threshold() {
        let [a, b]: [Vec<f32>; 2] = [0.3f32, 1.7].map(|f| (0..29).map(|k| (k as f32 * f).sin()).collect());
        for most in [0.1, 1.0, 100.0] {
            let mut moves = [vec![0.0; 29], vec![0.0; 29]];
            Robust::Threshold(most).pull(&a, &[(0.3, &b)], &mut moves[0]);
            Robust::Threshold(most).pull(&b, &[(0.3, &a)], &mut moves[1]);
            assert!(moves[0].iter().zip(&moves[1]).all(|(a, b)| *a == -*b), "{most}");
            assert!(distance(&moves[0], &[0.0; 29]) < 0.3 * most * (1.0 + 1e-6));
        }
    }

    #[test]
    fn what_is_not_a_number_moves_nobody() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let vectors = [vec![1.0, bad], vec![0.5, 0.0], vec![0.0, 0.5], vec![0.25, 0.25]];
            let all = others(&[0.2; 4], &vectors);
            for by in
                [Robust::Clip { byzantine: 1 }, Robust::TrimmedMean { byzantine: 1 }, Robust::Threshold(1.0)]
            {
                let found = pull(by, &[0.0, 0.0], &all);
                assert!(found.iter().all(|v| v.is_finite()), "{by}: {found:?}");
            }
            let with_out = pull(Robust::Threshold(1.0), &[0.0, 0.0], &all[1..]);
            assert_eq!(pull(Robust::Threshold(1.0), &[0.0, 0.0], &all), with_out);
        }
    }
}
