//! Gradients of all agents' networks.

use bytemuck::{Pod, Zeroable};
use mile::problems::{Batch, Draw};
use mile::real::Real;
use mile_nn::model::Kind;
use mile_nn::problem::ImageProblem;

use super::data::DeviceData;
use super::layer::{Call, long, whole};
use super::memory::maybe;
use super::{DeviceNetwork, Masks, THREADS, threads};
use crate::device::{Argument, Buffer, DeviceError, Grid, bytes};
use crate::objective::Objective;
use crate::parameters::Parameters;
use crate::queue::Queue;

/// Most samples of an agent that are processed at a time.
const MOST_SAMPLES: usize = 512;
/// The sample of an agent that has no more.
const NONE: u32 = u32::MAX;

/// Images that are divided among agents, with a network: the objectives of all agents.
pub(crate) struct DeviceImages<T> {
    network: DeviceNetwork,
    data: DeviceData,
    batch: Batch,
    parts: Vec<Vec<u32>>,
    classes: usize,
    dim: usize,
    stride: usize,
    /// How many times so many samples are processed for a gradient.
    chunks: usize,
    has_dropout: bool,
    /// One over the samples of each agent's batch, and the samples.
    scales: Buffer,
    totals: Buffer,
    /// Which parts of a gradient are summed, for each block with parameters.
    summed: Buffer,
    layers: usize,
    marker: std::marker::PhantomData<T>,
}

/// As `Summed` in the kernels.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Summed {
    parts: u64,
    offset: u32,
    numbers: u32,
    splits: u32,
    unused: u32,
}

/// Samples of each agent in a batch.
fn sizes(batch: Batch, parts: &[Vec<u32>]) -> Vec<usize> {
    let size = |part: &Vec<u32>| match batch {
        Batch::Full => part.len(),
        Batch::Size(size) | Batch::Epoch(size) => size,
    };
    parts.iter().map(size).collect()
}

impl<T: Real + mile_nn::Scalar> DeviceImages<T> {
    pub(crate) fn new(queue: &Queue, problem: &ImageProblem<T>, stride: usize) -> Result<Self, DeviceError> {
        let (device, model, rows) = (&queue.device, problem.model(), problem.parts().len());
        let sizes = sizes(problem.batch(), problem.parts());
        let most = sizes.iter().copied().max().unwrap_or(1);
        let available = device.available()?.saturating_sub(problem.data().train.bytes() as u64);
        // As many samples at a time as fit in half of the memory.
        let mut samples = most.min(MOST_SAMPLES);
        let needed = |samples| DeviceNetwork::bytes::<T>(model, [rows, samples], true);
        while samples > 1 && needed(samples) > available / 2 {
            samples = samples.div_ceil(2);
        }
        if needed(samples) > available {
            let what = format!(" for the values between the layers, at {} a sample", bytes(needed(1)));
            return Err(DeviceError::Memory { needed: needed(samples), available, what });
        }
        let network = DeviceNetwork::new::<T>(queue, model, [rows, samples], true)?;
        let scales: Vec<T> = sizes.iter().map(|size| T::one() / T::of(*size as f64)).collect();
        let totals: Vec<u32> = sizes.iter().map(|size| *size as u32).collect();
        let summed: Vec<Summed> = network.summed();
        Ok(Self {
            data: DeviceData::new::<T>(device, &problem.data().train)?,
            batch: problem.batch(),
            parts: problem.parts().to_vec(),
            classes: model.classes(),
            dim: model.dim(),
            stride,
            chunks: most.div_ceil(samples),
            has_dropout: model.has_dropout(),
            scales: Buffer::of(device, &scales)?,
            totals: Buffer::of(device, &totals)?,
            summed: Buffer::of(device, &summed)?,
            layers: summed.len(),
            network,
            marker: std::marker::PhantomData,
        })
    }
}

impl<T: Real + mile_nn::Scalar> Objective for DeviceImages<T> {
    /// Seed and step, then the samples of each chunk, `[chunk][agent][sample]`.
    fn draw(&self, draw: Draw, parameters: &mut Parameters) -> usize {
        let place = parameters.add(&[draw.seed, draw.step]);
        let (rows, samples) = (self.network.rows, self.network.samples);
        let mut all = vec![NONE; self.chunks * rows * samples];
        for (agent, part) in self.parts.iter().enumerate() {
            for (k, sample) in self.batch.samples(part.len(), agent, draw).enumerate() {
                all[((k / samples) * rows + agent) * samples + k % samples] = part[sample];
            }
        }
        parameters.add(&all);
        place
    }

