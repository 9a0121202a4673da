//! Memory for the intermediate values of a network, allocated once.

use bytemuck::Zeroable;
use mile::real::Real;

use super::phases::Side;
use super::{CHUNK, DENSE_TAPS};
use crate::kernel::panel_width;
use crate::model::{Block, BlockKind, Model, Squares};

/// A cache line; buffers begin on one, so that no vector of the kernels straddles two.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A buffer of numbers, zero at first and aligned to cache lines.
#[derive(Clone)]
pub(crate) struct Buffer<T> {
    lines: Vec<Line>,
    len: usize,
    marker: std::marker::PhantomData<T>,
}

impl<T: Real> Buffer<T> {
    fn new(len: usize) -> Self {
        let lines = vec![Line::zeroed(); (len * size_of::<T>()).div_ceil(64)];
        Self { lines, len, marker: std::marker::PhantomData }
    }
}

impl<T: Real> std::ops::Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl<T: Real> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

/// The values of each sample: padded images, or vectors.
#[derive(Clone)]
pub(crate) struct Samples<T> {
    pub(crate) values: Buffer<T>,
    /// Step from one sample to the next.
    pub(crate) stride: usize,
    /// Step from one image row to the next.
    pub(crate) row: usize,
    /// Offset of the first number of a sample that is not padding.
    pub(crate) origin: usize,
    /// Length of a vector.
    len: usize,
}

impl<T: Real> Samples<T> {
    /// Vectors of length `len`, with `row` numbers per image row. Their stride is never a multiple of a page, since
    /// such vectors would compete for the same few cache lines.
    fn vectors(len: usize, row: usize) -> Self {
        let stride = len.next_multiple_of(16) + 16;
        Self { values: Buffer::new(CHUNK * stride), stride, row, origin: 0, len }
    }

    /// The input of `block`.
    fn input_of(block: &Block) -> Self {
        let shape = block.input;
        match block.kind {
            BlockKind::Dense | BlockKind::Pool(_) | BlockKind::Norm { .. } | BlockKind::Add { .. } => {
                Self::vectors(shape.len(), shape.width * shape.channels)
            }
            BlockKind::Conv { padding, .. } => {
                let row = (shape.width + 2 * padding) * shape.channels;
                let stride = (shape.height + 2 * padding) * row;
                let origin = padding * (row + shape.channels);
                Self { values: Buffer::new(CHUNK * stride), stride, row, origin, len: shape.len() }
            }
        }
    }

    /// The vectors of the first `n` samples.
    pub(crate) fn rows(&self, n: usize) -> impl Iterator<Item = &[T]> {
        self.values.chunks_exact(self.stride).map(|sample| &sample[..self.len]).take(n)
    }

    /// The vectors of the first `n` samples.
    pub(crate) fn rows_mut(&mut self, n: usize) -> impl Iterator<Item = &mut [T]> {
        let len = self.len;
        self.values.chunks_exact_mut(self.stride).map(move |sample| &mut sample[..len]).take(n)
    }
}

/// The values of one block that the forward pass keeps for the backward pass.
#[derive(Clone)]
pub(crate) struct Activations<T> {
    pub(crate) input: Samples<T>,
    /// The position of the largest number in each pooled square.
    pub(crate) argmax: Vec<u8>,
    /// As `argmax`, of a block that is max-pooling by itself.
    pub(crate) which: Vec<u16>,
    /// Of a block that normalises, mean and inverse deviation for each channel of each sample (see [`moments`]).
    pub(crate) moments: Vec<T>,
    /// Of a sum, the deltas at the input of the earlier block that go through it.
    pub(crate) skipped: Buffer<T>,
    /// Dropout factors: 0 or 1/(1 - p).
    pub(crate) mask: Vec<T>,
    /// Deltas at the convolved images of a [`group`], with borders of zeros; or at one image, without.
    pub(crate) back: Buffer<T>,
}

