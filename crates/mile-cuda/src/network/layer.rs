//! The products of one convolution or dense layer: their kernels and how they are launched.

mod source;

use mile::problems::device::{Block, BlockKind};

use super::convolution::{Convolution, Fitted, Split, Strip};
use super::tiles::{Operands, Product, Tile, Windowed};
use crate::device::{Argument, Grid};
use crate::queue::Kernels;
use crate::script::Script;

/// Pixels over which one block sums for a weight gradient. The tensor cores truncate what does not fit their accumulators, so longer
/// sums would lose digits.
const DEPTH_OF_WEIGHTS: usize = 512;
/// The same for layers with few weights, which have few tiles: more of them keep the device busy.
const DEPTH_OF_FEW_WEIGHTS: usize = 256;
/// Inputs over which one block sums for a dense layer.
const DEPTH_OF_DENSE: usize = 128;

/// A convolution, or a dense layer as a convolution of images of one pixel.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Its number among the blocks.
    number: usize,
    block: Block,
    /// Bytes of a number.
    bytes: usize,
    kernel: usize,
    padding: usize,
    stride: usize,
    height: usize,
    width: usize,
    channels: usize,
    /// How it is computed from halves, and how its weight gradient is computed from whole lines of images, where they are.
    split: Option<Split>,
    strip: Option<Strip>,
}

/// Models and samples.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// Number of models.
    pub(super) count: usize,
    /// Samples of each.
    pub(super) samples: usize,
    /// Their descriptors.
    pub(super) rows: Argument,
}

impl Call {
    /// Samples of all models.
    pub(super) fn all(self) -> usize {
        self.count * self.samples
    }
}

/// The split weights of a layer, and the factors they have to be multiplied by.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    pub(super) packed: Argument,
    pub(super) scales: Argument,
    pub(super) each: Argument,
}

pub(super) fn whole(value: usize) -> Argument {
    Argument::Whole(value as u32)
}

pub(super) fn long(value: usize) -> Argument {
    Argument::Long(value as u64)
}

impl Layer {
    /// None for blocks that multiply no matrices.
    pub(super) fn new(number: usize, block: &Block, bytes: usize) -> Option<Self> {
        let input = block.input;
        let (kernel, padding, stride, [height, width, channels]) = match block.kind {
            BlockKind::Conv { kernel, padding, stride } => {
                (kernel, padding, stride, [input.height, input.width, input.channels])
            }
            BlockKind::Dense => (1, 0, 1, [1, 1, input.len()]),
            _ => return None,
        };
        let (out, pool) = (block.out, block.pool);
        let convolution = Convolution { height, width, channels, kernel, padding, out, pool };
        let is_known = block.kind != BlockKind::Dense && stride == 1 && bytes == 4;
        let split = is_known.then(|| convolution.split()).flatten();
        let strip =
            is_known.then(|| split.map(|split| split.weights).or_else(|| convolution.few())).flatten();
        let block = *block;
        Some(Self { number, block, bytes, kernel, padding, stride, height, width, channels, split, strip })
    }

    /// Where its weights are in a model and how many, if they are split into halves.
    pub(super) fn packed(&self) -> Option<(usize, usize)> {
        self.split.map(|_| (self.block.offset, self.block.weights()))
    }

    /// Whether its backward pass reads the deltas after pooling, so that those before it need not be written.
    pub(super) fn reads_pooled(&self) -> bool {
        let reads = self.split.is_some() || (self.strip.is_some() && self.number == 0);
        reads && self.block.pool && self.block.dropout == 0.0
    }

    fn is_dense(&self) -> bool {
        self.block.kind == BlockKind::Dense
    }

    /// How many numbers can be read at once if they come in groups of `count`: up to sixteen bytes.
    fn at_once(&self, count: usize) -> usize {
        match self.bytes {
            4 if count.is_multiple_of(4) => 4,
            _ if count.is_multiple_of(2) => 2,
            _ => 1,
        }
    }

    fn weights_at_once(&self) -> usize {
        self.at_once(self.block.out).min(self.at_once(self.block.offset))
    }

