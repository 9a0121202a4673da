//! Memory for the intermediate values of a network, for all agents and a number of samples of each.

use std::sync::Arc;

use mile::problems::device::{Block, BlockKind, Squares};
use mile::real::Real;

use super::layer::Layer;
use crate::device::{Argument, Buffer, Device, DeviceError};

/// What a block keeps for the backward pass.
#[derive(Debug)]
pub(super) struct Kept {
    /// Its input.
    pub(super) input: Buffer,
    /// Which of four numbers was the largest.
    pub(super) largest: Option<Buffer>,
    /// Which number of a pooled square was the largest.
    pub(super) which: Option<Buffer>,
    /// Means and inverse deviations.
    pub(super) moments: Option<Buffer>,
    /// Dropout factors.
    pub(super) mask: Option<Buffer>,
    /// Deltas that bypass it, to the input of an earlier block.
    pub(super) skipped: Option<Buffer>,
    /// Parts of the gradients of its parameters.
    pub(super) parts: Option<Buffer>,
    /// Deltas at its output, and before its relu, pooling and dropout.
    pub(super) delta: Option<Buffer>,
    pub(super) full: Option<Buffer>,
}

/// All of them, and what several blocks share.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) kept: Vec<Kept>,
    pub(super) outputs: Buffer,
    /// Numbers of a block before its relu and pooling.
    pub(super) full: Buffer,
    /// Parts of a dense layer's outputs.
    pub(super) parts: Buffer,
    /// Weights that are split into halves, and the factors these have to be multiplied by, [layer][model].
    pub(super) packed: Buffer,
    pub(super) scales: Buffer,
}

/// Whether relu and pooling are done by a separate kernel.
pub(super) fn is_activated_apart(block: &Block) -> bool {
    !matches!(block.kind, BlockKind::Conv { .. } | BlockKind::Dense) && (block.relu || block.pool)
}

/// Numbers of a block before its relu and pooling, if these are done separately.
fn full(block: &Block) -> usize {
    if is_activated_apart(block) { block.convolved().len() } else { 0 }
}

/// Numbers, for each agent and sample, or for each agent.
struct Sizes<'b> {
    blocks: &'b [Block],
    layers: &'b [Option<Layer>],
    samples: usize,
}

impl Sizes<'_> {
    fn largest(&self, of: impl Fn(&Block) -> usize) -> usize {
        self.blocks.iter().map(of).max().unwrap_or(0)
    }

    /// Splits of the gradient of a block's parameters.
    fn gradient(&self, k: usize) -> usize {
        let splits = self.layers[k].as_ref().map_or(1, |layer| layer.weight_splits(self.samples));
        splits * self.blocks[k].parameters()
    }

    /// Numbers of a block before its relu, pooling and dropout that its backward pass needs.
    fn before(&self, k: usize) -> usize {
        let block = &self.blocks[k];
        let reads_pooled = self.layers[k].as_ref().is_some_and(Layer::reads_pooled);
        let is_changed = block.relu || block.pool || block.dropout > 0.0;
        if is_changed && !reads_pooled { block.convolved().len() } else { 0 }
    }

    /// Layers whose weights are split into halves, and numbers of these.
    fn packed(&self) -> [usize; 2] {
        let found = self.layers.iter().flatten().filter_map(Layer::packed);
        found.fold([0, 0], |[layers, all], (_, numbers)| [layers + 1, all + numbers])
    }

    fn dense_parts(&self) -> usize {
        let of = |(block, layer): (&Block, &Option<Layer>)| {
            layer.as_ref().map_or(0, |layer| layer.splits() * block.out)
        };
        self.blocks.iter().zip(self.layers).map(of).max().unwrap_or(0)
    }
}

impl Memory {
    /// Bytes for this many agents and samples; without the backward pass if there are no gradients.
    pub(super) fn bytes<T: Real>(
        blocks: &[Block],
        layers: &[Option<Layer>],
        shape: [usize; 2],
        gradients: bool,
    ) -> u64 {
        let [rows, samples] = shape.map(|n| n as u64);
        let sizes = Sizes { blocks, layers, samples: shape[1] };
        let inputs: usize = blocks.iter().map(|block| block.input.len()).sum();
        let mut each = inputs + sizes.dense_parts() + sizes.largest(full);
        let mut of_agent: usize = sizes.packed().iter().sum();
        if gradients {
            // With masks, and where the largest numbers were.
            each += (0..blocks.len()).map(|k| 3 * blocks[k].output().len() + sizes.before(k)).sum::<usize>();
            of_agent += (0..blocks.len()).map(|k| sizes.gradient(k)).sum::<usize>();
        }
        rows * (samples * each as u64 + of_agent as u64) * size_of::<T>() as u64
    }

    pub(super) fn new<T: Real>(
        device: &Arc<dyn Device>,
        blocks: &[Block],
        layers: &[Option<Layer>],
        [rows, samples]: [usize; 2],
        gradients: bool,
    ) -> Result<Self, DeviceError> {
        let sizes = Sizes { blocks, layers, samples };
        let all = rows * samples;
        let numbers = |count: usize| Buffer::new::<T>(device, count);
        let some = |wanted: bool, count: usize| wanted.then(|| numbers(count)).transpose();
        let kept = |(k, block): (usize, &Block)| -> Result<Kept, DeviceError> {
            let (output, convolved) = (block.output().len(), block.convolved().len());
            let largest = block.pool.then(|| Buffer::new::<u8>(device, all * output)).transpose()?;
            let is_max = matches!(block.kind, BlockKind::Pool(Squares { average: false, .. }));
            let groups = if let BlockKind::Norm { groups, .. } = block.kind { groups } else { 0 };
            Ok(Kept {
                input: numbers(all * block.input.len())?,
                largest,
                which: is_max.then(|| Buffer::new::<u16>(device, all * convolved)).transpose()?,
                moments: some(groups > 0, all * groups * 2)?,
                mask: some(gradients && block.dropout > 0.0, all * output)?,
                skipped: some(
                    gradients && matches!(block.kind, BlockKind::Add { from: 1.. }),
                    all * block.input.len(),
                )?,
                parts: some(gradients && block.parameters() > 0, rows * sizes.gradient(k))?,
                delta: some(gradients, all * output)?,
                full: some(gradients && sizes.before(k) > 0, all * sizes.before(k))?,
            })
        };
        let [split, packed] = sizes.packed();
        let last = blocks.last().map_or(0, |block| block.output().len());
        Ok(Self {
            kept: blocks.iter().enumerate().map(kept).collect::<Result<_, _>>()?,
            outputs: numbers(all * last)?,
            full: numbers(all * sizes.largest(full))?,
            parts: numbers(all * sizes.dense_parts())?,
            packed: numbers(rows * packed)?,
            scales: numbers(rows * split)?,
        })
    }

    /// Deltas at the output of a block; those of the backward pass all exist if there are gradients.
    pub(super) fn delta(&self, block: usize) -> &Buffer {
        self.kept[block].delta.as_ref().unwrap_or(&self.full)
    }

    /// Where the output of a block is: the input of the next.
    pub(super) fn output(&self, block: usize) -> &Buffer {
        self.kept.get(block + 1).map_or(&self.outputs, |next| &next.input)
    }
}

/// Where a buffer begins, or nothing.
pub(super) fn maybe(buffer: &Option<Buffer>) -> Argument {
    buffer.as_ref().map_or(Argument::Pointer(0), Buffer::at)
}
