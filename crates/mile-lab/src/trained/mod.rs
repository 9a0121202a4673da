//! Trained models: those of a run directory, and those that were exported from one.
//!
//! A run directory has `model.json`, which says what the numbers of its models mean, so the training data are no longer needed.
//! An exported folder has the same file, the numbers as `model.safetensors` under PyTorch's names, and a model card.

mod card;
mod open;

use std::path::Path;

use mile::problems::Metric;
use mile::real::{Precision, Real};
use mile::with_precision;
use mile_problems::form::ModelForm;
use mile_problems::predictions::{ModelTensor, NewData, Predictions};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::error::LabError;
use crate::model_form::{FORM, FormFile};
use crate::recorded_metrics::{self, Models};
use crate::store::write_file;

/// The numbers of an exported model.
const NUMBERS: &str = "model.safetensors";
/// The card of an exported model.
const CARD: &str = "README.md";

/// Which of a run's models.
#[derive(Clone, Debug, Default)]
pub struct ModelChoice {
    /// The label of its algorithm; none if there is only one.
    pub algorithm: Option<String>,
    /// The seed; by default the first.
    pub seed: Option<u64>,
    /// The agent whose own model it is; by default the average of all agents' models.
    pub agent: Option<usize>,
}

/// A model that can be used on new data.
pub struct TrainedModel {
    form: ModelForm,
    precision: Precision,
    x: Vec<f64>,
    /// Where it comes from, if it is in a run directory.
    origin: Option<open::Origin>,
}

impl TrainedModel {
    /// Opens a run directory or an exported folder.
    pub fn open(path: &Path, choice: &ModelChoice) -> Result<Self, LabError> {
        open::open(path, choice)
    }

    /// What it says about new data.
    pub fn predict(&self, new: NewData) -> Result<Predictions, LabError> {
        self.form.predict(&self.x, new)
    }

    /// Its metrics on new data, in the precision of the training, with their names in records.
    pub fn evaluate(&self, new: NewData) -> Result<Vec<(&'static str, f64)>, LabError> {
        let metrics: Vec<(Metric, f64)> = with_precision!(self.precision, T => {
            let x: Vec<T> = self.x.iter().map(|value| T::of(*value)).collect();
            self.form.evaluate::<T>(&x, new)?
        });
        let named = |(metric, value)| (recorded_metrics::name(metric, Models::Average), value);
        Ok(metrics.into_iter().map(named).collect())
    }

    /// Writes a folder that can be moved, published, and read by PyTorch: the numbers, what they mean, and a card.
    ///
    /// # Errors
    /// If the model is already an exported one, or a file cannot be written.
    pub fn export(&self, folder: &Path) -> Result<(), LabError> {
        let Some(origin) = &self.origin else {
            let problem = "already exported; copy the folder instead".into();
            return Err(LabError::Directory { path: folder.to_owned(), problem });
        };
        let tensors = self.form.tensors(&self.x);
        write_file(&folder.join(NUMBERS), &serialized(&tensors, self.precision).map_err(failed(folder))?)?;
        let precision = self.precision.name().to_owned();
        let file = FormFile { mile: origin.version(), precision, form: &self.form };
        let text = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
        write_file(&folder.join(FORM), text.as_bytes())?;
        write_file(&folder.join(CARD), card::card(self, origin, &tensors).as_bytes())
    }
}

fn failed(folder: &Path) -> impl FnOnce(safetensors::SafeTensorError) -> LabError {
    let path = folder.join(NUMBERS);
    move |error| LabError::Io { path, action: "write", source: std::io::Error::other(error) }
}

/// The bytes of a safetensors file, in this precision.
fn serialized(
    tensors: &[ModelTensor],
    precision: Precision,
) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let dtype = if precision == Precision::F32 { Dtype::F32 } else { Dtype::F64 };
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|tensor| match precision {
            Precision::F32 => tensor.values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
            Precision::F64 => tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        })
        .collect();
    let mut views = Vec::with_capacity(tensors.len());
    for (tensor, bytes) in tensors.iter().zip(&bytes) {
        views.push((tensor.name.as_str(), TensorView::new(dtype, tensor.shape.clone(), bytes)?));
    }
    safetensors::serialize(views, None)
}
