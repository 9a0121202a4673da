//! Networks on the device: all agents and samples of a batch in each launch.

mod convolution;
mod data;
mod gradient;
mod halves;
mod layer;
mod memory;
mod objective;
mod tiles;

use mile::problems::device::{Block, BlockKind};
use mile::real::Real;

use self::halves::Halves;
use self::layer::{Call, Layer, long, whole};
use self::memory::{Memory, is_activated_apart, maybe};
use crate::device::{Argument, Buffer, DeviceError, Grid};
use crate::kernels;
use crate::queue::{Kernels, Queue};
use crate::script::Script;

pub(crate) use self::objective::{DeviceImages, needs};

/// Threads of blocks in which each thread handles one number, and of blocks that form sums.
const THREADS: u32 = 256;

/// Kernels that do not depend on the layers.
const COMMON: [&str; 16] = [
    "finish",
    "sum_parts",
    "load_bytes",
    "load_singles",
    "load_doubles",
    "loss_deltas",
    "score",
    "activate",
    "dropout",
    "pool",
    "unpool",
    "sum_of_two",
    "normalise",
    "norm_back",
    "norm_gradient",
    "copy_numbers",
];

/// The kernels of a model, and memory for a number of models and samples.
struct DeviceNetwork {
    queue: Queue,
    blocks: Vec<Block>,
    layers: Vec<Option<Layer>>,
    kernels: Kernels,
    memory: Memory,
    halves: Halves,
    /// Samples of each model.
    samples: usize,
    /// How many numbers sixteen bytes hold.
    lanes: usize,
}

fn layers<T: Real>(blocks: &[Block]) -> Vec<Option<Layer>> {
    blocks.iter().enumerate().map(|(k, block)| Layer::new(k, block, size_of::<T>())).collect()
}

/// The kernel of the backward pass of what follows block `k`.
fn scatter_source(k: usize, block: &Block) -> String {
    let shape = block.convolved();
    let (h, w, c) = if block.kind == BlockKind::Dense {
        (1, 1, block.out)
    } else {
        (shape.height, shape.width, shape.channels)
    };
    format!(
        "extern \"C\" __global__ void scatter_{k}(const T* delta, const T* out, const uint8_t* largest, const T* mask, T* to, \
         uint32_t samples) {{\n    scatter<{h}, {w}, {c}, {}, {}>(delta, out, largest, mask, to, samples);\n}}\nEXPORT(scatter_{k})\n",
        block.pool, block.relu
    )
}

/// A thread for each of `numbers` numbers, for each of `rows` agents.
fn threads(numbers: usize, rows: usize) -> Grid {
    Grid::new([numbers.div_ceil(THREADS as usize).max(1) as u32, 1, rows as u32], THREADS)
}

impl DeviceNetwork {
    /// Bytes of intermediate values for this many models and samples.
    fn bytes<T: Real>(blocks: &[Block], shape: [usize; 2], gradients: bool) -> u64 {
        Memory::bytes::<T>(blocks, &layers::<T>(blocks), shape, gradients)
    }

    /// Without room for any model yet.
    fn new<T: Real>(queue: &Queue, blocks: &[Block], samples: usize) -> Result<Self, DeviceError> {
        let (blocks, layers) = (blocks.to_vec(), layers::<T>(blocks));
        let (mut source, mut names) = (kernels::network::<T>(), COMMON.map(str::to_owned).to_vec());
        if layers.iter().flatten().any(|layer| layer.packed().is_some()) {
            names.push("pack".to_owned());
        }
        for layer in layers.iter().flatten() {
            let (text, own) = layer.source();
            source.push_str(&text);
            names.extend(own);
        }
        for (k, block) in blocks.iter().enumerate() {
            source.push_str(&scatter_source(k, block));
            names.push(format!("scatter_{k}"));
        }
        let kernels = queue.kernels(&source, &names)?;
        let memory = Memory::new::<T>(&queue.device, &blocks, &layers, [0, samples], false)?;
        let (halves, lanes) = (Halves::new(&queue.device, &layers)?, 16 / size_of::<T>());
        Ok(Self { queue: queue.clone(), blocks, layers, kernels, memory, halves, samples, lanes })
    }

    /// Makes room for `rows` models.
    fn reserve<T: Real>(&mut self, rows: usize, gradients: bool) -> Result<(), DeviceError> {
        let shape = |rows| [rows, self.samples];
        // The old memory is freed first.
        self.memory = Memory::new::<T>(&self.queue.device, &self.blocks, &self.layers, shape(0), gradients)?;
        self.memory =
            Memory::new::<T>(&self.queue.device, &self.blocks, &self.layers, shape(rows), gradients)?;
        Ok(())
    }

    /// Runs a kernel with a thread for each of `numbers` numbers of all models.
    ///
    /// # Safety
    /// As [`Kernels::launch`].
    unsafe fn each(&self, script: &mut Script, name: &str, numbers: usize, arguments: &[Argument]) {
        // SAFETY: promised by the caller.
        unsafe { self.kernels.launch(script, name, threads(numbers, 1), arguments) }
    }

    /// Splits weights into halves where they are needed in that form.
    ///
    /// # Safety
    /// As [`forward`](Self::forward).
    unsafe fn pack(&self, script: &mut Script, call: Call) {
        // SAFETY: promised by the caller.
        unsafe { self.halves.pack(script, &self.kernels, &self.memory, call) }
    }

