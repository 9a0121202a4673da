//! The Cholesky factor of a positive definite matrix, panel by panel of columns.

use std::ops::Range;

use rayon::prelude::*;

use super::Matrix;
use crate::block::{dot, widest};

/// Columns of a panel.
const PANEL: usize = 64;
/// Columns computed together, in registers.
const LANES: usize = 32;

/// The lower triangular L with `A = L L'`.
pub(crate) struct Cholesky {
    /// Its upper triangle means nothing.
    l: Matrix,
}

impl Cholesky {
    /// The factor of the symmetric matrix with this lower triangle; none if it is not positive definite.
    pub(crate) fn of(matrix: Matrix) -> Option<Self> {
        let (size, mut l) = (matrix.size(), matrix);
        for from in (0..size).step_by(PANEL) {
            let to = (from + PANEL).min(size);
            for i in from..to {
                let (above, row) = l.entries.split_at_mut(i * size);
                solve_row(&mut row[from..i], &above[from * size..], from, size);
                let pivot = row[i] - dot(&row[from..i], &row[from..i]);
                let positive = pivot > 0.0 && pivot.is_finite();
                if !positive {
                    return None;
                }
                row[i] = pivot.sqrt();
            }
            let (above, below) = l.entries.split_at_mut(to * size);
            let triangle = &above[from * size..];
            let columns: Vec<Vec<[f64; LANES]>> = below
                .par_chunks_mut(LANES * size)
                .map(|rows| solve_rows(rows, triangle, &(from..to), size))
                .collect();
            subtract_panel(below, &(from..to), &columns, size);
        }
        Some(Self { l })
    }

    /// The logarithm of the determinant of A.
    pub(crate) fn log_det(&self) -> f64 {
        (0..self.l.size()).map(|i| 2.0 * libm::log(self.l[(i, i)])).sum()
    }

    /// The solution x of `A x = b`.
    pub(crate) fn solve(&self, b: &[f64]) -> Vec<f64> {
        let mut x = b.to_vec();
        for i in 0..x.len() {
            x[i] = (x[i] - dot(&self.l.row(i)[..i], &x[..i])) / self.l[(i, i)];
        }
        for i in (0..x.len()).rev() {
            let (before, rest) = x.split_at_mut(i);
            let row = self.l.row(i);
            rest[0] /= row[i];
            before.iter_mut().zip(row).for_each(|(x, l)| *x -= l * rest[0]);
        }
        x
    }

    /// The inverse of A, several columns at a time.
    pub(crate) fn inverse(&self) -> Matrix {
        let size = self.l.size();
        let transposed = Matrix::from_fn(size, |i, j| self.l[(j, i)]);
        let starts: Vec<usize> = (0..size).step_by(LANES).collect();
        let columns: Vec<Vec<[f64; LANES]>> =
            starts.par_iter().map(|&first| self.columns_of_inverse(first, &transposed)).collect();
        let mut inverse = transposed;
        for i in 0..size {
            for j in 0..=i {
                let entry = columns[j / LANES][i - j / LANES * LANES][j % LANES];
                (inverse[(i, j)], inverse[(j, i)]) = (entry, entry);
            }
        }
        inverse
    }

    /// The columns of the inverse from `first` on, in the rows from `first` on: the rest mirrors other columns.
    fn columns_of_inverse(&self, first: usize, transposed: &Matrix) -> Vec<[f64; LANES]> {
        let mut x = vec![[0.0; LANES]; self.l.size() - first];
        x.iter_mut().take(LANES).enumerate().for_each(|(k, row)| row[k] = 1.0);
        widest(
            #[inline(always)]
            || {
                for i in 0..x.len() {
                    let (before, rest) = x.split_at_mut(i);
                    let l = &self.l.row(first + i)[first..];
                    let known = products(&l[..i], before);
                    rest[0].iter_mut().zip(known).for_each(|(x, known)| *x = (*x - known) / l[i]);
                }
                for i in (0..x.len()).rev() {
                    let (until, after) = x.split_at_mut(i + 1);
                    let l = &transposed.row(first + i)[first..];
                    let known = products(&l[i + 1..], after);
                    until[i].iter_mut().zip(known).for_each(|(x, known)| *x = (*x - known) / l[i]);
                }
            },
        );
        x
    }
}

