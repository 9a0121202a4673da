//! Backward pass: from the deltas at the logits to the gradient of all parameters.

use mile::real::Real;

use super::transposed::Transposed;
use super::workspace::{Activations, Samples, delta_stride, group, moments};
use super::{DENSE_TAPS, NeuralNetwork, Workspace};
use crate::kernel::{
    Contract, KernelScalar, Kernels, Moments, NormBack, Outer, Scatter, Unpool, panel_width, transpose,
};
use crate::model::{Block, BlockKind, Squares};

impl<T: KernelScalar> NeuralNetwork<T> {
    /// Writes the gradient over the first `n` samples into `gradient`, or adds it (`adds`). The deltas at the logits are in
    /// `workspace.deltas[0]`, all other values are those of the forward pass.
    pub(super) fn backward(
        &self,
        parameters: &[T],
        n: usize,
        dropout: bool,
        workspace: &mut Workspace<T>,
        adds: bool,
        gradient: &mut [T],
    ) {
        let Workspace { blocks: saved, logits, weights: scratch, deltas, .. } = workspace;
        let [delta, next] = deltas;
        let (mut delta, mut next) = (delta, next);
        for (i, block) in self.model.blocks().iter().enumerate().rev() {
            let (before, after) = saved.split_at_mut(i + 1);
            let output = after.first().map_or(&*logits, |saved| &saved.input);
            if dropout && block.dropout > 0.0 {
                dropout_backward(block, n, &before[i].mask, delta);
            }
            let own = &mut gradient[block.offset..][..block.parameters()];
            let own = Gradients::new(own.split_at_mut(block.weights()));
            if !adds {
                own.bias.fill(T::zero());
            }
            let weights = &parameters[block.offset..][..block.weights()];
            // The gradient with respect to the images is not needed.
            let below = (i > 0).then_some(&mut next[..]);
            let pass = Pass { kernels: &self.kernels, block, weights, n, adds, output };
            let saved = &mut before[i];
            match block.kind {
                BlockKind::Conv { kernel, padding, stride } => {
                    pass.conv((kernel, padding, stride), saved, delta, own, scratch, below)
                }
                BlockKind::Dense => pass.dense(saved, delta, own, scratch, below),
                BlockKind::Pool(squares) => pass.pool(squares, saved, delta, scratch, below),
                BlockKind::Norm { groups, .. } => pass.norm(groups, saved, delta, own, scratch, below),
                BlockKind::Add { .. } => pass.add(saved, delta, scratch, below),
            }
            if i > 0 {
                self.add_skipped(i, n, after, next);
            }
            std::mem::swap(&mut delta, &mut next);
        }
    }
}

impl<T: KernelScalar> NeuralNetwork<T> {
    /// Adds to the deltas at the input of block `i` those that bypassed it, through sums after it.
    fn add_skipped(&self, i: usize, n: usize, after: &[Activations<T>], delta: &mut [T]) {
        for (block, saved) in self.model.blocks()[i + 1..].iter().zip(after) {
            if block.kind == (BlockKind::Add { from: i }) {
                let len = block.input.len();
                let deltas = delta.chunks_exact_mut(delta_stride(len)).zip(saved.skipped.chunks_exact(len));
                for (delta, skipped) in deltas.take(n) {
                    delta.iter_mut().zip(skipped).for_each(|(s, &more)| *s += more);
                }
            }
        }
    }
}

/// Where a block's gradients are written.
struct Gradients<'a, T> {
    weights: &'a mut [T],
    bias: &'a mut [T],
}

impl<'a, T> Gradients<'a, T> {
    fn new((weights, bias): (&'a mut [T], &'a mut [T])) -> Self {
        Self { weights, bias }
    }
}

/// The backward pass of one block. Its methods get the deltas at the output of the block, room for what is transposed or
/// summed, and where to write the deltas at its input if they are needed.
struct Pass<'a, T> {
    kernels: &'a Kernels<T>,
    block: &'a Block,
    weights: &'a [T],
    n: usize,
    /// Whether the gradients are added to; otherwise they are replaced.
    adds: bool,
    /// The output of the block.
    output: &'a Samples<T>,
}

