//! The transposed convolution: deltas at the input of a convolution.

use mile::real::Real;

use super::phases::{Phase, Side};
use crate::kernel::{Contract, KernelScalar, Kernels, panel_width, transpose_taps};
use crate::model::Block;

/// The deltas at the input of a convolution, from those at its output with their borders.
pub(super) struct Transposed<'a> {
    block: &'a Block,
    kernel: usize,
    stride: usize,
    rows: Side,
    columns: Side,
    /// Numbers in a row of deltas with its borders.
    pub(super) row: usize,
    /// Where the deltas begin after their borders.
    pub(super) origin: usize,
    /// Numbers of an image of deltas with its borders.
    pub(super) len: usize,
}

impl<'a> Transposed<'a> {
    pub(super) fn new(block: &'a Block, kernel: usize, padding: usize, stride: usize) -> Self {
        let [rows, columns] = Side::both(block, kernel, padding, stride);
        let row = columns.padded() * block.out;
        let origin = rows.before() * row + columns.before() * block.out;
        Self { block, kernel, stride, rows, columns, row, origin, len: rows.padded() * row }
    }

    /// All pairs of phases of rows and of columns, each with the place of its transposed weights.
    fn phases(&self) -> impl Iterator<Item = (Phase, Phase, usize)> {
        let channels = self.block.input.channels;
        let tap = self.block.out * channels.next_multiple_of(panel_width(channels));
        let columns = self.columns.phases();
        let pairs = self.rows.phases().flat_map(move |y| columns.clone().map(move |x| (y, x)));
        pairs.scan(0, move |place, (y, x)| {
            let own = *place;
            *place += y.taps * x.taps * tap;
            Some((y, x, own))
        })
    }

    /// The weights of each phase, its last tap first.
    pub(super) fn transpose<T: Real>(&self, weights: &[T], scratch: &mut [T]) {
        let Self { block, kernel, stride, .. } = *self;
        for (y, x, place) in self.phases() {
            let tap = |t: usize| (y.tap + stride * (t / x.taps)) * kernel + x.tap + stride * (t % x.taps);
            let taps = (0..y.taps * x.taps).rev().map(tap);
            transpose_taps(weights, taps, block.input.channels, block.out, &mut scratch[place..]);
        }
    }

    /// Writes the deltas at the input of one image.
    pub(super) fn run<T: KernelScalar>(
        &self,
        kernels: &Kernels<T>,
        back: &[T],
        weights: &[T],
        target: &mut [T],
    ) {
        let Self { block, kernel, stride, row, .. } = *self;
        let (width, channels) = (block.input.width, block.input.channels);
        if stride > kernel {
            // Some pixels are not read by any output.
            target.fill(T::zero());
        }
        for (y, x, place) in self.phases() {
            let begin = self.rows.begin(y) * row + self.columns.begin(x) * block.out;
            kernels.contract(Contract {
                input: &back[begin..],
                input_step: (row, block.out),
                tap_step: row,
                taps: (y.taps, x.taps * block.out),
                weights: &weights[place..],
                weight_step: panel_width(channels),
                bias: None,
                resumes: false,
                output: &mut target[(y.pixel * width + x.pixel) * channels..],
                output_step: (stride * width * channels, stride * channels),
                size: (y.pixels, x.pixels),
                channels,
            });
        }
    }
}
