//! Muon's step along a matrix: the nearest orthogonal matrix, by Newton and Schulz' iteration.

use faer::{MatMut, MatRef};

use super::elementwise::row_norm;
use crate::block;
use crate::real::Real;

/// The coefficients of `X = a X + (b A + c A A) X` with A = X X': five steps bring singular values from 0.002 to 1 between 0.7 and 1.2.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
const ITERATIONS: usize = 5;
const LEAST: f64 = 1e-7;

/// Replaces a matrix by one with the same singular vectors and singular values near 1.
///
/// # Panics
/// If there are not as many entries as the shape says.
pub fn orthogonalise<T: Real>(entries: &mut [T], [rows, columns]: [usize; 2]) {
    let norm = row_norm(entries);
    block::combine(entries, 1.0 / (norm + LEAST), &[]);
    let side = rows.min(columns);
    let mut room = vec![T::zero(); 2 * side * side + entries.len()];
    let (gram, rest) = room.split_at_mut(side * side);
    let (square, product) = rest.split_at_mut(side * side);
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..ITERATIONS {
        let x = wide(MatRef::from_row_major_slice(entries, rows, columns));
        T::product(MatMut::from_row_major_slice_mut(gram, side, side), x, x.transpose());
        let known = MatRef::from_row_major_slice(gram, side, side);
        T::product(MatMut::from_row_major_slice_mut(square, side, side), known, known);
        block::combine(square, c, &[(b, gram)]);
        let known = MatRef::from_row_major_slice(square, side, side);
        T::product(wide_mut(MatMut::from_row_major_slice_mut(product, rows, columns)), known, x);
        block::combine(entries, a, &[(1.0, product)]);
    }
}

/// The matrix or its transpose, whichever has no more rows than columns.
fn wide<T>(matrix: MatRef<'_, T>) -> MatRef<'_, T> {
    if matrix.nrows() <= matrix.ncols() { matrix } else { matrix.transpose() }
}

fn wide_mut<T>(matrix: MatMut<'_, T>) -> MatMut<'_, T> {
    if matrix.nrows() <= matrix.ncols() { matrix } else { matrix.transpose_mut() }
}

/// The factor of an orthogonal step, with which its entries are as large as those of AdamW's.
pub fn muon_scale([rows, columns]: [usize; 2]) -> f64 {
    0.2 * (rows.max(columns) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::*;

    #[test]
    fn singular_vectors_stay_and_singular_values_come_near_one() {
        for (rows, columns) in [(1, 1), (1, 7), (5, 3), (3, 5), (16, 16), (33, 20)] {
            let value = |k: usize| (((k + 1) as f64 * 12.9898).sin() * 43_758.545).fract();
            let mut entries: Vec<f64> = (0..rows * columns).map(value).collect();
            let before = DMatrix::from_row_slice(rows, columns, &entries).svd(true, true);
            orthogonalise(&mut entries, [rows, columns]);
            let after = DMatrix::from_row_slice(rows, columns, &entries);
            let smallest = before.singular_values.min() / before.singular_values.norm();
            assert!(smallest > 0.002, "{rows} x {columns}: {smallest}");
            let (u, vt) = (before.u.unwrap(), before.v_t.unwrap());
            let inside = u.transpose() * &after * vt.transpose();
            for i in 0..rows.min(columns) {
                for j in 0..rows.min(columns) {
                    let found = inside[(i, j)];
                    if i == j {
                        assert!((0.5..1.3).contains(&found), "{rows} x {columns}: {found}");
                    } else {
                        assert!(found.abs() < 1e-9, "{rows} x {columns}: {found}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_matrix_of_zeros_stays_one() {
        let mut entries = [0.0f32; 6];
        orthogonalise(&mut entries, [2, 3]);
        assert_eq!(entries, [0.0; 6]);
        orthogonalise::<f64>(&mut [], [0, 3]);
    }
}
