//! Least squares by its normal equations: `grad f(x) = G x - h` with `G = A'A/m` and `h = A'b/m`; with weights u and offsets o of the rows,
//! `G = A'diag(u)A/m` and `h = A'diag(u)(b - o)/m`.
//!
//! G is formed once and has n rows instead of m, so that a gradient costs n^2 instead of 2mn multiplications. G and h
//! are kept in `f64`, even for `f32`: rounded to `f32` they would define another problem, with another solution.
//!
//! The loss is `f(z) + s'(x - z) + (x - z)'G(x - z)/2` with the loss and the slope s at a point z close to the minimum, both from the rows.
//! So it is a sum of numbers no larger than itself, where `x'Gx/2 - h'x + b'b/2m` would lose the digits of a small residual.

use super::rows::{self, Samples};
use crate::block::widest;
use crate::isa::Isa;
use crate::real::Real;

/// Rows and columns of G that are summed together over all samples, so that they stay in the cache.
const TILE: (usize, usize) = (32, 64);
/// Samples that are added at a time.
const ABREAST: usize = 4;

/// Most steps towards the minimum.
const STEPS: usize = 100;

/// G and h of one agent, and its mean loss about a point.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gram {
    matrix: Vec<f64>,
    shift: Vec<f64>,
    /// The point z, and the mean loss and its slope there.
    centre: Vec<f64>,
    loss: f64,
    slope: Vec<f64>,
}

impl Gram {
    pub(super) fn new<T: Real>(isa: Isa, samples: Samples<T>) -> Self {
        let (dim, scale) = (samples.dim(), 1.0 / samples.len() as f64);
        let weights: Vec<f64> = (0..samples.len()).map(|row| samples.weight(row)).collect();
        let sums = lower_sums(samples, &weights);
        let entry = |k: usize| {
            let (i, j) = (k / dim, k % dim);
            scale * sums[i.max(j) * dim + i.min(j)]
        };
        let mut shift = vec![0.0; dim];
        let (features, targets) = samples.all();
        for (row, (a, b)) in features.chunks_exact(dim.max(1)).zip(targets).enumerate() {
            let target = weights[row] * (b.wide() - samples.offset(row));
            shift.iter_mut().zip(a).for_each(|(h, a)| *h += target * a.wide());
        }
        let matrix: Vec<f64> = (0..dim * dim).map(entry).collect();
        shift.iter_mut().for_each(|h| *h *= scale);
        let centre = near_minimum(isa, &matrix, &shift);
        let (mut loss, mut slope) = (0.0, vec![0.0; dim]);
        for (row, (a, b)) in features.chunks_exact(dim.max(1)).zip(targets).enumerate() {
            let product: f64 = a.iter().zip(&centre).map(|(a, z)| a.wide() * z).sum();
            let residual = product - (b.wide() - samples.offset(row));
            let pull = scale * weights[row] * residual;
            loss += 0.5 * pull * residual;
            slope.iter_mut().zip(a).for_each(|(s, a)| *s += pull * a.wide());
        }
        Self { matrix, shift, centre, loss, slope }
    }

    /// The weighted mean of the losses at x, without a penalty.
    pub(super) fn loss<T: Real>(&self, isa: Isa, x: &[T]) -> f64 {
        let away: Vec<f64> = x.iter().zip(&self.centre).map(|(x, z)| x.wide() - z).collect();
        let mut more = vec![0.0; away.len()];
        rows::products(
            isa,
            &self.matrix,
            &away,
            #[inline(always)]
            |i, product| away[i] * (self.slope[i] + 0.5 * product),
            &mut more,
        );
        let loss = self.loss + more.iter().sum::<f64>();
        // Of a loss of zero only rounding errors are left. (NaN stays NaN.)
        if loss < 0.0 { 0.0 } else { loss }
    }

    /// `g <- factor (G x - h + l2 x)`, the penalty for the first `penalised` columns only.
    pub(super) fn gradient<T: Real>(
        &self,
        isa: Isa,
        factor: f64,
        x: &[T],
        l2: f64,
        penalised: usize,
        g: &mut [T],
    ) {
        rows::products(
            isa,
            &self.matrix,
            x,
            #[inline(always)]
            |i, product| {
                let penalty = if i < penalised { l2 * x[i].wide() } else { 0.0 };
                factor * ((product - self.shift[i]) + penalty)
            },
            g,
        );
    }
}