/// `sum_i a_i x_i`, lane by lane.
#[inline(always)]
fn products(a: &[f64], x: &[[f64; LANES]]) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for (a, x) in a.iter().zip(x) {
        for k in 0..LANES {
            sums[k] += a * x[k];
        }
    }
    sums
}

/// Solves `x T' = row` for part of a row of L, with the triangle T of the rows of a panel that begins in column `from`.
fn solve_row(row: &mut [f64], panel: &[f64], from: usize, size: usize) {
    for c in 0..row.len() {
        let t = &panel[c * size + from..][..=c];
        row[c] = (row[c] - dot(&row[..c], &t[..c])) / t[c];
    }
}

/// The same for several rows, one in each lane; returns the solution.
fn solve_rows(rows: &mut [f64], triangle: &[f64], panel: &Range<usize>, size: usize) -> Vec<[f64; LANES]> {
    let mut x = vec![[0.0; LANES]; panel.len()];
    for (i, row) in rows.chunks_exact(size).enumerate() {
        x.iter_mut().zip(&row[panel.clone()]).for_each(|(x, a)| x[i] = *a);
    }
    widest(
        #[inline(always)]
        || {
            for c in 0..x.len() {
                let (known, rest) = x.split_at_mut(c);
                let t = &triangle[c * size + panel.start..][..=c];
                let known = products(&t[..c], known);
                rest[0].iter_mut().zip(known).for_each(|(x, known)| *x = (*x - known) / t[c]);
            }
        },
    );
    for (i, row) in rows.chunks_exact_mut(size).enumerate() {
        row[panel.clone()].iter_mut().zip(&x).for_each(|(a, x)| *a = x[i]);
    }
    x
}

/// Subtracts the products of the panel's columns from what is right of them, in the lower triangle of the rows below.
fn subtract_panel(below: &mut [f64], panel: &Range<usize>, columns: &[Vec<[f64; LANES]>], size: usize) {
    below.par_chunks_exact_mut(size).with_min_len(LANES).enumerate().for_each(|(i, row)| {
        let (left, right) = row.split_at_mut(panel.end);
        let own = &left[panel.start..];
        widest(
            #[inline(always)]
            || {
                for (part, columns) in right[..=i].chunks_mut(LANES).zip(columns) {
                    part.iter_mut().zip(products(own, columns)).for_each(|(a, product)| *a -= product);
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::tests::{random, with_threads};

    /// `B B' + I`.
    fn positive(size: usize) -> Matrix {
        let b = random(size, size as u64);
        Matrix::from_fn(size, |i, j| dot(b.row(i), b.row(j)) + f64::from(u8::from(i == j)))
    }

    #[test]
    fn factor_solution_and_inverse_fit_the_matrix_whatever_the_size() {
        for size in [0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 200] {
            let a = positive(size);
            let factor = Cholesky::of(a.clone()).unwrap();
            let (l, inverse) = (&factor.l, factor.inverse());
            let x: Vec<f64> = (0..size).map(|i| i as f64).collect();
            let b: Vec<f64> = (0..size).map(|i| dot(a.row(i), &x)).collect();
            let solved = factor.solve(&b);
            let log_det: f64 = crate::dense::symmetric_eigenvalues(a.clone()).iter().map(|v| v.ln()).sum();
            let close = |found: f64, expected: f64, what: &str| {
                assert!((found - expected).abs() < 1e-10 * (1.0 + expected.abs()), "{what}, {size}: {found}");
            };
            close(factor.log_det(), log_det, "logarithm of the determinant");
            for i in 0..size {
                close(solved[i], x[i], "solution");
                for j in 0..size {
                    let common = i.min(j) + 1;
                    close(dot(&l.row(i)[..common], &l.row(j)[..common]), a[(i, j)], "L L'");
                    close(dot(a.row(i), inverse.row(j)), f64::from(u8::from(i == j)), "A times its inverse");
                }
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        for (at, bad) in [(0, -1.0), (99, -1.0), (70, 0.0), (70, f64::NAN), (3, f64::INFINITY)] {
            let mut a = positive(100);
            a[(at, at)] = bad;
            assert!(Cholesky::of(a).is_none(), "{bad} at {at}");
        }
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let inverse = || Cholesky::of(positive(150)).unwrap().inverse();
        assert_eq!(with_threads(1, inverse), with_threads(3, inverse));
    }
}