    fn gradient(&self, x: &Buffer, g: &Buffer, draw: Argument) -> Result<(), DeviceError> {
        let network = &self.network;
        let (rows, samples) = (network.rows, network.samples);
        let call = Call { rows, samples, parameters: x.at(), stride: self.stride };
        let all = rows * samples;
        for chunk in 0..self.chunks {
            // The samples come after seed and step.
            let list = draw.plus(16 + chunk * all * size_of::<u32>());
            let input = network.blocks.first().map_or(0, |block| block.input.len());
            let masks = Masks { draw, totals: self.totals.at(), first: chunk * samples };
            // SAFETY: the types are those of the kernels; samples are those of the training set, and every buffer has room for the numbers of all
            // agents and samples.
            unsafe {
                let [pixels, values] = self.data.pixels();
                let first = network.memory.kept[0].input.at();
                let arguments = [pixels, values, list, first, whole(input)];
                network.kernels.launch(self.data.load, Grid::new([all as u32, 1, 1], THREADS), &arguments)?;
                network.forward::<T>(call, self.has_dropout.then_some(masks))?;
                let [labels, targets] = self.data.targets();
                let (outputs, delta) =
                    (network.memory.outputs.at(), network.memory.delta(network.blocks.len() - 1).at());
                let sizes = [whole(self.classes), whole(samples), long(all)];
                let arguments =
                    [&[outputs, delta, labels, targets, list, self.scales.at()][..], &sizes].concat();
                network.each("loss_deltas", all, &arguments)?;
                network.backward(call, self.has_dropout)?;
                network.device.join()?;
                let adds = whole(usize::from(chunk > 0));
                let arguments =
                    [self.summed.at(), whole(self.layers), g.at(), long(self.stride), whole(self.dim), adds];
                network.kernels.launch("sum_parts", threads(self.dim, rows), &arguments)?;
            }
        }
        Ok(())
    }
}

impl DeviceNetwork {
    /// The parts of the gradients of all blocks with parameters.
    fn summed(&self) -> Vec<Summed> {
        let of = |(k, kept): (usize, &super::memory::Kept)| {
            let Argument::Pointer(parts) = kept.parts.as_ref()?.at() else { return None };
            let block = &self.blocks[k];
            let splits = self.layers[k].as_ref().map_or(1, |layer| layer.weight_splits(self.samples));
            let [offset, numbers, splits] = [block.offset, block.parameters(), splits].map(|n| n as u32);
            Some(Summed { parts, offset, numbers, splits, unused: 0 })
        };
        self.memory.kept.iter().enumerate().filter_map(of).collect()
    }

    /// From the deltas at the outputs to the parts of all gradients. These are computed aside.
    ///
    /// # Safety
    /// As [`forward`](Self::forward), which must have run before.
    unsafe fn backward(&self, call: Call, dropout: bool) -> Result<(), DeviceError> {
        for (k, block) in self.blocks.iter().enumerate().rev() {
            let kept = &self.memory.kept[k];
            let (delta, next) =
                (self.memory.delta(k), k.checked_sub(1).map(|before| self.memory.delta(before)));
            let mask = if dropout { maybe(&kept.mask) } else { Argument::Pointer(0) };
            let is_masked = dropout && kept.mask.is_some();
            // SAFETY: promised by the caller.
            unsafe {
                let current = if block.relu || block.pool || is_masked {
                    let full = kept.full.as_ref().unwrap_or(delta);
                    self.scatter(k, delta.at(), mask, full.at())?;
                    full
                } else {
                    delta
                };
                self.backward_block(k, call, current, next)?;
                if let Some(next) = next {
                    self.add_skipped(k, next)?;
                }
            }
        }
        Ok(())
    }

    /// Deltas before the relu, the pooling and the dropout of block `k`.
    ///
    /// # Safety
    /// As [`backward`](Self::backward).
    unsafe fn scatter(
        &self,
        k: usize,
        delta: Argument,
        mask: Argument,
        to: Argument,
    ) -> Result<(), DeviceError> {
        let (shape, pool) = (self.blocks[k].convolved(), self.blocks[k].pool);
        let places = if pool {
            shape.height.div_ceil(2) * shape.width.div_ceil(2)
        } else {
            shape.height * shape.width
        };
        // A thread does sixteen bytes of channels, if they can be divided so.
        let lanes = if shape.channels.is_multiple_of(self.lanes) { self.lanes } else { 1 };
        let groups = shape.channels / lanes;
        let (output, largest) = (self.memory.output(k).at(), maybe(&self.memory.kept[k].largest));
        let arguments = [delta, output, largest, mask, to, whole(self.samples)];
        let grid = threads(self.samples * places * groups, self.rows);
        // SAFETY: the types are those of the kernel; the rest is promised by the caller.
        unsafe { self.kernels.launch(&format!("scatter_{k}"), grid, &arguments) }
    }

