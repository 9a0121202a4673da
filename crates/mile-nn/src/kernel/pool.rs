//! Max and average pooling over squares of any side, forward and backward. Pooling of 2 x 2 that follows a convolution is
//! done by [`Activate`](super::Activate).

use mile::problems::device::Squares;
use mile::real::Real;

use super::simd::channels;

/// Pooling of one image.
pub(crate) struct Pool<'a, T> {
    /// `[row][column][channel]`.
    pub(crate) input: &'a [T],
    /// Numbers in a row of `input`.
    pub(crate) input_row: usize,
    /// `[row][column][channel]`.
    pub(crate) output: &'a mut [T],
    /// For max-pooling, which number of each square was the largest; for average pooling, empty.
    pub(crate) which: &'a mut [u16],
    /// Rows and columns of the output.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
    pub(crate) squares: Squares,
}

/// The backward pass of [`Pool`].
pub(crate) struct Unpool<'a, T> {
    /// Deltas at the output.
    pub(crate) delta: &'a [T],
    /// As written by [`Pool`].
    pub(crate) which: &'a [u16],
    /// Deltas at the input, to be written, `[row][column][channel]`.
    pub(crate) target: &'a mut [T],
    /// Numbers in a row of `target`.
    pub(crate) target_row: usize,
    /// Rows and columns of the output.
    pub(crate) size: (usize, usize),
    pub(crate) channels: usize,
    pub(crate) squares: Squares,
}

/// Where each number of the square of output pixel (y, x) is, in rows of `row` numbers.
fn places(
    squares: Squares,
    (y, x): (usize, usize),
    row: usize,
    channels: usize,
) -> impl Iterator<Item = usize> {
    let Squares { side, stride, .. } = squares;
    let first = y * stride * row + x * stride * channels;
    (0..side).flat_map(move |dy| (0..side).map(move |dx| first + dy * row + dx * channels))
}

/// The weight of each number in an average.
fn weight<T: Real>(squares: Squares) -> T {
    T::one() / T::of((squares.side * squares.side) as f64)
}

/// Among several largest numbers the first is used, as in PyTorch; NaN counts as largest, so that divergence is visible.
#[inline(always)]
pub(super) fn pool<T: Real>(call: &mut Pool<'_, T>) {
    let (c, squares) = (call.channels, call.squares);
    for (i, output) in call.output.chunks_exact_mut(c).take(call.size.0 * call.size.1).enumerate() {
        let places = places(squares, (i / call.size.1, i % call.size.1), call.input_row, c);
        if squares.average {
            output.fill(T::zero());
            for place in places {
                add(&call.input[place..], T::one(), output);
            }
            for sum in output {
                *sum *= weight(squares);
            }
            continue;
        }
        let which = &mut call.which[i * c..][..c];
        for (place, k) in places.zip(0u16..) {
            take_larger(&call.input[place..], k, output, which);
        }
    }
}

#[inline(always)]
pub(super) fn unpool<T: Real>(call: &mut Unpool<'_, T>) {
    let (c, squares) = (call.channels, call.squares);
    call.target.fill(T::zero());
    for (i, delta) in call.delta.chunks_exact(c).take(call.size.0 * call.size.1).enumerate() {
        let places = places(squares, (i / call.size.1, i % call.size.1), call.target_row, c);
        if squares.average {
            for place in places {
                add(delta, weight(squares), &mut call.target[place..][..c]);
            }
            continue;
        }
        for (place, k) in places.zip(0u16..) {
            add_chosen(delta, &call.which[i * c..], k, &mut call.target[place..][..c]);
        }
    }
}

/// Adds a pixel times a weight to sums.
#[inline(always)]
fn add<T: Real>(pixel: &[T], weight: T, sums: &mut [T]) {
    channels!(i < sums.len(), [pixel], [sums as sum], {
        sum[i] += pixel[i] * weight;
    });
}

/// Keeps the numbers of the `k`-th pixel of a square that are larger than those before.
#[inline(always)]
fn take_larger<T: Real>(pixel: &[T], k: u16, largest: &mut [T], which: &mut [u16]) {
    channels!(i < largest.len(), [pixel], [largest as most, which as index], {
        let wins = (pixel[i] > most[i]) | pixel[i].is_nan() | (k == 0);
        most[i] = if wins { pixel[i] } else { most[i] };
        index[i] = if wins { k } else { index[i] };
    });
}

/// Adds the deltas of the channels whose largest number was in the `k`-th pixel of a square.
#[inline(always)]
fn add_chosen<T: Real>(delta: &[T], which: &[u16], k: u16, target: &mut [T]) {
    channels!(i < target.len(), [delta, which], [target as to], {
        to[i] += if which[i] == k { delta[i] } else { T::zero() };
    });
}