    /// Rows and columns of the output before pooling.
    fn pixels(&self) -> usize {
        let shape = self.block.convolved();
        shape.height * shape.width
    }

    fn operands(&self, product: Product) -> Operands {
        let (inputs, outputs) = (self.at_once(self.channels), self.at_once(self.block.out));
        let weights = self.weights_at_once();
        let (rows, columns, reads) = match product {
            Product::Forward { .. } | Product::Dense => {
                (None, self.block.out, [(true, inputs), (false, weights)])
            }
            Product::Back => {
                (self.is_dense().then_some(1), self.channels, [(true, outputs), (true, weights)])
            }
            Product::Weights => {
                (Some(self.block.fan_in() + 1), self.block.out, [(false, inputs), (false, outputs)])
            }
        };
        Operands { rows, columns, reads, bytes: self.bytes }
    }

    fn product(&self) -> Product {
        if self.is_dense() { Product::Dense } else { Product::Forward { pool: self.block.pool } }
    }

    /// The convolution whose images can be kept in shared memory, if there is one.
    fn windowed(&self, product: Product) -> Option<Windowed> {
        let Self { kernel, padding, height, width, channels, .. } = *self;
        let (shape, pool) = (self.block.convolved(), self.block.pool);
        match product {
            _ if self.is_dense() || self.stride != 1 => None,
            Product::Forward { .. } => {
                Some(Windowed { height, width, channels, kernel, padding, columns: self.block.out, pool })
            }
            Product::Back => Some(Windowed {
                height: shape.height,
                width: shape.width,
                channels: shape.channels,
                kernel,
                padding: kernel - 1 - padding,
                columns: channels,
                pool: false,
            }),
            Product::Dense | Product::Weights => None,
        }
    }

    /// The tile of a product, its bytes of shared memory, and whether images are kept there.
    fn tile(&self, product: Product) -> (Tile, usize, bool) {
        let operands = self.operands(product);
        match self.windowed(product).and_then(|windowed| windowed.tile(&operands)) {
            Some((tile, shared)) => (tile, shared, true),
            None => {
                let tile = product.tile(&operands);
                (tile, tile.shared(&operands), false)
            }
        }
    }

    /// Blocks for a product with `rows` rows, each done in `splits` parts.
    fn grid(&self, product: Product, rows: usize, splits: usize, agents: usize) -> Grid {
        let (tile, shared, _) = self.tile(product);
        let across = self.operands(product).columns.div_ceil(tile.columns);
        let blocks = [rows.div_ceil(tile.rows), across * splits, agents].map(|blocks| blocks as u32);
        Grid { blocks, threads: tile.threads() as u32, shared: shared as u32 }
    }

    /// The same from halves.
    fn split_grid(&self, fitted: Fitted, [rows, columns]: [usize; 2], agents: usize) -> Grid {
        let Fitted { tile, shared, .. } = fitted;
        let blocks = [rows.div_ceil(tile.rows), columns.div_ceil(tile.columns), agents];
        Grid {
            blocks: blocks.map(|blocks| blocks as u32),
            threads: tile.threads() as u32,
            shared: shared as u32,
        }
    }

    /// Splits of a dense layer's sums; 0 for convolutions, which are not split.
    pub(super) fn splits(&self) -> usize {
        if self.is_dense() { self.channels.div_ceil(DEPTH_OF_DENSE) } else { 0 }
    }

    fn depth_of_weights(&self) -> usize {
        if self.block.fan_in() < 32 { DEPTH_OF_FEW_WEIGHTS } else { DEPTH_OF_WEIGHTS }
    }

    /// Splits of a weight gradient's sums.
    pub(super) fn weight_splits(&self, samples: usize) -> usize {
        match self.strip {
            Some(strip) => strip.splits(samples),
            None => (samples * self.pixels()).div_ceil(self.depth_of_weights()),
        }
    }

