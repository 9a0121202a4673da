//! Gradients and losses of all models of a launch.

use bytemuck::{Pod, Zeroable};
use mile::problems::device::BlockKind;
use mile::real::Real;

use super::layer::{Call, Layer, long, whole};
use super::memory::maybe;
use super::{DeviceNetwork, THREADS, threads};
use crate::device::{Argument, Buffer, DeviceError, Grid};
use crate::objective::Program;
use crate::script::Script;
use crate::work::Task;

/// As `Summed` in the kernels.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Summed {
    parts: u64,
    offset: u32,
    numbers: u32,
    splits: u32,
    first: u32,
}

/// Blocks that sum `numbers` numbers (`wide` of them are sixteen bytes) from `splits` parts, as in the kernels.
fn blocks(numbers: usize, wide: usize, splits: usize) -> usize {
    let (lanes, each) =
        (if splits <= 16 { 1 } else { 8 }, if numbers.is_multiple_of(wide) { wide } else { 1 });
    (numbers / each * lanes).div_ceil(THREADS as usize)
}

/// A network with data of one type.
pub(super) struct Images<T> {
    pub(super) network: DeviceNetwork,
    /// The kernel that loads samples.
    pub(super) load: &'static str,
    /// The value of each byte.
    pub(super) values: Buffer,
    /// Whether there is memory for gradients, or for losses only.
    pub(super) gradients: bool,
    pub(super) classes: usize,
    pub(super) bytes_of_row: u64,
    pub(super) room: usize,
    /// Which parts of a gradient are summed, for each block with parameters.
    pub(super) summed: Buffer,
    /// Blocks that do it.
    pub(super) summing: usize,
    pub(super) marker: std::marker::PhantomData<T>,
}

impl<T: Real> Program for Images<T> {
    fn bytes_of_row(&self) -> u64 {
        self.bytes_of_row
    }

    fn reserve(&mut self, rows: usize) -> Result<(), DeviceError> {
        self.network.reserve::<T>(rows, self.gradients)?;
        let (summed, summing) = self.network.summed();
        (self.summed, self.summing) = (Buffer::of(&self.network.queue.device, &summed)?, summing);
        self.room = rows;
        Ok(())
    }

    fn room(&self) -> usize {
        self.room
    }

    fn descriptor(&self) -> usize {
        6 * 8 + 2 * 8 + 8 + 2 * size_of::<T>()
    }

    /// The extent is the number of chunks of samples.
    unsafe fn launch(&self, script: &mut Script, task: Task, rows: Argument, count: usize, extent: usize) {
        let samples = self.network.samples;
        let call = Call { rows, count, samples };
        // SAFETY: promised by the caller.
        unsafe { self.network.pack(script, call) };
        for chunk in 0..extent {
            let first = chunk * samples;
            // SAFETY: there is room for this many models; the rest is promised by the caller.
            unsafe {
                self.load(script, call, first);
                let masks = (task == Task::Gradients).then_some(first);
                self.network.forward::<T>(script, call, masks);
                if task == Task::Losses {
                    self.score(script, call, first);
                } else {
                    self.gradient(script, call, first, masks.is_some());
                }
            }
        }
    }
}

impl<T: Real> Images<T> {
    /// # Safety
    /// As [`Program::launch`].
    unsafe fn load(&self, script: &mut Script, call: Call, first: usize) {
        let input = self.network.blocks.first().map_or(0, |block| block.input.len());
        let values = if self.load == "load_bytes" { self.values.at() } else { Argument::Pointer(0) };
        let to = self.network.memory.kept[0].input.at();
        let arguments = [call.rows, values, to, whole(input), whole(first), whole(call.samples)];
        let grid = Grid::new([call.all() as u32, 1, 1], THREADS);
        // SAFETY: the types are those of the kernel; there is room for the samples of all models.
        unsafe { self.network.kernels.launch(script, self.load, grid, &arguments) }
    }

    /// # Safety
    /// As [`Program::launch`].
    unsafe fn score(&self, script: &mut Script, call: Call, first: usize) {
        let outputs = self.network.memory.outputs.at();
        let sizes = [whole(self.classes), whole(first), whole(call.samples), long(call.all())];
        let arguments = [&[outputs, call.rows][..], &sizes].concat();
        // SAFETY: the types are those of the kernel; the lists mark where there are no more samples.
        unsafe { self.network.each(script, "score", call.all(), &arguments) }
    }

