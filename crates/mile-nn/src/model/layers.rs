//! From a list of layers to blocks that the kernels run: inference of shapes, refusal of what does not fit.

use super::Layer;
use crate::data::Shape;

/// Most parameters of a network: beyond it lies a typing error.
const MAX_PARAMETERS: usize = 1 << 30;
/// Most values of one sample between two layers: beyond it, memory for a chunk of samples.
const MAX_VALUES: usize = 1 << 22;

/// Why a list of layers is not a network for the data. Layers are numbered from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There are no layers with parameters.
    #[error("the network has no dense layer; end it with {{ kind = \"dense\", out = {classes} }}")]
    NoDense {
        /// Number of classes.
        classes: usize,
    },
    /// The last layer has not one output a class.
    #[error(
        "the last dense layer has {out} outputs, but the data has {classes} classes; set out = {classes}"
    )]
    Outputs {
        /// Outputs of the last layer.
        out: usize,
        /// Number of classes.
        classes: usize,
    },
    /// A kernel does not fit its input.
    #[error(
        "layer {layer}: a {kernel} x {kernel} convolution with padding {padding} does not fit an input of {input}; \
         the kernel must be from 1 to the padded side, and the padding less than the kernel"
    )]
    Kernel {
        /// Which layer.
        layer: usize,
        /// Side of its kernel.
        kernel: usize,
        /// Its padding.
        padding: usize,
        /// Shape it is given.
        input: Shape,
    },
    /// An image is too small to be pooled.
    #[error("layer {layer}: an input of {input} is too small for 2 x 2 max-pooling")]
    Pool {
        /// Which layer.
        layer: usize,
        /// Shape it is given.
        input: Shape,
    },
    /// A layer cannot stand where it does.
    #[error("layer {layer}: {what}, its input being {input}")]
    Order {
        /// Which layer.
        layer: usize,
        /// What is wrong.
        what: &'static str,
        /// Shape it is given.
        input: Shape,
    },
    /// A number is out of its range.
    #[error("layer {layer}: {what}")]
    Range {
        /// Which layer.
        layer: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// What a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A convolution of this kernel side and padding.
    Conv { kernel: usize, padding: usize },
    /// A dense layer.
    Dense,
}

/// A convolution or dense layer with what acts on its output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    /// What it is given. A dense layer's input is an image if it is the first after images.
    pub(crate) input: Shape,
    /// Output channels.
    pub(crate) out: usize,
    pub(crate) relu: bool,
    pub(crate) pool: bool,
    /// Probability of dropout; 0 for none.
    pub(crate) dropout: f32,
    /// Where its weights begin in the parameter vector; the biases follow them.
    pub(crate) offset: usize,
}

impl Block {
    /// Inputs that one output unit sees.
    pub(crate) fn fan_in(&self) -> usize {
        match self.kind {
            Kind::Conv { kernel, .. } => kernel.saturating_mul(kernel).saturating_mul(self.input.channels),
            Kind::Dense => self.input.len(),
        }
    }

    /// Number of weights.
    pub(crate) fn weights(&self) -> usize {
        self.fan_in() * self.out
    }

    /// Number of weights and biases.
    pub(crate) fn parameters(&self) -> usize {
        self.weights() + self.out
    }

    /// Shape before pooling.
    pub(crate) fn convolved(&self) -> Shape {
        match self.kind {
            Kind::Conv { kernel, padding } => Shape {
                height: self.input.height + 2 * padding + 1 - kernel,
                width: self.input.width + 2 * padding + 1 - kernel,
                channels: self.out,
            },
            Kind::Dense => Shape { height: 1, width: 1, channels: self.out },
        }
    }

    /// Shape of the output.
    pub(crate) fn output(&self) -> Shape {
        let shape = self.convolved();
        let divisor = if self.pool { 2 } else { 1 };
        Shape { height: shape.height / divisor, width: shape.width / divisor, ..shape }
    }
}

