//! Metrics of the whole network without a server: agents average their own values along the graph.
//!
//! Every message carries the sender's estimates of the network's mean loss, of its consensus error, and of short
//! *sketches* of the mean model and the mean gradient. An estimate y_i follows the agent's own value v_i by dynamic average
//! consensus, y_i <- sum_j w_ij y_j + (v_i(new) - v_i(old)): the mean over agents of the estimates is at all times the
//! mean of the values, and while values do not change all estimates tend to it as lambda_2^exchanges. So they are best just
//! before an agent evaluates its own values again; [`Gossip::seen`] keeps them.
//!
//! Whether a [`Tolerance`] is met does not depend on the estimates having converged. If it is met by all agents in the same exchange,
//! then `|mean gradient| <= max_i |y_i|`, and the distance of an agent from the mean model is at most its distance from its own estimate
//! of it plus that estimate's distance from the mean of the estimates, which is at most the diameter times the largest difference
//! along an edge. If no agent's own loss changes by more than a share of it, neither does their mean.
//!
//! A sketch has [`SKETCH`] numbers: each element of a vector is added, with a random sign, to one of them. Its squared norm is
//! an unbiased estimate of the vector's, with a relative standard deviation of sqrt(2/128) = 12.5%; a vector of up to 128
//! elements is its own sketch, without any error, and a message carries no more than 4 + 2n numbers.

use std::ops::Range;

use mile::real::Real;
use serde::{Deserialize, Serialize};

use crate::json_float::{bits, legible, legible_option};

/// Most numbers in a sketch.
pub const SKETCH: usize = 128;

const LOSS: usize = 0;
const DISAGREEMENT: usize = 1;
/// Where the sketch of the model begins; that of the gradient follows.
const MODEL: usize = 2;
/// Numbers of a message after the estimates: for how long it has been quiet, and the last round.
const ENDING: usize = 2;

/// Estimates of the whole network by one agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// `(1/N) sum_i f_i(x_i)`, with the penalty at x_i if the problem has one.
    #[serde(with = "legible")]
    pub loss: f64,
    /// `(1/N) sum_i |mean x - x_i|^2`.
    #[serde(with = "legible")]
    pub consensus_error: f64,
    /// `|(1/N) sum_i grad f_i(x_i)|^2`, for problems without a penalty whose full gradient is affordable.
    #[serde(with = "legible_option")]
    pub grad_norm_sq: Option<f64>,
}

/// When all agents stop together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest `|mean gradient|^2`; `None` for no limit.
    pub grad_norm_sq: Option<f64>,
    /// Largest consensus error; `None` for no limit.
    pub consensus_error: Option<f64>,
    /// Largest change of any agent's own loss from one evaluation to the next, divided by the larger of 1 and that loss; `None` for no
    /// limit.
    pub loss_change: Option<f64>,
    /// Hops between the two agents farthest apart.
    pub diameter: u64,
}

/// One agent's values and estimates; part of its checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gossip {
    #[serde(with = "bits")]
    own: Vec<f64>,
    #[serde(with = "bits")]
    estimate: Vec<f64>,
    has_gradient: bool,
    /// The estimate just before the last evaluation.
    seen: Option<Estimate>,
    /// Whether the agent has evaluated its own values at all.
    looked: bool,
    /// The change of its own loss at the last evaluation, if there was one before.
    #[serde(default, with = "legible_option")]
    change: Option<f64>,
    /// Exchanges for which all agents within that many hops have met the tolerance.
    quiet: u64,
    /// The round at which all agents stop, once one of them has found the tolerance met by all.
    stop: Option<u64>,
}

impl Gossip {
    /// That of an agent that has evaluated nothing yet, for vectors of this dimension.
    pub fn new(dim: usize) -> Self {
        let values = MODEL + 2 * dim.min(SKETCH);
        Self {
            own: vec![0.0; values],
            estimate: vec![0.0; values],
            has_gradient: false,
            seen: None,
            looked: false,
            change: None,
            quiet: 0,
            stop: None,
        }
    }

    /// The same with sketches for vectors of this dimension: earlier versions wrote those of short vectors with zeros after them.
    pub fn fitted(mut self, dim: usize) -> Self {
        let fresh = Self::new(dim);
        match (fresh.cut(&self.own, 0), fresh.cut(&self.estimate, 0)) {
            (Some(own), Some(estimate)) => {
                (self.own, self.estimate) = (own, estimate);
                self
            }
            _ => fresh,
        }
    }

