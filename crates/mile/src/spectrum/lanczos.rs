//! Tridiagonal matrices by bisection, and large sparse ones by reduction to them.

use rand::RngExt;

use super::{Solver, Spectrum};
use crate::random::{Purpose, stream};
use crate::sparse::SparseRows;

/// Lanczos steps: with full orthogonalisation, steps^2 * agents multiplications.
const LANCZOS_STEPS: usize = 500;

/// A symmetric tridiagonal matrix.
pub(super) struct Tridiagonal {
    pub(super) diagonal: Vec<f64>,
    /// Squares of the entries beside the diagonal.
    beside: Vec<f64>,
}

impl Tridiagonal {
    pub(super) fn of(rows: &SparseRows) -> Option<Self> {
        let n = rows.rows();
        let mut found = Self { diagonal: vec![0.0; n], beside: vec![0.0; n.saturating_sub(1)] };
        for i in 0..n {
            for &(j, w) in rows.row(i) {
                match j.abs_diff(i) {
                    0 => found.diagonal[i] = w,
                    1 => found.beside[i.min(j)] = w * w,
                    _ => return None,
                }
            }
        }
        Some(found)
    }

    /// How many eigenvalues are below x: the negative pivots of T - x (Sturm).
    fn below(&self, x: f64) -> usize {
        let (mut count, mut pivot) = (0, 1.0);
        for (i, d) in self.diagonal.iter().enumerate() {
            let coupling = if i == 0 { 0.0 } else { self.beside[i - 1] / pivot };
            pivot = d - x - coupling;
            if pivot == 0.0 {
                pivot = f64::EPSILON * f64::EPSILON;
            }
            count += usize::from(pivot < 0.0);
        }
        count
    }

    /// The k-th largest eigenvalue, k from 0.
    pub(super) fn eigenvalue(&self, k: usize) -> f64 {
        let n = self.diagonal.len();
        let radius = self.beside.iter().fold(0.0f64, |r, b| r.max(b.sqrt())) * 2.0;
        let ends = self.diagonal.iter().fold((f64::MAX, f64::MIN), |(a, b), d| (a.min(*d), b.max(*d)));
        let (mut low, mut high) = (ends.0 - radius, ends.1 + radius);
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            if self.below(middle) >= n - k { high = middle } else { low = middle }
        }
        0.5 * (low + high)
    }
}

/// Extreme eigenvalues on the complement of the vector of ones, whose eigenvalue is one.
pub(super) fn lanczos(rows: &SparseRows) -> Spectrum {
    let n = rows.rows();
    let mut random = stream(0, Purpose::Probe, n as u64, 0);
    let mut next: Vec<f64> = (0..n).map(|_| random.random::<f64>() - 0.5).collect();
    let mut basis: Vec<Vec<f64>> = vec![vec![1.0 / (n as f64).sqrt(); n]];
    let mut found = Tridiagonal { diagonal: Vec::new(), beside: Vec::new() };
    let mut norm = 0.0;
    for _ in 0..LANCZOS_STEPS.min(n - 1) {
        norm = orthonormalise(&mut next, &basis);
        if norm < 1e-13 {
            break;
        }
        if !found.diagonal.is_empty() {
            found.beside.push(norm * norm);
        }
        let product: Vec<f64> = (0..n).map(|i| rows.row(i).iter().map(|&(j, w)| w * next[j]).sum()).collect();
        found.diagonal.push(dot(&product, &next));
        basis.push(std::mem::replace(&mut next, product));
    }
    if norm >= 1e-13 {
        norm = orthonormalise(&mut next, &basis);
    }
    let last = found.diagonal.len() - 1;
    let (lambda_2, lambda_n) = (found.eigenvalue(0), found.eigenvalue(last));
    let error = norm * found.last_component(lambda_2).max(found.last_component(lambda_n));
    Spectrum {
        lambda: vec![1.0, lambda_2, lambda_n],
        complete: false,
        solver: Solver::Lanczos,
        error: error.max(1e-14 * n as f64),
    }
}

impl Tridiagonal {
    /// Last component of the unit eigenvector of a known eigenvalue, by one inverse iteration.
    fn last_component(&self, lambda: f64) -> f64 {
        let n = self.diagonal.len();
        let shift = lambda + 1e-12;
        let mut pivots = vec![0.0; n];
        let mut v = vec![1.0; n];
        for i in 0..n {
            let (coupling, carry) = if i == 0 {
                (0.0, 0.0)
            } else {
                let b = self.beside[i - 1].sqrt();
                (b * b / pivots[i - 1], b / pivots[i - 1] * v[i - 1])
            };
            pivots[i] = self.diagonal[i] - shift - coupling;
            if pivots[i].abs() < 1e-300 {
                pivots[i] = 1e-300;
            }
            v[i] -= carry;
        }
        for i in (0..n).rev() {
            let above = if i + 1 < n { self.beside[i].sqrt() * v[i + 1] } else { 0.0 };
            v[i] = (v[i] - above) / pivots[i];
        }
        (v[n - 1] / dot(&v, &v).sqrt()).abs()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Removes from v what lies in the span of the basis, twice, and scales it to length one.
fn orthonormalise(v: &mut [f64], basis: &[Vec<f64>]) -> f64 {
    for _ in 0..2 {
        for q in basis {
            let along = dot(v, q);
            v.iter_mut().zip(q).for_each(|(v, q)| *v -= along * q);
        }
    }
    let norm = dot(v, v).sqrt();
    v.iter_mut().for_each(|v| *v /= norm.max(f64::MIN_POSITIVE));
    norm
}
