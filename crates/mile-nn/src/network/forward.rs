//! Forward pass: from images to logits and losses.

use mile::real::Real;
use rand::Rng;

use super::workspace::{Activations, Samples, delta_stride, moments};
use super::{DENSE_TAPS, NeuralNetwork, Workspace};
use crate::data::{Images, Targets, Values};
use crate::kernel::{Activate, Contract, KernelScalar, Kernels, Moments, Norm, Pool, pack_taps, panel_width};
use crate::model::{Block, BlockKind, Squares};

impl<T: KernelScalar> NeuralNetwork<T> {
    /// Copies the samples into the first block's input, bytes divided by 255.
    pub(super) fn load(&self, images: &Images, samples: &[u32], workspace: &mut Workspace<T>) {
        let pixels = |sample: u32| {
            let place = images.place(sample as usize);
            assert_eq!(
                place.len(),
                self.model.input().len(),
                "the images do not have the model's input shape"
            );
            place
        };
        let row = self.model.input().width * self.model.input().channels;
        let input = &mut workspace.blocks[0].input;
        let places = input.values.chunks_exact_mut(input.stride).zip(samples);
        for (place, &sample) in places {
            let (to, from) = ((&mut place[input.origin..], input.row), pixels(sample));
            match &images.pixels {
                Values::Bytes(all) => copy(&all[from], row, to, |byte| self.pixels[usize::from(byte)]),
                Values::Singles(all) => copy(&all[from], row, to, |x| T::of(f64::from(x))),
                Values::Doubles(all) => copy(&all[from], row, to, T::of),
            }
        }
    }

    /// Runs all blocks on the first `n` samples; with `masks`, draws and applies dropout.
    pub(super) fn forward(
        &self,
        parameters: &[T],
        n: usize,
        mut masks: Option<&mut dyn Rng>,
        workspace: &mut Workspace<T>,
    ) {
        let Workspace { blocks: saved, logits, convolved, weights: packed, .. } = workspace;
        for (i, block) in self.model.blocks().iter().enumerate() {
            let (before, after) = saved.split_at_mut(i);
            let Some((saved, after)) = after.split_first_mut() else { break };
            let target = after.first_mut().map_or(&mut *logits, |next| &mut next.input);
            let range = block.offset..block.offset + block.parameters();
            let (weights, bias) = parameters[range].split_at(block.weights());
            let pass = Pass { kernels: &self.kernels, block, weights, packed, bias, n };
            match block.kind {
                BlockKind::Conv { kernel, stride, .. } => {
                    pass.conv((kernel, stride), saved, convolved, target)
                }
                BlockKind::Dense => pass.dense(saved, target),
                BlockKind::Pool(squares) => pass.pool(squares, saved, convolved, target),
                BlockKind::Norm { groups, .. } => pass.norm(groups, saved, convolved, target),
                BlockKind::Add { from } => pass.add(&before[from].input, saved, convolved, target),
            }
            if let Some(rng) = masks.as_deref_mut().filter(|_| block.dropout > 0.0) {
                dropout_forward(block, rng, n, &mut saved.mask, target);
            }
        }
    }

    /// Computes the deltas at the outputs: the gradient of `scale` times the sum of the losses with respect to the
    /// outputs. Returns that sum, without the scale.
    pub(super) fn output_deltas(
        &self,
        images: &Images,
        samples: &[u32],
        scale: T,
        workspace: &mut Workspace<T>,
    ) -> f64 {
        let classes = self.model.classes();
        let deltas = workspace.deltas[0].chunks_exact_mut(delta_stride(classes));
        let mut loss = 0.0;
        for ((scores, delta), &sample) in workspace.logits.rows(samples.len()).zip(deltas).zip(samples) {
            let sample = sample as usize;
            match &images.targets {
                Targets::Labels(labels) => {
                    let label = usize::from(labels[sample]);
                    loss += cross_entropy(scores, label);
                    let largest = largest(scores);
                    let total: T = scores.iter().map(|&s| (s - largest).exp()).sum();
                    for (c, (delta, &s)) in delta.iter_mut().zip(scores).enumerate() {
                        let target = if c == label { T::one() } else { T::zero() };
                        *delta = ((s - largest).exp() / total - target) * scale;
                    }
                }
                Targets::Numbers { values, each } => {
                    let targets = &values[sample * each..][..*each];
                    loss += least_squares(scores, targets);
                    for ((delta, &s), &target) in delta.iter_mut().zip(scores).zip(targets) {
                        *delta = (s - T::of(target)) * scale;
                    }
                }
            }
        }
        loss
    }
}

