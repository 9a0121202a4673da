//! The product of inputs and weights: convolutions and dense layers, forward and backward to their inputs.

use mile::real::Real;
use num_traits::Zero;

use super::pointwise::panel_width;
use super::simd::{MAX_TILE, MAX_UNROLL, Simd, cut, dispatch, load, load_second, rows_of, unroll};

/// Pixels of a strip that is two vectors wide or one; the one that fits the width better is used.
const STRIPS: [usize; 2] = [8, 7];
const LONG_STRIPS: [usize; 2] = [16, 14];

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
    /// `[row of taps][tap][channel]`, or one such block after the other for panels of `weight_step` channels.
    pub(crate) weights: &'a [T],
    /// Step from one tap's weights to the next: all channels, or those of a panel.
    pub(crate) weight_step: usize,
    pub(crate) bias: Option<&'a [T]>,
    /// Whether the output holds the sums over earlier taps, to which these are added; the bias is then in them.
    pub(crate) resumes: bool,
    pub(crate) output: &'a mut [T],
    /// Steps in `output` from row to row and from pixel to pixel.
    pub(crate) output_step: (usize, usize),
    /// Rows and columns of output pixels.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
}

impl<T: Real> Contract<'_, T> {
    /// Weights of a panel.
    fn panel(&self) -> usize {
        self.taps.0 * self.taps.1 * self.weight_step
    }

    /// Panics unless every index the kernel forms is inside its slice.
    pub(crate) fn check(&self) {
        let (height, width) = self.size;
        let (rows, taps) = self.taps;
        assert!(height > 0 && width > 0 && rows > 0 && taps > 0 && self.channels > 0);
        let corner = (height - 1) * self.input_step.0 + (width - 1) * self.input_step.1;
        assert!(corner + (rows - 1) * self.tap_step + taps <= self.input.len());
        assert!(
            self.weight_step == self.channels || self.weight_step.is_multiple_of(panel_width(usize::MAX))
        );
        assert!(self.channels.div_ceil(self.weight_step) * self.panel() <= self.weights.len());
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
    // SAFETY: promised by the caller.
    unsafe {
        match kernel_columns(call) {
            3 if const { has_strips::<S>() } && fits_strips(call) => {
                strips::<S, 3, TWO>(call, channel, lanes)
            }
            5 if const { has_strips::<S>() } && fits_strips(call) => {
                strips::<S, 5, TWO>(call, channel, lanes)
            }
            _ => tiles::<S, TWO>(call, channel, lanes),
        }
    }
}

/// Columns of the kernel if its taps are those of neighbouring pixels; otherwise 0.
fn kernel_columns<T>(call: &Contract<'_, T>) -> usize {
    let (pixel, taps) = (call.input_step.1, call.taps.1);
    if pixel > 0 && taps.is_multiple_of(pixel) { taps / pixel } else { 0 }
}

/// Whether there are strips: they need the registers of AVX-512.
const fn has_strips<S: Simd>() -> bool {
    S::TILE == MAX_TILE
}

/// Whether strips can be used: they need pixels to fill them, and all taps.
fn fits_strips<T>(call: &Contract<'_, T>) -> bool {
    call.size.1 >= STRIPS[1] && !call.resumes
}

#[inline(always)]
unsafe fn tiles<S: Simd, const TWO: bool>(call: &mut Contract<'_, S::T>, channel: usize, lanes: usize) {
    let (height, width) = call.size;
    let parts = width.div_ceil(rows_of::<S>(TWO));
    for y in 0..height {
        for part in 0..parts {
            let (x, end) = (cut(width, parts, part), cut(width, parts, part + 1));
            // SAFETY: pixels (y, x..end) and `lanes` channels from `channel` are inside, by `check`.
            unsafe {
                let place = Place::new(call, (y, x), channel, lanes);
                if TWO {
                    dispatch!(end - x, rows_of::<S>(true), tile::<S, true>(call, place));
                } else {
                    dispatch!(end - x, rows_of::<S>(false), tile::<S, false>(call, place));
                }
            }
        }
    }
}

/// The last strip of a row may overlap the one before: its pixels are then computed twice, with the same result.
#[inline(always)]
unsafe fn strips<S: Simd, const K: usize, const TWO: bool>(
    call: &mut Contract<'_, S::T>,
    channel: usize,
    lanes: usize,
) {
    let (height, width) = call.size;
    let computed = |pixels: usize| width.div_ceil(pixels) * pixels;
    let fits = |pixels: &usize| width >= *pixels && (!TWO || *pixels <= STRIPS[0]);
    let all = [LONG_STRIPS, STRIPS];
    let pixels = all.iter().flatten().copied().filter(fits).min_by_key(|p| computed(*p)).unwrap_or(STRIPS[1]);
    for y in 0..height {
        for part in 0..width.div_ceil(pixels) {
            let x = (part * pixels).min(width - pixels);
            // SAFETY: `pixels` pixels from (y, x) and `lanes` channels from `channel` are inside, by `check`.
            unsafe {
                let place = Place::new(call, (y, x), channel, lanes);
                match pixels {
                    16 if const { !TWO } => strip::<S, 16, K, TWO>(call, place),
                    14 if const { !TWO } => strip::<S, 14, K, TWO>(call, place),
                    8 => strip::<S, 8, K, TWO>(call, place),
                    _ => strip::<S, 7, K, TWO>(call, place),
                }
            }
        }
    }
}

