//! From signals at the scores to the gradient of all parameters.

use mile::real::Real;

use super::workspace::{Memory, Samples, signal_stride};
use super::{Network, Workspace};
use crate::kernel::{Contract, Kernels, Outer, Scalar, Scatter, transpose_taps};
use crate::model::{Block, Kind};

impl<T: Scalar> Network<T> {
    /// Adds the gradient over the first `n` samples to `gradient`. The signals at the scores are in
    /// `workspace.signals[0]`, everything else as the forward pass left it.
    pub(super) fn backward(
        &self,
        parameters: &[T],
        n: usize,
        dropout: bool,
        workspace: &mut Workspace<T>,
        gradient: &mut [T],
    ) {
        let Workspace { blocks: memories, logits, turned, signals, .. } = workspace;
        let [signal, next] = signals;
        let (mut signal, mut next) = (signal, next);
        for (i, block) in self.model.blocks().iter().enumerate().rev() {
            let (before, after) = memories.split_at_mut(i + 1);
            let output = after.first().map_or(&*logits, |memory| &memory.input);
            if dropout && block.dropout > 0.0 {
                undrop(block, n, &before[i].mask, signal);
            }
            let own = &mut gradient[block.offset..][..block.parameters()];
            let own = Gradients::new(own.split_at_mut(block.weights()));
            let weights = &parameters[block.offset..][..block.weights()];
            // Images need no signals: the first block's inputs are not differentiated.
            let down = (i > 0).then_some(Down { weights, turned, signal: next });
            let pass = Pass { kernels: &self.kernels, block, n, output };
            match block.kind {
                Kind::Conv { kernel, padding } => {
                    pass.conv(kernel, padding, &mut before[i], signal, own, down)
                }
                Kind::Dense => pass.dense(&before[i], signal, own, down),
            }
            std::mem::swap(&mut signal, &mut next);
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

/// What is needed to pass signals on to the block below.
struct Down<'a, T> {
    weights: &'a [T],
    turned: &'a mut [T],
    /// Signals at the input of this block, to be written.
    signal: &'a mut [T],
}

/// The backward pass of one block.
struct Pass<'a, T> {
    kernels: &'a Kernels<T>,
    block: &'a Block,
    n: usize,
    /// What the block put out.
    output: &'a Samples<T>,
}

impl<T: Scalar> Pass<'_, T> {
    fn dense(&self, memory: &Memory<T>, signal: &mut [T], own: Gradients<'_, T>, down: Option<Down<'_, T>>) {
        let block = self.block;
        let (inputs, stride) = (block.fan_in(), signal_stride(block.out));
        for (signal, output) in signal.chunks_exact_mut(stride).zip(self.output.rows(self.n)) {
            for ((s, &x), bias) in signal.iter_mut().zip(output).zip(own.bias.iter_mut()) {
                *s = if block.relu && x <= T::zero() { T::zero() } else { *s };
                *bias += *s;
            }
        }
        self.kernels.outer(Outer {
            input: &memory.input.values,
            input_step: (0, memory.input.stride),
            tap_step: 0,
            taps: (1, inputs),
            signal,
            signal_step: (0, stride),
            output: own.weights,
            size: (1, self.n),
            channels: block.out,
        });
        if let Some(down) = down {
            transpose_taps(down.weights, 1, inputs, block.out, down.turned);
            self.kernels.contract(Contract {
                input: signal,
                input_step: (0, stride),
                tap_step: 0,
                taps: (1, block.out),
                weights: down.turned,
                bias: None,
                output: down.signal,
                output_step: (0, signal_stride(inputs)),
                size: (1, self.n),
                channels: inputs,
            });
        }
    }

    fn conv(
        &self,
        kernel: usize,
        padding: usize,
        memory: &mut Memory<T>,
        signal: &[T],
        own: Gradients<'_, T>,
        mut down: Option<Down<'_, T>>,
    ) {
        let block = self.block;
        let (full, channels) = (block.convolved(), block.input.channels);
        let stride = signal_stride(block.output().len());
        if let Some(down) = &mut down {
            transpose_taps(down.weights, kernel * kernel, channels, block.out, down.turned);
        }
        let border = kernel - 1 - padding;
        let row = (full.width + 2 * border) * full.channels;
        let origin = border * (row + full.channels);
        for s in 0..self.n {
            self.scatter(s, &signal[s * stride..], memory, (row, origin), own.bias);
            let input = &memory.input;
            self.kernels.outer(Outer {
                input: &input.values[s * input.stride..][..input.stride],
                input_step: (input.row, channels),
                tap_step: input.row,
                taps: (kernel, kernel * channels),
                signal: &memory.back[origin..],
                signal_step: (row, full.channels),
                output: own.weights,
                size: (full.height, full.width),
                channels: block.out,
            });
            if let Some(down) = &mut down {
                self.kernels.contract(Contract {
                    input: &memory.back,
                    input_step: (row, full.channels),
                    tap_step: row,
                    taps: (kernel, kernel * full.channels),
                    weights: down.turned,
                    bias: None,
                    output: &mut down.signal[s * signal_stride(block.input.len())..],
                    output_step: (block.input.width * channels, channels),
                    size: (block.input.height, block.input.width),
                    channels,
                });
            }
        }
    }

    /// Signals of sample `s` back through pooling and relu, into `memory.back`.
    fn scatter(
        &self,
        s: usize,
        signal: &[T],
        memory: &mut Memory<T>,
        (row, origin): (usize, usize),
        bias: &mut [T],
    ) {
        let (block, output) = (self.block, self.output);
        let shape = block.output();
        let choice = if block.pool { shape.len() } else { 0 };
        self.kernels.scatter(Scatter {
            signal,
            output: &output.values[s * output.stride + output.origin..],
            output_row: output.row,
            choice: &memory.choice[s * choice..][..choice],
            target: &mut memory.back[origin..],
            target_row: row,
            size: (shape.height, shape.width),
            channels: shape.channels,
            relu: block.relu,
            pool: block.pool,
            bias,
        });
    }
}

/// Dropout backward: the same factors.
fn undrop<T: Real>(block: &Block, n: usize, mask: &[T], signal: &mut [T]) {
    let len = block.output().len();
    for (signal, mask) in signal.chunks_exact_mut(signal_stride(len)).zip(mask.chunks_exact(len)).take(n) {
        signal.iter_mut().zip(mask).for_each(|(s, &factor)| *s *= factor);
    }
}