    /// From the first block's input, which is loaded, to the outputs, after [`pack`](Self::pack). Dropout is applied if `first` is given,
    /// the number of the first sample in its batch.
    ///
    /// # Safety
    /// The models have rows of the model's dimension, and there is memory for all of them.
    unsafe fn forward<T: Real>(&self, script: &mut Script, call: Call, first: Option<usize>) {
        let all: usize =
            self.blocks.iter().filter(|block| block.dropout > 0.0).map(|block| block.output().len()).sum();
        let mut before = 0;
        for (k, block) in self.blocks.iter().enumerate() {
            let (kept, output) = (&self.memory.kept[k], self.memory.output(k));
            let (shape, numbers) = (block.convolved(), call.all() * block.output().len());
            let target = if is_activated_apart(block) { &self.memory.full } else { output };
            if self.halves.begins_with(k) {
                script.join();
            }
            // SAFETY: the types are those of the kernels, and every buffer has room for the numbers of all models and samples.
            unsafe {
                self.forward_block(script, k, call, target);
                if is_activated_apart(block) {
                    let [h, w, c] = [shape.height, shape.width, shape.channels].map(whole);
                    let flags = [block.pool, block.relu].map(|flag| whole(usize::from(flag)));
                    let (from, to) = (target.at(), output.at());
                    let arguments =
                        [from, to, maybe(&kept.largest), h, w, c, flags[0], flags[1], long(numbers)];
                    self.each(script, "activate", numbers, &arguments);
                }
                if let (Some(first), Some(mask)) = (first, &kept.mask) {
                    let len = block.output().len();
                    let probability = f64::from(block.dropout);
                    let threshold = (probability * 2f64.powi(32)).round() as u64;
                    let keep = T::one() / (T::one() - T::of(probability));
                    let threshold = Argument::Whole(u32::try_from(threshold).unwrap_or(u32::MAX));
                    let sizes = [whole(first), whole(self.samples), whole(len), long(all), long(before)];
                    let places = [output.at(), mask.at(), call.rows];
                    let arguments = [&places[..], &sizes, &[threshold, kernels::number(keep)]].concat();
                    let grid = threads(self.samples * len, call.count);
                    self.kernels.launch(script, "dropout", grid, &arguments);
                    before += len;
                }
            }
        }
    }

    /// One block, without what follows it; convolutions and dense layers include their relu and pooling.
    ///
    /// # Safety
    /// As [`forward`](Self::forward); the target has room for the block's output, or for that before its relu and pooling.
    unsafe fn forward_block(&self, script: &mut Script, k: usize, call: Call, target: &Buffer) {
        let (block, kept) = (&self.blocks[k], &self.memory.kept[k]);
        let (input, shape) = (block.input, block.convolved());
        let numbers = call.all() * shape.len();
        let Call { samples, rows, count } = call;
        // SAFETY: the types are those of the kernels, and every buffer has room for the numbers of all models and samples.
        unsafe {
            match block.kind {
                BlockKind::Pool(squares) => {
                    let sizes =
                        [input.height, input.width, input.channels, shape.height, shape.width].map(whole);
                    let how = [squares.side, squares.stride, usize::from(squares.average)].map(whole);
                    let arguments = [
                        &[kept.input.at(), target.at(), maybe(&kept.which)],
                        &sizes[..],
                        &how,
                        &[long(numbers)],
                    ];
                    self.each(script, "pool", numbers, &arguments.concat());
                }
                BlockKind::Norm { groups, by_number } => {
                    let pixels = input.height * input.width;
                    let sizes = [pixels, input.channels, groups, usize::from(by_number), samples].map(whole);
                    let places = [kept.input.at(), rows, target.at(), maybe(&kept.moments)];
                    let arguments = [&places[..], &sizes, &[long(block.offset)]].concat();
                    let grid = Grid::new([samples as u32, 1, count as u32], THREADS);
                    self.kernels.launch(script, "normalise", grid, &arguments);
                }
                BlockKind::Add { from } => {
                    let other = self.memory.kept[from].input.at();
                    let arguments = [kept.input.at(), other, target.at(), long(numbers)];
                    self.each(script, "sum_of_two", numbers, &arguments);
                }
                _ => {
                    let Some(layer) = &self.layers[k] else { return };
                    if block.kind != BlockKind::Dense {
                        let places = [kept.input.at(), target.at(), maybe(&kept.largest)];
                        let weights = self.halves.of(k, &self.memory, count);
                        return layer.forward((script, &self.kernels), call, places, weights);
                    }
                    let parts = self.memory.parts.at();
                    let places = [kept.input.at(), parts, Argument::Pointer(0)];
                    layer.forward((script, &self.kernels), call, places, None);
                    let bias = long(block.offset + block.weights());
                    let sizes = [layer.splits(), samples, block.out].map(whole);
                    let relu = whole(usize::from(block.relu));
                    let arguments = [&[parts, rows, target.at()], &sizes[..], &[bias, relu]].concat();
                    self.kernels.launch(script, "finish", threads(samples * block.out, count), &arguments);
                }
            }
        }
    }
}
