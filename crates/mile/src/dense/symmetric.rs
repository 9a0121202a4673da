//! All eigenvalues of a symmetric matrix: Householder's reduction to a tridiagonal matrix, then implicit QL steps.
//!
//! The reduction begins with the last row and works on the lower triangle, of which a row is contiguous. With `u` the
//! vector of a reflection `I - u u'/h` and
//!
//! ```text
//! p = A u / h,   q = p - (u'p / 2h) u,   A <- A - u q' - q u'
//! ```
//!
//! the update by one reflection and the product `A u` of the next are formed in one pass over the triangle, which is
//! bound by memory.

use rayon::prelude::*;

use super::Matrix;
use crate::block::{dot, widest};

/// Triangles are shared by this many tasks, of which each has its own sums: always as many, so that the sums do not depend on
/// the number of threads.
const TASKS: usize = 8;
/// Rows below which one task has all of them.
const FEW: usize = 256;
/// Entries of a row handled side by side.
const LANES: usize = 8;
/// Sums of squares below this count as zero: their last digits may have been lost.
const NEGLIGIBLE: f64 = f64::MIN_POSITIVE / f64::EPSILON;
/// QL steps after which an eigenvalue is given up. Two are usual.
const MOST_STEPS: usize = 60;

/// Eigenvalues of the symmetric matrix with this lower triangle, in descending order; NaN if it is not finite.
pub(crate) fn symmetric_eigenvalues(matrix: Matrix) -> Vec<f64> {
    let size = matrix.size();
    let finite = matrix.entries.iter().all(|a| a.is_finite());
    let found = finite.then(|| {
        // On a thread of the pool: each parallel loop would move there and back.
        let (mut diagonal, mut beside) =
            if size < FEW { tridiagonal(matrix) } else { rayon::scope(|_| tridiagonal(matrix)) };
        ql(&mut diagonal, &mut beside).then_some(diagonal)
    });
    let mut lambda = found.flatten().unwrap_or_else(|| vec![f64::NAN; size]);
    lambda.sort_unstable_by(|x, y| y.total_cmp(x));
    lambda
}

/// What a reflection does to the matrix: `A <- A - u q' - q u'`.
struct Update {
    u: Vec<f64>,
    q: Vec<f64>,
}

impl Update {
    fn apply(&self, i: usize, row: &mut [f64]) {
        let (u, q) = (self.u[i], self.q[i]);
        for (j, a) in row.iter_mut().enumerate() {
            *a -= u * self.q[j] + q * self.u[j];
        }
    }
}

/// The diagonal of a similar tridiagonal matrix, and the entries beside it: `beside[i]` between i and i + 1.
fn tridiagonal(mut matrix: Matrix) -> (Vec<f64>, Vec<f64>) {
    let size = matrix.size();
    let (mut diagonal, mut beside) = (vec![0.0; size], vec![0.0; size]);
    let mut last = Update { u: vec![0.0; size], q: vec![0.0; size] };
    for i in (0..size).rev() {
        let row = &mut matrix.row_mut(i)[..=i];
        last.apply(i, row);
        diagonal[i] = row[i];
        if i == 0 {
            break;
        }
        let mut u = row[..i].to_vec();
        if dot(&u, &u) < NEGLIGIBLE {
            u.fill(0.0);
        }
        let length = dot(&u, &u).sqrt().copysign(u[i - 1]);
        beside[i - 1] = -length;
        u[i - 1] += length;
        let h = length * u[i - 1];
        let mut q = vec![0.0; i];
        let rows = &mut matrix.entries[..i * size];
        if i < FEW {
            q = update_and_multiply(&last, &u, 0, rows, size);
        } else {
            // Row r has r + 1 entries: tasks of equal areas.
            let end = |task: usize| (i as f64 * (task as f64 / TASKS as f64).sqrt()).round() as usize;
            let mut pieces = Vec::with_capacity(TASKS);
            let mut rest = rows;
            for task in 0..TASKS {
                let piece = rest.split_off_mut(..(end(task + 1) - end(task)) * size);
                pieces.extend(piece.map(|piece| (end(task), piece)));
            }
            let sums: Vec<Vec<f64>> = pieces
                .into_par_iter()
                .map(|(first, piece)| update_and_multiply(&last, &u, first, piece, size))
                .collect();
            for sums in sums {
                q.iter_mut().zip(sums).for_each(|(q, sum)| *q += sum);
            }
        }
        if h > 0.0 {
            q.iter_mut().for_each(|q| *q /= h);
            let along = dot(&u, &q) / (2.0 * h);
            q.iter_mut().zip(&u).for_each(|(q, u)| *q -= along * u);
        }
        last = Update { u, q };
    }
    (diagonal, beside)
}