    /// # Safety
    /// As [`Program::launch`].
    unsafe fn gradient(&self, script: &mut Script, call: Call, first: usize, dropout: bool) {
        let network = &self.network;
        let delta = network.memory.delta(network.blocks.len() - 1).at();
        let sizes = [whole(self.classes), whole(first), whole(call.samples), long(call.all())];
        let arguments = [&[network.memory.outputs.at(), delta, call.rows][..], &sizes].concat();
        let layers = network.blocks.iter().filter(|block| block.parameters() > 0).count();
        // SAFETY: the types are those of the kernels; every buffer has room for the numbers of all models and samples.
        unsafe {
            network.each(script, "loss_deltas", call.all(), &arguments);
            network.backward(script, call, dropout);
            script.join();
            let adds = whole(usize::from(first > 0));
            let arguments = [self.summed.at(), whole(layers), call.rows, adds];
            let grid = Grid::new([self.summing.max(1) as u32, 1, call.count as u32], THREADS);
            network.kernels.launch(script, "sum_parts", grid, &arguments);
        }
    }
}

impl DeviceNetwork {
    /// The parts of the gradients of all blocks with parameters, and how many blocks of threads sum them.
    fn summed(&self) -> (Vec<Summed>, usize) {
        let (mut all, mut first) = (Vec::new(), 0);
        for (k, (block, kept)) in self.blocks.iter().zip(&self.memory.kept).enumerate() {
            let Some(parts) = &kept.parts else { continue };
            let splits = self.layers[k].as_ref().map_or(1, |layer| layer.weight_splits(self.samples));
            let (parts, blocks) = (parts.at().bits(), blocks(block.parameters(), self.lanes, splits));
            let sizes = [block.offset, block.parameters(), splits, first].map(|n| n as u32);
            let [offset, numbers, splits, from] = sizes;
            all.push(Summed { parts, offset, numbers, splits, first: from });
            first += blocks;
        }
        (all, first)
    }

    /// From the deltas at the outputs to the parts of all gradients, which are computed aside.
    ///
    /// # Safety
    /// As [`forward`](Self::forward), which must have run before.
    unsafe fn backward(&self, script: &mut Script, call: Call, dropout: bool) {
        for (k, block) in self.blocks.iter().enumerate().rev() {
            let kept = &self.memory.kept[k];
            let (delta, next) =
                (self.memory.delta(k), k.checked_sub(1).map(|before| self.memory.delta(before)));
            let mask = if dropout { maybe(&kept.mask) } else { Argument::Pointer(0) };
            let is_masked = dropout && kept.mask.is_some();
            let reads_pooled = self.layers[k].as_ref().is_some_and(Layer::reads_pooled);
            // SAFETY: promised by the caller.
            unsafe {
                let current = if (block.relu || block.pool || is_masked) && !reads_pooled {
                    let full = kept.full.as_ref().unwrap_or(delta);
                    self.scatter(script, k, call, [delta.at(), mask, full.at()]);
                    full
                } else {
                    delta
                };
                self.backward_block(script, k, call, current, next);
                if let Some(next) = next {
                    self.add_skipped(script, k, call, next);
                }
            }
        }
    }

    /// Deltas before the relu, the pooling and the dropout of block `k`.
    ///
    /// # Safety
    /// As [`backward`](Self::backward).
    unsafe fn scatter(&self, script: &mut Script, k: usize, call: Call, [delta, mask, to]: [Argument; 3]) {
        let (shape, pool) = (self.blocks[k].convolved(), self.blocks[k].pool);
        let places = if pool {
            shape.height.div_ceil(2) * shape.width.div_ceil(2)
        } else {
            shape.height * shape.width
        };
        // A thread handles sixteen bytes of channels, if they can be divided that way.
        let lanes = if shape.channels.is_multiple_of(self.lanes) { self.lanes } else { 1 };
        let groups = shape.channels / lanes;
        let (output, largest) = (self.memory.output(k).at(), maybe(&self.memory.kept[k].largest));
        let arguments = [delta, output, largest, mask, to, whole(self.samples)];
        let grid = threads(self.samples * places * groups, call.count);
        // SAFETY: the types are those of the kernel; the rest is promised by the caller.
        unsafe { self.kernels.launch(script, &format!("scatter_{k}"), grid, &arguments) }
    }

