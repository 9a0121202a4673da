//! Export of the parameters to PyTorch's names, shapes and order.

use mile::problems::Tensor;

use super::{Block, Kind, Model};
use crate::data::Shape;

impl Model {
    /// The parameters as PyTorch's `state_dict` holds them, by the names `conv1.weight`, `conv1.bias`, ..., `fc1.weight`,
    /// `fc1.bias`, ...: `convK.weight` is `[out, in, rows, columns]`,
    /// `fcK.weight` is `[out, in]` with images flattened channel first, biases are `[out]`. `normK.weight` and `normK.bias`
    /// are `[channels]`, or `[channels, rows, columns]` for layer normalisation of an image.
    ///
    /// # Panics
    ///
    /// If the length of `parameters` is not [`dim`](Self::dim).
    pub fn state_dict(&self, parameters: &[f32]) -> Vec<Tensor> {
        assert_eq!(parameters.len(), self.dim(), "the parameter vector has the wrong length");
        let (mut convolutions, mut dense, mut norms) = (0, 0, 0);
        let mut tensors = Vec::with_capacity(2 * self.blocks().len());
        for block in self.blocks() {
            let (weights, biases) =
                parameters[block.offset..block.offset + block.parameters()].split_at(block.weights());
            let (name, shape, values) = match block.kind {
                Kind::Conv { kernel, .. } => {
                    convolutions += 1;
                    let shape = vec![block.out, block.input.channels, kernel, kernel];
                    (format!("conv{convolutions}"), shape, outputs_first(block, weights, kernel * kernel))
                }
                Kind::Dense => {
                    dense += 1;
                    let pixels = block.input.height * block.input.width;
                    (
                        format!("fc{dense}"),
                        vec![block.out, block.input.len()],
                        outputs_first(block, weights, pixels),
                    )
                }
                Kind::Norm { .. } => {
                    norms += 1;
                    let Shape { height, width, channels } = block.input;
                    let shape = if weights.len() == channels {
                        vec![channels]
                    } else {
                        vec![channels, height, width]
                    };
                    (format!("norm{norms}"), shape, channels_first(weights, channels))
                }
                Kind::Pool(_) | Kind::Add { .. } => continue,
            };
            let (bias_shape, biases) = match block.kind {
                Kind::Norm { .. } => (shape.clone(), channels_first(biases, block.out)),
                _ => (vec![block.out], biases.to_vec()),
            };
            tensors.push(Tensor { name: format!("{name}.weight"), shape, values });
            tensors.push(Tensor { name: format!("{name}.bias"), shape: bias_shape, values: biases });
        }
        tensors
    }
}

/// `[position][channel][output]` to `[output][channel][position]`.
fn outputs_first(block: &Block, weights: &[f32], places: usize) -> Vec<f32> {
    let channels = block.input.channels;
    let mut values = Vec::with_capacity(weights.len());
    for output in 0..block.out {
        for channel in 0..channels {
            values
                .extend((0..places).map(|place| weights[(place * channels + channel) * block.out + output]));
        }
    }
    values
}

/// `[position][channel]` to `[channel][position]`.
fn channels_first(values: &[f32], channels: usize) -> Vec<f32> {
    (0..channels).flat_map(|channel| values.iter().skip(channel).step_by(channels)).copied().collect()
}
