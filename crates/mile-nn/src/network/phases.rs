//! How the deltas at the output of a convolution meet its input.
//!
//! Along one side, pixel u of the padded input is read by output y through tap t = u - stride y. So the pixels with the same
//! remainder a modulo the stride, a *phase*, see only the taps a, a + stride, ...: their deltas are a convolution
//! of the output's deltas with these taps, without a stride. A stride of 1 has one phase.

use crate::model::Block;

/// The pixels of one phase, along one side of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    /// The first of its taps, which are `stride` apart.
    pub(crate) tap: usize,
    /// How many taps it has.
    pub(crate) taps: usize,
    /// Its first pixel, without padding; they are `stride` apart.
    pub(crate) pixel: usize,
    /// How many pixels it has, at least one.
    pub(crate) pixels: usize,
    /// The output that the first pixel meets through its last tap; it may be in the border.
    first: isize,
}

/// A convolution along one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    side: usize,
    kernel: usize,
    padding: usize,
    stride: usize,
    output: usize,
}

impl Side {
    /// Both sides of a convolution: of rows, and of columns.
    pub(crate) fn both(block: &Block, kernel: usize, padding: usize, stride: usize) -> [Self; 2] {
        let output = block.convolved();
        let side = |side, output| Self { side, kernel, padding, stride, output };
        [side(block.input.height, output.height), side(block.input.width, output.width)]
    }

    /// The phases that have taps and pixels.
    pub(crate) fn phases(self) -> impl Iterator<Item = Phase> + Clone {
        let Self { side, kernel, padding, stride, .. } = self;
        (0..stride.min(kernel)).filter_map(move |tap| {
            let taps = (kernel - tap).div_ceil(stride);
            let output = padding.saturating_sub(tap).div_ceil(stride);
            let pixel = stride * output + tap - padding;
            let pixels = side.checked_sub(pixel).filter(|left| *left > 0)?.div_ceil(stride);
            Some(Phase { tap, taps, pixel, pixels, first: output as isize - (taps as isize - 1) })
        })
    }

    /// Width of the border of zeros before the deltas.
    pub(crate) fn before(self) -> usize {
        self.phases().map(|phase| (-phase.first).max(0) as usize).max().unwrap_or(0)
    }

    /// Deltas along this side, with a border before and after.
    pub(crate) fn padded(self) -> usize {
        let end = |phase: Phase| phase.first + (phase.pixels + phase.taps - 1) as isize;
        let end = self.phases().map(end).max().unwrap_or(0).max(self.output as isize);
        self.before() + end as usize
    }

    /// Where a phase begins among the deltas with their border.
    pub(crate) fn begin(self, phase: Phase) -> usize {
        (self.before() as isize + phase.first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tap of every output that reads a pixel belongs to the pixel's phase, once.
    #[test]
    fn phases_are_the_taps_that_read_a_pixel() {
        let sizes = (1..9).flat_map(|side| (1..6).map(move |kernel| (side, kernel)));
        let all = sizes.flat_map(|(side, kernel)| {
            let rest = (0..kernel).flat_map(|padding| (1..8).map(move |stride| (padding, stride)));
            rest.map(move |(padding, stride)| (side, kernel, padding, stride))
        });
        for (side, kernel, padding, stride) in all.filter(|(side, k, p, _)| side + 2 * p >= *k) {
            let output = (side + 2 * padding - kernel) / stride + 1;
            let this = Side { side, kernel, padding, stride, output };
            let mut found = vec![Vec::new(); side];
            for phase in this.phases() {
                for i in 0..phase.pixels {
                    for j in 0..phase.taps {
                        let delta = this.begin(phase) + i + j;
                        assert!(delta < this.padded(), "{this:?}");
                        let tap = phase.tap + stride * (phase.taps - 1 - j);
                        if let Some(y) = delta.checked_sub(this.before()).filter(|y| *y < output) {
                            found[phase.pixel + stride * i].push((y, tap));
                        }
                    }
                }
            }
            for (pixel, found) in found.iter_mut().enumerate() {
                let reads = |y: usize| (pixel + padding).checked_sub(stride * y).filter(|tap| *tap < kernel);
                let expected: Vec<_> = (0..output).filter_map(|y| Some((y, reads(y)?))).collect();
                found.sort_unstable();
                assert_eq!(*found, expected, "pixel {pixel} of {this:?}");
            }
        }
    }
}
