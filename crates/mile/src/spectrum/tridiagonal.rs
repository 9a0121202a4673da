//! Eigenvalues of a symmetric tridiagonal matrix by bisection: the mixing matrix of a path, or the result of Lanczos' method
//! for a large matrix.

use crate::sparse::SparseRows;

/// A symmetric tridiagonal matrix.
#[derive(Default)]
pub(super) struct Tridiagonal {
    pub(super) diagonal: Vec<f64>,
    /// Squares of the entries next to the diagonal.
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

    /// One more row and column, not yet coupled to the others.
    pub(super) fn push(&mut self, diagonal: f64) {
        self.diagonal.push(diagonal);
    }

    /// The entry next to the diagonal between the last row and the next.
    pub(super) fn couple(&mut self, beside: f64) {
        self.beside.push(beside * beside);
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

    /// The modulus of the last element of the unit eigenvector of the largest eigenvalue. Its elements are computed from the last to the first,
    /// the direction in which they grow.
    pub(super) fn last_of_eigenvector(&self, largest: f64) -> f64 {
        // In units of the last element: the square of the current element, and the sum of squares.
        let (mut element, mut sum) = (1.0, 1.0);
        let mut pivot = 0.0;
        for (i, d) in self.diagonal.iter().enumerate().skip(1).rev() {
            let from_below = if i + 1 < self.diagonal.len() { self.beside[i] / pivot } else { 0.0 };
            pivot = largest - d - from_below;
            element *= pivot * pivot / self.beside[i - 1];
            sum += element;
            if sum > 1e200 {
                break;
            }
        }
        1.0 / sum.sqrt()
    }
}
