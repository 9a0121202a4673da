//! What happens between the products: relu and pooling, forward and back, and weights turned around.

use mile::real::Real;
use num_traits::{One, Zero};

use super::simd::Simd;

/// Mark in [`Activate::choice`] of a square whose largest number relu set to zero.
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
    pub(crate) choice: &'a mut [u8],
    /// Rows and columns of the output.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
    pub(crate) relu: bool,
    pub(crate) pool: bool,
}

/// The way back of [`Activate`]: spreads the signals of one image over the convolved image, padded.
pub(crate) struct Scatter<'a, T> {
    /// Signals at the output, `[row][column][channel]`.
    pub(crate) signal: &'a [T],
    /// The output itself; read where there is relu and no pooling.
    pub(crate) output: &'a [T],
    /// Step in `output` from row to row.
    pub(crate) output_row: usize,
    /// As [`Activate`] left it.
    pub(crate) choice: &'a [u8],
    /// Where the convolved image's first number is.
    pub(crate) target: &'a mut [T],
    /// Step in `target` from row to row.
    pub(crate) target_row: usize,
    /// Rows and columns of the output.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
    pub(crate) relu: bool,
    pub(crate) pool: bool,
    /// Sums of the signals over pixels are added here.
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
            for (to, &x) in output.iter_mut().zip(input) {
                *to = if call.relu && x < T::zero() { T::zero() } else { x };
            }
            continue;
        }
        let upper = &call.input[2 * y * call.input_row..][..2 * width * c];
        let lower = &call.input[(2 * y + 1) * call.input_row..][..2 * width * c];
        let choice = &mut call.choice[y * width * c..][..width * c];
        let squares = upper.chunks_exact(2 * c).zip(lower.chunks_exact(2 * c));
        let results = output.chunks_exact_mut(c).zip(choice.chunks_exact_mut(c));
        for ((upper, lower), (output, choice)) in squares.zip(results) {
            pool_square(upper, lower, output, choice, call.relu);
        }
    }
}

/// The first largest of four, as PyTorch chooses it; a NaN wins, so that divergence is seen.
#[inline(always)]
fn pool_square<T: Real>(upper: &[T], lower: &[T], output: &mut [T], choice: &mut [u8], relu: bool) {
    let c = output.len();
    let (upper, upper_right) = (&upper[..c], &upper[c..][..c]);
    let (lower, lower_right) = (&lower[..c], &lower[c..][..c]);
    let choice = &mut choice[..c];
    for i in 0..c {
        let (mut largest, mut which) = (upper[i], 0u8);
        for (k, x) in [(1, upper_right[i]), (2, lower[i]), (3, lower_right[i])] {
            let wins = (x > largest) | x.is_nan();
            largest = if wins { x } else { largest };
            which = if wins { k } else { which };
        }
        let dead = relu & (largest <= T::zero());
        output[i] = if dead { T::zero() } else { largest };
        choice[i] = if dead { NONE } else { which };
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
        let signal = &call.signal[y * width * c..][..width * c];
        if call.pool {
            let choice = &call.choice[y * width * c..][..width * c];
            let (upper, lower) = call.target[2 * y * call.target_row..].split_at_mut(call.target_row);
            for (x, (signal, choice)) in signal.chunks_exact(c).zip(choice.chunks_exact(c)).enumerate() {
                let (upper, lower) = (&mut upper[2 * x * c..][..2 * c], &mut lower[2 * x * c..][..2 * c]);
                // SAFETY: the caller vouches for the instructions.
                unsafe { spread_square::<S>(signal, choice, upper, lower, call.bias) };
            }
            continue;
        }
        let output = &call.output[y * call.output_row..][..width * c];
        let target = &mut call.target[y * call.target_row..][..width * c];
        for ((target, signal), output) in
            target.chunks_exact_mut(c).zip(signal.chunks_exact(c)).zip(output.chunks_exact(c))
        {
            for i in 0..c {
                let passed = if call.relu && output[i] <= S::T::zero() { S::T::zero() } else { signal[i] };
                target[i] = passed;
                call.bias[i] += passed;
            }
        }
    }
}

/// Gives the signal of each channel to the one of four pixels that was chosen, zero to the others.
///
/// # Safety
///
/// The machine has the instructions of `S`.
#[inline(always)]
unsafe fn spread_square<S: Simd>(
    signal: &[S::T],
    choice: &[u8],
    upper: &mut [S::T],
    lower: &mut [S::T],
    bias: &mut [S::T],
) {
    let c = signal.len();
    assert!(choice.len() == c && bias.len() == c && upper.len() == 2 * c && lower.len() == 2 * c);
    let whole = c - c % S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: lanes i to i + LANES are below c, the length that all slices were just seen to have.
        unsafe {
            let (s, bytes) = (S::load(signal.as_ptr().add(i)), choice.as_ptr().add(i));
            let (upper, lower) = (upper.as_mut_ptr().add(i), lower.as_mut_ptr().add(i));
            let (one, sum) = (S::splat(S::T::one()), bias.as_mut_ptr().add(i));
            let mut total = S::load(sum.cast_const());
            for (k, place) in [upper, upper.add(c), lower, lower.add(c)].into_iter().enumerate() {
                let passed = S::only(s, bytes, k as u8);
                S::store(place, passed);
                total = S::fma(one, passed, total);
            }
            S::store(sum, total);
        }
    }
    for i in whole..c {
        let only = |k: u8| {
            if choice[i] == k { signal[i] } else { S::T::zero() }
        };
        (upper[i], upper[c + i]) = (only(0), only(1));
        (lower[i], lower[c + i]) = (only(2), only(3));
        bias[i] += if choice[i] == NONE { S::T::zero() } else { signal[i] };
    }
}

/// Weights for the way back: `[tap][input][output]` to `[tap reversed][output][input]`.
pub(crate) fn transpose_taps<T: Real>(
    weights: &[T],
    taps: usize,
    inputs: usize,
    outputs: usize,
    back: &mut [T],
) {
    /// Side of the squares in which both sides stay in cache.
    const SIDE: usize = 16;
    let size = inputs * outputs;
    for tap in 0..taps {
        let from = &weights[tap * size..][..size];
        let to = &mut back[(taps - 1 - tap) * size..][..size];
        for i0 in (0..inputs).step_by(SIDE) {
            for o0 in (0..outputs).step_by(SIDE) {
                for o in o0..(o0 + SIDE).min(outputs) {
                    for i in i0..(i0 + SIDE).min(inputs) {
                        to[o * inputs + i] = from[i * outputs + o];
                    }
                }
            }
        }
    }
}
