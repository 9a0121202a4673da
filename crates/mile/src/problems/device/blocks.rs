//! The blocks that a neural network is computed in, as plain data.

/// Height, width and channels of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Colour channels.
    pub channels: usize,
}

impl Shape {
    /// Number of values in one image.
    #[inline]
    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether an image has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {} x {}", self.height, self.width, self.channels)
    }
}

/// Squares that pooling reduces to one number each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squares {
    /// Rows and columns of a square.
    pub side: usize,
    /// Step from one square to the next.
    pub stride: usize,
    /// Whether the average is taken, not the maximum.
    pub average: bool,
}

/// What a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A convolution of this kernel side, padding and stride.
    Conv {
        /// Side of the kernel.
        kernel: usize,
        /// Zeros around the input.
        padding: usize,
        /// Step from one output to the next.
        stride: usize,
    },
    /// A dense layer.
    Dense,
    /// Pooling that is not done together with the preceding block.
    Pool(Squares),
    /// Normalisation of groups of channels, with a scale and a shift for each number or for each channel.
    Norm {
        /// Groups of channels, each with its own mean and variance.
        groups: usize,
        /// Whether there is a scale for each number; otherwise for each channel.
        by_number: bool,
    },
    /// The sum of its input and that of an earlier block.
    Add {
        /// The number of the earlier block.
        from: usize,
    },
}

/// A convolution, a dense layer, normalisation, a sum, or pooling by itself, with the relu, 2 x 2 max-pooling and dropout on its
/// output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// What it computes.
    pub kind: BlockKind,
    /// Shape of the input. It is an image for the first dense layer after a convolution.
    pub input: Shape,
    /// Output channels.
    pub out: usize,
    /// Whether relu is applied to its output.
    pub relu: bool,
    /// Whether its output is max-pooled over 2 x 2 squares.
    pub pool: bool,
    /// Probability of dropout; 0 for none.
    pub dropout: f32,
    /// Where its weights begin in the parameter vector; the biases follow them.
    pub offset: usize,
}

impl Block {
    /// A block with nothing on its output.
    pub fn plain(kind: BlockKind, input: Shape, out: usize, offset: usize) -> Self {
        Self { kind, input, out, relu: false, pool: false, dropout: 0.0, offset }
    }

    /// Number of inputs of one output unit of a convolution or a dense layer; otherwise 0.
    pub fn fan_in(&self) -> usize {
        match self.kind {
            BlockKind::Conv { kernel, .. } => {
                kernel.saturating_mul(kernel).saturating_mul(self.input.channels)
            }
            BlockKind::Dense => self.input.len(),
            BlockKind::Pool(_) | BlockKind::Norm { .. } | BlockKind::Add { .. } => 0,
        }
    }

    /// Number of weights, or of scales.
    pub fn weights(&self) -> usize {
        match self.kind {
            BlockKind::Norm { .. } => self.biases(),
            _ => self.fan_in() * self.out,
        }
    }

    /// Number of biases, or of shifts.
    fn biases(&self) -> usize {
        match self.kind {
            BlockKind::Pool(_) | BlockKind::Add { .. } => 0,
            BlockKind::Norm { by_number: true, .. } => self.input.len(),
            _ => self.out,
        }
    }

    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.weights() + self.biases()
    }

    /// Shape of its output before relu and 2 x 2 max-pooling.
    pub fn convolved(&self) -> Shape {
        let Shape { height, width, .. } = self.input;
        let steps = |size: usize, stride: usize, padding: usize| Shape {
            height: (height + 2 * padding - size) / stride + 1,
            width: (width + 2 * padding - size) / stride + 1,
            channels: self.out,
        };
        match self.kind {
            BlockKind::Conv { kernel, padding, stride } => steps(kernel, stride, padding),
            BlockKind::Pool(Squares { side, stride, .. }) => steps(side, stride, 0),
            BlockKind::Dense => Shape { height: 1, width: 1, channels: self.out },
            BlockKind::Norm { .. } | BlockKind::Add { .. } => self.input,
        }
    }

    /// Shape of the output.
    pub fn output(&self) -> Shape {
        let shape = self.convolved();
        let divisor = if self.pool { 2 } else { 1 };
        Shape { height: shape.height / divisor, width: shape.width / divisor, ..shape }
    }
}