/// Copies the rows of an image, of `row` numbers each, to where rows have another distance.
#[inline(always)]
fn copy<V: Copy, T>(image: &[V], row: usize, (to, step): (&mut [T], usize), value: impl Fn(V) -> T) {
    for (from, y) in image.chunks_exact(row).zip(0..) {
        to[y * step..][..row].iter_mut().zip(from).for_each(|(to, &from)| *to = value(from));
    }
}

/// The loss of one sample.
pub(super) fn loss<T: Real>(scores: &[T], targets: &Targets, sample: usize) -> f64 {
    match targets {
        Targets::Labels(labels) => cross_entropy(scores, usize::from(labels[sample])),
        Targets::Numbers { values, each } => least_squares(scores, &values[sample * each..][..*each]),
    }
}

/// Half the squared distance, in double precision.
fn least_squares<T: Real>(scores: &[T], targets: &[f64]) -> f64 {
    scores.iter().zip(targets).map(|(s, target)| (s.wide() - target).powi(2)).sum::<f64>() / 2.0
}

/// `log sum_c exp(scores[c]) - scores[label]`, in double precision.
fn cross_entropy<T: Real>(scores: &[T], label: usize) -> f64 {
    let largest = largest(scores).wide();
    let total: f64 = scores.iter().map(|s| (s.wide() - largest).exp()).sum();
    total.ln() + largest - scores[label].wide()
}

/// The class with the largest logit, the first one if there are several; none if a logit is NaN.
pub(super) fn predicted<T: Real>(scores: &[T]) -> Option<usize> {
    let largest = largest(scores);
    if scores.iter().any(|s| s.is_nan()) { None } else { scores.iter().position(|&s| s == largest) }
}

fn largest<T: Real>(scores: &[T]) -> T {
    scores.iter().copied().fold(T::neg_infinity(), T::max)
}

/// The forward pass of one block.
struct Pass<'a, T> {
    kernels: &'a Kernels<T>,
    block: &'a Block,
    weights: &'a [T],
    /// Room for weights in panels of outputs.
    packed: &'a mut [T],
    bias: &'a [T],
    n: usize,
}

