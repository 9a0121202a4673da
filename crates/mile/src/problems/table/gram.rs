//! Least squares by its normal equations: `grad f(x) = G x - h` with `G = A'A/m` and `h = A'b/m`; with weights u and offsets o of the rows,
//! `G = A'diag(u)A/m` and `h = A'diag(u)(b - o)/m`.
//!
//! G is formed once and has n rows instead of m, so that a gradient costs n^2 instead of 2mn multiplications. G and h
//! are kept in `f64`, even for `f32`: rounded to `f32` they would define another problem, with another solution.

use super::rows::{self, Samples};
use crate::block::widest;
use crate::isa::Isa;
use crate::real::Real;

/// Rows and columns of G that are summed together over all samples, so that they stay in the cache.
const TILE: (usize, usize) = (32, 64);
/// Samples that are added at a time.
const ABREAST: usize = 4;

/// G and h of one agent.
#[derive(Clone, Debug)]
pub(super) struct Gram {
    matrix: Vec<f64>,
    shift: Vec<f64>,
}

impl Gram {
    pub(super) fn new<T: Real>(samples: Samples<T>) -> Self {
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
        Self {
            matrix: (0..dim * dim).map(entry).collect(),
            shift: shift.into_iter().map(|h| scale * h).collect(),
        }
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
