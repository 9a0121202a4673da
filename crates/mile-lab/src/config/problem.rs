//! `[problem]`: what is minimised.

use std::path::{Path, PathBuf};

use mile::problems::{Batch, Loss};
use mile_nn::model::ModelSpec;
use mile_nn::partition::Partition;
use mile_nn::problem::Evaluation;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::reader::Reader;
use super::resolve;
use crate::error::LabError;

/// A problem as an experiment file describes it.
#[derive(Clone, Debug, PartialEq)]
pub enum ProblemConfig {
    /// Generated quadratics.
    Quadratic {
        /// Dimension.
        dim: usize,
        /// Largest over smallest curvature.
        condition: f64,
        /// How far apart the agents' minimisers are.
        heterogeneity: f64,
        /// Seed of the data; the run's own unless given.
        seed: Option<u64>,
    },
    /// The user's own table.
    Table(TableConfig),
    /// Images and a network.
    Images(ImagesConfig),
}

/// Regression or classification on CSV files.
#[derive(Clone, Debug, PartialEq)]
pub struct TableConfig {
    /// One file, or one for each agent with `{agent}` in its name.
    pub data: PathBuf,
    /// Column that says whose a row is.
    pub by: Option<String>,
    /// Column to be predicted.
    pub target: String,
    /// Objective.
    pub loss: Loss,
    /// Weight of the penalty.
    pub l2: f64,
    /// Whether a constant feature is added.
    pub intercept: bool,
    /// Samples of a gradient.
    pub batch: Batch,
    /// How the rows of one file are divided.
    pub partition: Partition,
    /// Seed of the division; the run's own unless given.
    pub seed: Option<u64>,
    /// The two classes of a logistic loss, that of -1 first; unless given, those found in the data, in order.
    pub classes: Option<[String; 2]>,
    /// With a file for each agent: the only agent whose file is at hand.
    pub only: Option<usize>,
}

impl TableConfig {
    /// Whether each agent has a file of its own.
    pub fn is_per_agent(&self) -> bool {
        self.data.to_string_lossy().contains("{agent}")
    }

    /// The file that holds an agent's rows.
    pub fn file_of(&self, agent: usize) -> PathBuf {
        self.data.to_string_lossy().replace("{agent}", &agent.to_string()).into()
    }
}

/// A network on an image data set.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagesConfig {
    /// Name of the data set.
    pub dataset: String,
    /// Folder to look for it first.
    pub data_dir: Option<PathBuf>,
    /// The network.
    pub model: ModelSpec,
    /// Samples of a gradient.
    pub batch: Batch,
    /// How the training set is divided.
    pub partition: Partition,
    /// Training samples that losses are taken over.
    pub evaluation: Evaluation,
    /// Test samples that accuracy is measured on; none: all.
    pub test_samples: Option<usize>,
    /// Seed of the division; the run's own unless given.
    pub seed: Option<u64>,
}

impl ProblemConfig {
    pub(super) fn read(top: &Reader, table: &Table, folder: &Path) -> Result<Self, LabError> {
        let reader = Reader::new("problem", table);
        let kinds = [("quadratic", 0), ("table", 1), ("images", 2)];
        let problem = match reader.choice("kind", &kinds, None)? {
            0 => quadratic(&reader)?,
            1 => Self::Table(self::table(&reader, folder)?),
            _ => Self::Images(images(&reader, folder)?),
        };
        top.keep("problem", reader.finish()?);
        Ok(problem)
    }

    /// Whether single precision is what one expects.
    pub(super) fn prefers_single(&self) -> bool {
        matches!(self, Self::Images(_))
    }
}

fn quadratic(reader: &Reader) -> Result<ProblemConfig, LabError> {
    let dim = reader.whole("dim", "a whole number from 1")?.unwrap_or(20);
    reader.keep("dim", dim as i64);
    let number = |key: &'static str, default: f64| -> Result<f64, LabError> {
        let value = reader.number(key, "a number")?.unwrap_or(default);
        reader.keep(key, value);
        Ok(value)
    };
    Ok(ProblemConfig::Quadratic {
        dim: dim as usize,
        condition: number("condition", 10.0)?,
        heterogeneity: number("heterogeneity", 1.0)?,
        seed: reader.whole("seed", "a whole number")?,
    })
}

fn table(reader: &Reader, folder: &Path) -> Result<TableConfig, LabError> {
    let takes = "the path of a CSV file, or one for each agent such as \"agent-{agent}.csv\"";
    let data = reader.text("data", takes)?.ok_or_else(|| reader.missing("data", takes))?;
    let data = resolve(folder, data);
    reader.keep("data", data.display().to_string());
    let takes = "the name of the column to be predicted";
    let target = reader.text("target", takes)?.ok_or_else(|| reader.missing("target", takes))?;
    let losses = [
        ("least-squares", Loss::LeastSquares),
        ("logistic", Loss::Logistic),
        ("nonconvex-logistic", Loss::NonconvexLogistic),
    ];
    let loss = reader.choice("loss", &losses, None)?;
    let l2 = reader.number("l2", "a number from 0")?.unwrap_or(0.0);
    reader.keep("l2", l2);
    let intercept = reader.flag("intercept")?.unwrap_or(false);
    reader.keep("intercept", intercept);
    Ok(TableConfig {
        data,
        by: reader.text("by", "the name of the column that says whose a row is")?.map(str::to_owned),
        target: target.to_owned(),
        loss,
        l2,
        intercept,
        batch: batch(reader, Batch::Full)?,
        partition: partition(reader)?,
        seed: reader.whole("seed", "a whole number")?,
        classes: classes(reader, loss)?,
        only: None,
    })
}

