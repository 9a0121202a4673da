//! Neural networks: a list of layers, checked against the shape of the data, with all parameters in one vector.
//!
//! # Layout of the parameter vector
//!
//! Layers follow each other in order; each has its weights, then its biases:
//!
//! ```text
//! conv    weights [kernel row][kernel column][input channel][output channel], biases [output channel]
//! dense   weights [input][output],                                            biases [output]
//! norm    scales [channel] or [row][column][channel],                         shifts as many
//! ```
//!
//! The inputs of a dense layer after a convolution are in the order row, column, channel, as the kernels read
//! them; [`Model::state_dict`] converts to PyTorch's order.
//!
//! # Order of the layers
//!
//! Any number of convolutions, poolings and normalisations, then one or more dense layers with or without normalisation,
//! the last with one output per class. `relu` and
//! `dropout` follow the layer they act on, each at most once, `dropout` last. `residual` contains layers, which keep the
//! shape and the first of which is neither of these two. Any other order is an error that names the
//! layer and its input shape.

mod export;
mod layers;
mod spec;

use mile::random::{Purpose, stream};
use rand::RngExt;

use crate::data::Shape;
pub use layers::ModelError;
pub use mile::problems::device::{Block, BlockKind, Squares};
pub use spec::{Layer, ModelSpec, Preset};

/// A neural network for images of one shape and a number of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    input: Shape,
    classes: usize,
    blocks: Vec<Block>,
    dim: usize,
}

impl Model {
    /// Checks the layers of `spec` against images of shape `input` and the number of classes.
    ///
    /// ```
    /// use mile_nn::data::Shape;
    /// use mile_nn::model::{Model, ModelSpec, Preset};
    /// let shape = Shape { height: 28, width: 28, channels: 1 };
    /// let model = Model::try_new(&ModelSpec::Preset(Preset::MnistCnn), shape, 10)?;
    /// assert_eq!(model.dim(), 28_938);
    /// # Ok::<(), mile_nn::model::ModelError>(())
    /// ```
    pub fn try_new(spec: &ModelSpec, input: Shape, classes: usize) -> Result<Self, ModelError> {
        let (blocks, dim) = layers::assemble(&spec.layers(classes), input, classes)?;
        Ok(Self { input, classes, blocks, dim })
    }

    /// Number of parameters.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Shape of the input images.
    pub fn input(&self) -> Shape {
        self.input
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The blocks that compute it, one after the other.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Whether any layer is followed by dropout.
    pub fn has_dropout(&self) -> bool {
        self.blocks.iter().any(|block| block.dropout > 0.0)
    }

    /// PyTorch's default initialisation: weights and biases uniform in +-1/sqrt(fan-in); scales 1, shifts 0.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut parameters = Vec::with_capacity(self.dim);
        for (i, block) in self.blocks.iter().enumerate() {
            if block.fan_in() == 0 {
                parameters.extend(std::iter::repeat_n(1.0, block.weights()));
                parameters.resize(block.offset + block.parameters(), 0.0);
                continue;
            }
            let bound = 1.0 / (block.fan_in() as f32).sqrt();
            let mut rng = stream(seed, Purpose::Start, i as u64, 0);
            parameters.extend((0..block.parameters()).map(|_| rng.random_range(-bound..=bound)));
        }
        parameters
    }

    /// Floating-point operations of the gradient of one sample: the multiplications and additions of the
    /// convolutions and dense layers, forward and backward (without the gradient of the images).
    pub fn flops(&self) -> u64 {
        let forward = |block: &Block| 2 * block.fan_in() as u64 * block.convolved().len() as u64;
        self.blocks.iter().enumerate().map(|(i, block)| forward(block) * if i == 0 { 2 } else { 3 }).sum()
    }
}
