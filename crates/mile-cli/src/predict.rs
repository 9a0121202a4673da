//! `mile predict` and `mile evaluate`: trained models on new data.

use std::path::PathBuf;

use clap::Args;
use mile_lab::predictions::NewData;
use mile_lab::store::write_file;
use mile_lab::table::number;
use mile_lab::trained::{ModelChoice, TrainedModel};

use crate::{Format, output, reading};

/// A model: where it is, and which of a run's models.
#[derive(Args)]
pub(crate) struct ModelArguments {
    /// Run directory, the folder of an agent, or a folder that mile export wrote
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// Label of the algorithm, if the run has several
    #[arg(long, value_name = "LABEL")]
    algorithm: Option<String>,
    /// Seed of the run [default: the first]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Agent whose own model is used [default: the average of all agents' models]
    #[arg(long, value_name = "ID")]
    agent: Option<usize>,
}

impl ModelArguments {
    pub(crate) fn open(&self) -> anyhow::Result<TrainedModel> {
        let Self { model, algorithm, seed, agent } = self;
        let choice = ModelChoice { algorithm: algorithm.clone(), seed: *seed, agent: *agent };
        Ok(TrainedModel::open(model, &choice)?)
    }
}

/// Predicts for new data.
#[derive(Args)]
pub(crate) struct PredictArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// A table (CSV, Parquet or Arrow), arrays (.npy, .npz, .safetensors), a picture (.png), or a folder of pictures
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// CSV file to write [default: print the predictions]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn predict(arguments: &PredictArguments) -> anyhow::Result<u8> {
    let model = arguments.model.open()?;
    let predictions =
        model.predict(NewData { data: &arguments.data, targets: None, progress: &reading::progress() })?;
    let text = predictions.to_csv();
    match &arguments.out {
        Some(path) => write_file(path, text.as_bytes())?,
        None => output::print_as_it_is(&text)?,
    }
    Ok(0)
}

/// Measures a trained model.
#[derive(Args)]
pub(crate) struct EvaluateArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Data with targets, as for mile predict; or the name of an image data set, for its test set
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// File with the targets of the samples of a .npy file
    #[arg(long, value_name = "FILE")]
    targets: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn evaluate(arguments: &EvaluateArguments) -> anyhow::Result<u8> {
    let model = arguments.model.open()?;
    let EvaluateArguments { data, targets, .. } = arguments;
    let progress = &reading::progress();
    let metrics = model.evaluate(NewData { data, targets: targets.as_deref(), progress })?;
    let text = match arguments.format {
        Format::Text => metrics.iter().map(|(name, value)| format!("{name}: {}\n", number(*value))).collect(),
        Format::Json => {
            let entries = metrics.iter().map(|(name, value)| ((*name).to_owned(), serde_json::json!(value)));
            format!("{}\n", serde_json::Value::Object(entries.collect()))
        }
    };
    output::print(&text)?;
    Ok(0)
}