    /// Values, and as many numbers as follow them, without the zeros after sketches of short vectors. Nothing if they are of another
    /// length.
    fn cut(&self, numbers: &[f64], following: usize) -> Option<Vec<f64>> {
        let (width, gradient) = (self.width(), MODEL + SKETCH);
        if numbers.len() == self.own.len() + following {
            return Some(numbers.to_vec());
        }
        (numbers.len() == gradient + SKETCH + following).then(|| {
            let rest = &numbers[gradient + SKETCH..];
            [&numbers[..MODEL + width], &numbers[gradient..gradient + width], rest].concat()
        })
    }

    /// Numbers in a sketch.
    fn width(&self) -> usize {
        (self.own.len() - MODEL) / 2
    }

    fn model(&self) -> Range<usize> {
        MODEL..MODEL + self.width()
    }

    fn gradient(&self) -> Range<usize> {
        MODEL + self.width()..self.own.len()
    }

    /// Sets the agent's own values. `gradient` is its full gradient, where that is affordable.
    pub fn refresh<T: Real>(&mut self, loss: f64, model: &[T], gradient: Option<&[T]>) {
        self.seen = self.looked.then(|| self.estimate());
        let before = self.own[LOSS];
        self.change = self.looked.then(|| (loss - before).abs() / loss.abs().max(before.abs()).max(1.0));
        self.looked = true;
        let mut fresh = vec![0.0; self.own.len()];
        fresh[LOSS] = loss;
        sketch(model, &mut fresh[self.model()]);
        if let Some(gradient) = gradient {
            sketch(gradient, &mut fresh[self.gradient()]);
        }
        self.has_gradient = gradient.is_some();
        self.follow(LOSS..LOSS + 1, &fresh);
        self.follow(MODEL..fresh.len(), &fresh);
    }

    fn follow(&mut self, which: Range<usize>, fresh: &[f64]) {
        for k in which {
            self.estimate[k] += fresh[k] - self.own[k];
            self.own[k] = fresh[k];
        }
    }

    /// The numbers that are sent with a message.
    pub fn numbers(&self) -> Vec<f64> {
        let mut numbers = self.estimate.clone();
        numbers.push(self.quiet as f64);
        numbers.push(self.stop.map_or(f64::INFINITY, |round| round as f64));
        numbers
    }

    /// Takes in the numbers of the neighbours, with their weights, from the exchange of a round. Those of another length, or with
    /// estimates that are not finite, are ignored.
    pub fn receive(&mut self, round: u64, theirs: &[(f64, Vec<f64>)], tolerance: Option<&Tolerance>) {
        let before = self.estimate.clone();
        let (mut quiet, mut step) = (self.quiet, 0.0f64);
        for (weight, numbers) in theirs {
            let Some(numbers) = self.cut(numbers, ENDING) else { continue };
            let Some((values, &[quiet_for, stop])) = numbers.split_at_checked(before.len()).and_then(sound)
            else {
                continue;
            };
            for ((mine, own), other) in self.estimate.iter_mut().zip(&before).zip(values) {
                *mine += weight * (other - own);
            }
            step = step.max(distance(&before[self.model()], &values[self.model()]));
            quiet = quiet.min(quiet_for as u64);
            if stop.is_finite() && stop >= 0.0 {
                self.stop = Some(self.stop.map_or(stop as u64, |round| round.min(stop as u64)));
            }
        }
        if let Some(tolerance) = tolerance {
            let met = self.looked && self.meets(tolerance, &before, step);
            self.quiet = if met { quiet + 1 } else { 0 };
            if self.quiet > tolerance.diameter && self.stop.is_none() {
                self.stop = Some(round + 1 + tolerance.diameter);
            }
        }
        let apart = distance(&self.own[self.model()], &self.estimate[self.model()]).powi(2);
        self.estimate[DISAGREEMENT] += apart - self.own[DISAGREEMENT];
        self.own[DISAGREEMENT] = apart;
    }

    /// Whether the limits hold, judged from this agent's estimates and their largest difference from a neighbour's.
    fn meets(&self, tolerance: &Tolerance, estimate: &[f64], step: f64) -> bool {
        let gradient = norm_sq(&estimate[self.gradient()]);
        let apart = distance(&self.own[self.model()], &estimate[self.model()]);
        let consensus = (apart + tolerance.diameter as f64 * step).powi(2);
        tolerance.grad_norm_sq.is_none_or(|limit| self.has_gradient && gradient <= limit)
            && tolerance.consensus_error.is_none_or(|limit| consensus <= limit)
            && tolerance.loss_change.is_none_or(|limit| self.change.is_some_and(|change| change <= limit))
    }

