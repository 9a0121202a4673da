//! A neural network in an experiment file: the name of a preset or a list of layers.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// One layer; in an experiment file, `{ kind = "conv", out = 16, kernel = 5, padding = 2 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Layer {
    /// A convolution.
    Conv {
        /// Output channels.
        out: usize,
        /// Side of the square kernel.
        kernel: usize,
        /// Width of the border of zeros.
        #[serde(default)]
        padding: usize,
        /// Step from one place of the kernel to the next.
        #[serde(default = "one")]
        stride: usize,
    },
    /// max(0, x).
    Relu {},
    /// Max-pooling over squares; rows and columns that do not fill one are left out.
    MaxPool {
        /// Side of the squares.
        #[serde(default = "two")]
        size: usize,
        /// Step from one square to the next; by default the side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<usize>,
    },
    /// Average pooling over squares; rows and columns that do not fill one are left out.
    AveragePool {
        /// Side of the squares.
        #[serde(default = "two")]
        size: usize,
        /// Step from one square to the next; by default the side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<usize>,
    },
    /// Normalises each group of channels of a sample to mean 0 and variance 1, then scales and shifts each channel.
    GroupNorm {
        /// Number of groups, of equally many channels.
        groups: usize,
    },
    /// Normalises a sample to mean 0 and variance 1, then scales and shifts each number.
    LayerNorm {},
    /// A residual connection: the output of these layers is added to their input.
    Residual {
        /// Layers whose output has the shape of their input.
        layers: Vec<Layer>,
    },
    /// Flattens an image to a vector; implied before the first dense layer.
    Flatten {},
    /// A fully connected layer.
    Dense {
        /// Number of outputs.
        out: usize,
    },
    /// In training, sets each number to 0 with probability `p` and scales the others by 1/(1 - p).
    Dropout {
        /// Probability, from 0 to below 1.
        p: f32,
    },
}

fn one() -> usize {
    1
}

fn two() -> usize {
    2
}

/// Neural networks by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Preset {
    /// The paper's network for MNIST: two 5 x 5 convolutions of 16 and 32 channels, one dense layer.
    MnistCnn,
    /// The paper's network for CIFAR-10: three 3 x 3 convolutions of 32, 64 and 128 channels, two dense
    /// layers with dropout 0.25 between.
    CifarCnn,
    /// Multinomial logistic regression.
    Linear,
    /// One hidden layer of 128 units.
    Mlp,
}

/// A neural network as given in an experiment file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ModelSpec {
    /// By name.
    Preset(Preset),
    /// Layer by layer.
    Layers(Vec<Layer>),
}

impl ModelSpec {
    /// The layers, for data with this number of classes.
    pub fn layers(&self, classes: usize) -> Vec<Layer> {
        let conv = |out, kernel| {
            let (conv, pool) = (
                Layer::Conv { out, kernel, padding: kernel / 2, stride: 1 },
                Layer::MaxPool { size: 2, stride: None },
            );
            [conv, Layer::Relu {}, pool]
        };
        let dense = |out| [Layer::Dense { out }];
        match self {
            ModelSpec::Layers(layers) => layers.clone(),
            ModelSpec::Preset(Preset::Linear) => dense(classes).to_vec(),
            ModelSpec::Preset(Preset::Mlp) => {
                vec![Layer::Dense { out: 128 }, Layer::Relu {}, Layer::Dense { out: classes }]
            }
            ModelSpec::Preset(Preset::MnistCnn) => [&conv(16, 5)[..], &conv(32, 5), &dense(classes)].concat(),
            ModelSpec::Preset(Preset::CifarCnn) => {
                let hidden = [Layer::Dense { out: 256 }, Layer::Relu {}, Layer::Dropout { p: 0.25 }];
                [&conv(32, 3)[..], &conv(64, 3), &conv(128, 3), &hidden, &dense(classes)].concat()
            }
        }
    }
}

impl<'de> Deserialize<'de> for ModelSpec {
    /// By hand rather than `untagged`, whose errors do not say what is wrong with which layer.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = ModelSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a model (mnist-cnn, cifar-cnn, linear, mlp) or a list of layers")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<ModelSpec, E> {
        Preset::deserialize(StrDeserializer::new(name)).map(ModelSpec::Preset)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, layers: A) -> Result<ModelSpec, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(layers)).map(ModelSpec::Layers)
    }

    /// `model = { layers = [...] }`, for files that prefer a table.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelSpec, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            layers: Vec<Layer>,
        }
        Table::deserialize(MapAccessDeserializer::new(map)).map(|table| ModelSpec::Layers(table.layers))
    }
}
