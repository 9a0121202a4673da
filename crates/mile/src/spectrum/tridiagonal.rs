//! Eigenvalues of a symmetric tridiagonal matrix by bisection: the mixing matrix of a path.

use crate::sparse::SparseRows;

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
