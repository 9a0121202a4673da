//! Relu and max-pooling, forward and backward, and the transposition of weights.

use mile::real::Real;
use num_traits::{One, Zero};

use super::simd::{Simd, channels};

/// Value of [`Activate::argmax`] for a square whose largest number was set to zero by relu.
pub(crate) const NONE: u8 = 4;

/// Relu and 2 x 2 max-pooling of one convolved image, written into the next layer's padded input.
pub(crate) struct Activate<'a, T> {
    /// The convolved image, `[row][column][channel]`.
    pub(crate) input: &'a [T],
    /// Numbers in a row of `input`.
    pub(crate) input_row: usize,
    pub(crate) output: &'a mut [T],
    /// Step in `output` from row to row.
    pub(crate) output_row: usize,
    /// For pooling: which of the four numbers of each square was the largest, or [`NONE`].
    pub(crate) argmax: &'a mut [u8],
    /// Rows and columns of the output.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
    pub(crate) relu: bool,
    pub(crate) pool: bool,
}

/// The backward pass of [`Activate`]: from the deltas at its output to those at its input, with padding.
pub(crate) struct Scatter<'a, T> {
    /// Deltas at the output, `[row][column][channel]`.
    pub(crate) delta: &'a [T],
    /// The output itself; read where there is relu and no pooling.
    pub(crate) output: &'a [T],
    /// Step in `output` from row to row.
    pub(crate) output_row: usize,
    /// As written by [`Activate`].
    pub(crate) argmax: &'a [u8],
    /// Deltas at the convolved image, from its first number on.
    pub(crate) target: &'a mut [T],
    /// Step in `target` from row to row.
    pub(crate) target_row: usize,
    /// Rows and columns of the output.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
    pub(crate) relu: bool,
    pub(crate) pool: bool,
    /// Sums of the deltas over pixels are added here.
    pub(crate) bias: &'a mut [T],
}

#[inline(always)]
pub(super) fn activate<T: Real>(call: &mut Activate<'_, T>) {
    let c = call.channels;
    let (height, width) = call.size;
    for y in 0..height {
        let output = &mut call.output[y * call.output_row..][..width * c];
        if !call.pool {
            let input = &call.input[y * call.input_row..][..width * c];
            if call.relu {
                for (to, &x) in output.iter_mut().zip(input) {
                    *to = if x < T::zero() { T::zero() } else { x };
                }
            } else {
                output.copy_from_slice(input);
            }
            continue;
        }
        let upper = &call.input[2 * y * call.input_row..][..2 * width * c];
        let lower = &call.input[(2 * y + 1) * call.input_row..][..2 * width * c];
        let argmax = &mut call.argmax[y * width * c..][..width * c];
        let squares = upper.chunks_exact(2 * c).zip(lower.chunks_exact(2 * c));
        let results = output.chunks_exact_mut(c).zip(argmax.chunks_exact_mut(c));
        for ((upper, lower), (output, argmax)) in squares.zip(results) {
            pool_square(upper, lower, output, argmax, call.relu);
        }
    }
}

/// The first largest of four, as in PyTorch; NaN counts as largest, so that divergence is visible.
#[inline(always)]
fn pool_square<T: Real>(upper: &[T], lower: &[T], output: &mut [T], argmax: &mut [u8], relu: bool) {
    let c = output.len();
    let (upper, upper_right) = (&upper[..c], &upper[c..][..c]);
    let (lower, lower_right) = (&lower[..c], &lower[c..][..c]);
    let argmax = &mut argmax[..c];
    for i in 0..c {
        let (mut largest, mut which) = (upper[i], 0u8);
        for (k, x) in [(1, upper_right[i]), (2, lower[i]), (3, lower_right[i])] {
            let wins = (x > largest) | x.is_nan();
            largest = if wins { x } else { largest };
            which = if wins { k } else { which };
        }
        let inactive = relu & (largest <= T::zero());
        output[i] = if inactive { T::zero() } else { largest };
        argmax[i] = if inactive { NONE } else { which };
    }
}

/// # Safety
///
/// The machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn scatter<S: Simd>(call: &mut Scatter<'_, S::T>) {
    let c = call.channels;
    let (height, width) = call.size;
    for y in 0..height {
        let delta = &call.delta[y * width * c..][..width * c];
        if call.pool {
            let argmax = &call.argmax[y * width * c..][..width * c];
            let (upper, lower) = call.target[2 * y * call.target_row..].split_at_mut(call.target_row);
            for (x, (delta, argmax)) in delta.chunks_exact(c).zip(argmax.chunks_exact(c)).enumerate() {
                let (upper, lower) = (&mut upper[2 * x * c..][..2 * c], &mut lower[2 * x * c..][..2 * c]);
                // SAFETY: the caller vouches for the instructions.
                unsafe { spread_square::<S>(delta, argmax, upper, lower, call.bias) };
            }
            continue;
        }
        let output = &call.output[y * call.output_row..][..width * c];
        let target = &mut call.target[y * call.target_row..][..width * c];
        if call.relu {
            pass_active(delta, output, target);
        } else {
            target.copy_from_slice(delta);
        }
        add_pixels(target, call.bias);
    }
}

// Loops are written as loops: a closure that is not inlined is compiled without the vector instructions of its caller.

/// Passes deltas on where relu let the numbers through.
#[inline(always)]
fn pass_active<T: Real>(delta: &[T], output: &[T], target: &mut [T]) {
    let len = delta.len();
    let (output, target) = (&output[..len], &mut target[..len]);
    for i in 0..len {
        target[i] = if output[i] <= T::zero() { T::zero() } else { delta[i] };
    }
}

