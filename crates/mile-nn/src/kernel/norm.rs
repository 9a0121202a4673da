//! Group normalisation, forward and backward. A group is some channels of all pixels of one sample; layer normalisation has
//! one group.
//!
//! ```text
//! h = (x - mean) / sqrt(variance + epsilon),    y = scale h + shift
//! ```
//!
//! with mean and variance of the group that x belongs to, and a scale and a shift for each channel or for each number.

use mile::real::Real;

use super::pointwise::add_pixels;
use super::simd::channels;

/// Added to variances, as in PyTorch.
const EPSILON: f64 = 1e-5;

/// Normalisation of one sample.
pub(crate) struct Norm<'a, T> {
    /// `[pixel][channel]`.
    pub(crate) input: &'a [T],
    /// For each channel, or for each number.
    pub(crate) scale: &'a [T],
    /// As many as scales.
    pub(crate) shift: &'a [T],
    pub(crate) output: &'a mut [T],
    /// Numbers in a row, and the step in `output` from row to row.
    pub(crate) rows: (usize, usize),
    /// Whether relu follows.
    pub(crate) relu: bool,
    /// Mean and inverse deviation, to be written.
    pub(crate) moments: Moments<'a, T>,
    pub(crate) groups: usize,
}

/// The mean of each channel's group, and one over its deviation.
pub(crate) struct Moments<'a, T> {
    pub(crate) mean: &'a mut [T],
    pub(crate) inverse: &'a mut [T],
}

/// The backward pass of [`Norm`].
pub(crate) struct NormBack<'a, T> {
    pub(crate) input: &'a [T],
    pub(crate) scale: &'a [T],
    /// As written by [`Norm`].
    pub(crate) moments: Moments<'a, T>,
    /// Deltas at the output.
    pub(crate) delta: &'a [T],
    /// Gradients of the scales and of the shifts, to be added to.
    pub(crate) gradient: (&'a mut [T], &'a mut [T]),
    /// Deltas at the input, to be written if they are needed.
    pub(crate) target: Option<&'a mut [T]>,
    /// Room for two numbers of each channel.
    pub(crate) sums: (&'a mut [T], &'a mut [T]),
    pub(crate) groups: usize,
}

/// For each group, `value` of the mean over its channels and `pixels` pixels, from sums of channels.
#[inline(always)]
fn means<T: Real>(sums: &mut [T], groups: usize, pixels: usize, value: impl Fn(f64) -> f64) {
    let channels = sums.len() / groups;
    for sums in sums.chunks_exact_mut(channels) {
        let total: f64 = sums.iter().map(|sum| sum.wide()).sum();
        sums.fill(T::of(value(total / (channels * pixels) as f64)));
    }
}

#[inline(always)]
pub(super) fn norm<T: Real>(call: &mut Norm<'_, T>) {
    let Moments { mean, inverse } = &mut call.moments;
    let (c, scales) = (mean.len(), call.scale.len());
    let pixels = call.input.len() / c;
    mean.fill(T::zero());
    add_pixels(call.input, mean);
    means(mean, call.groups, pixels, |mean| mean);
    inverse.fill(T::zero());
    let fours = call.input.chunks_exact(4 * c);
    for pixel in fours.remainder().chunks_exact(c) {
        add_square(pixel, mean, inverse);
    }
    for four in fours {
        add_squares(four, mean, inverse);
    }
    means(inverse, call.groups, pixels, |variance| 1.0 / (variance + EPSILON).sqrt());
    let moments = (&mean[..c], &inverse[..c]);
    let (row, step) = call.rows;
    for (y, input) in call.input.chunks_exact(row).enumerate() {
        let output = &mut call.output[y * step..][..row];
        for (x, (input, output)) in input.chunks_exact(c).zip(output.chunks_exact_mut(c)).enumerate() {
            let place = if scales == c { 0 } else { y * row + x * c };
            pixel(input, moments, &call.scale[place..], &call.shift[place..], output);
        }
        if call.relu {
            for x in output {
                *x = if *x < T::zero() { T::zero() } else { *x };
            }
        }
    }
}

// Four pixels are processed at a time, so that the sums are read and written a quarter as often. Loops are written as loops: a
// closure that is not inlined is compiled without the vector instructions of its caller.

/// Adds the squared distances of one pixel's numbers from the means.
#[inline(always)]
fn add_square<T: Real>(pixel: &[T], mean: &[T], sums: &mut [T]) {
    channels!(i < mean.len(), [pixel, mean], [sums as sum], {
        sum[i] += (pixel[i] - mean[i]) * (pixel[i] - mean[i]);
    });
}

/// [`add_square`] of four pixels.
#[inline(always)]
fn add_squares<T: Real>(four: &[T], mean: &[T], sums: &mut [T]) {
    let c = mean.len();
    let [p, q, r, s] = [0, 1, 2, 3].map(|k| &four[k * c..][..c]);
    channels!(i < c, [p, q, r, s, mean], [sums as sum], {
        let (p, q, r, s) = (p[i] - mean[i], q[i] - mean[i], r[i] - mean[i], s[i] - mean[i]);
        sum[i] += (p * p + q * q) + (r * r + s * s);
    });
}

