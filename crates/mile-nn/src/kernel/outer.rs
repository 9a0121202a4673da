//! Gradients of the weights, from inputs and deltas.

use mile::real::Real;
use num_traits::Zero;

use super::simd::{MAX_UNROLL, Simd, cut, dispatch, load, load_second, rows_of, unroll};

/// For each tap (r, t) and channel c,
///
/// ```text
/// output[r, t, c] += sum_{s, y, x} input[s, y, x, r, t] delta[s, y, x, c]
/// ```
///
/// (or `=`) with the images s and the pixels (y, x), taps and steps of [`Contract`](super::Contract).
pub(crate) struct Outer<'a, T> {
    pub(crate) input: &'a [T],
    /// Steps in `input` from one pixel row to the next, and from one pixel to the next.
    pub(crate) input_step: (usize, usize),
    /// Step in `input` from one row of taps to the next.
    pub(crate) tap_step: usize,
    /// Rows of taps, and taps in a row.
    pub(crate) taps: (usize, usize),
    pub(crate) delta: &'a [T],
    /// Steps in `delta` from row to row and from pixel to pixel.
    pub(crate) delta_step: (usize, usize),
    /// `[row of taps][tap][channel]`.
    pub(crate) output: &'a mut [T],
    /// Whether the sums are added to the output; otherwise they replace it.
    pub(crate) adds: bool,
    pub(crate) images: usize,
    /// Steps in `input` and in `delta` from one image to the next.
    pub(crate) image_step: (usize, usize),
    /// Rows and columns of pixels.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
}

impl<T: Real> Outer<'_, T> {
    /// Panics unless every index the kernel forms is inside its slice.
    pub(crate) fn check(&self) {
        let (height, width) = self.size;
        let (rows, taps) = self.taps;
        assert!(self.images > 0 && height > 0 && width > 0 && rows > 0 && taps > 0 && self.channels > 0);
        let (last_input, last_delta) =
            ((self.images - 1) * self.image_step.0, (self.images - 1) * self.image_step.1);
        let corner = last_input + (height - 1) * self.input_step.0 + (width - 1) * self.input_step.1;
        assert!(corner + (rows - 1) * self.tap_step + taps <= self.input.len());
        let corner = last_delta + (height - 1) * self.delta_step.0 + (width - 1) * self.delta_step.1;
        assert!(corner + self.channels <= self.delta.len());
        assert!(rows * taps * self.channels <= self.output.len());
    }
}

/// # Safety
///
/// `check` has passed, and the machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn run<S: Simd>(call: &mut Outer<'_, S::T>) {
    let mut channel = 0;
    while channel < call.channels {
        let left = call.channels - channel;
        // SAFETY: `left` lanes of each row of deltas and outputs remain; the caller vouches for the rest.
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

/// All taps of one or two vectors of channels, so that these deltas stay in cache.
#[inline(always)]
unsafe fn columns<S: Simd, const TWO: bool>(call: &mut Outer<'_, S::T>, channel: usize, lanes: usize) {
    let (rows, taps) = call.taps;
    let parts = taps.div_ceil(rows_of::<S>(TWO));
    for r in 0..rows {
        for part in 0..parts {
            let (t, end) = (cut(taps, parts, part), cut(taps, parts, part + 1));
            // SAFETY: taps (r, t..end) and `lanes` channels from `channel` are inside, by `check`.
            unsafe {
                let place = Place {
                    input: call.input.as_ptr().add(r * call.tap_step + t),
                    delta: call.delta.as_ptr().add(channel),
                    output: call.output.as_mut_ptr().add((r * taps + t) * call.channels + channel),
                    lanes,
                };
                if TWO {
                    dispatch!(end - t, rows_of::<S>(true), tile::<S, true>(call, place));
                } else {
                    dispatch!(end - t, rows_of::<S>(false), tile::<S, false>(call, place));
                }
            }
        }
    }
}

/// Where a tile begins.
struct Place<T> {
    input: *const T,
    delta: *const T,
    output: *mut T,
    lanes: usize,
}

/// `P` taps by two whole vectors of channels, or by one of `lanes` channels, summed in registers over all
/// pixels.
#[inline(always)]
unsafe fn tile<S: Simd, const P: usize, const TWO: bool>(call: &Outer<'_, S::T>, place: Place<S::T>) {
    // SAFETY: the caller vouches for P taps and the channels at `place`.
    unsafe {
        let mask = S::mask(place.lanes);
        let zero = S::splat(S::T::zero());
        let (mut sum0, mut sum1) = ([zero; MAX_UNROLL], [zero; MAX_UNROLL]);
        unroll!(I < P, {
            let from = place.output.add(I * call.channels).cast_const();
            if call.adds {
                (sum0[I], sum1[I]) = (load::<S, TWO>(from, mask), load_second::<S, TWO>(from));
            }
            // The sums of the next tile.
            let next = from.wrapping_add(P * call.channels);
            S::prefetch(next);
            if TWO {
                S::prefetch(next.wrapping_add(S::LANES));
            }
        });
        for image in 0..call.images {
            let mut input_row = place.input.add(image * call.image_step.0);
            let mut delta_row = place.delta.add(image * call.image_step.1);
            for _ in 0..call.size.0 {
                let (mut input, mut delta) = (input_row, delta_row);
                for _ in 0..call.size.1 {
                    let (s0, s1) = (load::<S, TWO>(delta, mask), load_second::<S, TWO>(delta));
                    unroll!(I < P, {
                        let x = S::splat(*input.add(I));
                        sum0[I] = S::fma(x, s0, sum0[I]);
                        if TWO {
                            sum1[I] = S::fma(x, s1, sum1[I]);
                        }
                    });
                    input = input.wrapping_add(call.input_step.1);
                    delta = delta.wrapping_add(call.delta_step.1);
                }
                input_row = input_row.wrapping_add(call.input_step.0);
                delta_row = delta_row.wrapping_add(call.delta_step.0);
            }
        }
        unroll!(I < P, {
            let to = place.output.add(I * call.channels);
            if TWO {
                S::store(to, sum0[I]);
                S::store(to.add(S::LANES), sum1[I]);
            } else {
                S::store_masked(to, sum0[I], mask);
            }
        });
    }
}
