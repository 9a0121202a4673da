//! Eigenvalues of a small matrix that is not symmetric: reduction to Hessenberg form, then QR steps with complex shifts.

use num_complex::Complex64;

use super::Matrix;

/// QR steps after which an eigenvalue is given up. Two or three are usual.
const MOST_STEPS: usize = 90;
/// Steps after which another shift is tried: a matrix that cycles leaves its cycle.
const STUCK: usize = 10;

/// The eigenvalues, as (real, imaginary); NaN if the matrix is not finite.
pub fn eigenvalues(matrix: &Matrix) -> Vec<(f64, f64)> {
    let size = matrix.size();
    let finite = matrix.entries.iter().all(|a| a.is_finite());
    let found = finite.then(|| Hessenberg::of(matrix).eigenvalues()).flatten();
    found.map_or_else(
        || vec![(f64::NAN, f64::NAN); size],
        |found| found.into_iter().map(|z| (z.re, z.im)).collect(),
    )
}

/// A matrix with zeros below the entries under its diagonal.
struct Hessenberg {
    rows: Vec<Vec<Complex64>>,
}

/// A unitary rotation of two coordinates: `(a, b)` becomes `(c a + s b, -conj(s) a + c b)`, with c real.
struct Rotation {
    c: f64,
    s: Complex64,
}

impl Rotation {
    /// The one that takes `(a, b)` to `(r, 0)`.
    fn of(a: Complex64, b: Complex64) -> Self {
        let length = a.norm().hypot(b.norm());
        if length == 0.0 {
            return Self { c: 1.0, s: Complex64::ZERO };
        }
        let phase = if a.norm() == 0.0 { Complex64::ONE } else { a / a.norm() };
        Self { c: a.norm() / length, s: phase * b.conj() / length }
    }

    fn turn(&self, a: Complex64, b: Complex64) -> (Complex64, Complex64) {
        (a * self.c + self.s * b, b * self.c - self.s.conj() * a)
    }

    /// The same of the columns, from the right: by the conjugate transpose.
    fn turn_back(&self, a: Complex64, b: Complex64) -> (Complex64, Complex64) {
        (a * self.c + self.s.conj() * b, b * self.c - self.s * a)
    }
}

impl Hessenberg {
    /// A similar matrix, by rotations.
    fn of(matrix: &Matrix) -> Self {
        let size = matrix.size();
        let rows =
            (0..size).map(|i| matrix.row(i).iter().map(|a| Complex64::new(*a, 0.0)).collect()).collect();
        let mut h = Self { rows };
        for column in 0..size.saturating_sub(2) {
            for i in column + 2..size {
                let rotation = Rotation::of(h.rows[column + 1][column], h.rows[i][column]);
                h.rotate_rows(&rotation, column + 1, i, column..size);
                h.rotate_columns(&rotation, column + 1, i, 0..size);
            }
        }
        h
    }

    fn rotate_rows(&mut self, by: &Rotation, i: usize, j: usize, columns: std::ops::Range<usize>) {
        for k in columns {
            (self.rows[i][k], self.rows[j][k]) = by.turn(self.rows[i][k], self.rows[j][k]);
        }
    }

    fn rotate_columns(&mut self, by: &Rotation, i: usize, j: usize, rows: std::ops::Range<usize>) {
        for row in &mut self.rows[rows] {
            (row[i], row[j]) = by.turn_back(row[i], row[j]);
        }
    }

    fn eigenvalues(mut self) -> Option<Vec<Complex64>> {
        let mut found = Vec::with_capacity(self.rows.len());
        for last in (0..self.rows.len()).rev() {
            for step in 0.. {
                let first = (1..=last).rev().find(|&i| self.is_negligible(i)).unwrap_or(0);
                if first == last {
                    break;
                }
                if step == MOST_STEPS {
                    return None;
                }
                let shift = if step % STUCK == STUCK - 1 {
                    self.rows[last][last] + self.rows[last][last - 1].norm()
                } else {
                    self.shift(last)
                };
                self.qr_step(first, last, shift);
            }
            found.push(self.rows[last][last]);
        }
        Some(found)
    }

    /// Whether the entry under the diagonal in row i counts as zero.
    fn is_negligible(&self, i: usize) -> bool {
        let beside = self.rows[i - 1][i - 1].l1_norm() + self.rows[i][i].l1_norm();
        self.rows[i][i - 1].l1_norm() <= f64::EPSILON * beside || self.rows[i][i - 1].norm_sqr() == 0.0
    }

