//! What a model says about new data, and its numbers under PyTorch's names.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::reading::ReadingProgress;

/// Files with new data. Targets may be in a separate file.
#[derive(Clone, Copy, Debug)]
pub struct NewData<'a> {
    /// Rows, samples or images.
    pub data: &'a Path,
    /// What is to be predicted, if it is in another file.
    pub targets: Option<&'a Path>,
    /// Who is told how much of them has been read.
    pub progress: &'a ReadingProgress,
}

/// What a model says about each row of new data.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictions {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The cells of each row; empty for a row that lacks a value.
    pub rows: Vec<Vec<String>>,
}

/// A part of a model, for export.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTensor {
    /// Its name in PyTorch.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers, the last index first.
    pub values: Vec<f64>,
}

impl Predictions {
    /// The cells of a row: the first of the classes with the largest score, and the probability of each class.
    pub(crate) fn of_classes(classes: &[String], scores: &[f64]) -> Vec<String> {
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let best = scores.iter().position(|score| *score == largest).unwrap_or(0);
        let mut cells = vec![classes.get(best).cloned().unwrap_or_default()];
        cells.extend(powers.iter().map(|power| (power / sum).to_string()));
        cells
    }

    /// As CSV, with a header.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            let _ = writer.write_record(row);
        }
        String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}

/// The form of a model of this kind, as JSON.
pub(crate) fn tagged(kind: &str, form: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(form).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("kind".to_owned(), kind.into());
    }
    value
}

/// The numbers of the tensor with this name and shape.
pub(crate) fn of_shape<'t>(
    tensors: &'t [ModelTensor],
    name: &str,
    shape: &[usize],
) -> Result<&'t [f64], String> {
    match tensors.iter().find(|tensor| tensor.name == name) {
        Some(tensor) if tensor.shape == shape => Ok(&tensor.values),
        Some(tensor) => Err(format!("tensor {name}: expected shape {shape:?}, got {:?}", tensor.shape)),
        None => Err(format!("tensor {name}: missing")),
    }
}
