//! One pass over memory for an elementwise step, and the norm by which gradients are clipped.

use std::ops::Range;

use super::{Adam, Stepping};
use crate::block::widest;
use crate::real::Real;

/// What is added to the norm of a gradient that is clipped, so that nothing is divided by zero; as in PyTorch.
pub const CLIP_LEAST: f64 = 1e-6;

/// The numbers of an elementwise step, rounded to the precision of the vectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamNumbers<T> {
    /// b1 and 1 - b1.
    pub first: [T; 2],
    /// b2 and 1 - b2.
    pub second: [T; 2],
    /// 1/sqrt(1 - b2^k).
    pub root: T,
    /// What is added to the root.
    pub eps: T,
    /// 1 - alpha decay.
    pub keep: T,
    /// alpha/(1 - b1^k).
    pub step: T,
    /// Factors of what is added before and after.
    pub factors: [T; 2],
}

impl<T: Real> AdamNumbers<T> {
    /// The numbers of a step.
    pub fn of(by: &Stepping) -> Self {
        let Adam { betas: [b1, b2], eps, decay, .. } = by.rule.elements();
        // Powers from a library, so that they have the same bits on every system.
        let left = |beta: f64| 1.0 - libm::pow(beta, by.number as f64);
        Self {
            first: [b1, 1.0 - b1].map(T::of),
            second: [b2, 1.0 - b2].map(T::of),
            root: T::of(1.0 / left(b2).sqrt()),
            eps: T::of(eps),
            keep: T::of(1.0 - by.step_size * decay),
            step: T::of(by.step_size / left(b1)),
            factors: [by.inner, by.shift].map(T::of),
        }
    }
}

/// The rows of an elementwise step.
#[derive(Debug)]
pub struct AdamRows<'r, T> {
    /// The model.
    pub x: &'r mut [T],
    /// The mean of gradients.
    pub m: &'r mut [T],
    /// The mean of their squares.
    pub v: &'r mut [T],
    /// The largest such mean so far.
    pub largest: Option<&'r mut [T]>,
    /// The gradient.
    pub g: &'r [T],
    /// What is added to it.
    pub inner: Option<&'r [T]>,
    /// What is added to the model.
    pub shift: Option<&'r [T]>,
}

impl<T> AdamRows<'_, T> {
    /// Some of the elements.
    ///
    /// # Panics
    /// If they are beyond a row.
    pub fn part(&mut self, range: Range<usize>) -> AdamRows<'_, T> {
        AdamRows {
            x: &mut self.x[range.clone()],
            m: &mut self.m[range.clone()],
            v: &mut self.v[range.clone()],
            largest: self.largest.as_deref_mut().map(|row| &mut row[range.clone()]),
            g: &self.g[range.clone()],
            inner: self.inner.map(|row| &row[range.clone()]),
            shift: self.shift.map(|row| &row[range]),
        }
    }
}

impl<'r, T> AdamRows<'r, T> {
    /// The first elements and the others.
    ///
    /// # Panics
    /// If a row is shorter.
    pub fn split_at(self, middle: usize) -> (AdamRows<'r, T>, AdamRows<'r, T>) {
        let Self { x, m, v, largest, g, inner, shift } = self;
        let (x, m, v, g) =
            (x.split_at_mut(middle), m.split_at_mut(middle), v.split_at_mut(middle), g.split_at(middle));
        let largest = largest.map(|row| row.split_at_mut(middle)).unzip();
        let [inner, shift] = [inner, shift].map(|row| row.map(|row| row.split_at(middle)).unzip());
        let rows = |x, m, v, largest, g, inner, shift| AdamRows { x, m, v, largest, g, inner, shift };
        (
            rows(x.0, m.0, v.0, largest.0, g.0, inner.0, shift.0),
            rows(x.1, m.1, v.1, largest.1, g.1, inner.1, shift.1),
        )
    }
}

/// A step of AdamW or AMSGrad.
///
/// # Panics
/// If a row is shorter than the model.
pub fn adam<T: Real>(rows: AdamRows<'_, T>, numbers: &AdamNumbers<T>) {
    let pass = match (rows.inner.is_some(), rows.shift.is_some(), rows.largest.is_some()) {
        (false, false, false) => pass::<T, false, false, false>,
        (false, false, true) => pass::<T, false, false, true>,
        (false, true, false) => pass::<T, false, true, false>,
        (false, true, true) => pass::<T, false, true, true>,
        (true, false, false) => pass::<T, true, false, false>,
        (true, false, true) => pass::<T, true, false, true>,
        (true, true, false) => pass::<T, true, true, false>,
        (true, true, true) => pass::<T, true, true, true>,
    };
    pass(rows, numbers);
}

fn pass<T: Real, const INNER: bool, const SHIFT: bool, const LARGEST: bool>(
    AdamRows { x, m, v, largest, g, inner, shift }: AdamRows<'_, T>,
    numbers: &AdamNumbers<T>,
) {
    let n = x.len();
    let (m, v, g) = (&mut m[..n], &mut v[..n], &g[..n]);
    // What is absent is never read.
    let (c, e) = (&inner.unwrap_or(g)[..n], &shift.unwrap_or(g)[..n]);
    let largest = largest.unwrap_or_default();
    let largest = if LARGEST { &mut largest[..n] } else { largest };
    let &AdamNumbers { first, second, root, eps, keep, step, factors } = numbers;
    widest(
        #[inline(always)]
        || {
            for i in 0..n {
                let h = if INNER { g[i] + factors[0] * c[i] } else { g[i] };
                m[i] = first[0] * m[i] + first[1] * h;
                v[i] = second[0] * v[i] + second[1] * (h * h);
                let mut squares = v[i];
                if LARGEST {
                    squares = if largest[i] >= squares { largest[i] } else { squares };
                    largest[i] = squares;
                }
                let s = m[i] / (squares.sqrt() * root + eps);
                let moved = keep * x[i] - step * s;
                x[i] = if SHIFT { moved + factors[1] * e[i] } else { moved };
            }
        },
    );
}

