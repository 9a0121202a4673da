//! Which convolutions are computed from halves, in which tiles, and which weight gradients from whole lines of images: see
//! `kernels/split.cuh` and `kernels/convolutions.cuh`.
//!
//! As in [`tiles`](super::tiles), sizes were measured on an H200 with the paper's two networks.

use std::fmt;

use super::tiles::{SHARED, Tile, Windowed};

/// A convolution with a stride of 1, in single precision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolution {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) kernel: usize,
    pub(super) padding: usize,
    pub(super) out: usize,
    pub(super) pool: bool,
}

/// A tile, its bytes of shared memory, and how many blocks should fit on a multiprocessor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitted {
    pub(super) tile: Tile,
    pub(super) shared: usize,
    pub(super) blocks: usize,
}

/// How a convolution is computed from halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) forward: Fitted,
    pub(super) back: Fitted,
    pub(super) weights: Strip,
}

/// Lines of output pixels that a block sums over at a time for a weight gradient, the channels and outputs of its part, and warps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strip {
    lines: usize,
    channels: usize,
    outputs: usize,
    warps: usize,
    /// Output pixels of the strip, and lines of an image.
    pixels: usize,
    of_image: usize,
    /// Parts of the gradient, each computed by separate blocks.
    pub(super) parts: usize,
    pub(super) shared: usize,
    pub(super) blocks: usize,
    /// The fewest splits of the sum that keep the device busy, and the most pixels of one: the tensor cores truncate what does not fit their
    /// accumulators, so that longer sums would lose digits.
    fewest: usize,
    most: usize,
}

impl fmt::Display for Strip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, channels, outputs, warps, .. } = self;
        write!(f, "Strip<{lines}, {channels}, {outputs}, {warps}, 1>")
    }
}

impl Strip {
    pub(super) fn threads(&self) -> usize {
        32 * self.warps
    }

    fn all(&self, samples: usize) -> usize {
        (samples * self.of_image).div_ceil(self.lines)
    }

    /// Strips that a block sums over.
    pub(super) fn each(&self, samples: usize) -> usize {
        let most = (self.most / self.pixels).max(1);
        (self.all(samples) / self.fewest).clamp(1, most)
    }

    /// Splits of the sum.
    pub(super) fn splits(&self, samples: usize) -> usize {
        self.all(samples).div_ceil(self.each(samples))
    }
}

/// Numbers of lines to try, with at most `most` pixels unless it is a single line: whole images, then divisors of an image's lines, decreasing.
fn lines(height: usize, width: usize, most: usize) -> impl Iterator<Item = usize> {
    let image = height * width;
    let images = (most * 5 / 8 / image.max(1)).max(1) * height;
    let some = (1..height).rev().filter(move |lines| height.is_multiple_of(*lines));
    std::iter::once(images).chain(some).filter(move |lines| lines * width <= most || *lines == 1)
}

impl Convolution {
    fn pixels(&self) -> [usize; 2] {
        [self.height, self.width].map(|side| side + 2 * self.padding + 1 - self.kernel)
    }

    fn forward(&self) -> Windowed {
        let Self { height, width, channels, kernel, padding, out, pool } = *self;
        Windowed { height, width, channels, kernel, padding, columns: out, pool }
    }

    /// The convolution of deltas that gives those at the input.
    fn back(&self) -> Windowed {
        let [height, width] = self.pixels();
        let padding = self.kernel - 1 - self.padding;
        let (channels, columns) = (self.out, self.channels);
        Windowed { height, width, channels, kernel: self.kernel, padding, columns, pool: false }
    }

    /// From halves, if channels come in sixteens and everything fits.
    pub(super) fn split(&self) -> Option<Split> {
        let whole = self.channels.is_multiple_of(16) && self.out.is_multiple_of(16);
        if !whole || self.kernel < 3 || self.padding >= self.kernel {
            return None;
        }
        let (weights, forward, back) = (self.strip()?, self.forward(), self.back());
        let tiles: &[_] = match self.out {
            0..=16 => &[([256, 16], [4, 1], 3), ([64, 16], [2, 1], 3)],
            17..=32 => &[([256, 32], [4, 1], 3), ([64, 32], [2, 1], 3)],
            _ => &[([128, 64], [2, 2], 4), ([64, 64], [2, 2], 4)],
        };
        let forward = tiles.iter().find_map(|shape| split_tile(&forward, *shape, false))?;
        let tiles: &[_] = match self.channels {
            0..=16 => &[([256, 16], [8, 1], 2), ([64, 16], [2, 1], 2)],
            17..=32 => &[([256, 32], [4, 1], 4), ([64, 32], [2, 1], 4)],
            _ => &[([128, 64], [2, 2], 3), ([64, 64], [2, 2], 3)],
        };
        let back = tiles.iter().find_map(|shape| split_tile(&back, *shape, true))?;
        Some(Split { forward, back, weights })
    }

    /// The numbers of shared memory for lines of images with borders, `pixel` numbers per pixel.
    fn image(&self, lines: usize, pixel: usize) -> usize {
        let (height, width) = (self.height + 2 * self.padding, self.width + 2 * self.padding);
        let [down, _] = self.pixels();
        let rows = if lines.is_multiple_of(down) { lines / down * height } else { lines + self.kernel - 1 };
        rows * width * pixel
    }