/// Applies the last update to rows of the lower triangle, from row `first` on, and returns their share of `A u`: what
/// their entries, and those of the upper triangle that mirror them, contribute.
fn update_and_multiply(last: &Update, u: &[f64], first: usize, rows: &mut [f64], size: usize) -> Vec<f64> {
    let mut product = vec![0.0; u.len()];
    widest(
        #[inline(always)]
        || {
            for (k, row) in rows.chunks_exact_mut(size).enumerate() {
                let i = first + k;
                let (row, diagonal) = row.split_at_mut(i);
                let from_row =
                    row_pass(row, [last.u[i], last.q[i], u[i]], [&last.u, &last.q, u], &mut product);
                diagonal[0] -= 2.0 * last.u[i] * last.q[i];
                product[i] += from_row + diagonal[0] * u[i];
            }
        },
    );
    product
}

/// `a <- a - u_i q - q_i u` and `product <- product + v_i a` for the part `a` of a row before its diagonal; returns `a'v`.
#[inline(always)]
fn row_pass(a: &mut [f64], [u_i, q_i, v_i]: [f64; 3], [u, q, v]: [&[f64]; 3], product: &mut [f64]) -> f64 {
    let n = a.len();
    let mut sums = [0.0; LANES];
    let mut lanes = |a: &mut [f64], u: &[f64], q: &[f64], v: &[f64], product: &mut [f64]| {
        for k in 0..a.len() {
            a[k] -= u_i * q[k] + q_i * u[k];
            sums[k] += a[k] * v[k];
            product[k] += a[k] * v_i;
        }
    };
    let (a, a_rest) = a.as_chunks_mut::<LANES>();
    let (product, product_rest) = product[..n].as_chunks_mut::<LANES>();
    let [(u, u_rest), (q, q_rest), (v, v_rest)] = [u, q, v].map(|x| x[..n].as_chunks::<LANES>());
    for ((((a, u), q), v), product) in a.iter_mut().zip(u).zip(q).zip(v).zip(product) {
        lanes(a, u, q, v, product);
    }
    lanes(a_rest, u_rest, q_rest, v_rest, product_rest);
    sums.iter().sum()
}

/// Turns the diagonal of a tridiagonal matrix into its eigenvalues; false if they were not found. `e` has one entry more
/// than lie beside the diagonal.
fn ql(d: &mut [f64], e: &mut [f64]) -> bool {
    for first in 0..d.len() {
        for step in 0.. {
            let negligible = |i: &usize| e[*i].abs() <= f64::EPSILON * (d[*i].abs() + d[*i + 1].abs());
            let end = (first..d.len() - 1).find(negligible).unwrap_or(d.len() - 1);
            if end == first {
                break;
            }
            if step == MOST_STEPS {
                return false;
            }
            ql_step(&mut d[first..=end], &mut e[first..=end]);
        }
    }
    true
}