/// The blocks of a network and its number of parameters.
pub(super) fn assemble(
    layers: &[Layer],
    input: Shape,
    classes: usize,
) -> Result<(Vec<Block>, usize), ModelError> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut offset = 0;
    for (i, &layer) in layers.iter().enumerate() {
        let number = i + 1;
        let shape = blocks.last().map_or(input, Block::output);
        match layer {
            Layer::Conv { .. } | Layer::Dense { .. } => {
                let after_dense = blocks.last().is_some_and(|b| b.kind == Kind::Dense);
                let block = start(layer, number, shape, after_dense, offset)?;
                offset += block.parameters();
                blocks.push(block);
            }
            Layer::Flatten {} => {}
            Layer::Relu {} | Layer::MaxPool { .. } | Layer::Dropout { .. } => {
                let what = "relu, max-pool and dropout must follow a convolution or a dense layer";
                let block =
                    blocks.last_mut().ok_or(ModelError::Order { layer: number, what, input: shape })?;
                follow(layer, number, block)?;
            }
        }
    }
    match blocks.last() {
        Some(Block { kind: Kind::Dense, out, .. }) if *out == classes => finish(blocks, layers.len(), offset),
        Some(Block { kind: Kind::Dense, out, .. }) => Err(ModelError::Outputs { out: *out, classes }),
        _ => Err(ModelError::NoDense { classes }),
    }
}

fn finish(blocks: Vec<Block>, layer: usize, dim: usize) -> Result<(Vec<Block>, usize), ModelError> {
    match blocks.last() {
        Some(block) if block.relu || block.dropout > 0.0 => Err(ModelError::Order {
            layer,
            what: "the last dense layer gives the scores of the classes and takes no relu or dropout",
            input: block.output(),
        }),
        _ => Ok((blocks, dim)),
    }
}

/// The block that a convolution or dense layer begins.
fn start(
    layer: Layer,
    number: usize,
    input: Shape,
    after_dense: bool,
    offset: usize,
) -> Result<Block, ModelError> {
    let (kind, out) = match layer {
        Layer::Conv { .. } if after_dense => {
            let what = "a convolution cannot follow a dense layer";
            return Err(ModelError::Order { layer: number, what, input });
        }
        Layer::Conv { kernel, padding, .. } if !fits(kernel, padding, input) => {
            return Err(ModelError::Kernel { layer: number, kernel, padding, input });
        }
        Layer::Conv { out, kernel, padding } => (Kind::Conv { kernel, padding }, out),
        Layer::Dense { out } => (Kind::Dense, out),
        _ => unreachable!("only convolutions and dense layers begin a block"),
    };
    let block = Block { kind, input, out, relu: false, pool: false, dropout: 0.0, offset };
    check_size(&block).map_err(|what| ModelError::Range { layer: number, what })?;
    Ok(block)
}

/// Whether a kernel of this side and padding fits an image.
fn fits(kernel: usize, padding: usize, input: Shape) -> bool {
    let side = padding.saturating_mul(2).saturating_add(input.height.min(input.width));
    (1..=side).contains(&kernel) && padding < kernel
}

fn check_size(block: &Block) -> Result<(), &'static str> {
    let parameters = block.fan_in().saturating_mul(block.out).saturating_add(block.offset);
    if block.out == 0 {
        return Err("out must be at least 1");
    }
    if parameters > MAX_PARAMETERS {
        return Err("the network would have more than 2^30 parameters");
    }
    // So many parameters bound the kernel's side, and with it all sizes below.
    let padding = if let Kind::Conv { padding, .. } = block.kind { padding } else { 0 };
    let input = block.input;
    let padded = (input.height + 2 * padding) * (input.width + 2 * padding) * input.channels;
    if padded.max(block.convolved().len()) > MAX_VALUES {
        return Err("its padded input or its output would have more than 2^22 values a sample");
    }
    Ok(())
}

/// Lets a layer without parameters act on the block before it.
fn follow(layer: Layer, number: usize, block: &mut Block) -> Result<(), ModelError> {
    let input = block.output();
    let refuse = |what| Err(ModelError::Order { layer: number, what, input });
    match layer {
        _ if block.dropout > 0.0 => {
            return refuse("dropout must come last before the next layer with weights");
        }
        Layer::Relu {} if block.relu => return refuse("a second relu does nothing"),
        Layer::Relu {} => block.relu = true,
        Layer::MaxPool { size } if size != 2 => {
            return Err(ModelError::Range { layer: number, what: "max-pool takes size = 2 only" });
        }
        Layer::MaxPool { .. } if block.pool || block.kind == Kind::Dense => {
            return refuse("max-pool must follow a convolution, once");
        }
        Layer::MaxPool { .. } if input.height < 2 || input.width < 2 => {
            return Err(ModelError::Pool { layer: number, input });
        }
        Layer::MaxPool { .. } => block.pool = true,
        Layer::Dropout { p } if (0.0..1.0).contains(&p) => block.dropout = p,
        _ => {
            return Err(ModelError::Range { layer: number, what: "dropout takes p from 0 to below 1" });
        }
    }
    Ok(())
}
