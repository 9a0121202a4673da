//! A trained linear model on new rows: the columns, words and scales of the training data are applied to other files.

use std::path::Path;

use mile::problems::{Batch, HeldOut, Loss, Metric, Shard};
use mile::real::Real;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::encode::{About, Encoder};
use super::here::Here;
use super::rows::Rows;
use super::spec::{self, TableSpec};
use super::statistics::Statistics;
use crate::error::LabError;
use crate::predictions::{ModelTensor, NewData, Predictions, of_shape};
use crate::section::Section;
use crate::{Setting, failed};

/// Keys that say which rows a model is trained on and with what penalty, and nothing about new rows.
const OF_TRAINING: [&str; 12] = [
    "kind",
    "data",
    "test",
    "statistics",
    "by",
    "partition",
    "seed",
    "batch",
    "exclude",
    "columns",
    "l1",
    "l2",
];

/// What the coefficients of a table's model mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableForm {
    /// The section `[problem]` that the model was trained with.
    problem: Table,
    /// The columns of a file that features are made of.
    columns: Vec<String>,
    /// The features, in the order of the coefficients.
    features: Vec<String>,
    /// The classes of the target, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    classes: Vec<String>,
    /// The means, deviations and categories of the training rows, if features depend on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    statistics: Option<Statistics>,
}

impl TableForm {
    pub(super) fn new(problem: &Table, about: &About) -> Self {
        Self {
            problem: problem.clone(),
            columns: about.columns.clone(),
            features: about.features.clone(),
            classes: about.classes.clone(),
            statistics: about.statistics.clone(),
        }
    }

    /// Number of coefficients.
    pub(crate) fn dim(&self) -> usize {
        self.features.len() * self.outputs()
    }

    /// Number of linear functions: one for each class, if there are more than two classes.
    fn outputs(&self) -> usize {
        if self.word("loss") == Some("softmax") { self.classes.len() } else { 1 }
    }

    fn word(&self, key: &str) -> Option<&str> {
        self.problem.get(key).and_then(Value::as_str)
    }

    /// What is predicted, in words.
    pub(crate) fn target(&self) -> &str {
        self.word("target").unwrap_or_default()
    }

    /// The classes of the target; none if it is a number.
    pub(crate) fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The columns of a file that features are made of.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// New rows as they are to be read; `is_labelled`: with their targets.
    fn here(&self, new: NewData, is_labelled: bool) -> Result<Here, LabError> {
        let mut section = self.problem.clone();
        section.retain(|key, _| !OF_TRAINING.contains(&key));
        if !is_labelled {
            section.remove("weights");
        }
        let named = |key: &str| section.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut read: Vec<String> = ["offset", "exposure", "weights"].into_iter().filter_map(named).collect();
        read.extend(named("target").filter(|_| is_labelled));
        read.extend(self.columns.iter().cloned());
        for key in ["formats", "missing_words"] {
            if let Some(Value::Table(by_column)) = section.get_mut(key) {
                by_column.retain(|column, _| read.iter().any(|name| name == column));
            }
        }
        section.insert("data".to_owned(), new.data.display().to_string().into());
        section.insert("columns".to_owned(), self.columns.clone().into());
        if !self.classes.is_empty() {
            section.insert("classes".to_owned(), self.classes.clone().into());
        }
        let setting = Setting { agents: 1, folder: Path::new(""), progress: new.progress };
        let spec: TableSpec = spec::read(&Section::new("problem", &section), setting)?;
        Ok(if is_labelled { Here::all(spec, setting) } else { Here::unlabelled(spec, setting) })
    }

    /// The rows of a file as numbers.
    fn shard<T: Real>(&self, here: &Here) -> Result<Shard<T>, LabError> {
        let rows = Rows::read(&here.spec.files.data, here)?;
        let encoder = Encoder::new(&self.classes, &rows, here, self.statistics.as_ref())?;
        let found: Vec<String> = encoder.features().into_iter().map(|(name, _)| name).collect();
        if found != self.features {
            let expected = format!("the features {}", self.features.join(", "));
            return Err(LabError::expected("model.json", expected, found.join(", ")));
        }
        Ok(encoder.shard(&rows, &(0..rows.len() as u32).collect::<Vec<u32>>()))
    }