/// Where a tile or a strip begins.
struct Place<T> {
    input: *const T,
    weights: *const T,
    bias: Option<*const T>,
    output: *mut T,
    lanes: usize,
}

impl<T: Real> Place<T> {
    /// # Safety
    ///
    /// The pixel and the channel are inside.
    #[inline(always)]
    unsafe fn new(call: &mut Contract<'_, T>, (y, x): (usize, usize), channel: usize, lanes: usize) -> Self {
        // SAFETY: promised by the caller.
        unsafe {
            Self {
                input: call.input.as_ptr().add(y * call.input_step.0 + x * call.input_step.1),
                weights: call
                    .weights
                    .as_ptr()
                    .add(channel / call.weight_step * call.panel() + channel % call.weight_step),
                bias: call.bias.map(|bias| bias.as_ptr().add(channel)),
                output: call
                    .output
                    .as_mut_ptr()
                    .add(y * call.output_step.0 + x * call.output_step.1 + channel),
                lanes,
            }
        }
    }
}

/// `P` pixels by two whole vectors of channels, or by one of `lanes` channels, summed in registers.
#[inline(always)]
unsafe fn tile<S: Simd, const P: usize, const TWO: bool>(call: &Contract<'_, S::T>, place: Place<S::T>) {
    // SAFETY: the caller vouches for P pixels and the channels at `place`.
    unsafe {
        let mask = S::mask(place.lanes);
        let (mut sum0, mut sum1) = first_sums::<S, TWO>(&place, mask);
        if call.resumes {
            unroll!(I < P, {
                let from = place.output.add(I * call.output_step.1).cast_const();
                (sum0[I], sum1[I]) = (load::<S, TWO>(from, mask), load_second::<S, TWO>(from));
            });
        }
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
                weights = weights.wrapping_add(call.weight_step);
            }
            row = row.wrapping_add(call.tap_step);
        }
        store::<S, P, TWO>(call.output_step.1, &place, mask, &sum0, &sum1);
    }
}

/// As [`tile`], for a kernel of K columns: an input is read once for all pixels it belongs to, and a weight once for all
/// pixels of the strip. That halves the loads for each multiply-add; some CPUs do two multiply-adds in the time of two
/// loads.
#[inline(always)]
unsafe fn strip<S: Simd, const P: usize, const K: usize, const TWO: bool>(
    call: &Contract<'_, S::T>,
    place: Place<S::T>,
) {
    // SAFETY: the caller vouches for P pixels and the channels at `place`; the taps of P pixels are those of P + K - 1.
    unsafe {
        let mask = S::mask(place.lanes);
        let (mut sum0, mut sum1) = first_sums::<S, TWO>(&place, mask);
        let pixel = call.input_step.1;
        let column = pixel * call.weight_step;
        let (mut row, mut weights) = (place.input, place.weights);
        for _ in 0..call.taps.0 {
            let (mut tap, mut from) = (row, weights);
            for _ in 0..pixel {
                let zero = S::splat(S::T::zero());
                let (mut w0, mut w1) = ([zero; K], [zero; K]);
                unroll!(few D < K, {
                    let from = from.add(D * column);
                    (w0[D], w1[D]) = (load::<S, TWO>(from, mask), load_second::<S, TWO>(from));
                });
                unroll!(U < P + K - 1, {
                    let x = S::splat(*tap.add(U * pixel));
                    unroll!(few D < K, {
                        if const { is_inside(U, D, P) } {
                            const I: usize = U.saturating_sub(D);
                            sum0[I] = S::fma(x, w0[D], sum0[I]);
                            if TWO {
                                sum1[I] = S::fma(x, w1[D], sum1[I]);
                            }
                        }
                    });
                });
                tap = tap.add(1);
                from = from.wrapping_add(call.weight_step);
            }
            row = row.wrapping_add(call.tap_step);
            weights = weights.wrapping_add(K * column);
        }
        store::<S, P, TWO>(call.output_step.1, &place, mask, &sum0, &sum1);
    }
}

/// Whether column `d` of the kernel falls on column `u` of the input for one of the first `pixels` pixels.
const fn is_inside(u: usize, d: usize, pixels: usize) -> bool {
    d <= u && u - d < pixels
}

/// The bias, or zeros, for each pixel.
///
/// # Safety
///
/// The bias has the channels of `place`, and the machine has the instructions of `S`.
#[inline(always)]
unsafe fn first_sums<S: Simd, const TWO: bool>(
    place: &Place<S::T>,
    mask: S::Mask,
) -> ([S::V; MAX_UNROLL], [S::V; MAX_UNROLL]) {
    // SAFETY: promised by the caller.
    unsafe {
        match place.bias {
            Some(bias) => {
                ([load::<S, TWO>(bias, mask); MAX_UNROLL], [load_second::<S, TWO>(bias); MAX_UNROLL])
            }
            None => ([S::splat(S::T::zero()); MAX_UNROLL], [S::splat(S::T::zero()); MAX_UNROLL]),
        }
    }
}

/// Writes the sums of P pixels.
#[inline(always)]
unsafe fn store<S: Simd, const P: usize, const TWO: bool>(
    step: usize,
    place: &Place<S::T>,
    mask: S::Mask,
    sum0: &[S::V],
    sum1: &[S::V],
) {
    // SAFETY: the caller vouches for P pixels and the channels at `place`.
    unsafe {
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
