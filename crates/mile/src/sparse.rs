//! Sparse matrices in compressed row format, for mixing matrices.

/// A sparse matrix: for each row its (column, weight) pairs, by increasing column.
#[derive(Clone, Debug, Default)]
pub struct SparseRows {
    /// Row `i` is `entries[starts[i]..starts[i + 1]]`.
    pub starts: Vec<usize>,
    /// (column, weight), columns increasing within a row; a weight of exactly 0 is skipped.
    pub entries: Vec<(usize, f64)>,
}

impl SparseRows {
    /// The entries of row `i`.
    pub fn row(&self, i: usize) -> &[(usize, f64)] {
        &self.entries[self.starts[i]..self.starts[i + 1]]
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// How many rows are needed at a time, on average, when the agents are processed in order: those between an
    /// agent's neighbours before and after it. The last agent counts as next to the first.
    pub(crate) fn in_use(&self) -> usize {
        let rows = self.rows();
        let around = |i: usize, j: usize| i.abs_diff(j).min(rows - i.abs_diff(j));
        let row = |i: usize| self.row(i).iter().map(move |(j, _)| around(i, *j)).sum::<usize>();
        2 * (0..rows).map(row).sum::<usize>() / self.entries.len().max(1) + 2
    }
}
