//! Which tiles the products of a layer are computed in.
//!
//! The lists were measured on an H200 with the paper's two networks (`bench/gpu`): the tile is the first list entry that the
//! layer's shapes allow.

use std::fmt;

/// Shared memory of a block on the smallest supported device.
pub(super) const SHARED: usize = 99 << 10;

/// What a product computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    /// The outputs of a convolution, with pooling or without.
    Forward { pool: bool },
    /// Those of a dense layer.
    Dense,
    /// Deltas at the input.
    Back,
    /// Gradients of the weights.
    Weights,
}

/// What a product's operands are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    /// Rows of C, if they do not depend on the batch.
    pub(super) rows: Option<usize>,
    /// Columns of C.
    pub(super) columns: usize,
    /// For both operands: whether numbers that are read together follow each other along k, and how many.
    pub(super) reads: [(bool, usize); 2],
    /// Bytes of a number.
    pub(super) bytes: usize,
}

/// A tile: rows, columns, depth of a step, warps along rows and columns, steps in shared memory, and the parts its channels are split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    pub(super) warps: [usize; 2],
    pub(super) stages: usize,
    pub(super) parts: usize,
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, depth, warps: [down, across], stages, parts } = self;
        write!(f, "Tile<{rows}, {columns}, {depth}, {down}, {across}, {stages}, {parts}>")
    }
}

const fn tile(rows: usize, columns: usize, depth: usize, down: usize, across: usize, stages: usize) -> Tile {
    Tile { rows, columns, depth, warps: [down, across], stages, parts: 1 }
}

/// A convolution with a stride of 1 whose images are in shared memory as a window: see `Window` in the kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windowed {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) kernel: usize,
    pub(super) padding: usize,
    /// Columns of C.
    pub(super) columns: usize,
    /// Whether rows of C are squares that are pooled.
    pub(super) pool: bool,
}

impl Windowed {
    /// Whether the kernels have it: whole vectors of channels, or few taps and channels in all.
    fn is_possible(&self) -> bool {
        self.channels.is_multiple_of(8) || self.channels * self.kernel * self.kernel <= 32
    }

    /// Numbers of the window of a tile with `rows` rows and `channels` channels.
    pub(super) fn numbers(&self, rows: usize, channels: usize) -> usize {
        let (height, width) = (self.height + 2 * self.padding, self.width + 2 * self.padding);
        let [down, across] = [height, width].map(|side| side + 1 - self.kernel);
        let [units, down, across, each] =
            if self.pool { [rows / 4, down / 2, across / 2, 2] } else { [rows, down, across, 1] };
        let exact = units.is_multiple_of(across) && (down * across).is_multiple_of(units);
        let lines = if exact { units / across } else { (units - 2) / across + 2 };
        let breaks = if exact { 0 } else { (lines + down - 2) / down };
        let lines = if units.is_multiple_of(down * across) {
            units / (down * across) * height
        } else {
            lines * each + self.kernel - 1 + breaks * (height - each * down)
        };
        let pixel = if channels.is_multiple_of(8) { channels + 4 } else { channels };
        (lines * width * pixel).next_multiple_of(4)
    }

    /// The tile and its bytes of shared memory, if it fits there.
    pub(super) fn tile(&self, operands: &Operands) -> Option<(Tile, usize)> {
        let few = !self.channels.is_multiple_of(8);
        let preferred = match self.columns {
            0..=16 => [tile(256, 16, 32, 4, 1, 2), tile(128, 16, 16, 4, 1, 2)],
            17..=32 if few => [tile(256, 32, 32, 4, 1, 2), tile(128, 32, 16, 4, 1, 2)],
            17..=32 if self.pool => [tile(256, 32, 16, 4, 1, 2), tile(128, 32, 16, 4, 1, 2)],
            17..=32 => [tile(256, 32, 32, 4, 1, 2), tile(128, 32, 16, 4, 1, 2)],
            33..=64 if self.pool => [tile(128, 64, 32, 4, 1, 2), tile(64, 64, 16, 2, 2, 2)],
            33..=64 => [tile(64, 64, 32, 2, 2, 2), tile(64, 64, 16, 2, 2, 2)],
            _ => [tile(64, 128, 16, 2, 2, 2), tile(64, 64, 16, 2, 2, 2)],
        };
        let bytes = |tile: Tile| {
            (self.numbers(tile.rows, self.channels) + tile.of_columns(operands)) * operands.bytes
        };
        let fits = |tile: &Tile| tile.fits(operands, self.pool) && bytes(*tile) <= SHARED;
        let found = preferred.into_iter().find(fits).filter(|_| self.is_possible() && operands.bytes == 4)?;
        Some((found, bytes(found)))
    }
}

/// Tiles that any shapes allow.
const ANY: [Tile; 2] = [tile(128, 16, 16, 4, 1, 2), tile(64, 16, 16, 4, 1, 2)];

