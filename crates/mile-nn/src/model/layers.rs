//! From a list of layers to the blocks that the kernels run: infers and checks the shapes.

use mile::problems::device::{Block, BlockKind, Shape, Squares};

use super::Layer;

/// Most parameters of a network; more is assumed to be a typing error.
const MAX_PARAMETERS: usize = 1 << 30;
/// Most values of one sample between two layers, which limits the memory of a chunk of samples.
const MAX_VALUES: usize = 1 << 22;

/// Why a list of layers is not a valid network for the data. Layers are numbered from 1, those of a residual connection after
/// it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The last layer with parameters is not a dense layer.
    #[error(
        "the network does not end with a dense layer; end it with {{ kind = \"dense\", out = {classes} }}"
    )]
    NoDense {
        /// Number of classes, or of numbers in a target.
        classes: usize,
    },
    /// The last layer does not have one output per class, or per number of a target.
    #[error(
        "expected {classes} outputs of the last dense layer, one per class or per number in a target, got {out}; set \
         out = {classes}"
    )]
    Outputs {
        /// Outputs of the last layer.
        out: usize,
        /// Number of classes, or of numbers in a target.
        classes: usize,
    },
    /// A kernel does not fit its input.
    #[error(
        "layer {layer}: a {kernel} x {kernel} convolution with padding {padding} and stride {stride} does not fit an input of \
         {input}; kernel and stride must be at least 1 and at most the padded side, and the padding smaller than the kernel"
    )]
    Kernel {
        /// Number of the layer.
        layer: usize,
        /// Side of the kernel.
        kernel: usize,
        /// The padding.
        padding: usize,
        /// The stride.
        stride: usize,
        /// Shape of its input.
        input: Shape,
    },
    /// An image is too small for pooling.
    #[error("layer {layer}: an input of {input} is too small for {size} x {size} pooling; remove the layer")]
    Pool {
        /// Number of the layer.
        layer: usize,
        /// Side of the squares.
        size: usize,
        /// Shape of its input.
        input: Shape,
    },
    /// The layers of a residual connection change the shape.
    #[error(
        "layer {layer}: the layers of a residual connection turn an input of {input} into {output}; use layers that keep the \
         shape, so that the two can be added"
    )]
    Residual {
        /// Number of the layer.
        layer: usize,
        /// Shape of its input.
        input: Shape,
        /// Shape of what is to be added.
        output: Shape,
    },
    /// A layer is in a place where it is not allowed.
    #[error("layer {layer}, with input {input}: {what}")]
    Order {
        /// Number of the layer.
        layer: usize,
        /// What is wrong.
        what: &'static str,
        /// Shape of its input.
        input: Shape,
    },
    /// A number is out of range.
    #[error("layer {layer}: {what}")]
    Range {
        /// Number of the layer.
        layer: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Builds the blocks of a network; returns them with the number of parameters.
pub(super) fn assemble(
    layers: &[Layer],
    input: Shape,
    classes: usize,
) -> Result<(Vec<Block>, usize), ModelError> {
    let mut builder = Builder { input, blocks: Vec::new(), offset: 0, number: 0, first: 0 };
    builder.add_all(layers)?;
    let Builder { blocks, offset, number, .. } = builder;
    match blocks.last() {
        Some(Block { kind: BlockKind::Dense, out, .. }) if *out == classes => {
            check_last(blocks, number, offset)
        }
        Some(Block { kind: BlockKind::Dense, out, .. }) => Err(ModelError::Outputs { out: *out, classes }),
        _ => Err(ModelError::NoDense { classes }),
    }
}

/// The blocks so far.
struct Builder {
    input: Shape,
    blocks: Vec<Block>,
    /// Number of parameters.
    offset: usize,
    /// Number of layers, those of residual connections included.
    number: usize,
    /// The first block that a layer may be added to: not one before the residual connection that the layer is in.
    first: usize,
}

impl Builder {
    /// Shape of the output.
    fn shape(&self) -> Shape {
        self.blocks.last().map_or(self.input, Block::output)
    }

    fn add_all(&mut self, layers: &[Layer]) -> Result<(), ModelError> {
        layers.iter().try_for_each(|layer| {
            self.number += 1;
            self.add(layer)
        })
    }

    fn add(&mut self, layer: &Layer) -> Result<(), ModelError> {
        let (number, shape) = (self.number, self.shape());
        let last = self.blocks[self.first..].last_mut();
        match (layer, last) {
            (Layer::Flatten {}, _) => Ok(()),
            (Layer::MaxPool { size: 2, stride: None | Some(2) }, Some(block)) if takes_pool(block) => {
                block.pool = true;
                Ok(())
            }
            (Layer::Relu {} | Layer::Dropout { .. }, Some(block)) => add_to_block(layer, number, block),
            (Layer::Relu {} | Layer::Dropout { .. }, None) => {
                let what = "relu and dropout must follow a layer to act on";
                Err(ModelError::Order { layer: number, what, input: shape })
            }
            (Layer::Residual { layers }, _) => self.add_residual(layers),
            _ => {
                let after_dense = self.blocks.iter().any(|b| b.kind == BlockKind::Dense);
                self.push(new_block(layer, number, shape, after_dense, self.offset)?);
                Ok(())
            }
        }
    }

    fn push(&mut self, block: Block) {
        self.offset += block.parameters();
        self.blocks.push(block);
    }

    fn add_residual(&mut self, layers: &[Layer]) -> Result<(), ModelError> {
        let (layer, from, input) = (self.number, self.blocks.len(), self.shape());
        self.first = from;
        self.add_all(layers)?;
        let output = self.shape();
        if self.blocks.len() == from || output != input {
            return Err(ModelError::Residual { layer, input, output });
        }
        self.push(Block::plain(BlockKind::Add { from }, input, input.channels, self.offset));
        Ok(())
    }
}

fn check_last(blocks: Vec<Block>, layer: usize, dim: usize) -> Result<(Vec<Block>, usize), ModelError> {
    match blocks.last() {
        Some(block) if block.relu || block.dropout > 0.0 => Err(ModelError::Order {
            layer,
            what: "the last dense layer gives the logits of the classes and must not be followed by relu or dropout",
            input: block.output(),
        }),
        _ => Ok((blocks, dim)),
    }
}

/// Whether 2 x 2 max-pooling can be done together with a block.
fn takes_pool(block: &Block) -> bool {
    let shape = block.output();
    let is_large = shape.height >= 2 && shape.width >= 2;
    is_large && !block.pool && block.dropout == 0.0 && block.kind != BlockKind::Dense
}

/// The block that a layer begins.
fn new_block(
    layer: &Layer,
    number: usize,
    input: Shape,
    after_dense: bool,
    offset: usize,
) -> Result<Block, ModelError> {
    let (kind, out) = match *layer {
        Layer::Dense { out } => (BlockKind::Dense, out),
        Layer::GroupNorm { groups } if groups == 0 || !input.channels.is_multiple_of(groups) => {
            let what = "groups must divide the number of input channels";
            return Err(ModelError::Order { layer: number, what, input });
        }
        Layer::GroupNorm { groups } => (BlockKind::Norm { groups, by_number: false }, input.channels),
        Layer::LayerNorm {} => (BlockKind::Norm { groups: 1, by_number: true }, input.channels),
        _ if after_dense => {
            let what = "convolutions and pooling cannot follow a dense layer";
            return Err(ModelError::Order { layer: number, what, input });
        }
        Layer::Conv { kernel, padding, stride, .. } if !fits(kernel, padding, stride, input) => {
            return Err(ModelError::Kernel { layer: number, kernel, padding, stride, input });
        }
        Layer::Conv { out, kernel, padding, stride } => (BlockKind::Conv { kernel, padding, stride }, out),
        Layer::MaxPool { size, stride } => (pooling(number, size, stride, false, input)?, input.channels),
        Layer::AveragePool { size, stride } => (pooling(number, size, stride, true, input)?, input.channels),
        Layer::Flatten {} | Layer::Relu {} | Layer::Dropout { .. } | Layer::Residual { .. } => {
            unreachable!("these layers begin no block")
        }
    };
    let block = Block::plain(kind, input, out, offset);
    check_size(&block).map_err(|what| ModelError::Range { layer: number, what })?;
    Ok(block)
}

/// Whether a kernel of this side, padding and stride fits an image.
fn fits(kernel: usize, padding: usize, stride: usize, input: Shape) -> bool {
    let side = padding.saturating_mul(2).saturating_add(input.height.min(input.width));
    (1..=side).contains(&kernel) && (1..=side).contains(&stride) && padding < kernel
}

/// Largest side of a square that is pooled, so that 16 bits tell its numbers apart.
const MAX_POOL: usize = 255;

/// Pooling as a block.
fn pooling(
    layer: usize,
    size: usize,
    stride: Option<usize>,
    average: bool,
    input: Shape,
) -> Result<BlockKind, ModelError> {
    let stride = stride.unwrap_or(size);
    if !(1..=MAX_POOL).contains(&size) || stride == 0 {
        let what = "expected a pooling size from 1 to 255 and a stride of at least 1";
        return Err(ModelError::Range { layer, what });
    }
    if input.height < size || input.width < size {
        return Err(ModelError::Pool { layer, size, input });
    }
    Ok(BlockKind::Pool(Squares { side: size, stride, average }))
}

fn check_size(block: &Block) -> Result<(), &'static str> {
    let parameters = block.fan_in().saturating_mul(block.out).saturating_add(block.offset);
    if block.out == 0 {
        return Err("out must be at least 1");
    }
    if parameters > MAX_PARAMETERS {
        return Err("the network would have more than 2^30 parameters");
    }
    // The limit on parameters bounds the side of the kernel, so the products below cannot overflow.
    let padding = if let BlockKind::Conv { padding, .. } = block.kind { padding } else { 0 };
    let input = block.input;
    let padded = (input.height + 2 * padding) * (input.width + 2 * padding) * input.channels;
    if padded.max(block.convolved().len()) > MAX_VALUES {
        return Err("its padded input or its output would have more than 2^22 values per sample");
    }
    Ok(())
}

/// Adds a relu or dropout layer to the block before it.
fn add_to_block(layer: &Layer, number: usize, block: &mut Block) -> Result<(), ModelError> {
    let input = block.output();
    let refuse = |what| Err(ModelError::Order { layer: number, what, input });
    match *layer {
        _ if block.dropout > 0.0 => {
            return refuse("dropout must come last before the next layer with weights");
        }
        Layer::Relu {} if block.relu => return refuse("a second relu has no effect; remove it"),
        Layer::Relu {} => block.relu = true,
        Layer::Dropout { p } if (0.0..1.0).contains(&p) => block.dropout = p,
        _ => {
            return Err(ModelError::Range { layer: number, what: "expected a dropout p in [0, 1)" });
        }
    }
    Ok(())
}
