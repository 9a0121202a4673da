//! Group normalisation, forward and backward. A group is some channels of all pixels of one sample; layer normalisation has
//! one group.
//!
//! ```text
//! h = (x - mean) / sqrt(variance + epsilon),    y = scale h + shift
//! ```
//!
//! with mean and variance of the group that x belongs to, and a scale and a shift for each channel or for each number.

use mile::real::Real;

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
    for pixel in call.input.chunks_exact(c) {
        mean.iter_mut().zip(pixel).for_each(|(sum, &x)| *sum += x);
    }
    means(mean, call.groups, pixels, |mean| mean);
    inverse.fill(T::zero());
    for pixel in call.input.chunks_exact(c) {
        for ((sum, &x), &mean) in inverse.iter_mut().zip(pixel).zip(mean.iter()) {
            *sum += (x - mean) * (x - mean);
        }
    }
    means(inverse, call.groups, pixels, |variance| 1.0 / (variance + EPSILON).sqrt());
    let (mean, inverse) = (&mean[..c], &inverse[..c]);
    let images = call.input.chunks_exact(c).zip(call.output.chunks_exact_mut(c));
    for (p, (input, output)) in images.enumerate() {
        let place = if scales == c { 0 } else { p * c };
        pixel(input, (mean, inverse), &call.scale[place..], &call.shift[place..], output);
    }
}

// The arguments of the following functions are slices that do not overlap, which the compiler needs to know for vector
// instructions.

/// The output of one pixel.
#[inline(always)]
fn pixel<T: Real>(input: &[T], (mean, inverse): (&[T], &[T]), scale: &[T], shift: &[T], output: &mut [T]) {
    let c = output.len();
    let (input, mean, inverse) = (&input[..c], &mean[..c], &inverse[..c]);
    let (scale, shift) = (&scale[..c], &shift[..c]);
    for i in 0..c {
        output[i] = (input[i] - mean[i]) * inverse[i] * scale[i] + shift[i];
    }
}

/// Adds what one pixel gives to the gradients of scales and shifts.
#[inline(always)]
fn add_gradients<T: Real>(
    input: &[T],
    delta: &[T],
    (mean, inverse): (&[T], &[T]),
    scale_gradient: &mut [T],
    shift_gradient: &mut [T],
) {
    let c = input.len();
    let (delta, mean, inverse) = (&delta[..c], &mean[..c], &inverse[..c]);
    let (scale_gradient, shift_gradient) = (&mut scale_gradient[..c], &mut shift_gradient[..c]);
    for i in 0..c {
        scale_gradient[i] += delta[i] * (input[i] - mean[i]) * inverse[i];
        shift_gradient[i] += delta[i];
    }
}

/// Adds the delta of one pixel times the scale, and that times h.
#[inline(always)]
fn add_products<T: Real>(
    input: &[T],
    delta: &[T],
    (mean, inverse): (&[T], &[T]),
    scale: &[T],
    first: &mut [T],
    second: &mut [T],
) {
    let c = input.len();
    let (delta, mean, inverse, scale) = (&delta[..c], &mean[..c], &inverse[..c], &scale[..c]);
    let (first, second) = (&mut first[..c], &mut second[..c]);
    for i in 0..c {
        let s = delta[i] * scale[i];
        first[i] += s;
        second[i] += s * (input[i] - mean[i]) * inverse[i];
    }
}

/// The delta at the input of one pixel, from the means over its groups.
#[inline(always)]
fn pixel_back<T: Real>(
    input: &[T],
    delta: &[T],
    (mean, inverse): (&[T], &[T]),
    scale: &[T],
    (first, second): (&[T], &[T]),
    target: &mut [T],
) {
    let c = target.len();
    let (input, delta, scale) = (&input[..c], &delta[..c], &scale[..c]);
    let (mean, inverse, first, second) = (&mean[..c], &inverse[..c], &first[..c], &second[..c]);
    for i in 0..c {
        let h = (input[i] - mean[i]) * inverse[i];
        target[i] = (delta[i] * scale[i] - first[i] - h * second[i]) * inverse[i];
    }
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
    for (p, (input, delta)) in call.input.chunks_exact(c).zip(call.delta.chunks_exact(c)).enumerate() {
        let place = if scales == c { 0 } else { p * c };
        let (scales, shifts) = (&mut call.gradient.0[place..], &mut call.gradient.1[place..]);
        add_gradients(input, delta, (mean, inverse), scales, shifts);
        add_products(input, delta, (mean, inverse), &call.scale[place..], first, second);
    }
    let Some(target) = &mut call.target else { return };
    means(first, call.groups, pixels, |mean| mean);
    means(second, call.groups, pixels, |mean| mean);
    let images = call.input.chunks_exact(c).zip(call.delta.chunks_exact(c));
    for (p, ((input, delta), target)) in images.zip(target.chunks_exact_mut(c)).enumerate() {
        let place = if scales == c { 0 } else { p * c };
        pixel_back(input, delta, (mean, inverse), &call.scale[place..], (&*first, &*second), target);
    }
}