impl<T: KernelScalar> Pass<'_, T> {
    fn dense(
        &self,
        saved: &Activations<T>,
        delta: &mut [T],
        own: Gradients<'_, T>,
        scratch: &mut [T],
        below: Option<&mut [T]>,
    ) {
        let block = self.block;
        let (inputs, stride) = (block.fan_in(), delta_stride(block.out));
        for (delta, output) in delta.chunks_exact_mut(stride).zip(self.output.rows(self.n)) {
            for ((s, &x), bias) in delta.iter_mut().zip(output).zip(own.bias.iter_mut()) {
                *s = if block.relu && x <= T::zero() { T::zero() } else { *s };
                *bias += *s;
            }
        }
        self.kernels.outer(Outer {
            input: &saved.input.values,
            input_step: (0, saved.input.stride),
            tap_step: 0,
            taps: (1, inputs),
            delta,
            delta_step: (0, stride),
            output: own.weights,
            adds: self.adds,
            images: 1,
            image_step: (0, 0),
            size: (1, self.n),
            channels: block.out,
        });
        if let Some(below) = below {
            self.dense_input(delta, scratch, below);
        }
    }

    /// The deltas at the input of a dense layer. The inputs take the place of pixels and the samples that of channels,
    /// so that the weights are used as they are, and only deltas are transposed.
    fn dense_input(&self, delta: &[T], scratch: &mut [T], below: &mut [T]) {
        let (inputs, out) = (self.block.fan_in(), self.block.out);
        let (stride, below_stride) = (delta_stride(out), delta_stride(inputs));
        for first in (0..self.n).step_by(panel_width(self.n)) {
            let samples = panel_width(self.n - first);
            let (transposed, sums) = scratch.split_at_mut(stride * samples);
            transpose(&delta[first * stride..][..samples * stride], stride, transposed, samples);
            for (i, weights) in self.weights.chunks(DENSE_TAPS * out).enumerate() {
                let rows = weights.len() / out;
                self.kernels.contract(Contract {
                    input: weights,
                    input_step: (0, out),
                    tap_step: 0,
                    taps: (1, out),
                    weights: transposed,
                    weight_step: samples,
                    bias: None,
                    resumes: false,
                    output: sums,
                    output_step: (0, samples),
                    size: (1, rows),
                    channels: samples,
                });
                let place = first * below_stride + i * DENSE_TAPS;
                transpose(&sums[..rows * samples], samples, &mut below[place..], below_stride);
            }
        }
    }

    fn conv(
        &self,
        (kernel, padding, stride): (usize, usize, usize),
        saved: &mut Activations<T>,
        delta: &[T],
        own: Gradients<'_, T>,
        scratch: &mut [T],
        mut below: Option<&mut [T]>,
    ) {
        let block = self.block;
        let (full, channels) = (block.convolved(), block.input.channels);
        let delta_step = delta_stride(block.output().len());
        let convolution = Transposed::new(block, kernel, padding, stride);
        if below.is_some() {
            convolution.transpose(self.weights, scratch);
        }
        let Transposed { row, origin, len: back, .. } = convolution;
        let group = group(block);
        for first in (0..self.n).step_by(group) {
            let images = group.min(self.n - first);
            for s in 0..images {
                let target = (&mut saved.back[s * back + origin..], row);
                let s = first + s;
                self.scatter(s, &delta[s * delta_step..], &saved.argmax, target, own.bias);
            }
            let input = &saved.input;
            self.kernels.outer(Outer {
                input: &input.values[first * input.stride..][..images * input.stride],
                input_step: (stride * input.row, stride * channels),
                tap_step: input.row,
                taps: (kernel, kernel * channels),
                delta: &saved.back[origin..],
                delta_step: (row, full.channels),
                output: own.weights,
                adds: self.adds || first > 0,
                images,
                image_step: (input.stride, back),
                size: (full.height, full.width),
                channels: block.out,
            });
            let Some(below) = &mut below else { continue };
            let below_step = delta_stride(block.input.len());
            for s in 0..images {
                let target = &mut below[(first + s) * below_step..][..block.input.len()];
                convolution.run(self.kernels, &saved.back[s * back..][..back], scratch, target);
            }
        }
    }

    fn pool(
        &self,
        squares: Squares,
        saved: &mut Activations<T>,
        delta: &[T],
        scratch: &mut [T],
        below: Option<&mut [T]>,
    ) {
        let Some(below) = below else { return };
        let (block, full) = (self.block, self.block.convolved());
        let (step, below_step) = (delta_stride(block.output().len()), delta_stride(block.input.len()));
        let which = if squares.average { 0 } else { full.len() };
        for s in 0..self.n {
            let sums = &mut scratch[..full.channels];
            let target = (&mut saved.back[..], full.width * full.channels);
            self.scatter(s, &delta[s * step..], &saved.argmax, target, sums);
            self.kernels.unpool(Unpool {
                delta: &saved.back,
                which: &saved.which[s * which..][..which],
                target: &mut below[s * below_step..][..block.input.len()],
                target_row: block.input.width * block.input.channels,
                size: (full.height, full.width),
                channels: full.channels,
                squares,
            });
        }
    }

    fn norm(
        &self,
        groups: usize,
        saved: &mut Activations<T>,
        delta: &[T],
        own: Gradients<'_, T>,
        scratch: &mut [T],
        mut below: Option<&mut [T]>,
    ) {
        let (block, shape, len) = (self.block, self.block.input, self.block.input.len());
        let (step, below_step) = (delta_stride(block.output().len()), delta_stride(len));
        if !self.adds {
            own.weights.fill(T::zero());
        }
        let channels = moments(block);
        let (sums, rest) = scratch.split_at_mut(shape.channels);
        let (first, second) = rest.split_at_mut(channels);
        for s in 0..self.n {
            let target = (&mut saved.back[..], shape.width * shape.channels);
            self.scatter(s, &delta[s * step..], &saved.argmax, target, sums);
            let moments = &mut saved.moments[s * 2 * channels..][..2 * channels];
            let (mean, inverse) = moments.split_at_mut(channels);
            self.kernels.norm_back(NormBack {
                input: &saved.input.values[s * saved.input.stride..][..len],
                scale: self.weights,
                moments: Moments { mean, inverse },
                delta: &saved.back,
                gradient: (&mut *own.weights, &mut *own.bias),
                target: below.as_mut().map(|below| &mut below[s * below_step..][..len]),
                sums: (&mut *first, &mut second[..channels]),
                groups,
            });
        }
    }

    /// The deltas at a sum are those at both its inputs.
    fn add(&self, saved: &mut Activations<T>, delta: &[T], scratch: &mut [T], below: Option<&mut [T]>) {
        let Some(below) = below else { return };
        let (block, shape, len) = (self.block, self.block.input, self.block.input.len());
        let (step, below_step) = (delta_stride(block.output().len()), delta_stride(len));
        for s in 0..self.n {
            let sums = &mut scratch[..shape.channels];
            let below = &mut below[s * below_step..][..len];
            if block.pool {
                // Rows and columns that fill no square get nothing.
                below.fill(T::zero());
            }
            self.scatter(s, &delta[s * step..], &saved.argmax, (below, shape.width * shape.channels), sums);
            if !saved.skipped.is_empty() {
                saved.skipped[s * len..][..len].copy_from_slice(below);
            }
        }
    }

    /// Backward pass of pooling and relu for sample `s`, to a target with another distance between rows.
    fn scatter(
        &self,
        s: usize,
        delta: &[T],
        argmax: &[u8],
        (target, target_row): (&mut [T], usize),
        bias: &mut [T],
    ) {
        let (block, output) = (self.block, self.output);
        let shape = block.output();
        let squares = if block.pool { shape.len() } else { 0 };
        self.kernels.scatter(Scatter {
            delta,
            output: &output.values[s * output.stride + output.origin..],
            output_row: output.row,
            argmax: &argmax[s * squares..][..squares],
            target,
            target_row,
            size: (shape.height, shape.width),
            channels: shape.channels,
            relu: block.relu,
            pool: block.pool,
            bias,
        });
    }
}

/// Backward pass of dropout: multiplies by the same factors.
fn dropout_backward<T: Real>(block: &Block, n: usize, mask: &[T], delta: &mut [T]) {
    let len = block.output().len();
    for (delta, mask) in delta.chunks_exact_mut(delta_stride(len)).zip(mask.chunks_exact(len)).take(n) {
        delta.iter_mut().zip(mask).for_each(|(s, &factor)| *s *= factor);
    }
}
