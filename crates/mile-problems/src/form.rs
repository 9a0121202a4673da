//! Models that leave the place where they were trained: what their numbers mean, and what they say about new data.

use mile::problems::Metric;
use mile_nn::KernelScalar;
use serde::{Deserialize, Serialize};

use crate::arrays::TrainedNetwork;
use crate::error::LabError;
use crate::predictions::{ModelTensor, NewData, Predictions};
use crate::table::TableForm;

/// What a trained model needs besides its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum ModelForm {
    /// A linear model on the rows of a table.
    Table(TableForm),
    /// A neural network on arrays or images.
    Network(TrainedNetwork),
}

impl ModelForm {
    /// Number of parameters.
    pub fn dim(&self) -> usize {
        match self {
            Self::Table(form) => form.dim(),
            Self::Network(form) => form.dim(),
        }
    }

    /// What a model with these parameters says about new data.
    pub fn predict(&self, x: &[f64], new: NewData) -> Result<Predictions, LabError> {
        match self {
            Self::Table(form) => form.predict(x, new),
            Self::Network(form) => form.predict(x, new.data),
        }
    }

    /// The metrics of a model with these parameters on new data.
    pub fn evaluate<T: KernelScalar>(&self, x: &[T], new: NewData) -> Result<Vec<(Metric, f64)>, LabError> {
        match self {
            Self::Table(_) if new.targets.is_some() => {
                let problem = "tables have their targets in a column; leave it out";
                Err(LabError::config("--targets", problem))
            }
            Self::Table(form) => form.evaluate(x, new),
            Self::Network(form) => form.evaluate(x, new),
        }
    }

    /// The parameters under the names they have in PyTorch.
    pub fn tensors(&self, x: &[f64]) -> Vec<ModelTensor> {
        match self {
            Self::Table(form) => form.tensors(x),
            Self::Network(form) => form.tensors(x),
        }
    }

    /// The parameters from such tensors; an error says which of them is missing or has another shape.
    pub fn parameters(&self, tensors: &[ModelTensor]) -> Result<Vec<f64>, String> {
        match self {
            Self::Table(form) => form.parameters(tensors),
            Self::Network(form) => form.parameters(tensors),
        }
    }

    /// What goes in, in a sentence.
    pub fn inputs(&self) -> String {
        match self {
            Self::Table(form) => format!("rows with the columns {}", form.columns().join(", ")),
            Self::Network(form) => form.inputs(),
        }
    }

    /// What comes out, in a sentence.
    pub fn outputs(&self) -> String {
        match self {
            Self::Table(form) if form.classes().is_empty() => format!("a number, {}", form.target()),
            Self::Table(form) => format!("a class of {}: {}", form.target(), form.classes().join(", ")),
            Self::Network(form) => form.outputs(),
        }
    }
}
