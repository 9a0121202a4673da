//! Export of the parameters to PyTorch's names, shapes and order.

use mile::problems::{Tensor, TensorPart};

/// A part of the parameters: its name, its shape and its numbers.
type Named<V> = (String, Vec<usize>, Vec<V>);

use super::{Block, BlockKind, Model};
use crate::data::Shape;

impl Model {
    /// The parameters under the names they have in PyTorch's `state_dict`, `conv1.weight`, `conv1.bias`, ..., `fc1.weight`,
    /// `fc1.bias`, ..., with the shapes they have there: `convK.weight` is `[out, in, rows, columns]`,
    /// `fcK.weight` is `[out, in]` with images flattened channel first, biases are `[out]`. `normK.weight` and `normK.bias`
    /// are `[channels]`, or `[channels, rows, columns]` for layer normalisation of an image.
    pub fn parts(&self) -> Vec<TensorPart> {
        let (mut convolutions, mut dense, mut norms) = (0, 0, 0);
        let mut parts = Vec::with_capacity(2 * self.blocks().len());
        for block in self.blocks() {
            let Shape { height, width, channels } = block.input;
            let (kind, number, shape) = match block.kind {
                BlockKind::Conv { kernel, .. } => {
                    ("conv", &mut convolutions, vec![block.out, channels, kernel, kernel])
                }
                BlockKind::Dense => ("fc", &mut dense, vec![block.out, block.input.len()]),
                BlockKind::Norm { .. } if block.weights() == channels => ("norm", &mut norms, vec![channels]),
                BlockKind::Norm { .. } => ("norm", &mut norms, vec![channels, height, width]),
                BlockKind::Pool(_) | BlockKind::Add { .. } => continue,
            };
            *number += 1;
            let is_norm = matches!(block.kind, BlockKind::Norm { .. });
            let biases = block.offset + block.weights();
            parts.push(TensorPart {
                name: format!("{kind}{number}.weight"),
                shape: shape.clone(),
                range: block.offset..biases,
                matrix: (!is_norm).then(|| [block.fan_in(), block.out]),
            });
            parts.push(TensorPart {
                name: format!("{kind}{number}.bias"),
                shape: if is_norm { shape } else { vec![block.out] },
                range: biases..block.offset + block.parameters(),
                matrix: None,
            });
        }
        parts
    }

    /// The parameters as PyTorch's `state_dict` holds them: those of [`parts`](Self::parts), in PyTorch's order.
    ///
    /// # Panics
    ///
    /// If the length of `parameters` is not [`dim`](Self::dim).
    pub fn state_dict(&self, parameters: &[f32]) -> Vec<Tensor> {
        let tensor = |(name, shape, values)| Tensor { name, shape, values };
        self.in_torch_order(parameters).into_iter().map(tensor).collect()
    }

    /// A value for each parameter, such as the parameter itself or its place: in the order of PyTorch's `state_dict`, part by part.
    ///
    /// # Panics
    ///
    /// If there are not [`dim`](Self::dim) values.
    pub fn in_torch_order<V: Copy>(&self, parameters: &[V]) -> Vec<Named<V>> {
        assert_eq!(parameters.len(), self.dim(), "the parameter vector has the wrong length");
        let blocks = self.blocks().iter().filter(|block| block.parameters() > 0).flat_map(|block| [block; 2]);
        let tensor = |(TensorPart { name, shape, range, matrix }, block): (TensorPart, &Block)| {
            let numbers = &parameters[range];
            let values = match block.kind {
                BlockKind::Norm { .. } => channels_first(numbers, block.input.channels),
                _ if matrix.is_some() => outputs_first(block, numbers),
                _ => numbers.to_vec(),
            };
            (name, shape, values)
        };
        self.parts().into_iter().zip(blocks).map(tensor).collect()
    }
}

/// `[position][channel][output]` to `[output][channel][position]`.
fn outputs_first<V: Copy>(block: &Block, weights: &[V]) -> Vec<V> {
    let channels = block.input.channels;
    let places = block.fan_in() / channels;
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
fn channels_first<V: Copy>(values: &[V], channels: usize) -> Vec<V> {
    (0..channels).flat_map(|channel| values.iter().skip(channel).step_by(channels)).copied().collect()
}