/// A point close to the minimum of `x'Gx/2 - h'x`, by conjugate gradients with the diagonal of G. Any point would do; the closer it is, the
/// smaller are the rounding errors of losses near the minimum.
fn near_minimum(isa: Isa, matrix: &[f64], shift: &[f64]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let dim = shift.len();
    let of_diagonal = |r: (usize, &f64)| {
        let entry = matrix[r.0 * dim + r.0];
        if entry > 0.0 { r.1 / entry } else { 0.0 }
    };
    let scaled = |r: &[f64]| r.iter().enumerate().map(of_diagonal).collect::<Vec<f64>>();
    let (mut x, mut residual, mut turned) = (vec![0.0; dim], shift.to_vec(), vec![0.0; dim]);
    let mut direction = scaled(&residual);
    let mut left = dot(&residual, &direction);
    let enough = f64::EPSILON * f64::EPSILON * left;
    for _ in 0..STEPS {
        rows::products(
            isa,
            matrix,
            &direction,
            #[inline(always)]
            |_, product| product,
            &mut turned,
        );
        let step = left / dot(&direction, &turned);
        if !(left > enough && step.is_finite()) {
            break;
        }
        x.iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
        residual.iter_mut().zip(&turned).for_each(|(r, t)| *r -= step * t);
        let next = scaled(&residual);
        let was = std::mem::replace(&mut left, dot(&residual, &next));
        direction.iter_mut().zip(&next).for_each(|(d, r)| *d = r + left / was * *d);
    }
    x
}

/// `sum_r w_r a_ri a_rj` over all samples r with these weights, as a matrix of which the elements with i < j are unspecified.
pub(super) fn lower_sums<T: Real>(samples: Samples<T>, weights: &[f64]) -> Vec<f64> {
    let dim = samples.dim();
    let mut sums = vec![0.0; dim * dim];
    let mut tile = vec![0.0; TILE.0 * TILE.1];
    for i in (0..dim).step_by(TILE.0) {
        let rows = i..(i + TILE.0).min(dim);
        for j in (0..rows.end).step_by(TILE.1) {
            let columns = j..(j + TILE.1).min(dim);
            tile.fill(0.0);
            widest(
                #[inline(always)]
                || add_tile(samples, weights, rows.clone(), columns.clone(), &mut tile),
            );
            for (i, tile) in rows.clone().zip(tile.chunks_exact(TILE.1)) {
                sums[i * dim..][columns.clone()].copy_from_slice(&tile[..columns.len()]);
            }
        }
    }
    sums
}

/// `tile[i][j] <- tile[i][j] + sum_r w_r a_ri a_rj` over all samples r, for rows i and columns j of G.
#[inline(always)]
fn add_tile<T: Real>(
    samples: Samples<T>,
    weights: &[f64],
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    tile: &mut [f64],
) {
    let (features, dim) = (samples.all().0, samples.dim());
    let mut four = features.chunks_exact(ABREAST * dim);
    let mut left = [[0.0; TILE.0]; ABREAST];
    let mut right = [[0.0; TILE.1]; ABREAST];
    let mut add = |some: &[T], weights: &[f64]| {
        for (k, (sample, weight)) in some.chunks_exact(dim).zip(weights).enumerate() {
            left[k].iter_mut().zip(&sample[rows.clone()]).for_each(|(to, a)| *to = weight * a.wide());
            right[k].iter_mut().zip(&sample[columns.clone()]).for_each(|(to, a)| *to = a.wide());
        }
        for (i, tile) in tile.chunks_exact_mut(TILE.1).enumerate().take(rows.len()) {
            let a: [f64; ABREAST] = std::array::from_fn(|r| left[r][i]);
            for (j, sum) in tile.iter_mut().enumerate() {
                *sum = (((*sum + a[0] * right[0][j]) + a[1] * right[1][j]) + a[2] * right[2][j])
                    + a[3] * right[3][j];
            }
        }
        (left, right) = ([[0.0; TILE.0]; ABREAST], [[0.0; TILE.1]; ABREAST]);
    };
    let mut of_four = weights.chunks_exact(ABREAST);
    four.by_ref().zip(of_four.by_ref()).for_each(|(some, weights)| add(some, weights));
    add(four.remainder(), of_four.remainder());
}

#[cfg(test)]
mod tests {
    use super::super::Shard;
    use super::*;

    /// Columns of different scales, one of which is constant and one twice another.
    #[test]
    fn the_equations_have_the_same_bits_with_every_instruction_set() {
        let (dim, rows) = (37, 90);
        let value = |k: usize| ((k * 7919) % 2003) as f64 / 1000.0 - 1.0;
        let feature = |k: usize| match k % dim {
            0 => 1.0,
            2 => 2.0 * value(k - 1),
            column => value(k) * [1e-3, 1.0, 1e4][column % 3],
        };
        let shard = Shard {
            features: (0..rows * dim).map(feature).collect(),
            targets: (0..rows).map(|k| value(5 * k)).collect(),
            weights: (0..rows).map(|k| value(3 * k).abs()).collect(),
            ..Shard::default()
        };
        let samples = Samples::new(dim, &shard);
        let best = Gram::new(Isa::best(), samples);
        assert!(best.loss.is_finite() && best.slope.iter().all(|slope| slope.abs() < 1e-4), "{best:?}");
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert!(Gram::new(isa, samples) == best, "{isa:?}");
        }
    }
}
