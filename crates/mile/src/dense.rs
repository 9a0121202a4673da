//! Square matrices: eigenvalues and Cholesky factors.
//!
//! Written here because the library that was used before, with all its types of numbers, took a sixth of the first build
//! (DESIGN.md). Products and sums are rounded separately and formed in a fixed order: the same bits with any number of threads, and for
//! symmetric matrices on every CPU.

mod cholesky;
mod general;
mod symmetric;

use std::ops::{Index, IndexMut};

pub(crate) use self::cholesky::Cholesky;
pub use self::general::eigenvalues;
pub(crate) use self::symmetric::symmetric_eigenvalues;
use crate::block;

/// A square matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    size: usize,
    entries: Vec<f64>,
}

impl Matrix {
    /// The matrix with these entries.
    pub fn from_fn(size: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let mut matrix = Self::zeros(size);
        for i in 0..size {
            matrix.row_mut(i).iter_mut().enumerate().for_each(|(j, a)| *a = entry(i, j));
        }
        matrix
    }

    /// The matrix of zeros.
    pub fn zeros(size: usize) -> Self {
        Self { size, entries: block::zeros(size * size) }
    }

    /// How many rows, and columns, it has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// One of its rows.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.entries[i * self.size..][..self.size]
    }

    fn row_mut(&mut self, i: usize) -> &mut [f64] {
        &mut self.entries[i * self.size..][..self.size]
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;

    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.row(i)[j]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        &mut self.row_mut(i)[j]
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::Matrix;
    use crate::random::{Purpose, stream};

    /// Entries between -1 and 1.
    pub(super) fn random(size: usize, seed: u64) -> Matrix {
        let mut random = stream(seed, Purpose::Probe, size as u64, 0);
        let mut matrix = Matrix::zeros(size);
        matrix.entries.iter_mut().for_each(|a| *a = 2.0 * random.random::<f64>() - 1.0);
        matrix
    }

    pub(super) fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    }
}