impl<T: Real> Activations<T> {
    fn new(block: &Block) -> Self {
        let output = block.output().len();
        let convolved = block.convolved();
        let back = match block.kind {
            BlockKind::Conv { kernel, padding, stride } => {
                let [rows, columns] = Side::both(block, kernel, padding, stride).map(Side::padded);
                group(block) * rows * columns * convolved.channels
            }
            BlockKind::Dense | BlockKind::Add { .. } => 0,
            BlockKind::Pool(_) | BlockKind::Norm { .. } => convolved.len(),
        };
        let which = match block.kind {
            BlockKind::Pool(Squares { average: false, .. }) => CHUNK * convolved.len(),
            _ => 0,
        };
        Self {
            input: Samples::input_of(block),
            argmax: vec![0; if block.pool { CHUNK * output } else { 0 }],
            which: vec![0; which],
            skipped: Buffer::new(match block.kind {
                BlockKind::Add { from: 1.. } => CHUNK * convolved.len(),
                _ => 0,
            }),
            moments: vec![T::zero(); CHUNK * 2 * moments(block)],
            mask: vec![T::zero(); if block.dropout > 0.0 { CHUNK * output } else { 0 }],
            back: Buffer::new(back),
        }
    }
}

/// All intermediate values of up to [`CHUNK`] samples.
#[derive(Clone)]
pub struct Workspace<T> {
    pub(crate) blocks: Vec<Activations<T>>,
    /// Logits of the classes.
    pub(crate) logits: Samples<T>,
    /// One image before pooling.
    pub(crate) convolved: Buffer<T>,
    /// The weights of a block in panels, or what the backward pass transposes.
    pub(crate) weights: Buffer<T>,
    /// Deltas at the output of the block being differentiated, and at its input.
    pub(crate) deltas: [Buffer<T>; 2],
}

impl<T: Real> Workspace<T> {
    pub(super) fn new(model: &Model) -> Self {
        let blocks = model.blocks();
        let largest = |size: &dyn Fn(&Block) -> usize| blocks.iter().map(size).max().unwrap_or(0);
        let deltas = CHUNK * largest(&|block| delta_stride(block.output().len()));
        Self {
            blocks: blocks.iter().map(Activations::new).collect(),
            logits: Samples::vectors(model.classes(), model.classes()),
            convolved: Buffer::new(largest(&|block| {
                if block.kind == BlockKind::Dense { 0 } else { block.convolved().len() }
            })),
            weights: Buffer::new(largest(&in_panels)),
            deltas: [Buffer::new(deltas), Buffer::new(deltas)],
        }
    }
}

/// Images whose deltas are summed into weight gradients at a time: enough that a tile of sums stays in registers for a
/// few hundred pixels.
pub(crate) fn group(block: &Block) -> usize {
    let convolved = block.convolved();
    (512 / (convolved.height * convolved.width)).clamp(1, CHUNK)
}

/// Room for the weights of a block that are needed at a time in panels of outputs, for transposed weights of a
/// convolution, for transposed deltas of a dense layer, and for sums over the pixels of each channel.
fn in_panels(block: &Block) -> usize {
    let panels = |channels: usize| channels.next_multiple_of(panel_width(channels));
    match block.kind {
        BlockKind::Conv { kernel, .. } => {
            let (inputs, taps) = (block.input.channels, kernel * kernel);
            taps * (inputs * panels(block.out)).max(block.out * panels(inputs))
        }
        BlockKind::Dense => {
            let inputs = block.fan_in();
            let deltas = (delta_stride(block.out) + DENSE_TAPS.min(inputs)) * panel_width(CHUNK);
            deltas.max(DENSE_TAPS.min(inputs) * panels(block.out))
        }
        BlockKind::Pool(_) | BlockKind::Add { .. } => block.out,
        BlockKind::Norm { .. } => block.out + 2 * moments(block),
    }
}

/// How many consecutive numbers of a sample the kernels of a normalising block treat as the channels of a pixel. With
/// a scale for each number they may be a whole row, which makes longer vectors.
pub(crate) fn moments(block: &Block) -> usize {
    match block.kind {
        BlockKind::Norm { by_number: true, .. } => block.input.width * block.input.channels,
        BlockKind::Norm { .. } => block.input.channels,
        _ => 0,
    }
}

/// Step from one sample's deltas to the next.
pub(crate) fn delta_stride(len: usize) -> usize {
    len.next_multiple_of(16) + 16
}

impl<T> std::fmt::Debug for Workspace<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}