    /// Parts of the gradients of one block, and the deltas at its input if they are needed, from the deltas before its relu and pooling, or
    /// after its pooling where the layer reads those.
    ///
    /// # Safety
    /// As [`backward`](Self::backward).
    unsafe fn backward_block(
        &self,
        script: &mut Script,
        k: usize,
        call: Call,
        delta: &Buffer,
        below: Option<&Buffer>,
    ) {
        let (block, kept) = (&self.blocks[k], &self.memory.kept[k]);
        let (input, shape, numbers) = (block.input, block.convolved(), call.all() * block.input.len());
        let Call { rows, samples, count } = call;
        // SAFETY: the types are those of the kernels, and every buffer has room for the numbers of all agents and samples.
        unsafe {
            match block.kind {
                BlockKind::Pool(squares) => {
                    let Some(below) = below else { return };
                    let sizes =
                        [input.height, input.width, input.channels, shape.height, shape.width].map(whole);
                    let how = [squares.side, squares.stride, usize::from(squares.average)].map(whole);
                    let arguments =
                        [&[delta.at(), maybe(&kept.which), below.at()], &sizes[..], &how, &[long(numbers)]];
                    self.each(script, "unpool", numbers, &arguments.concat());
                }
                BlockKind::Norm { groups, by_number } => {
                    let pixels = input.height * input.width;
                    let sizes = [pixels, input.channels, groups, usize::from(by_number), samples].map(whole);
                    let places = [kept.input.at(), delta.at(), maybe(&kept.moments), maybe(&kept.parts)];
                    let grid = Grid::new([block.weights() as u32, 1, count as u32], THREADS);
                    self.kernels.launch(script, "norm_gradient", grid, &[&places[..], &sizes].concat());
                    let Some(below) = below else { return };
                    let places = [kept.input.at(), delta.at(), rows, maybe(&kept.moments), below.at()];
                    let arguments = [&places[..], &sizes, &[long(block.offset)]].concat();
                    let grid = Grid::new([samples as u32, 1, count as u32], THREADS);
                    self.kernels.launch(script, "norm_back", grid, &arguments);
                }
                BlockKind::Add { .. } => {
                    for to in below.into_iter().chain(&kept.skipped) {
                        let arguments = [delta.at(), to.at(), long(numbers)];
                        self.each(script, "copy_numbers", numbers, &arguments);
                    }
                }
                _ => {
                    let Some(layer) = &self.layers[k] else { return };
                    // Nothing in the backward pass waits for gradients of weights.
                    script.aside(true);
                    let (delta, largest) = (delta.at(), maybe(&kept.largest));
                    let places = [kept.input.at(), delta, largest, maybe(&kept.parts)];
                    layer.weights((script, &self.kernels), call, places);
                    script.aside(false);
                    if let Some(below) = below {
                        let weights = self.halves.of(k, &self.memory, count);
                        let places = [delta, largest, below.at()];
                        layer.back((script, &self.kernels), call, places, weights);
                    }
                }
            }
        }
    }

    /// Adds to the deltas at the input of block `k` those that bypassed it, through sums after it.
    ///
    /// # Safety
    /// As [`backward`](Self::backward).
    unsafe fn add_skipped(&self, script: &mut Script, k: usize, call: Call, delta: &Buffer) {
        let numbers = call.all() * self.blocks[k].input.len();
        for (block, kept) in self.blocks.iter().zip(&self.memory.kept).skip(k + 1) {
            if let (BlockKind::Add { from }, Some(skipped)) = (block.kind, &kept.skipped)
                && from == k
            {
                let arguments = [delta.at(), skipped.at(), delta.at(), long(numbers)];
                // SAFETY: the types are those of the kernel; both buffers have the numbers of this block's input.
                unsafe { self.each(script, "sum_of_two", numbers, &arguments) };
            }
        }
    }
}