    /// A prediction for each row of a file.
    pub(crate) fn predict(&self, x: &[f64], new: NewData) -> Result<Predictions, LabError> {
        let here = self.here(new, false)?;
        let shard = self.shard::<f64>(&here)?;
        let width = self.features.len();
        let mut columns = vec!["prediction".to_owned()];
        columns.extend(self.classes.iter().map(|class| format!("probability {class}")));
        let row = |(k, features): (usize, &[f64])| {
            let offset = shard.offsets.get(k).copied().unwrap_or(0.0);
            let product = |x: &[f64]| features.iter().zip(x).map(|(a, x)| a * x).sum::<f64>() + offset;
            let scores: Vec<f64> = x.chunks(width.max(1)).map(product).collect();
            // Something that the prediction needs is missing.
            if scores.iter().any(|score| score.is_nan()) {
                return vec![String::new(); columns.len()];
            }
            let numbers = match here.spec.objective.loss {
                Loss::Logistic | Loss::NonconvexLogistic => vec![0.0, scores[0]],
                Loss::Softmax { .. } => scores,
                Loss::Poisson => return vec![scores[0].exp().to_string()],
                _ => return vec![scores[0].to_string()],
            };
            Predictions::of_classes(&self.classes, &numbers)
        };
        let rows = match width {
            0 => vec![vec![String::new(); columns.len()]; shard.targets.len()],
            _ => shard.features.chunks(width).enumerate().map(row).collect(),
        };
        Ok(Predictions { columns, rows })
    }

    /// The metrics of a model on the rows of a file, which has targets.
    pub(crate) fn evaluate<T: Real>(&self, x: &[T], new: NewData) -> Result<Vec<(Metric, f64)>, LabError> {
        let here = self.here(new, true)?;
        let shard = self.shard::<T>(&here)?;
        let weights = shard.weights.iter().take(1).map(|_| T::one()).collect();
        let features = vec![T::zero(); self.features.len()];
        // A problem has training rows; nothing is measured on this one.
        let unused = Shard { features, targets: vec![T::one()], weights, offsets: Vec::new() };
        let objective = here.spec.objective.of(self.classes.len(), None);
        let invalid = |error| LabError::config("problem", error);
        let table = mile::problems::Table::new(self.features.len(), vec![unused], objective, Batch::Full)
            .map_err(invalid)?;
        let table = table.with_test(vec![shard]).map_err(invalid)?;
        let values = table.measure(x).map_err(failed)?;
        Ok(table.metrics().iter().copied().zip(values).collect())
    }

    /// The coefficients as PyTorch's `Linear` has them: `weight` by output and feature, and `bias`.
    pub(crate) fn tensors(&self, x: &[f64]) -> Vec<ModelTensor> {
        let (outputs, width) = (self.outputs(), self.features.len().max(1));
        let has_bias = self.has_bias();
        let inputs = self.features.len() - usize::from(has_bias);
        let weight = x.chunks(width).flat_map(|one| &one[..inputs]).copied().collect();
        let mut tensors =
            vec![ModelTensor { name: "weight".to_owned(), shape: vec![outputs, inputs], values: weight }];
        if has_bias {
            let values = x.chunks(width).map(|one| one[inputs]).collect();
            tensors.push(ModelTensor { name: "bias".to_owned(), shape: vec![outputs], values });
        }
        tensors
    }

    /// The coefficients from such tensors.
    pub(crate) fn parameters(&self, tensors: &[ModelTensor]) -> Result<Vec<f64>, String> {
        let (outputs, has_bias) = (self.outputs(), self.has_bias());
        let inputs = self.features.len() - usize::from(has_bias);
        let weight = of_shape(tensors, "weight", &[outputs, inputs])?;
        let bias = if has_bias { of_shape(tensors, "bias", &[outputs])? } else { &[] };
        let one = |k: usize| weight[k * inputs..(k + 1) * inputs].iter().chain(bias.get(k)).copied();
        Ok((0..outputs).flat_map(one).collect())
    }

    /// The intercept is the last feature.
    fn has_bias(&self) -> bool {
        self.problem.get("intercept").and_then(Value::as_bool) == Some(true)
    }
}