/// Adds the numbers of all pixels to the sums of their channels, four pixels at a time, so that the sums are read and
/// written a quarter as often.
#[inline(always)]
pub(super) fn add_pixels<T: Real>(pixels: &[T], sums: &mut [T]) {
    let fours = pixels.chunks_exact(4 * sums.len());
    for pixel in fours.remainder().chunks_exact(sums.len()) {
        add_pixel(pixel, sums);
    }
    for four in fours {
        add_four(four, sums);
    }
}

#[inline(always)]
fn add_pixel<T: Real>(pixel: &[T], sums: &mut [T]) {
    channels!(i < sums.len(), [pixel], [sums as sum], {
        sum[i] += pixel[i];
    });
}

#[inline(always)]
fn add_four<T: Real>(four: &[T], sums: &mut [T]) {
    let c = sums.len();
    let [p, q, r, s] = [0, 1, 2, 3].map(|k| &four[k * c..][..c]);
    channels!(i < c, [p, q, r, s], [sums as sum], {
        sum[i] += (p[i] + q[i]) + (r[i] + s[i]);
    });
}

/// Gives the delta of each channel to whichever of the four pixels was the largest, zero to the others.
///
/// # Safety
///
/// The machine has the instructions of `S`.
#[inline(always)]
unsafe fn spread_square<S: Simd>(
    delta: &[S::T],
    argmax: &[u8],
    upper: &mut [S::T],
    lower: &mut [S::T],
    bias: &mut [S::T],
) {
    let c = delta.len();
    assert!(argmax.len() == c && bias.len() == c && upper.len() == 2 * c && lower.len() == 2 * c);
    let whole = c - c % S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: lanes i to i + LANES are below c, the length that all slices were just checked to have.
        unsafe {
            let (s, bytes) = (S::load(delta.as_ptr().add(i)), argmax.as_ptr().add(i));
            let (upper, lower) = (upper.as_mut_ptr().add(i), lower.as_mut_ptr().add(i));
            let (one, sum) = (S::splat(S::T::one()), bias.as_mut_ptr().add(i));
            let mut total = S::load(sum.cast_const());
            for (k, place) in [upper, upper.add(c), lower, lower.add(c)].into_iter().enumerate() {
                let passed = S::select(s, bytes, k as u8);
                S::store(place, passed);
                total = S::fma(one, passed, total);
            }
            S::store(sum, total);
        }
    }
    for i in whole..c {
        let only = |k: u8| {
            if argmax[i] == k { delta[i] } else { S::T::zero() }
        };
        (upper[i], upper[c + i]) = (only(0), only(1));
        (lower[i], lower[c + i]) = (only(2), only(3));
        bias[i] += if argmax[i] == NONE { S::T::zero() } else { delta[i] };
    }
}

/// Channels of a panel of weights: the widest tile. The weights that a tile needs lie side by side, so that they do not
/// compete for the same few cache lines, as rows at a distance of a power of two do.
const PANEL: usize = 32;

/// Step from one tap's weights to the next in panels of this many channels in all.
pub(crate) fn panel_width(channels: usize) -> usize {
    channels.min(PANEL)
}

/// Weights for the forward pass: `[tap][output]` to `[panel of outputs][tap][output]`.
pub(crate) fn pack_taps<T: Real>(weights: &[T], outputs: usize, packed: &mut [T]) {
    let (taps, panel) = (weights.len() / outputs, panel_width(outputs));
    for (o, to) in (0..outputs).step_by(panel).zip(packed.chunks_exact_mut(taps * panel)) {
        let width = panel.min(outputs - o);
        for (from, to) in weights.chunks_exact(outputs).zip(to.chunks_exact_mut(panel)) {
            match (from[o..].first_chunk::<PANEL>(), to.first_chunk_mut::<PANEL>()) {
                (Some(from), Some(to)) => *to = *from,
                _ => to[..width].copy_from_slice(&from[o..o + width]),
            }
        }
    }
}

/// Weights for the backward pass: `[tap][input][output]` to `[panel of inputs][tap][output][input]`, for the taps given in
/// their order.
pub(crate) fn transpose_taps<T: Real>(
    weights: &[T],
    taps: impl ExactSizeIterator<Item = usize>,
    inputs: usize,
    outputs: usize,
    back: &mut [T],
) {
    let (panel, count) = (panel_width(inputs), taps.len());
    for (tap, from) in taps.enumerate() {
        let from = &weights[from * inputs * outputs..][..inputs * outputs];
        for (from, to) in from.chunks(panel * outputs).zip(back.chunks_exact_mut(count * outputs * panel)) {
            transpose(from, outputs, &mut to[tap * outputs * panel..][..outputs * panel], panel);
        }
    }
}

/// Columns that are transposed at a time, so that what is written stays in the cache nearest to the core.
const SIDE: usize = 16;

/// `to[column][row] = from[row][column]`, with `columns` numbers in a row of `from` and `stride` in one of `to`.
pub(crate) fn transpose<T: Real>(from: &[T], columns: usize, to: &mut [T], stride: usize) {
    for (first, to) in (0..columns).step_by(SIDE).zip(to.chunks_mut(SIDE * stride)) {
        for (row, from) in from.chunks_exact(columns).enumerate() {
            for (x, to) in from[first..].iter().zip(to.chunks_mut(stride)) {
                to[row] = *x;
            }
        }
    }
}
