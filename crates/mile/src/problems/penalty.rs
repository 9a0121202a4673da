//! A nonsmooth term of the objective that all agents share.

use std::ops::Range;

use crate::block::soft_threshold;
use crate::real::Real;

/// The term `g(x) = l1 sum_k |x_k|` of the objective, over the penalised entries.
///
/// With it the network minimises f + g, where `f = (1/N) sum_i f_i` is smooth: losses and gradients of agents are those
/// of their f_i. A method handles g by its proximal step ([`Step::prox`](crate::agents::Step::prox)),
///
/// ```text
/// prox_{alpha g}(x) = argmin_u g(u) + |u - x|^2/(2 alpha) :   u_k = sign(x_k) max(|x_k| - alpha l1, 0)
/// ```
///
/// which makes coefficients exactly zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Penalty {
    l1: f64,
    /// The entries that are not penalised, in increasing order.
    free: Vec<usize>,
}

/// A weight of the penalty that is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("l1: expected a finite number of at least 0, got {0}")]
#[non_exhaustive]
pub struct InvalidPenalty(pub f64);

impl Penalty {
    /// `l1 |x|_1`, over all entries.
    pub fn l1(l1: f64) -> Result<Self, InvalidPenalty> {
        if l1 >= 0.0 && l1.is_finite() { Ok(Self { l1, free: Vec::new() }) } else { Err(InvalidPenalty(l1)) }
    }

    /// Leaves these entries out, such as the coefficient of an intercept.
    pub fn except(mut self, free: impl IntoIterator<Item = usize>) -> Self {
        self.free.extend(free);
        self.free.sort_unstable();
        self.free.dedup();
        self
    }

    /// The factor l1.
    pub fn weight(&self) -> f64 {
        self.l1
    }

    /// Whether an entry is penalised.
    pub fn has(&self, entry: usize) -> bool {
        self.free.binary_search(&entry).is_err()
    }

    /// The ranges of penalised entries, out of `dim` entries in all.
    fn penalised(&self, dim: usize) -> impl Iterator<Item = Range<usize>> {
        let ends = self.free.iter().copied().filter(move |free| *free < dim).chain([dim]);
        ends.scan(0, |from, end| Some(std::mem::replace(from, end + 1)..end))
    }

    /// `g(x)`.
    pub fn value<T: Real>(&self, x: &[T]) -> f64 {
        let part = |range: Range<usize>| x[range].iter().map(|x| x.wide().abs()).sum::<f64>();
        self.l1 * self.penalised(x.len()).map(part).sum::<f64>()
    }

    /// `x <- prox_{step g}(x)`. NaN stays NaN.
    pub fn prox<T: Real>(&self, step: f64, x: &mut [T]) {
        let threshold = T::of(step * self.l1);
        for range in self.penalised(x.len()) {
            soft_threshold(&mut x[range], threshold);
        }
    }

    /// Replaces the gradient of f at `x` by the prox-gradient mapping `x - prox_g(x - gradient)`, with a step of 1. It is
    /// zero where x is a stationary point of f + g, as the gradient is for f alone.
    pub fn gradient_mapping<T: Real>(&self, x: &[T], gradient: &mut [f64]) {
        for range in self.penalised(x.len()) {
            for (x, g) in x[range.clone()].iter().zip(&mut gradient[range]) {
                let moved = x.wide() - *g;
                *g = if moved.abs() <= self.l1 { x.wide() } else { *g + self.l1.copysign(moved) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The minimiser of `l1 |u| + (u - x)^2/(2 step)`, by a search on a fine grid around x.
    fn searched(l1: f64, step: f64, x: f64) -> f64 {
        let value = |u: f64| l1 * u.abs() + (u - x).powi(2) / (2.0 * step);
        let grid = (-40_000..=40_000).map(|k| f64::from(k) * 1e-4);
        grid.min_by(|a, b| value(*a).total_cmp(&value(*b))).unwrap()
    }

    #[test]
    fn the_proximal_step_minimises_what_defines_it() {
        let penalty = Penalty::l1(0.5).unwrap();
        for step in [0.1, 1.0, 3.0] {
            for x in [-2.5, -0.3, -0.05, 0.0, 0.02, 0.5, 1.7] {
                let mut found = [x];
                penalty.prox(step, &mut found);
                assert!((found[0] - searched(0.5, step, x)).abs() <= 1e-4, "{step} {x}: {found:?}");
            }
        }
    }

    #[test]
    fn zeros_are_exact_and_nan_stays_nan() {
        let mut x = [0.1, -0.1, -0.0, 0.3f32, f32::NAN, f32::NEG_INFINITY];
        Penalty::l1(0.5).unwrap().prox(0.4, &mut x);
        assert_eq!(x[..3].iter().map(|x| x.to_bits()).collect::<Vec<_>>(), [0, 0, 0]);
        assert_eq!(x[3], 0.3f32 - 0.2f32);
        assert!(x[4].is_nan() && x[5] == f32::NEG_INFINITY);
        let mut mapping = [f64::NAN];
        Penalty::l1(0.5).unwrap().gradient_mapping(&[1.0], &mut mapping);
        assert!(mapping[0].is_nan());
    }

    #[test]
    fn entries_that_are_left_out_stay_as_they_are() {
        for dim in [0usize, 1, 3, 6, 7] {
            for free in [vec![], vec![0], vec![2, 5], vec![5, 2, 2, 90], vec![6], (0..7).collect()] {
                let penalty = Penalty::l1(2.0).unwrap().except(free.clone());
                let x: Vec<f64> = (0..dim).map(|k| k as f64 - 2.5).collect();
                let mut found = x.clone();
                penalty.prox(0.25, &mut found);
                let mut value = 0.0;
                for k in 0..dim {
                    let expected = if free.contains(&k) {
                        x[k]
                    } else {
                        value += 2.0 * x[k].abs();
                        x[k].signum() * (x[k].abs() - 0.5).max(0.0)
                    };
                    assert_eq!(found[k], expected, "{dim} {free:?}");
                }
                assert_eq!(penalty.value(&x), value);
            }
        }
    }

    #[test]
    fn the_gradient_mapping_is_what_its_formula_says() {
        let penalty = Penalty::l1(0.5).unwrap().except([3]);
        let (x, gradient) = ([0.0, 0.2, -1.0, 2.0, 1.0, 0.0], [0.4, -0.6, 0.5, 0.7, -0.5, -0.9]);
        let mut found = gradient;
        penalty.gradient_mapping(&x, &mut found);
        let mut moved: Vec<f64> = x.iter().zip(gradient).map(|(x, g)| x - g).collect();
        penalty.prox(1.0, &mut moved);
        for k in 0..x.len() {
            assert!((found[k] - (x[k] - moved[k])).abs() < 1e-15, "{k}");
        }
        // Stationary where the gradient is -l1 sign(x), or at most l1 where x is zero.
        assert_eq!((found[0], found[2], found[4]), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_weight_out_of_range_is_refused() {
        for bad in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(Penalty::l1(bad).is_err(), "{bad}");
        }
    }
}