    /// Parts of the gradients of one block, and the deltas at its input if they are needed, from those before its relu and pooling.
    ///
    /// # Safety
    /// As [`backward`](Self::backward).
    unsafe fn backward_block(
        &self,
        k: usize,
        call: Call,
        delta: &Buffer,
        below: Option<&Buffer>,
    ) -> Result<(), DeviceError> {
        let (block, kept) = (&self.blocks[k], &self.memory.kept[k]);
        let (input, shape, numbers) = (block.input, block.convolved(), self.all() * block.input.len());
        let Call { rows, samples, parameters, stride } = call;
        // SAFETY: the types are those of the kernels, and every buffer has room for the numbers of all agents and samples.
        unsafe {
            match block.kind {
                Kind::Pool(squares) => {
                    let Some(below) = below else { return Ok(()) };
                    let sizes =
                        [input.height, input.width, input.channels, shape.height, shape.width].map(whole);
                    let how = [squares.side, squares.stride, usize::from(squares.average)].map(whole);
                    let arguments =
                        [&[delta.at(), maybe(&kept.which), below.at()], &sizes[..], &how, &[long(numbers)]];
                    self.each("unpool", numbers, &arguments.concat())
                }
                Kind::Norm { groups, by_number } => {
                    let pixels = input.height * input.width;
                    let sizes = [pixels, input.channels, groups, usize::from(by_number), samples].map(whole);
                    let places = [kept.input.at(), delta.at(), maybe(&kept.moments), maybe(&kept.parts)];
                    let grid = Grid::new([block.weights() as u32, 1, rows as u32], THREADS);
                    self.kernels.launch("norm_gradient", grid, &[&places[..], &sizes].concat())?;
                    let Some(below) = below else { return Ok(()) };
                    let places = [kept.input.at(), delta.at(), parameters, maybe(&kept.moments), below.at()];
                    let arguments = [&places[..], &sizes, &[long(stride), long(block.offset)]].concat();
                    self.kernels.launch(
                        "norm_back",
                        Grid::new([samples as u32, 1, rows as u32], THREADS),
                        &arguments,
                    )
                }
                Kind::Add { .. } => {
                    for to in below.into_iter().chain(&kept.skipped) {
                        self.copy(delta, to, numbers)?;
                    }
                    Ok(())
                }
                _ => {
                    let Some(layer) = &self.layers[k] else { return Ok(()) };
                    // Nothing in the backward pass waits for gradients of weights.
                    self.device.aside(true)?;
                    let done =
                        layer.weights(&self.kernels, call, [kept.input.at(), delta.at(), maybe(&kept.parts)]);
                    self.device.aside(false)?;
                    done?;
                    below.map_or(Ok(()), |below| layer.back(&self.kernels, call, delta.at(), below.at()))
                }
            }
        }
    }

    /// # Safety
    /// Both buffers have so many numbers.
    unsafe fn copy(&self, from: &Buffer, to: &Buffer, numbers: usize) -> Result<(), DeviceError> {
        // SAFETY: the types are those of the kernel; the rest is promised by the caller.
        unsafe { self.each("copy_numbers", numbers, &[from.at(), to.at(), long(numbers)]) }
    }

    /// Adds to the deltas at the input of block `k` those that came past it, through sums after it.
    ///
    /// # Safety
    /// As [`backward`](Self::backward).
    unsafe fn add_skipped(&self, k: usize, delta: &Buffer) -> Result<(), DeviceError> {
        let numbers = self.all() * self.blocks[k].input.len();
        for (block, kept) in self.blocks.iter().zip(&self.memory.kept).skip(k + 1) {
            if let (Kind::Add { from }, Some(skipped)) = (block.kind, &kept.skipped)
                && from == k
            {
                // SAFETY: the types are those of the kernel; both buffers have the numbers of this block's input.
                unsafe {
                    self.each("sum_of_two", numbers, &[delta.at(), skipped.at(), delta.at(), long(numbers)])?
                };
            }
        }
        Ok(())
    }
}