    /// Wilkinson's: the eigenvalue of the last two rows and columns that is nearer to the last entry.
    fn shift(&self, last: usize) -> Complex64 {
        let h = &self.rows;
        let (a, b, c, d) = (h[last - 1][last - 1], h[last - 1][last], h[last][last - 1], h[last][last]);
        let half = (a - d) / 2.0;
        let root = (half * half + b * c).sqrt();
        let far = if (half + root).norm_sqr() > (half - root).norm_sqr() { half + root } else { half - root };
        if far.norm_sqr() == 0.0 { d } else { d - b * c / far }
    }

    /// `H - shift = Q R`, then `H <- R Q + shift`, in these rows and columns.
    fn qr_step(&mut self, first: usize, last: usize, shift: Complex64) {
        (first..=last).for_each(|i| self.rows[i][i] -= shift);
        let mut rotations = Vec::with_capacity(last - first);
        for i in first..last {
            let rotation = Rotation::of(self.rows[i][i], self.rows[i + 1][i]);
            self.rotate_rows(&rotation, i, i + 1, i..last + 1);
            rotations.push(rotation);
        }
        for (i, rotation) in (first..).zip(&rotations) {
            self.rotate_columns(rotation, i, i + 1, first..(i + 2).min(last + 1));
        }
        (first..=last).for_each(|i| self.rows[i][i] += shift);
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::*;
    use crate::dense::tests::random;

    /// By real part, then by imaginary part, those that differ by rounding only taken as equal.
    fn sorted(mut found: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
        let key = |z: &(f64, f64)| ((z.0 * 1e6).round() as i64, (z.1 * 1e6).round() as i64);
        found.sort_unstable_by_key(key);
        found
    }

    fn assert_close(found: Vec<(f64, f64)>, expected: Vec<(f64, f64)>, tolerance: f64) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in sorted(found).into_iter().zip(sorted(expected)) {
            assert!((a.0 - b.0).hypot(a.1 - b.1) < tolerance, "{a:?} {b:?}");
        }
    }

    #[test]
    fn eigenvalues_are_those_of_another_library_whatever_the_size() {
        for size in 1..=12 {
            for seed in 0..20 {
                let a = random(size, seed);
                let other = DMatrix::from_fn(size, size, |i, j| a[(i, j)]).complex_eigenvalues();
                assert_close(eigenvalues(&a), other.iter().map(|z| (z.re, z.im)).collect(), 1e-11);
            }
        }
    }

    #[test]
    fn a_companion_matrix_has_the_roots_of_its_polynomial() {
        // (z - 1)(z + 2)(z^2 + 1) = z^4 + z^3 - z^2 + z - 2.
        let below = [2.0, -1.0, 1.0, -1.0];
        let companion = Matrix::from_fn(4, |i, j| match j {
            3 => below[i],
            _ => f64::from(u8::from(i == j + 1)),
        });
        assert_close(eigenvalues(&companion), vec![(1.0, 0.0), (-2.0, 0.0), (0.0, 1.0), (0.0, -1.0)], 1e-14);
    }

    /// A matrix on which QR steps with plain shifts do nothing: its eigenvalues are the roots of one.
    #[test]
    fn a_cyclic_permutation_has_the_roots_of_one() {
        for size in 3..9 {
            let cycle = Matrix::from_fn(size, |i, j| f64::from(u8::from((i + 1) % size == j)));
            let angle = |k: usize| std::f64::consts::TAU * k as f64 / size as f64;
            let roots = (0..size).map(|k| (angle(k).cos(), angle(k).sin())).collect();
            assert_close(eigenvalues(&cycle), roots, 1e-13);
        }
    }

    #[test]
    fn special_matrices_have_their_eigenvalues() {
        assert_eq!(eigenvalues(&Matrix::zeros(0)), []);
        assert_eq!(eigenvalues(&Matrix::zeros(4)), [(0.0, 0.0); 4]);
        // A Jordan block: rounding moves a root of multiplicity three by its cube root at most.
        let jordan = Matrix::from_fn(3, |i, j| if i == j { 0.5 } else { f64::from(u8::from(i + 1 == j)) });
        assert_close(eigenvalues(&jordan), vec![(0.5, 0.0); 3], 1e-5);
        let bad = Matrix::from_fn(3, |i, j| if i == j { f64::NAN } else { 1.0 });
        assert!(eigenvalues(&bad).iter().all(|z| z.0.is_nan()));
    }
}
