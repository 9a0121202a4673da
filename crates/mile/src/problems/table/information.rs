//! The covariance of the coefficients, by the Fisher information.
//!
//! The coefficients minimise `sum_j c_j loss(p_j, b_j) + penalty` over the rows j of all agents. With `S_i = sum_j v_j loss''(p_j) a_j a_j'` over
//! the rows of agent i, the weights v_j of the rows (1 without weights) and the factor `k_i = w_i/(N sum_j v_j)` by which `c_j = k_i v_j`,
//!
//! ```text
//! H = sum_i k_i S_i + l2 I        the Hessian of f (no penalty for an intercept)
//! J = sum_i k_i^2 S_i             the covariance of its gradient, if the model is true, up to the variance of residuals
//! covariance = phi H^-1 J H^-1
//! ```
//!
//! and `phi = sum_j v_j (p_j - b_j)^2/(m - n)` for least squares, otherwise 1. Where all rows count by their weights and without l2 this is
//! `phi (sum_i S_i)^-1`, the inverse of the pooled Fisher information.

use faer::linalg::solvers::DenseSolveCore;
use faer::{Mat, Side};

use super::gram::lower_sums;
use super::{Loss, Table};
use crate::problems::{Covariance, Failure, Information};
use crate::real::Real;

/// Most coefficients: beyond, the matrices of all agents take more time and memory than most runs.
const MOST: usize = 500;
/// The numbers of an agent that come before its matrix.
const BEFORE: usize = 5;
/// A column is a combination of those before it if at most this part of its square is left over.
const LEFT_OVER: f64 = 1e-12;

impl<T: Real> Table<T> {
    /// Itself, for losses whose curvature is the information of a row and without a nonsmooth penalty.
    pub(super) fn as_information(&self) -> Option<&dyn Information<T>> {
        let loss = self.objective.loss;
        let is_likelihood =
            matches!(loss, Loss::LeastSquares | Loss::Logistic | Loss::Softmax { .. } | Loss::Poisson);
        let dim = self.columns * loss.classes();
        (is_likelihood && self.penalty.is_none() && dim <= MOST).then_some(self)
    }

    /// The products of an agent's rows with the coefficients of each class.
    fn all_products(&self, agent: usize, x: &[T]) -> Vec<Vec<f64>> {
        let of_class = |x: &[T]| self.samples(agent).predictions(self.isa, Loss::LeastSquares, x);
        x.chunks_exact(self.columns.max(1)).map(of_class).collect()
    }
}

impl<T: Real> Information<T> for Table<T> {
    /// The agent's factor, its rows, those with a weight, the sum of their weights, that of their squared residuals, and the lower triangle of
    /// its matrix, for weights of mean 1.
    fn sums(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        let (samples, columns, rows) = (self.samples(agent), self.columns, self.shards[agent].targets.len());
        let products = self.all_products(agent, x);
        let blocks = self.objective.loss.curvatures(&products);
        let dim = columns * products.len();
        let mut lower = vec![0.0; dim * dim];
        for (class, other, curvatures) in blocks {
            let weights: Vec<f64> = curvatures
                .iter()
                .enumerate()
                .map(|(row, curvature)| samples.weight(row) * curvature)
                .collect();
            let block = lower_sums(samples, &weights);
            for i in 0..columns {
                for j in 0..columns {
                    let entry = block[i.max(j) * columns + i.min(j)];
                    lower[(class * columns + i) * dim + other * columns + j] = entry;
                }
            }
        }
        let mass = self.masses[agent];
        let used = (0..rows).filter(|row| samples.weight(*row) > 0.0).count() as f64;
        let square = |row: usize| {
            let residual = products[0][row] - self.shards[agent].targets[row].wide();
            samples.weight(row) * residual * residual
        };
        let squares = match self.objective.loss {
            Loss::LeastSquares => mass / rows as f64 * (0..rows).map(square).sum::<f64>(),
            _ => 0.0,
        };
        let triangle = (0..dim).flat_map(|i| lower[i * dim..i * dim + i + 1].iter().copied());
        let before: [f64; BEFORE] = [self.factors[agent], rows as f64, used, mass, squares];
        Ok(before.into_iter().chain(triangle).collect())
    }