/// The output of one pixel.
#[inline(always)]
fn pixel<T: Real>(input: &[T], (mean, inverse): (&[T], &[T]), scale: &[T], shift: &[T], output: &mut [T]) {
    channels!(i < output.len(), [input, mean, inverse, scale, shift], [output as out], {
        out[i] = (input[i] - mean[i]) * inverse[i] * scale[i] + shift[i];
    });
}

/// Adds the deltas of one pixel, and these times the distance from the mean.
#[inline(always)]
fn add_delta<T: Real>(input: &[T], delta: &[T], mean: &[T], first: &mut [T], second: &mut [T]) {
    channels!(i < mean.len(), [input, delta, mean], [first as a, second as b], {
        a[i] += delta[i];
        b[i] += delta[i] * (input[i] - mean[i]);
    });
}

/// [`add_delta`] of four pixels.
#[inline(always)]
fn add_deltas<T: Real>(input: &[T], delta: &[T], mean: &[T], first: &mut [T], second: &mut [T]) {
    let c = mean.len();
    let [p, q, r, s] = [0, 1, 2, 3].map(|k| &input[k * c..][..c]);
    let [dp, dq, dr, ds] = [0, 1, 2, 3].map(|k| &delta[k * c..][..c]);
    channels!(i < c, [p, q, r, s, dp, dq, dr, ds, mean], [first as a, second as b], {
        a[i] += (dp[i] + dq[i]) + (dr[i] + ds[i]);
        let upper = dp[i] * (p[i] - mean[i]) + dq[i] * (q[i] - mean[i]);
        b[i] += upper + (dr[i] * (r[i] - mean[i]) + ds[i] * (s[i] - mean[i]));
    });
}

/// Adds the contribution of one pixel to the gradients of its scales and shifts; and its delta times the scale, and that times h.
#[inline(always)]
fn add_gradients<T: Real>(
    (input, delta): (&[T], &[T]),
    (mean, inverse): (&[T], &[T]),
    scale: &[T],
    (scales, shifts): (&mut [T], &mut [T]),
    (first, second): (&mut [T], &mut [T]),
) {
    channels!(
        i < input.len(),
        [input, delta, mean, inverse, scale],
        [scales as of_scale, shifts as of_shift, first as a, second as b],
        {
            let product = delta[i] * ((input[i] - mean[i]) * inverse[i]);
            of_scale[i] += product;
            of_shift[i] += delta[i];
            a[i] += delta[i] * scale[i];
            b[i] += product * scale[i];
        }
    );
}

/// The delta at the input of one pixel, from the means over its groups.
#[inline(always)]
fn pixel_back<T: Real>(
    (input, delta): (&[T], &[T]),
    (mean, inverse): (&[T], &[T]),
    scale: &[T],
    (first, second): (&[T], &[T]),
    target: &mut [T],
) {
    channels!(i < target.len(), [input, delta, mean, inverse, scale, first, second], [target as to], {
        let h = (input[i] - mean[i]) * inverse[i];
        to[i] = (delta[i] * scale[i] - first[i] - h * second[i]) * inverse[i];
    });
}

/// With s the delta times the scale, the delta at the input is `(s - mean(s) - h mean(s h)) / deviation`.
#[inline(always)]
pub(super) fn norm_back<T: Real>(call: &mut NormBack<'_, T>) {
    let (first, second) = (&mut *call.sums.0, &mut *call.sums.1);
    let (c, scales) = (first.len(), call.scale.len());
    let pixels = call.input.len() / c;
    let (mean, inverse) = (&call.moments.mean[..c], &call.moments.inverse[..c]);
    first.fill(T::zero());
    second.fill(T::zero());
    if scales == c {
        let (inputs, deltas) = (call.input.chunks_exact(4 * c), call.delta.chunks_exact(4 * c));
        let rest = inputs.remainder().chunks_exact(c).zip(deltas.remainder().chunks_exact(c));
        for (input, delta) in rest {
            add_delta(input, delta, mean, first, second);
        }
        for (input, delta) in inputs.zip(deltas) {
            add_deltas(input, delta, mean, first, second);
        }
        for i in 0..c {
            second[i] *= inverse[i];
            call.gradient.0[i] += second[i];
            call.gradient.1[i] += first[i];
            first[i] *= call.scale[i];
            second[i] *= call.scale[i];
        }
    } else {
        for (p, (input, delta)) in call.input.chunks_exact(c).zip(call.delta.chunks_exact(c)).enumerate() {
            let gradient = (&mut call.gradient.0[p * c..], &mut call.gradient.1[p * c..]);
            let scale = &call.scale[p * c..];
            add_gradients((input, delta), (mean, inverse), scale, gradient, (&mut *first, &mut *second));
        }
    }
    let Some(target) = &mut call.target else { return };
    means(first, call.groups, pixels, |mean| mean);
    means(second, call.groups, pixels, |mean| mean);
    let images = call.input.chunks_exact(c).zip(call.delta.chunks_exact(c));
    for (p, ((input, delta), target)) in images.zip(target.chunks_exact_mut(c)).enumerate() {
        let place = if scales == c { 0 } else { p * c };
        pixel_back((input, delta), (mean, inverse), &call.scale[place..], (&*first, &*second), target);
    }
}