fn classes(reader: &Reader, loss: Loss) -> Result<Option<[String; 2]>, LabError> {
    let Some(value) = reader.value("classes") else { return Ok(None) };
    let takes = "the two classes of the target, that of -1 first, such as [\"no\", \"yes\"]";
    let word = |value: &Value| match value {
        Value::String(word) => Some(word.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    };
    let words: Option<Vec<String>> = value.as_array().and_then(|list| list.iter().map(word).collect());
    let pair = words.and_then(|words| <[String; 2]>::try_from(words).ok()).filter(|[a, b]| a != b);
    if loss == Loss::LeastSquares {
        return Err(LabError::config(
            reader.path("classes"),
            "is for a logistic loss; least-squares has none",
        ));
    }
    reader.keep("classes", value.clone());
    pair.map(Some).ok_or_else(|| reader.refuse("classes", value, takes))
}

fn images(reader: &Reader, folder: &Path) -> Result<ImagesConfig, LabError> {
    let names: Vec<_> = mile_nn::data::list().iter().map(|entry| (entry.name, entry.name)).collect();
    let dataset = reader.choice("dataset", &names, Some("glyphs"))?;
    let model = match reader.value("model") {
        Some(value) => {
            typed(reader, "model", value, "mnist-cnn, cifar-cnn, linear, mlp, or a list of layers")?
        }
        None => {
            let preset = if dataset == "cifar10" { "cifar-cnn" } else { "mnist-cnn" };
            typed(reader, "model", &Value::from(preset), "a model")?
        }
    };
    let data_dir = reader.text("data_dir", "a folder")?.map(|path| resolve(folder, path));
    data_dir.iter().for_each(|path| reader.keep("data_dir", path.display().to_string()));
    Ok(ImagesConfig {
        dataset: dataset.to_owned(),
        data_dir,
        model,
        batch: batch(reader, Batch::Size(32))?,
        partition: partition(reader)?,
        evaluation: samples(reader, "eval_samples")?.map_or(Evaluation::All, Evaluation::PerAgent),
        test_samples: samples(reader, "test_samples")?,
        seed: reader.whole("seed", "a whole number")?,
    })
}

/// How many samples are evaluated; none: all.
fn samples(reader: &Reader, key: &'static str) -> Result<Option<usize>, LabError> {
    let takes = "a whole number from 1, or \"all\"";
    let samples = match reader.value(key) {
        None => None,
        Some(value) if value.as_str() == Some("all") => None,
        Some(value) => match value.as_integer() {
            Some(n @ 1..) => Some(n as usize),
            _ => return Err(reader.refuse(key, value, takes)),
        },
    };
    samples.into_iter().for_each(|n| reader.keep(key, n as i64));
    Ok(samples)
}

/// A value that serde reads; what it gets and takes is said by us.
fn typed<T: DeserializeOwned>(
    reader: &Reader,
    key: &'static str,
    value: &Value,
    takes: &str,
) -> Result<T, LabError> {
    reader.keep(key, value.clone());
    value
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| reader.refuse(key, value, format!("{takes} ({})", error.message())))
}

fn batch(reader: &Reader, default: Batch) -> Result<Batch, LabError> {
    let takes = "a whole number from 1, { epoch = NUMBER }, or \"full\"";
    let Some(value) = reader.value("batch") else {
        let shown = match default {
            Batch::Size(n) => Value::from(n as i64),
            _ => Value::from("full"),
        };
        reader.keep("batch", shown);
        return Ok(default);
    };
    let size = |value: &Value| value.as_integer().and_then(|n| usize::try_from(n).ok());
    let epoch = || value.as_table().filter(|table| table.len() == 1).and_then(|table| table.get("epoch"));
    let batch = match value {
        Value::String(word) if word == "full" => Some(Batch::Full),
        Value::Table(_) => epoch().and_then(size).map(Batch::Epoch),
        other => size(other).map(Batch::Size),
    };
    reader.keep("batch", value.clone());
    batch.filter(|batch| batch.is_valid()).ok_or_else(|| reader.refuse("batch", value, takes))
}

fn partition(reader: &Reader) -> Result<Partition, LabError> {
    let takes = "{ kind = \"iid\" | \"dirichlet\" | \"shards\" | \"label-quantity\", ... }";
    let iid = Value::Table(Table::from_iter([("kind".to_owned(), Value::from("iid"))]));
    let value = match reader.value("partition") {
        Some(Value::String(kind)) => {
            &Value::Table(Table::from_iter([("kind".to_owned(), Value::from(kind.as_str()))]))
        }
        Some(value) => value,
        None => &iid,
    };
    let partition: Partition = typed(reader, "partition", value, takes)?;
    partition.validate().map_err(|error| LabError::config(reader.path("partition"), error))?;
    Ok(partition)
}
