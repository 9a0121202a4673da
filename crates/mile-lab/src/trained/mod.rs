//! Trained models: those of a run directory, and those that were exported from one.
//!
//! A run directory has `model.json`, which says what the numbers of its models mean, so the training data are no longer needed.
//! An exported folder has the same file, the numbers as `model.safetensors` under PyTorch's names, and a model card. Models of objectives in
//! Python have no such file, because only their program knows what the numbers mean: these are exported, and nothing else.

mod card;
mod open;
mod tensors;

use std::path::{Path, PathBuf};

use mile::problems::Metric;
use mile::real::{Precision, Real};
use mile::with_precision;
use mile_problems::form::ModelForm;
use mile_problems::predictions::{ModelTensor, NewData, Predictions};

use crate::error::LabError;
use crate::model_form::{self, FORM, FormFile};
use crate::plan::Plan;
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

/// A trained model.
pub struct TrainedModel {
    path: PathBuf,
    numbers: Numbers,
    precision: Precision,
    /// Where it comes from, if it is in a run directory.
    origin: Option<open::Origin>,
}

/// The numbers of a model.
enum Numbers {
    /// With what they mean, so that the model can be used on new data.
    Known { form: Box<ModelForm>, x: Vec<f64> },
    /// Under the names that the program has for them which trained the model.
    Named(Vec<ModelTensor>),
}

impl TrainedModel {
    /// Opens a run directory, the folder of an agent on a network, or an exported folder.
    pub fn open(path: &Path, choice: &ModelChoice) -> Result<Self, LabError> {
        open::open(path, choice)
    }

    /// What it says about new data.
    pub fn predict(&self, new: NewData) -> Result<Predictions, LabError> {
        let (form, x) = self.known()?;
        form.predict(x, new)
    }

    /// Its metrics on new data, in the precision of the training, with their names in records.
    pub fn evaluate(&self, new: NewData) -> Result<Vec<(&'static str, f64)>, LabError> {
        let (form, x) = self.known()?;
        let metrics: Vec<(Metric, f64)> = with_precision!(self.precision, T => {
            let x: Vec<T> = x.iter().map(|value| T::of(*value)).collect();
            form.evaluate::<T>(&x, new)?
        });
        let named = |(metric, value)| (recorded_metrics::name(metric, Models::Average), value);
        Ok(metrics.into_iter().map(named).collect())
    }

    /// The numbers and what they mean.
    fn known(&self) -> Result<(&ModelForm, &[f64]), LabError> {
        match &self.numbers {
            Numbers::Known { form, x } => Ok((form, x)),
            Numbers::Named(_) => Err(meaningless(&self.path)),
        }
    }

    /// Writes a folder that can be moved, published, and read by PyTorch: the numbers, what they mean if that is known, and a card.
    ///
    /// # Errors
    /// If the model is already an exported one, or a file cannot be written.
    pub fn export(&self, folder: &Path) -> Result<(), LabError> {
        let Some(origin) = &self.origin else {
            let problem = "already exported; copy the folder instead".into();
            return Err(LabError::Directory { path: folder.to_owned(), problem });
        };
        let tensors = match &self.numbers {
            Numbers::Known { form, x } => &form.tensors(x),
            Numbers::Named(tensors) => tensors,
        };
        tensors::write(&folder.join(NUMBERS), tensors, self.precision)?;
        if let Numbers::Known { form, .. } = &self.numbers {
            let precision = self.precision.name().to_owned();
            let file = FormFile { mile: origin.version(), precision, form };
            let text = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
            write_file(&folder.join(FORM), text.as_bytes())?;
        }
        write_file(&folder.join(CARD), card::card(self, origin, tensors).as_bytes())
    }
}

/// Writes to the folder of an agent what the numbers of its model mean, if more than its program knows that.
pub fn write_form(plan: &Plan, folder: &Path) -> Result<(), LabError> {
    let Some((name, text)) = model_form::document(plan)? else { return Ok(()) };
    write_file(&folder.join(name), text.as_bytes())
}

/// The error of a model whose numbers only the program that trained it can use.
fn meaningless(path: &Path) -> LabError {
    let problem = "has no model.json, which says what the numbers of a model mean: those of objectives in Python are for the program \
                   that trained them, and mile export writes them for it; a run on a table, arrays or images gets its file back with \
                   mile run --out DIR --resume";
    LabError::Directory { path: path.to_owned(), problem: problem.into() }
}
