//! Sums over blocks: means, distances and norms, in `f64` and in a fixed order, so that their bits do not depend on the number of threads.

use rayon::prelude::*;

use super::CHUNK;
use crate::real::Real;

/// Adds rows to `sums`, column by column, in increasing row: the sums of a mean that is formed place by place.
pub fn add_rows<T: Real>(sums: &mut [f64], rows: &[T]) {
    let dim = sums.len();
    sums.par_chunks_mut(CHUNK).enumerate().for_each(|(k, sums)| {
        let columns = k * CHUNK..k * CHUNK + sums.len();
        for row in rows.chunks_exact(dim) {
            sums.iter_mut().zip(&row[columns.clone()]).for_each(|(sum, v)| *sum += v.wide());
        }
    });
}

/// The squared distance of each row from `mean`, each summed in pieces of [`CHUNK`] columns, which are added in order.
pub fn row_distances_sq<T: Real>(rows: &[T], mean: &[f64]) -> Vec<f64> {
    let distance = |row: &[T]| -> f64 {
        let piece = |(row, mean): (&[T], &[f64])| -> f64 {
            row.iter().zip(mean).map(|(v, m)| (v.wide() - m).powi(2)).sum()
        };
        let pieces: Vec<f64> = row.par_chunks(CHUNK).zip(mean.par_chunks(CHUNK)).map(piece).collect();
        pieces.iter().sum()
    };
    rows.par_chunks_exact(mean.len().max(1)).map(distance).collect()
}

/// The mean row, summed in `f64` in increasing row.
pub fn mean_row<T: Real>(block: &[T], dim: usize) -> Vec<T> {
    mean_wide(block, dim).into_iter().map(T::of).collect()
}

fn mean_wide<T: Real>(block: &[T], dim: usize) -> Vec<f64> {
    let rows = (block.len() / dim.max(1)).max(1) as f64;
    let mut mean = vec![0.0; dim];
    add_rows(&mut mean, block);
    divide(&mut mean, rows);
    mean
}

/// `(1/N) sum_i |mean - x_i|^2` in `f64`, with the same bits whatever the number of threads.
pub fn consensus_error<T: Real>(block: &[T], dim: usize) -> f64 {
    let rows = (block.len() / dim.max(1)).max(1);
    let distances = row_distances_sq(block, &mean_wide(block, dim));
    distances.iter().fold(0.0, |sum, distance| sum + distance) / rows as f64
}

/// Sum of squares in `f64`, with the same bits whatever the number of threads. NaN if any entry is.
pub fn norm_sq<T: Real>(block: &[T]) -> f64 {
    let partial: Vec<f64> =
        block.par_chunks(CHUNK).map(|chunk| chunk.iter().map(|v| v.wide() * v.wide()).sum()).collect();
    partial.iter().sum()
}

/// Divides every number by the same one.
pub fn divide(numbers: &mut [f64], by: f64) {
    numbers.iter_mut().for_each(|number| *number /= by);
}

/// The sum of squares, from the first to the last.
pub fn sum_sq(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number.powi(2)).sum()
}

/// The sum of squares of each row.
pub fn row_norms_sq<T: Real>(rows: &[T], dim: usize) -> Vec<f64> {
    rows.par_chunks_exact(dim.max(1)).map(norm_sq).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consensus_error_is_the_mean_squared_distance_from_the_mean() {
        let block = [1.0f32, 0.0, 3.0, 4.0];
        assert_eq!(mean_row(&block, 2), [2.0, 2.0]);
        assert_eq!(consensus_error(&block, 2), 5.0);
        assert!(consensus_error(&[f64::NAN, 1.0], 1).is_nan());
        assert!(norm_sq(&[f64::NAN, 1.0]).is_nan());
    }
}