impl Product {
    fn preferred(self, operands: &Operands) -> Vec<Tile> {
        let few_rows = operands.rows.is_some_and(|rows| rows <= 32);
        match (self, operands.columns) {
            (Self::Forward { .. }, 0..=16) => vec![tile(128, 16, 16, 4, 1, 3)],
            (Self::Forward { .. }, 17..=32) => vec![tile(128, 32, 16, 4, 1, 2)],
            (Self::Forward { .. }, 33..=64) => vec![tile(128, 64, 32, 2, 2, 2), tile(128, 64, 16, 2, 2, 2)],
            (Self::Forward { .. }, _) => vec![tile(64, 128, 32, 2, 2, 2), tile(64, 128, 16, 2, 2, 2)],
            (Self::Dense, 0..=16) => vec![tile(32, 16, 32, 2, 1, 3)],
            (Self::Dense, _) => vec![tile(32, 64, 32, 1, 4, 4), tile(32, 64, 16, 1, 4, 2)],
            (Self::Back, 0..=16) => vec![tile(128, 16, 32, 2, 1, 2), tile(128, 16, 16, 2, 1, 2)],
            (Self::Back, 17..=32) => vec![tile(256, 32, 32, 4, 1, 2), tile(128, 32, 16, 4, 1, 2)],
            (Self::Back, _) if operands.rows == Some(1) => {
                vec![tile(32, 64, 32, 2, 2, 4), tile(32, 64, 16, 1, 4, 3)]
            }
            (Self::Back, _) => vec![tile(64, 64, 32, 2, 2, 3), tile(64, 64, 16, 2, 2, 2)],
            (Self::Weights, 0..=16) if few_rows => vec![tile(32, 16, 16, 1, 1, 2)],
            (Self::Weights, 0..=16) => vec![tile(128, 16, 32, 4, 1, 2), tile(128, 16, 16, 4, 1, 2)],
            (Self::Weights, 17..=32) if few_rows => {
                vec![tile(32, 32, 32, 2, 1, 3), tile(32, 32, 16, 2, 1, 2)]
            }
            (Self::Weights, 17..=32) => vec![tile(64, 32, 16, 1, 1, 3), tile(64, 32, 16, 2, 1, 2)],
            (Self::Weights, 33..=64) => vec![tile(64, 64, 16, 1, 2, 3), tile(64, 64, 16, 2, 2, 2)],
            (Self::Weights, _) => vec![tile(64, 128, 16, 1, 4, 4), tile(64, 64, 16, 2, 2, 2)],
        }
    }

    /// The tile for these operands.
    pub(super) fn tile(self, operands: &Operands) -> Tile {
        let preferred = self.preferred(operands);
        let squares = self == Self::Forward { pool: true };
        preferred.into_iter().chain(ANY).find(|tile| tile.fits(operands, squares)).unwrap_or(ANY[0])
    }
}

impl Tile {
    pub(super) fn threads(self) -> usize {
        32 * self.warps[0] * self.warps[1]
    }

    /// Bytes of shared memory.
    pub(super) fn shared(self, operands: &Operands) -> usize {
        let lines = [self.rows, self.columns].into_iter().zip(operands.reads);
        let each = |(lines, (along_k, _)): (usize, (bool, usize))| {
            if along_k { lines * (self.depth + 4) } else { self.depth * (lines + 8) }
        };
        self.stages * lines.map(each).sum::<usize>() * operands.bytes
    }

    /// Numbers of shared memory for the second operand.
    fn of_columns(self, operands: &Operands) -> usize {
        let along_k = operands.reads[1].0;
        self.stages * if along_k { self.columns * (self.depth + 4) } else { self.depth * (self.columns + 8) }
    }

    fn fits(self, operands: &Operands, squares: bool) -> bool {
        let shares = |(lines, (along_k, together)): (usize, (bool, usize))| {
            let groups = if along_k { self.depth } else { lines } / together;
            groups > 0 && self.threads().is_multiple_of(groups)
        };
        let [down, _] = self.warps;
        [self.rows, self.columns].into_iter().zip(operands.reads).all(shares)
            && (!squares || (self.rows / down).is_multiple_of(32))
            && self.shared(operands) <= SHARED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_of_any_shape_has_a_tile_that_fits() {
        let products = [
            Product::Forward { pool: true },
            Product::Forward { pool: false },
            Product::Dense,
            Product::Back,
            Product::Weights,
        ];
        for product in products {
            for columns in [1, 3, 10, 16, 17, 33, 64, 65, 300] {
                for (first, second) in [1, 2, 4].into_iter().flat_map(|v| [1, 2, 4].map(|w| (v, w))) {
                    for bytes in [4, 8] {
                        let reads = match product {
                            Product::Forward { .. } | Product::Dense => [(true, first), (false, second)],
                            Product::Back => [(true, first), (true, second)],
                            Product::Weights => [(false, first), (false, second)],
                        };
                        for rows in [None, Some(1), Some(20), Some(400)] {
                            let operands = Operands { rows, columns, reads, bytes };
                            let tile = product.tile(&operands);
                            let squares = product == Product::Forward { pool: true };
                            assert!(tile.fits(&operands, squares), "{product:?} {operands:?}: {tile}");
                        }
                    }
                }
            }
        }
    }
}