impl<T: KernelScalar> Pass<'_, T> {
    /// One convolution of each sample, activated into the next block's input, or written there where there is nothing to
    /// activate.
    fn conv(
        self,
        (kernel, stride): (usize, usize),
        saved: &mut Activations<T>,
        convolved: &mut [T],
        target: &mut Samples<T>,
    ) {
        let block = self.block;
        let full = block.convolved();
        let direct = !(block.relu || block.pool);
        pack_taps(self.weights, block.out, self.packed);
        for s in 0..self.n {
            let input = &saved.input;
            let (output, row) = if direct {
                (&mut target.values[s * target.stride + target.origin..], target.row)
            } else {
                (&mut convolved[..], full.width * full.channels)
            };
            self.kernels.contract(Contract {
                input: &input.values[s * input.stride..][..input.stride],
                input_step: (stride * input.row, stride * block.input.channels),
                tap_step: input.row,
                taps: (kernel, kernel * block.input.channels),
                weights: self.packed,
                weight_step: panel_width(full.channels),
                bias: Some(self.bias),
                resumes: false,
                output,
                output_step: (row, full.channels),
                size: (full.height, full.width),
                channels: full.channels,
            });
            if !direct {
                self.activate(s, saved, convolved, target);
            }
        }
    }

    /// Pooling of each sample.
    fn pool(
        self,
        squares: Squares,
        saved: &mut Activations<T>,
        convolved: &mut [T],
        target: &mut Samples<T>,
    ) {
        let full = self.block.convolved();
        let which = if squares.average { 0 } else { full.len() };
        for s in 0..self.n {
            let input = &saved.input;
            self.kernels.pool(Pool {
                input: &input.values[s * input.stride..],
                input_row: input.row,
                output: &mut convolved[..full.len()],
                which: &mut saved.which[s * which..][..which],
                size: (full.height, full.width),
                channels: full.channels,
                squares,
            });
            self.activate(s, saved, convolved, target);
        }
    }

    /// Normalisation of each sample, with relu written into the next block's input if no pooling follows.
    fn norm(self, groups: usize, saved: &mut Activations<T>, convolved: &mut [T], target: &mut Samples<T>) {
        let (block, shape) = (self.block, self.block.input);
        let (len, row, channels) = (shape.len(), shape.width * shape.channels, moments(block));
        for s in 0..self.n {
            let input = &saved.input;
            let (output, output_row) = if block.pool {
                (&mut convolved[..len], row)
            } else {
                (&mut target.values[s * target.stride + target.origin..], target.row)
            };
            let (mean, inverse) = saved.moments[s * 2 * channels..][..2 * channels].split_at_mut(channels);
            self.kernels.norm(Norm {
                input: &input.values[s * input.stride..][..len],
                scale: self.weights,
                shift: self.bias,
                output,
                rows: (row, output_row),
                relu: block.relu,
                moments: Moments { mean, inverse },
                groups,
            });
            if block.pool {
                self.activate(s, saved, convolved, target);
            }
        }
    }

    /// The sum of each sample and its value at the input of an earlier block.
    fn add(
        self,
        earlier: &Samples<T>,
        saved: &mut Activations<T>,
        convolved: &mut [T],
        target: &mut Samples<T>,
    ) {
        let row = self.block.input.width * self.block.input.channels;
        let len = self.block.input.len();
        for s in 0..self.n {
            let own = saved.input.values[s * saved.input.stride..][..len].chunks_exact(row);
            let rows = convolved[..len].chunks_exact_mut(row).zip(own);
            for (y, (sums, own)) in rows.enumerate() {
                let place = s * earlier.stride + earlier.origin + y * earlier.row;
                let both = own.iter().zip(&earlier.values[place..][..row]);
                sums.iter_mut().zip(both).for_each(|(sum, (&x, &y))| *sum = x + y);
            }
            self.activate(s, saved, convolved, target);
        }
    }

    /// Relu and 2 x 2 max-pooling of sample `s`, from `convolved` to the next block's input.
    fn activate(&self, s: usize, saved: &mut Activations<T>, convolved: &[T], target: &mut Samples<T>) {
        let block = self.block;
        let (full, output) = (block.convolved(), block.output());
        let argmax = if block.pool { output.len() } else { 0 };
        self.kernels.activate(Activate {
            input: convolved,
            input_row: full.width * full.channels,
            output: &mut target.values[s * target.stride + target.origin..],
            output_row: target.row,
            argmax: &mut saved.argmax[s * argmax..][..argmax],
            size: (output.height, output.width),
            channels: output.channels,
            relu: block.relu,
            pool: block.pool,
        });
    }

    /// One dense layer on all samples.
    fn dense(self, saved: &Activations<T>, target: &mut Samples<T>) {
        let (inputs, out) = (self.block.fan_in(), self.block.out);
        for first in (0..inputs).step_by(DENSE_TAPS) {
            let taps = DENSE_TAPS.min(inputs - first);
            pack_taps(&self.weights[first * out..][..taps * out], out, self.packed);
            self.kernels.contract(Contract {
                input: &saved.input.values[first..],
                input_step: (0, saved.input.stride),
                tap_step: 0,
                taps: (1, taps),
                weights: self.packed,
                weight_step: panel_width(out),
                bias: Some(self.bias),
                resumes: first > 0,
                output: &mut target.values,
                output_step: (0, target.stride),
                size: (1, self.n),
                channels: out,
            });
        }
        if self.block.relu {
            for x in target.rows_mut(self.n).flatten() {
                *x = if *x < T::zero() { T::zero() } else { *x };
            }
        }
    }
}

/// Draws dropout masks for the outputs of `block` and applies them in the next block's input.
fn dropout_forward<T: Real>(
    block: &Block,
    rng: &mut dyn Rng,
    n: usize,
    mask: &mut [T],
    target: &mut Samples<T>,
) {
    let output = block.output();
    let keep = T::one() / (T::one() - T::of(f64::from(block.dropout)));
    let threshold = (f64::from(block.dropout) * 2f64.powi(32)).round() as u64;
    let row = output.width * output.channels;
    for (s, mask) in mask.chunks_exact_mut(output.len()).take(n).enumerate() {
        for (y, mask) in mask.chunks_exact_mut(row).enumerate() {
            let place = s * target.stride + target.origin + y * target.row;
            for (factor, x) in mask.iter_mut().zip(&mut target.values[place..][..row]) {
                *factor = if u64::from(rng.next_u32()) < threshold { T::zero() } else { keep };
                *x *= *factor;
            }
        }
    }
}