/// One implicit QL step on a matrix that does not fall apart, with Wilkinson's shift: a rotation in the last two
/// coordinates, and those that chase the entry it makes outside the three diagonals up to the first row.
fn ql_step(d: &mut [f64], e: &mut [f64]) {
    let end = d.len() - 1;
    let half = (d[1] - d[0]) / (2.0 * e[0]);
    let mut g = d[end] - d[0] + e[0] / (half + (half * half + 1.0).sqrt().copysign(half));
    let (mut sine, mut cosine, mut shift) = (1.0, 1.0, 0.0);
    for i in (0..end).rev() {
        let (outside, b) = (sine * e[i], cosine * e[i]);
        let r = (outside * outside + g * g).sqrt();
        e[i + 1] = r;
        if r == 0.0 {
            d[i + 1] -= shift;
            e[end] = 0.0;
            return;
        }
        (sine, cosine) = (outside / r, g / r);
        g = d[i + 1] - shift;
        let t = (d[i] - g) * sine + 2.0 * cosine * b;
        shift = sine * t;
        d[i + 1] = g + shift;
        g = cosine * t - b;
    }
    d[0] -= shift;
    e[0] = g;
    e[end] = 0.0;
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::*;
    use crate::dense::tests::{random, with_threads};

    fn symmetric(size: usize) -> Matrix {
        let a = random(size, size as u64);
        Matrix::from_fn(size, |i, j| a[(i.max(j), i.min(j))])
    }

    fn worst(a: &[f64], b: &[f64]) -> f64 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn eigenvalues_are_those_of_another_library_whatever_the_size() {
        for size in [1, 2, 3, 7, 8, 9, 17, 64, 100, 255, 256, 257, 300] {
            let a = symmetric(size);
            let mut expected: Vec<f64> = DMatrix::from_fn(size, size, |i, j| a[(i, j)])
                .symmetric_eigenvalues()
                .iter()
                .copied()
                .collect();
            expected.sort_unstable_by(|x, y| y.total_cmp(x));
            let difference = worst(&symmetric_eigenvalues(a), &expected);
            assert!(difference < 1e-14 * size as f64, "{size}: {difference:e}");
        }
    }

    #[test]
    fn special_matrices_have_their_eigenvalues() {
        assert_eq!(symmetric_eigenvalues(Matrix::zeros(0)), []);
        assert_eq!(symmetric_eigenvalues(Matrix::zeros(5)), [0.0; 5]);
        let diagonal = Matrix::from_fn(4, |i, j| if i == j { i as f64 } else { 0.0 });
        assert_eq!(symmetric_eigenvalues(diagonal), [3.0, 2.0, 1.0, 0.0]);
        // All ones: rank one.
        for size in [6, 400] {
            let mut expected = vec![0.0; size];
            expected[0] = size as f64;
            let difference = worst(&symmetric_eigenvalues(Matrix::from_fn(size, |_, _| 1.0)), &expected);
            assert!(difference < 1e-15 * (size * size) as f64, "{difference:e}");
        }
        // Wilkinson's matrix of 21 rows: its two largest eigenvalues differ by 7e-14.
        let wilkinson = Matrix::from_fn(21, |i, j| match i.abs_diff(j) {
            0 => (i as f64 - 10.0).abs(),
            1 => 1.0,
            _ => 0.0,
        });
        let found = symmetric_eigenvalues(wilkinson);
        assert!((found[0] - 10.746194182903393).abs() < 1e-13 && found[0] - found[1] < 2e-13, "{found:?}");
        // Entries whose squares lose digits count as zeros.
        for tiny in [1e-140, 1e-155, 1e-161, 1e-170, 1e-320] {
            let nearly = Matrix::from_fn(40, |i, j| if i == j { i as f64 } else { tiny });
            let expected: Vec<f64> = (0..40).rev().map(f64::from).collect();
            assert!(worst(&symmetric_eigenvalues(nearly), &expected) < 1e-13, "{tiny:e}");
        }
    }

    #[test]
    fn what_is_not_finite_has_no_eigenvalues() {
        for bad in [f64::NAN, f64::INFINITY] {
            let found = symmetric_eigenvalues(Matrix::from_fn(3, |i, j| if i + j == 0 { bad } else { 1.0 }));
            assert!(found.len() == 3 && found.iter().all(|lambda| lambda.is_nan()));
        }
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let alone = with_threads(1, || symmetric_eigenvalues(symmetric(600)));
        assert_eq!(alone, with_threads(3, || symmetric_eigenvalues(symmetric(600))));
    }
}