    /// Outputs of a convolution, or the parts of those of a dense layer.
    ///
    /// # Safety
    /// `x` has the input of all samples, `out` room for the output or its parts, and `largest` for as many bytes if there is pooling. If
    /// weights are [split](Self::packed), the split ones are given.
    pub(super) unsafe fn forward(
        &self,
        (script, kernels): (&mut Script, &Kernels),
        call: Call,
        [x, out, largest]: [Argument; 3],
        weights: Option<Weights>,
    ) {
        let Call { count, samples, rows } = call;
        let (product, name) = (self.product(), format!("forward_{}", self.number));
        let offset = whole(self.block.offset);
        // SAFETY: the types are those of the kernel; the rest is promised by the caller.
        unsafe {
            if self.is_dense() {
                let grid = self.grid(product, samples, self.splits(), count);
                let arguments = [x, rows, out, whole(samples), offset, whole(DEPTH_OF_DENSE)];
                return kernels.launch(script, &name, grid, &arguments);
            }
            let output = self.block.output();
            let numbers = samples * output.height * output.width;
            let numbers = if self.block.pool { numbers.div_ceil(8) * 32 } else { numbers };
            if let (Some(split), Some(Weights { packed, scales, each })) = (self.split, weights) {
                let grid = self.split_grid(split.forward, [numbers, self.block.out], count);
                let arguments = [x, rows, packed, scales, out, largest, whole(samples), offset, each];
                return kernels.launch(script, &name, grid, &arguments);
            }
            let grid = self.grid(product, numbers, 1, count);
            kernels.launch(script, &name, grid, &[x, rows, out, largest, whole(samples), offset]);
        }
    }

    /// Deltas at the input.
    ///
    /// # Safety
    /// `delta` has the deltas at the output before pooling, or after it if these are [read](Self::reads_pooled), with `largest`; `out` has
    /// room for those at the input. Weights are as for [`forward`](Self::forward).
    pub(super) unsafe fn back(
        &self,
        (script, kernels): (&mut Script, &Kernels),
        call: Call,
        [delta, largest, out]: [Argument; 3],
        weights: Option<Weights>,
    ) {
        let Call { count, samples, rows } = call;
        let pixels = samples * self.height * self.width;
        if let (Some(split), Some(Weights { packed, scales, each })) = (self.split, weights) {
            let grid = self.split_grid(split.back, [pixels, self.channels], count);
            let arguments = [delta, largest, packed, scales, out, whole(samples), each];
            // SAFETY: the types are those of the kernel; the rest is promised by the caller.
            return unsafe { kernels.launch(script, &format!("back_{}", self.number), grid, &arguments) };
        }
        let grid = self.grid(Product::Back, pixels, 1, count);
        let arguments = [delta, rows, out, whole(samples), whole(self.block.offset)];
        // SAFETY: the types are those of the kernel; the rest is promised by the caller.
        unsafe { kernels.launch(script, &format!("back_{}", self.number), grid, &arguments) }
    }

    /// Parts of the gradients of weights and biases.
    ///
    /// # Safety
    /// `x` has the input, `delta` and `largest` are as for [`back`](Self::back), and `parts` has room for
    /// [`weight_splits`](Self::weight_splits) times the gradients of all models.
    pub(super) unsafe fn weights(
        &self,
        (script, kernels): (&mut Script, &Kernels),
        call: Call,
        [x, delta, largest, parts]: [Argument; 4],
    ) {
        let Call { count, samples, .. } = call;
        if let Some(strip) = self.strip {
            let blocks = [strip.parts, strip.splits(samples), count].map(|blocks| blocks as u32);
            let grid = Grid { blocks, threads: strip.threads() as u32, shared: strip.shared as u32 };
            let sizes = [whole(samples), whole(strip.each(samples)), long(self.block.parameters())];
            let arguments = [&[x, delta, largest, parts][..], &sizes].concat();
            // SAFETY: the types are those of the kernel; the rest is promised by the caller.
            return unsafe { kernels.launch(script, &format!("weights_{}", self.number), grid, &arguments) };
        }
        let grid = self.grid(Product::Weights, self.block.fan_in() + 1, self.weight_splits(samples), count);
        let arguments =
            [x, delta, parts, whole(samples), whole(self.depth_of_weights()), long(self.block.parameters())];
        // SAFETY: the types are those of the kernel; the rest is promised by the caller.
        unsafe { kernels.launch(script, &format!("weights_{}", self.number), grid, &arguments) }
    }
}
