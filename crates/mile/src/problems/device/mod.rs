//! A neural network and its samples as plain data, from which an engine makes its own kernels and buffers:
//! [`DeviceForm::Network`](super::DeviceForm::Network).

mod blocks;
mod images;

pub use blocks::{Block, BlockKind, Shape, Squares};
pub use images::{Images, Targets, Values};

use super::{Batch, Metric};

/// A neural network, and the samples of each agent.
#[derive(Clone, Copy, Debug)]
pub struct NetworkForm<'a> {
    /// The blocks that compute it, one after the other.
    pub blocks: &'a [Block],
    /// Number of classes, or of the numbers predicted for each sample.
    pub classes: usize,
    /// The training samples.
    pub train: &'a Images,
    /// The numbers of the training samples of each agent; none for agents of other ranks.
    pub parts: &'a [Vec<u32>],
    /// How many training samples each agent has, including those of other ranks.
    pub sizes: &'a [usize],
    /// The mini-batch of a stochastic gradient.
    pub batch: Batch,
    /// The training samples of each agent on which its loss is evaluated.
    pub evaluated: &'a [Vec<u32>],
    /// The samples on which metrics are measured, and the images that they belong to.
    pub measured: (&'a [u32], &'a Images),
    /// What is measured on them.
    pub metrics: &'a [Metric],
    /// The factor w of the term `(w/2) |x|^2` of every `f_i`.
    pub weight_decay: f64,
}