    /// The current estimates.
    pub fn estimate(&self) -> Estimate {
        let apart = self.estimate[DISAGREEMENT];
        Estimate {
            loss: self.estimate[LOSS],
            // Before it has converged it can be negative.
            consensus_error: if apart < 0.0 { 0.0 } else { apart },
            grad_norm_sq: self.has_gradient.then(|| norm_sq(&self.estimate[self.gradient()])),
        }
    }

    /// The estimates just before the last evaluation, of the values of the evaluation before it: the best there are.
    pub fn seen(&self) -> Option<Estimate> {
        self.seen
    }

    /// The agent's own loss at its last evaluation.
    pub fn own_loss(&self) -> Option<f64> {
        self.looked.then_some(self.own[LOSS])
    }

    /// The round at which all agents stop, if it is known.
    pub fn stop(&self) -> Option<u64> {
        self.stop
    }
}

/// The values and the ending of a message, if the values are finite.
fn sound<'a>((values, ending): (&'a [f64], &'a [f64])) -> Option<(&'a [f64], &'a [f64; ENDING])> {
    let ending = ending.try_into().ok()?;
    values.iter().all(|value| value.is_finite()).then_some((values, ending))
}

fn norm_sq(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// Adds each element to a place of the sketch, with a sign; both are functions of its index.
fn sketch<T: Real>(vector: &[T], out: &mut [f64]) {
    if vector.len() <= out.len() {
        out.iter_mut().zip(vector).for_each(|(out, value)| *out = value.wide());
        return;
    }
    for (k, value) in vector.iter().enumerate() {
        let hash = mixed(k as u64);
        let value = if hash >> 63 == 0 { value.wide() } else { -value.wide() };
        out[(hash as usize) % SKETCH] += value;
    }
}

/// A hash of the index: the finaliser of SplitMix64.
fn mixed(index: u64) -> u64 {
    let z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(agents: usize) -> impl Fn(usize) -> [usize; 2] {
        move |i| {
            let mut both = [(i + agents - 1) % agents, (i + 1) % agents];
            both.sort_unstable();
            both
        }
    }

    fn exchange(gossips: &mut [Gossip], round: u64, tolerance: Option<&Tolerance>) {
        let words: Vec<Vec<f64>> = gossips.iter().map(Gossip::numbers).collect();
        let neighbours = ring(gossips.len());
        for (i, gossip) in gossips.iter_mut().enumerate() {
            let theirs: Vec<_> = neighbours(i).map(|j| (1.0 / 3.0, words[j].clone())).into();
            gossip.receive(round, &theirs, tolerance);
        }
    }

    #[test]
    fn estimates_tend_to_the_truth_and_their_mean_is_always_the_mean() {
        let models: Vec<Vec<f64>> =
            (0..6).map(|i| (0..50).map(|k| ((i * 7 + k) as f64).sin()).collect()).collect();
        let mean: Vec<f64> = (0..50).map(|k| models.iter().map(|x| x[k]).sum::<f64>() / 6.0).collect();
        let apart = |x: &Vec<f64>| x.iter().zip(&mean).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let truth = models.iter().map(apart).sum::<f64>() / 6.0;
        let norm = mean.iter().map(|m| m * m).sum::<f64>();
        let mut gossips = vec![Gossip::new(50); 6];
        for round in 0..80 {
            for (i, (gossip, x)) in gossips.iter_mut().zip(&models).enumerate() {
                gossip.refresh(i as f64, x, Some(x));
            }
            let loss = gossips.iter().map(|gossip| gossip.estimate().loss).sum::<f64>() / 6.0;
            assert!((loss - 2.5).abs() < 1e-12);
            exchange(&mut gossips, round, None);
        }
        for gossip in &gossips {
            let estimate = gossip.estimate();
            assert!((estimate.loss - 2.5).abs() < 1e-9);
            assert!((estimate.consensus_error - truth).abs() < 1e-9 * truth, "{estimate:?} {truth}");
            assert!((estimate.grad_norm_sq.unwrap() - norm).abs() < 1e-9 * norm);
        }
    }

    #[test]
    fn a_sketch_has_the_norm_of_a_long_vector_as_nearly_as_it_says() {
        let mut errors = Vec::new();
        for seed in 1..201u64 {
            let vector: Vec<f32> =
                (0..5000u64).map(|k| (mixed(seed << 32 | k) as f64 / 2f64.powi(63) - 1.0) as f32).collect();
            let mut out = [0.0; SKETCH];
            sketch(&vector, &mut out);
            let truth: f64 = vector.iter().map(|v| f64::from(*v).powi(2)).sum();
            errors.push(out.iter().map(|v| v * v).sum::<f64>() / truth - 1.0);
        }
        let spread = (errors.iter().map(|e| e * e).sum::<f64>() / 200.0).sqrt();
        let bias = errors.iter().sum::<f64>() / 200.0;
        assert!((spread - 0.125).abs() < 0.02, "{spread}");
        assert!(bias.abs() < 0.03, "{bias}");
    }

    #[test]
    fn a_message_has_no_more_numbers_than_short_vectors_need() {
        for (dim, numbers) in [(1, 6), (6, 16), (128, 260), (129, 260), (1_000_000, 260)] {
            assert_eq!(Gossip::new(dim).numbers().len(), numbers);
        }
    }

    #[test]
    fn sketches_of_earlier_versions_are_read() {
        let padded = |numbers: &[f64], dim: usize| {
            let mut wide = vec![0.0; MODEL + 2 * SKETCH];
            wide[..MODEL + dim].copy_from_slice(&numbers[..MODEL + dim]);
            wide[MODEL + SKETCH..][..dim].copy_from_slice(&numbers[MODEL + dim..][..dim]);
            [&wide[..], &numbers[MODEL + 2 * dim..]].concat()
        };
        for dim in [1, 5, 127, 128] {
            let vector: Vec<f64> = (0..dim).map(|k| (k as f64).cos()).collect();
            let mut now = Gossip::new(dim);
            now.refresh(0.5, &vector, Some(&vector[..]));
            let earlier =
                Gossip { own: padded(&now.own, dim), estimate: padded(&now.estimate, dim), ..now.clone() };
            assert_eq!(earlier.clone().fitted(dim), now);
            let (mut one, mut other) = (Gossip::new(dim), Gossip::new(dim));
            one.receive(0, &[(0.5, now.numbers())], None);
            other.receive(0, &[(0.5, padded(&now.numbers(), dim))], None);
            assert_eq!(one, other);
            assert_eq!(one.estimate().loss, 0.25);
        }
        let other = Gossip::new(7);
        assert_eq!(other.clone().fitted(3), Gossip::new(3), "of another dimension");
        let mut own = Gossip::new(3);
        own.receive(0, &[(0.5, other.numbers()), (0.5, Vec::new()), (0.5, vec![f64::NAN; 10])], None);
        assert_eq!(own, Gossip::new(3));
    }

    #[test]
    fn all_agents_stop_at_the_same_round_and_not_before_all_have_met_the_tolerance() {
        for (slowest, limited) in (0..7).flat_map(|i| [(i, 0), (i, 1), (i, 2)]) {
            let limit = |which: usize| (which == limited).then_some(1e-3);
            let tolerance = Tolerance {
                grad_norm_sq: limit(0),
                consensus_error: limit(1),
                loss_change: limit(2),
                diameter: 3,
            };
            let mut gossips = vec![Gossip::new(1); 7];
            let mut stopped = [None; 7];
            for round in 0..200 {
                for (i, gossip) in gossips.iter_mut().enumerate() {
                    let small = if i == slowest && round < 60 { 1.0 } else { 0.5f64.powi(round as i32) };
                    let loss = if small == 1.0 { round as f64 } else { small };
                    gossip.refresh(loss, &[small], Some(&[small]));
                }
                exchange(&mut gossips, round, Some(&tolerance));
                for (stopped, gossip) in stopped.iter_mut().zip(&gossips) {
                    if stopped.is_none() && gossip.stop() == Some(round + 1) {
                        *stopped = Some(round + 1);
                    }
                }
            }
            let at = stopped[0].expect("they stop");
            assert!(stopped.iter().all(|stop| *stop == Some(at)), "{stopped:?}");
            assert!((60..110).contains(&at), "{at}");
        }
    }

    #[test]
    fn a_diverged_estimate_is_written_and_read_as_it_is() {
        for (loss, norm) in
            [(f64::NAN, None), (f64::INFINITY, Some(f64::NAN)), (0.1, Some(f64::NEG_INFINITY))]
        {
            let estimate = Estimate { loss, consensus_error: 2.5, grad_norm_sq: norm };
            let text = serde_json::to_string(&estimate).unwrap();
            let read: Estimate = serde_json::from_str(&text).unwrap();
            assert_eq!(read.loss.to_bits(), loss.to_bits(), "{text}");
            assert_eq!(read.grad_norm_sq.map(f64::to_bits), norm.map(f64::to_bits), "{text}");
            assert_eq!(read.consensus_error, 2.5);
        }
    }
}