    /// Strips for a weight gradient from halves.
    fn strip(&self) -> Option<Strip> {
        let [height, width] = self.pixels();
        let outputs = if self.out > 32 { 64 } else { self.out };
        // Sums of a thread: each tile of sixteen inputs and eight outputs takes four.
        let most_tiles = 96 / (outputs / 2);
        [32, 16].into_iter().filter(|each| self.channels.is_multiple_of(*each)).find_map(|channels| {
            let warps = (self.kernel * self.kernel * channels / 16).div_ceil(most_tiles);
            let strip = |lines: usize| {
                let pixels = lines * width;
                let numbers = self.image(lines, channels + 4) + pixels.next_multiple_of(16) * (outputs + 4);
                let parts = self.channels / channels * self.out.div_ceil(outputs);
                Strip {
                    lines,
                    channels,
                    outputs,
                    warps,
                    pixels,
                    of_image: height,
                    parts,
                    shared: 4 * numbers.max(32 * warps * 8),
                    blocks: (512 / (32 * warps)).max(1),
                    fewest: 32usize.div_ceil(parts),
                    most: 512,
                }
            };
            lines(height, width, 208).map(strip).find(|strip| warps <= 12 && strip.shared <= SHARED)
        })
    }

    /// Strips for the weight gradient of a layer with few weights.
    pub(super) fn few(&self) -> Option<Strip> {
        let ([height, width], out) = (self.pixels(), self.out);
        if self.kernel * self.kernel * self.channels >= 32 || !out.is_multiple_of(8) || out > 32 {
            return None;
        }
        let warps = 4;
        let strip = |lines: usize| {
            let pixels = lines * width;
            let line = if out.is_multiple_of(16) { out + 8 } else { out };
            let numbers = self.image(lines, self.channels) + pixels.next_multiple_of(8 * warps) * line;
            Strip {
                lines,
                channels: self.channels,
                outputs: out,
                warps,
                pixels,
                of_image: height,
                parts: 1,
                shared: 4 * numbers.max(warps * 32 * out),
                blocks: 5,
                fewest: 64,
                most: 4 * pixels.min(512),
            }
        };
        lines(height, width, 400).map(strip).find(|strip| strip.shared <= SHARED)
    }
}

/// A tile with these rows, columns, warps along each, and blocks on a multiprocessor, if it fits. Thirty-two channels are in shared
/// memory at a time, or sixteen if thirty-two does not divide their number.
fn split_tile(
    windowed: &Windowed,
    ([rows, columns], warps, blocks): ([usize; 2], [usize; 2], usize),
    along_k: bool,
) -> Option<Fitted> {
    let channels = windowed.channels;
    let together = if channels.is_multiple_of(32) { 32 } else { 16 };
    // The taps of one line at a time, if there are few channels.
    let depth = if channels == 16 && !along_k { 16 * windowed.kernel } else { together };
    let tile = Tile { rows, columns, depth, warps, stages: 2, parts: channels / together };
    let of_columns = if along_k { columns * (depth + 4) } else { depth * (columns + 4) };
    let shared = 4 * (windowed.numbers(rows, together) + tile.stages * of_columns);
    (shared <= SHARED).then_some(Fitted { tile, shared, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolution(side: usize, channels: usize, kernel: usize, out: usize) -> Convolution {
        let padding = kernel / 2;
        Convolution { height: side, width: side, channels, kernel, padding, out, pool: true }
    }

    #[test]
    fn strips_divide_images_or_have_several() {
        for (height, width) in [(14, 14), (16, 16), (8, 8), (7, 29), (29, 29), (1, 300), (3, 3), (28, 28)] {
            let all: Vec<usize> = lines(height, width, 208).collect();
            assert!(!all.is_empty());
            for lines in all {
                assert!(height.is_multiple_of(lines) || lines.is_multiple_of(height), "{height} {lines}");
            }
        }
        let found = [(14, 16, 5, 32), (16, 32, 3, 64), (8, 64, 3, 128)]
            .map(|(side, channels, kernel, out)| convolution(side, channels, kernel, out).strip().unwrap());
        let texts = found.map(|strip| strip.to_string());
        assert_eq!(texts, ["Strip<14, 16, 32, 5, 1>", "Strip<8, 32, 64, 6, 1>", "Strip<16, 32, 64, 6, 1>"]);
    }

    #[test]
    fn all_pixels_of_a_batch_are_summed_once() {
        for (side, samples) in [(14, 1), (14, 32), (14, 128), (8, 3), (16, 7), (9, 100)] {
            let strip = convolution(side, 16, 3, 32).strip().unwrap();
            let (each, splits) = (strip.each(samples), strip.splits(samples));
            assert!(each * splits * strip.lines >= samples * side, "{side} {samples}");
            assert!((splits - 1) * each * strip.lines < samples * side, "{side} {samples}");
            assert!(each == 1 || each * strip.pixels <= 512);
        }
    }

    #[test]
    fn what_does_not_fit_or_is_not_whole_is_not_split() {
        assert!(convolution(16, 32, 3, 64).split().is_some());
        assert!(convolution(16, 32, 3, 40).split().is_none());
        assert!(convolution(16, 24, 3, 64).split().is_none());
        assert!(convolution(16, 32, 1, 64).split().is_none());
        assert!(convolution(16, 32, 11, 64).split().is_none());
        assert!(convolution(2000, 32, 3, 64).split().is_none());
    }
}
