//! The product of inputs and weights: convolutions and dense layers, forward and backward to their inputs.

use mile::real::Real;
use num_traits::Zero;

use super::simd::{MAX_TILE, Simd, cut, dispatch, load, load_second, rows_of, unroll};

/// For each output pixel (y, x) and channel c,
///
/// ```text
/// output[y, x, c] = bias[c] + sum_{r, t} input[y, x, r, t] weights[r, t, c]
/// ```
///
/// where (r, t) are the taps: r is the kernel row, t the position in that row, over columns and channels. For a
/// dense layer the samples are one row of pixels, and the inputs are one row of taps.
pub(crate) struct Contract<'a, T> {
    pub(crate) input: &'a [T],
    /// Steps in `input` from one output row to the next, and from one output pixel to the next.
    pub(crate) input_step: (usize, usize),
    /// Step in `input` from one row of taps to the next.
    pub(crate) tap_step: usize,
    /// Rows of taps, and taps in a row.
    pub(crate) taps: (usize, usize),
    /// `[row of taps][tap][channel]`.
    pub(crate) weights: &'a [T],
    pub(crate) bias: Option<&'a [T]>,
    pub(crate) output: &'a mut [T],
    /// Steps in `output` from row to row and from pixel to pixel.
    pub(crate) output_step: (usize, usize),
    /// Rows and columns of output pixels.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
}

impl<T: Real> Contract<'_, T> {
    /// Panics unless every index the kernel forms is inside its slice.
    pub(crate) fn check(&self) {
        let (height, width) = self.size;
        let (rows, taps) = self.taps;
        assert!(height > 0 && width > 0 && rows > 0 && taps > 0 && self.channels > 0);
        let corner = (height - 1) * self.input_step.0 + (width - 1) * self.input_step.1;
        assert!(corner + (rows - 1) * self.tap_step + taps <= self.input.len());
        assert!(rows * taps * self.channels <= self.weights.len());
        assert!(self.bias.is_none_or(|bias| self.channels <= bias.len()));
        let corner = (height - 1) * self.output_step.0 + (width - 1) * self.output_step.1;
        assert!(corner + self.channels <= self.output.len());
    }
}

/// # Safety
///
/// `check` has passed, and the machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn run<S: Simd>(call: &mut Contract<'_, S::T>) {
    let mut channel = 0;
    while channel < call.channels {
        let left = call.channels - channel;
        // SAFETY: `left` lanes of each row of weights and outputs remain; the caller vouches for the rest.
        unsafe {
            if left >= 2 * S::LANES {
                columns::<S, true>(call, channel, S::LANES);
                channel += 2 * S::LANES;
            } else {
                columns::<S, false>(call, channel, left.min(S::LANES));
                channel += S::LANES;
            }
        }
    }
}

/// All pixels of one or two vectors of channels, so that these weights stay in cache.
#[inline(always)]
unsafe fn columns<S: Simd, const TWO: bool>(call: &mut Contract<'_, S::T>, channel: usize, lanes: usize) {
    let (height, width) = call.size;
    let parts = width.div_ceil(rows_of::<S>(TWO));
    for y in 0..height {
        for part in 0..parts {
            let (x, end) = (cut(width, parts, part), cut(width, parts, part + 1));
            // SAFETY: pixels (y, x..end) and `lanes` channels from `channel` are inside, by `check`.
            unsafe {
                let place = Place {
                    input: call.input.as_ptr().add(y * call.input_step.0 + x * call.input_step.1),
                    weights: call.weights.as_ptr().add(channel),
                    bias: call.bias.map(|bias| bias.as_ptr().add(channel)),
                    output: call
                        .output
                        .as_mut_ptr()
                        .add(y * call.output_step.0 + x * call.output_step.1 + channel),
                    lanes,
                };
                if TWO {
                    dispatch!(end - x, rows_of::<S>(true), tile::<S, true>(call, place));
                } else {
                    dispatch!(end - x, rows_of::<S>(false), tile::<S, false>(call, place));
                }
            }
        }
    }
}

/// Where a tile begins.
struct Place<T> {
    input: *const T,
    weights: *const T,
    bias: Option<*const T>,
    output: *mut T,
    lanes: usize,
}

/// `P` pixels by two whole vectors of channels, or by one of `lanes` channels, summed in registers.
#[inline(always)]
unsafe fn tile<S: Simd, const P: usize, const TWO: bool>(call: &Contract<'_, S::T>, place: Place<S::T>) {
    // SAFETY: the caller vouches for P pixels and the channels at `place`.
    unsafe {
        let mask = S::mask(place.lanes);
        let zero = S::splat(S::T::zero());
        let (first0, first1) =
            place.bias.map_or((zero, zero), |bias| (load::<S, TWO>(bias, mask), load_second::<S, TWO>(bias)));
        let (mut sum0, mut sum1) = ([first0; MAX_TILE], [first1; MAX_TILE]);
        let pixel = call.input_step.1;
        let (mut row, mut weights) = (place.input, place.weights);
        for _ in 0..call.taps.0 {
            let mut tap = row;
            for _ in 0..call.taps.1 {
                let (w0, w1) = (load::<S, TWO>(weights, mask), load_second::<S, TWO>(weights));
                unroll!(I < P, {
                    let x = S::splat(*tap.add(I * pixel));
                    sum0[I] = S::fma(x, w0, sum0[I]);
                    if TWO {
                        sum1[I] = S::fma(x, w1, sum1[I]);
                    }
                });
                tap = tap.add(1);
                weights = weights.wrapping_add(call.channels);
            }
            row = row.wrapping_add(call.tap_step);
        }
        let step = call.output_step.1;
        unroll!(I < P, {
            let to = place.output.add(I * step);
            if TWO {
                S::store(to, sum0[I]);
                S::store(to.add(S::LANES), sum1[I]);
            } else {
                S::store_masked(to, sum0[I], mask);
            }
        });
    }
}
