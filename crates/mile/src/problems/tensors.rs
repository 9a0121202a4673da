//! The variable as named tensors, such as the layers of a neural network.

use std::ops::Range;

use crate::agents::Failure;
use crate::optimiser::{MatrixPart, Muon};
use crate::real::Real;

/// A part of the variable: its name, shape and place, without numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPart {
    /// Its name, such as `conv1.weight`.
    pub name: String,
    /// The shape with which it is exported.
    pub shape: Vec<usize>,
    /// Its entries in the variable.
    pub range: Range<usize>,
    /// Rows and columns of the matrix that its entries form, row after row in the order of the variable: all inputs by all outputs
    /// of a layer, or the reverse. None for vectors, such as biases.
    pub matrix: Option<[usize; 2]>,
}

impl TensorPart {
    /// This part of the model `x`, in the order of the variable.
    pub fn export<T: Real>(&self, x: &[T]) -> Tensor {
        let values = x[self.range.clone()].iter().map(|value| value.wide() as f32).collect();
        Tensor { name: self.name.clone(), shape: self.shape.clone(), values }
    }
}

/// The matrices among the parts of a variable that Muon steps along.
pub fn matrices(parts: &[TensorPart], muon: &Muon) -> Vec<MatrixPart> {
    let is_ours = |part: &&TensorPart| !muon.exclude.iter().any(|word| part.name.contains(word));
    let matrix = |part: &TensorPart| part.matrix.map(|shape| MatrixPart { range: part.range.clone(), shape });
    parts.iter().filter(is_ours).filter_map(matrix).collect()
}

/// A part of a model in row-major order, such as a layer's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name, such as `conv1.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub values: Vec<f32>,
}

/// A variable that consists of named tensors.
pub trait NamedTensors<T: Real>: Send + Sync {
    /// The parts of the variable, in its order.
    fn parts(&self) -> Vec<TensorPart>;

    /// The same with the numbers of the model `x`, for export. By default in the order of the variable; others reorder the numbers
    /// of a part.
    fn export(&self, x: &[T]) -> Vec<Tensor> {
        self.parts().iter().map(|part| part.export(x)).collect()
    }

    /// All tensors of the model of an agent, or of the average of all: those of the variable, and what a model has besides, such as frozen
    /// parameters and the statistics of batch norms.
    fn export_model(&self, agent: Option<usize>, x: &[T]) -> Result<Vec<Tensor>, Failure> {
        let _ = agent;
        Ok(self.export(x))
    }
}