    fn covariance(&self, sums: &[Vec<f64>]) -> Option<Covariance> {
        let (columns, classes) = (self.columns, self.objective.loss.classes());
        let (dim, agents) = (columns * classes, sums.len() as f64);
        let (mut hessian, mut spread) = (vec![0.0; dim * (dim + 1) / 2], vec![0.0; dim * (dim + 1) / 2]);
        let (mut used, mut squares, mut factors) = (0.0, 0.0, 0.0);
        for one in sums {
            let (before, triangle) = one.split_first_chunk::<BEFORE>()?;
            let [factor, rows, with_weight, mass, of_residuals] = *before;
            let k = factor / (agents * rows);
            for ((h, j), s) in hessian.iter_mut().zip(&mut spread).zip(triangle) {
                *h += k * s;
                *j += k * k * rows / mass * s;
            }
            (used, squares, factors) =
                (used + with_weight, squares + of_residuals, factors + factor / agents);
        }
        let place = |i: usize, j: usize| i.max(j) * (i.max(j) + 1) / 2 + i.min(j);
        for i in (0..dim).filter(|i| i % columns < self.penalised()) {
            hessian[place(i, i)] += factors * self.objective.l2;
        }
        if classes > 1 {
            // The mean over the classes is not determined. It is fixed, which changes nothing in the other directions.
            let size = (0..dim).map(|i| hessian[place(i, i)]).sum::<f64>() / dim as f64;
            for (c, d, k) in (0..dim).flat_map(|i| (0..classes).map(move |d| (i / columns, d, i % columns))) {
                if d <= c {
                    hessian[place(c * columns + k, d * columns + k)] += size / classes as f64;
                }
            }
        }
        let degrees = (self.objective.loss == Loss::LeastSquares).then_some(used - dim as f64);
        let phi = match degrees {
            Some(degrees) if degrees <= 0.0 => return None,
            Some(degrees) => squares / degrees,
            None => 1.0,
        };
        let scales: Vec<f64> = (0..dim).map(|i| 1.0 / hessian[place(i, i)].sqrt()).collect();
        let scaled = |of: &[f64]| Mat::from_fn(dim, dim, |i, j| scales[i] * of[place(i, j)] * scales[j]);
        let factor = scaled(&hessian).llt(Side::Lower).ok()?;
        let is_determined = |i: usize| factor.L()[(i, i)].powi(2) > LEFT_OVER;
        if !(0..dim).all(is_determined) {
            return None;
        }
        let inverse = factor.inverse();
        let middle = &inverse * scaled(&spread) * &inverse;
        let entry = |k: usize| phi * scales[k / dim] * middle[(k / dim, k % dim)] * scales[k % dim];
        let matrix: Vec<f64> = (0..dim * dim).map(entry).collect();
        matrix.iter().all(|value| value.is_finite()).then_some(Covariance { matrix, degrees })
    }
}

impl Loss {
    /// The second derivatives of the losses of rows with these products, `products[class][row]`: for each pair of classes, the second not after
    /// the first, one for each row.
    fn curvatures(self, products: &[Vec<f64>]) -> Vec<(usize, usize, Vec<f64>)> {
        let of_each =
            |curvature: fn(f64) -> f64| vec![(0, 0, products[0].iter().map(|p| curvature(*p)).collect())];
        match self {
            Self::Logistic => of_each(|p| {
                let e = (-p.abs()).exp();
                e / ((1.0 + e) * (1.0 + e))
            }),
            Self::Poisson => of_each(f64::exp),
            Self::Softmax { classes } => {
                let shares: Vec<Vec<f64>> = (0..products[0].len()).map(|row| shares(products, row)).collect();
                let pairs = (0..classes).flat_map(|c| (0..=c).map(move |d| (c, d)));
                let of = |c: usize, d: usize| {
                    let one = |p: &Vec<f64>| p[c] * (if c == d { 1.0 } else { 0.0 } - p[d]);
                    shares.iter().map(one).collect()
                };
                pairs.map(|(c, d)| (c, d, of(c, d))).collect()
            }
            _ => of_each(|_| 1.0),
        }
    }
}

/// The probabilities of the classes of a row.
fn shares(products: &[Vec<f64>], row: usize) -> Vec<f64> {
    let largest = products.iter().map(|of_class| of_class[row]).fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = products.iter().map(|of_class| (of_class[row] - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}
