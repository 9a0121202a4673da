//! Backward pass: from the deltas at the logits to the gradient of all parameters.

use mile::real::Real;

use super::workspace::{Activations, Samples, delta_stride};
use super::{Network, Workspace};
use crate::kernel::{Contract, Kernels, Outer, Scalar, Scatter, panel_width, transpose_taps};
use crate::model::{Block, Kind};

impl<T: Scalar> Network<T> {
    /// Adds the gradient over the first `n` samples to `gradient`. The deltas at the logits are in
    /// `workspace.deltas[0]`, all other values are those of the forward pass.
    pub(super) fn backward(
        &self,
        parameters: &[T],
        n: usize,
        dropout: bool,
        workspace: &mut Workspace<T>,
        gradient: &mut [T],
    ) {
        let Workspace { blocks: saved, logits, weights: transposed, deltas, .. } = workspace;
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
            let weights = &parameters[block.offset..][..block.weights()];
            // The gradient with respect to the images is not needed.
            let below = (i > 0).then_some(InputGradient { weights, transposed, delta: next });
            let pass = Pass { kernels: &self.kernels, block, n, output };
            match block.kind {
                Kind::Conv { kernel, padding } => {
                    pass.conv(kernel, padding, &mut before[i], delta, own, below)
                }
                Kind::Dense => pass.dense(&before[i], delta, own, below),
            }
            std::mem::swap(&mut delta, &mut next);
        }
    }
}

/// Where a block's gradients are added.
struct Gradients<'a, T> {
    weights: &'a mut [T],
    bias: &'a mut [T],
}

impl<'a, T> Gradients<'a, T> {
    fn new((weights, bias): (&'a mut [T], &'a mut [T])) -> Self {
        Self { weights, bias }
    }
}

/// What is needed to compute the deltas at the input of a block.
struct InputGradient<'a, T> {
    weights: &'a [T],
    transposed: &'a mut [T],
    /// Deltas at the input of this block, to be written.
    delta: &'a mut [T],
}

/// The backward pass of one block.
struct Pass<'a, T> {
    kernels: &'a Kernels<T>,
    block: &'a Block,
    n: usize,
    /// The output of the block.
    output: &'a Samples<T>,
}

impl<T: Scalar> Pass<'_, T> {
    fn dense(
        &self,
        saved: &Activations<T>,
        delta: &mut [T],
        own: Gradients<'_, T>,
        below: Option<InputGradient<'_, T>>,
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
            size: (1, self.n),
            channels: block.out,
        });
        if let Some(below) = below {
            transpose_taps(below.weights, 1, inputs, block.out, below.transposed);
            self.kernels.contract(Contract {
                input: delta,
                input_step: (0, stride),
                tap_step: 0,
                taps: (1, block.out),
                weights: below.transposed,
                weight_step: panel_width(inputs),
                bias: None,
                output: below.delta,
                output_step: (0, delta_stride(inputs)),
                size: (1, self.n),
                channels: inputs,
            });
        }
    }

    fn conv(
        &self,
        kernel: usize,
        padding: usize,
        saved: &mut Activations<T>,
        delta: &[T],
        own: Gradients<'_, T>,
        mut below: Option<InputGradient<'_, T>>,
    ) {
        let block = self.block;
        let (full, channels) = (block.convolved(), block.input.channels);
        let stride = delta_stride(block.output().len());
        if let Some(below) = &mut below {
            transpose_taps(below.weights, kernel * kernel, channels, block.out, below.transposed);
        }
        let border = kernel - 1 - padding;
        let row = (full.width + 2 * border) * full.channels;
        let origin = border * (row + full.channels);
        for s in 0..self.n {
            self.scatter(s, &delta[s * stride..], saved, (row, origin), own.bias);
            let input = &saved.input;
            self.kernels.outer(Outer {
                input: &input.values[s * input.stride..][..input.stride],
                input_step: (input.row, channels),
                tap_step: input.row,
                taps: (kernel, kernel * channels),
                delta: &saved.back[origin..],
                delta_step: (row, full.channels),
                output: own.weights,
                size: (full.height, full.width),
                channels: block.out,
            });
            if let Some(below) = &mut below {
                self.kernels.contract(Contract {
                    input: &saved.back,
                    input_step: (row, full.channels),
                    tap_step: row,
                    taps: (kernel, kernel * full.channels),
                    weights: below.transposed,
                    weight_step: panel_width(channels),
                    bias: None,
                    output: &mut below.delta[s * delta_stride(block.input.len())..],
                    output_step: (block.input.width * channels, channels),
                    size: (block.input.height, block.input.width),
                    channels,
                });
            }
        }
    }

    /// Backward pass of pooling and relu for sample `s`, into `saved.back`.
    fn scatter(
        &self,
        s: usize,
        delta: &[T],
        saved: &mut Activations<T>,
        (row, origin): (usize, usize),
        bias: &mut [T],
    ) {
        let (block, output) = (self.block, self.output);
        let shape = block.output();
        let argmax = if block.pool { shape.len() } else { 0 };
        self.kernels.scatter(Scatter {
            delta,
            output: &output.values[s * output.stride + output.origin..],
            output_row: output.row,
            argmax: &saved.argmax[s * argmax..][..argmax],
            target: &mut saved.back[origin..],
            target_row: row,
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