/// The number of sums that are formed side by side for the norm of a row: a power of two, large enough to keep a GPU busy.
pub fn norm_lanes(dim: usize) -> usize {
    (dim / 64).next_power_of_two().clamp(256, 1 << 14)
}

/// The norm of a row: squares are added in `f64` in [`norm_lanes`] sums, element i to sum i mod their number in increasing i, and the sums by
/// halves. The order is the same on every machine.
pub fn row_norm<T: Real>(row: &[T]) -> f64 {
    let mut sums = vec![0.0; norm_lanes(row.len())];
    let lanes = sums.len();
    widest(
        #[inline(always)]
        || {
            for piece in row.chunks(lanes) {
                for (sum, value) in sums.iter_mut().zip(piece) {
                    *sum += value.wide() * value.wide();
                }
            }
        },
    );
    let mut half = lanes / 2;
    while half > 0 {
        (0..half).for_each(|k| sums[k] += sums[k + half]);
        half /= 2;
    }
    sums[0].sqrt()
}

/// Shortens a gradient to the norm `most`, as PyTorch's `clip_grad_norm_` does.
pub fn clip<T: Real>(g: &mut [T], most: f64) {
    let factor = most / (row_norm(g) + CLIP_LEAST);
    if factor < 1.0 {
        crate::block::combine(g, factor, &[]);
    } else if factor.is_nan() {
        g.fill(T::nan());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::optimiser::OptimiserRule;

    proptest! {
        /// As the definition has it, one element at a time, with divisions by what is left of the means.
        #[test]
        fn a_step_is_that_of_the_definition_on_odd_lengths(
            n in 0usize..70, amsgrad: bool, has_inner: bool, has_shift: bool, number in 1u64..50,
        ) {
            let value = |k: usize, i: usize| ((i * 37 + k * 11) % 23) as f64 / 7.0 - 1.5;
            let row = |k: usize| (0..n).map(|i| value(k, i)).collect::<Vec<f64>>();
            let squares = |k: usize| row(k).iter().map(|v| v * v).collect::<Vec<f64>>();
            let (g, c, e) = (row(1), row(2), row(3));
            let [mut x, mut m, mut v, mut w] = [row(0), row(4), squares(5), squares(6)];
            let [x0, m0, v0, w0] = [x.clone(), m.clone(), v.clone(), w.clone()];
            let rule = OptimiserRule::Adam(Adam { decay: 0.1, amsgrad, ..Adam::default() });
            let by = Stepping { rule, step_size: 0.05, number, inner: -0.7, shift: 0.3 };
            let rows = AdamRows {
                x: &mut x, m: &mut m, v: &mut v, largest: amsgrad.then_some(&mut w[..]),
                g: &g, inner: has_inner.then_some(&c[..]), shift: has_shift.then_some(&e[..]),
            };
            adam(rows, &AdamNumbers::of(&by));
            for i in 0..n {
                let h = g[i] - if has_inner { 0.7 * c[i] } else { 0.0 };
                let mean = 0.9 * m0[i] + 0.1 * h;
                let square = 0.999 * v0[i] + 0.001 * h * h;
                let counted = if amsgrad { square.max(w0[i]) } else { square };
                let (left, left2) = (1.0 - 0.9f64.powi(number as i32), 1.0 - 0.999f64.powi(number as i32));
                let s = (mean / left) / ((counted / left2).sqrt() + 1e-8);
                let moved = x0[i] - 0.05 * (0.1 * x0[i] + s) + if has_shift { 0.3 * e[i] } else { 0.0 };
                prop_assert!((m[i] - mean).abs() < 1e-14 && (v[i] - square).abs() < 1e-14);
                prop_assert!((x[i] - moved).abs() < 1e-12, "{} {moved}", x[i]);
                prop_assert_eq!(w[i], if amsgrad { counted } else { w0[i] });
            }
        }

        #[test]
        fn a_gradient_is_shortened_to_the_norm_and_never_lengthened(n in prop_oneof![0usize..700, Just(70_001usize)], most in 0.01..100.0f64) {
            let g: Vec<f64> = (0..n).map(|i| ((i * 31) % 17) as f64 - 8.0).collect();
            let norm = g.iter().map(|v| v * v).sum::<f64>().sqrt();
            prop_assert!((row_norm(&g) - norm).abs() <= 1e-12 * norm);
            let mut clipped = g.clone();
            clip(&mut clipped, most);
            if norm + CLIP_LEAST <= most {
                prop_assert!(clipped == g);
            } else {
                prop_assert!((row_norm(&clipped) - most * norm / (norm + CLIP_LEAST)).abs() < 1e-9 * most);
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_stay_visible() {
        let mut g = [1.0, f64::NAN, f64::INFINITY];
        clip(&mut g, 1.0);
        assert!(g.iter().all(|v| !v.is_finite() || *v == 0.0) && g[1].is_nan());
    }
}
