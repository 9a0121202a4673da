//! The second largest and the smallest eigenvalue of a large sparse mixing matrix, by Lanczos' method.
//!
//! ```text
//! b_k q_(k+1) = A q_k - a_k q_k - b_(k-1) q_(k-1)
//! ```
//!
//! makes a tridiagonal matrix of the a and b, whose largest eigenvalue converges to that of A. Vectors are not reorthogonalised:
//! where rounding makes them lose orthogonality, an eigenvalue already found appears again, which does not affect the largest (Paige 1980).
//! So a step costs one product with W, and there can be as many as a tiny gap needs.

use rand::RngExt;
use rayon::prelude::*;

use super::tridiagonal::Tridiagonal;
use super::{Solver, Spectrum};
use crate::block::{combine, dot};
use crate::random::{Purpose, stream};
use crate::sparse::SparseRows;

/// Norm of an eigenvector's residual at which it counts as converged. The error of its eigenvalue is of the
/// order of its square.
const TOLERANCE: f64 = 1e-10;
/// Steps after which the search for an eigenvalue is abandoned. A ring of 10,000 with one chord, whose gap is 1.3e-7, needs 10,445.
const MOST_STEPS: usize = 200_000;
/// Steps before the eigenvalue is first checked.
const FIRST_LOOK: usize = 32;
/// Rows of a product that one task computes.
const CHUNK: usize = 4096;

/// The eigenvalues 1, lambda_2 and lambda_n of a symmetric matrix with row sums one; none if one of them was not found.
pub(super) fn extremes(rows: &SparseRows) -> Option<Spectrum> {
    let up = Shifted { rows, sign: 1.0, deflated: true };
    let down = Shifted { rows, sign: -1.0, deflated: false };
    let (up, down) = rayon::join(|| largest(&up), || largest(&down));
    let (lambda_2, lambda_n) = (up? - 1.0, 1.0 - down?);
    let (lambda, error) = (vec![1.0, lambda_2, lambda_n], 1e-14 * rows.rows() as f64);
    Some(Spectrum { lambda, complete: false, solver: Solver::Krylov, error })
}

/// The largest eigenvalue of a matrix without negative ones, if it is found.
fn largest(matrix: &Shifted) -> Option<f64> {
    let n = matrix.rows.rows();
    let mut random = stream(0, Purpose::Probe, n as u64, 0);
    let mut q: Vec<f64> = (0..n).map(|_| random.random::<f64>() - 0.5).collect();
    if matrix.deflated {
        subtract_mean(&mut q);
    }
    let length = dot(&q, &q).sqrt();
    q.iter_mut().for_each(|q| *q /= length);
    let (mut before, mut next) = (vec![0.0; n], vec![0.0; n]);
    let mut found = Tridiagonal::default();
    let (mut b, mut look) = (0.0, FIRST_LOOK);
    for step in 1..=MOST_STEPS {
        matrix.multiply(&q, &mut next);
        let a = dot(&q, &next);
        combine(&mut next, 1.0, &[(-a, &q), (-b, &before)]);
        b = dot(&next, &next).sqrt();
        if !b.is_finite() {
            return None;
        }
        found.push(a);
        if step == look || b <= TOLERANCE {
            let lambda = found.eigenvalue(0);
            if b * found.last_of_eigenvector(lambda) <= TOLERANCE {
                return Some(lambda);
            }
            look += look / 8;
        }
        found.couple(b);
        combine(&mut before, 0.0, &[(1.0 / b, &next)]);
        std::mem::swap(&mut before, &mut q);
    }
    None
}

/// `I + W` or `I - W`, which have no negative eigenvalues. Deflated: on the complement of the vector of ones, whose
/// eigenvalue is known.
struct Shifted<'a> {
    rows: &'a SparseRows,
    sign: f64,
    deflated: bool,
}

impl Shifted<'_> {
    fn multiply(&self, x: &[f64], y: &mut [f64]) {
        let product = |i: usize| -> f64 { self.rows.row(i).iter().map(|&(j, w)| w * x[j]).sum() };
        y.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, y)| {
            for (i, y) in (chunk * CHUNK..).zip(y) {
                *y = x[i] + self.sign * product(i);
            }
        });
        if self.deflated {
            subtract_mean(y);
        }
    }
}

fn subtract_mean(x: &mut [f64]) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    x.iter_mut().for_each(|x| *x -= mean);
}
