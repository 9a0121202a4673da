//! Keys that problems with samples share: model, batch size, partition, and number of samples for evaluation.

use mile::problems::Batch;
use mile_nn::model::ModelSpec;
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageSpec, ProblemError};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{EvaluationRows, RowCounts, Setting};
use crate::error::LabError;
use crate::room;
use crate::section::{Section, shown};

/// How a neural network is trained and evaluated on samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Training {
    /// Name of the neural network.
    model_name: String,
    config: ImageSpec,
    weight_decay: f64,
    /// Seed of the partition; `None`: the seed of the run.
    seed: Option<u64>,
    /// Whether the file says on how many samples models are evaluated.
    is_evaluation_given: bool,
}

impl Training {
    /// Reads the keys, with the default of `model`.
    pub(super) fn read(section: &Section, setting: Setting, preset: &str) -> Result<Self, LabError> {
        let preset = Value::from(preset);
        let model = section.value("model").unwrap_or(&preset);
        let model_name = model.as_str().unwrap_or("a custom model").to_owned();
        let expected = "mnist-cnn, cifar-cnn, linear, mlp, or a list of layers";
        let model: ModelSpec = typed(section, "model", model, expected)?;
        let is_evaluation_given = ["eval_samples", "test_samples"].iter().any(|key| section.has(key));
        let config = ImageSpec {
            model,
            batch: batch(section, Batch::Size(32))?,
            partition: partition(section)?,
            evaluation: count(section, "eval_samples")?.map_or(Evaluation::All, Evaluation::PerAgent),
            test_samples: count(section, "test_samples")?,
            agents: setting.agents,
            seed: 0,
        };
        let seed = section.whole("seed", "a whole number")?;
        let expected = "a number of at least 0";
        let weight_decay = section.number("weight_decay", expected)?.unwrap_or(0.0);
        if !(weight_decay >= 0.0 && weight_decay.is_finite()) {
            return Err(section.refuse("weight_decay", &Value::from(weight_decay), expected));
        }
        Ok(Self { model_name, config, weight_decay, seed, is_evaluation_given })
    }

    /// Weight of the penalty (weight/2) |x|^2.
    pub(super) fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    /// How many of these training samples gradients read.
    pub(super) fn rows(&self, samples: usize) -> RowCounts {
        let all = (samples / self.config.agents.max(1)).max(1) as u64;
        let run = match self.config.batch {
            Batch::Full => all,
            Batch::Size(rows) | Batch::Epoch(rows) => rows as u64,
        };
        RowCounts { all, run, largest_sample: 0 }
    }

    /// How many of these training and test samples the evaluation of a model reads.
    pub(super) fn evaluation_rows(&self, training: usize, test: usize) -> EvaluationRows {
        let training = match self.config.evaluation {
            Evaluation::All => training,
            Evaluation::PerAgent(n) => training.min(n.saturating_mul(self.config.agents)),
        };
        let test = self.config.test_samples.unwrap_or(test).min(test);
        EvaluationRows { training: training as u64, test: test as u64, is_given: self.is_evaluation_given }
    }

    /// Whether the experiment file says on how many samples models are evaluated.
    pub(super) fn is_evaluation_given(&self) -> bool {
        self.is_evaluation_given
    }

    /// The same, evaluated on at most this many samples.
    pub(super) fn evaluating(&self, per_agent: usize, test: usize) -> Self {
        let config = ImageSpec {
            evaluation: Evaluation::PerAgent(per_agent),
            test_samples: (test > 0).then_some(test),
            ..self.config.clone()
        };
        Self { config, ..self.clone() }
    }

    /// The configuration for a run with this seed.
    pub(super) fn config(&self, seed: u64) -> ImageSpec {
        ImageSpec { seed: self.seed.unwrap_or(seed), ..self.config.clone() }
    }

    /// The seed of samples that are held out. Not that of the run: all runs are tested on the same samples.
    pub(super) fn held_out_seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// The neural network.
    pub(super) fn model(&self) -> &ModelSpec {
        &self.config.model
    }

    pub(super) fn partition(&self) -> Partition {
        self.config.partition
    }

    pub(super) fn is_stochastic(&self) -> bool {
        self.config.batch != Batch::Full
    }

    /// A short description, with what the data are called.
    pub(super) fn title(&self, data: &str) -> String {
        let batch = match self.config.batch {
            Batch::Full => "full batches".into(),
            Batch::Size(n) => format!("batch {n}"),
            Batch::Epoch(n) => format!("batch {{ epoch = {n} }}"),
        };
        format!("{} on {data}, {batch}", self.model_name)
    }

    /// The samples on which losses and accuracies are measured, if not on all.
    pub(super) fn evaluated_on(&self, samples: &str) -> Option<String> {
        let losses = match self.config.evaluation {
            Evaluation::All => None,
            Evaluation::PerAgent(n) => Some(format!("losses over {n} training samples of each agent")),
        };
        let accuracies = self.config.test_samples.map(|n| format!("accuracies on {n} test {samples}"));
        let parts: Vec<String> = losses.into_iter().chain(accuracies).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The error of keys that do not fit the data.
pub(super) fn refused(error: ProblemError) -> LabError {
    match error {
        ProblemError::TestSamples { got, most } => {
            let expected = format!("a whole number from 1 to {most} (the size of the test set), or \"all\"");
            LabError::expected("problem.test_samples", expected, got)
        }
        _ => LabError::config("problem", error),
    }
}

/// The number of samples for evaluation; `None`: all.
fn count(section: &Section, key: &'static str) -> Result<Option<usize>, LabError> {
    let expected = "a whole number of at least 1, or \"all\"";
    let samples = match section.value(key) {
        None => None,
        Some(value) if value.as_str() == Some("all") => {
            section.keep(key, "all");
            None
        }
        Some(value) => match value.as_integer() {
            Some(n @ 1..) => Some(n as usize),
            _ => return Err(section.refuse(key, value, expected)),
        },
    };
    samples.into_iter().for_each(|n| section.keep(key, n as i64));
    Ok(samples)
}

/// A value deserialized by serde, with an error message of the usual form.
pub(super) fn typed<T: DeserializeOwned>(
    section: &Section,
    key: &'static str,
    value: &Value,
    expected: &str,
) -> Result<T, LabError> {
    section.keep(key, value.clone());
    value.clone().try_into().map_err(|error: toml::de::Error| {
        LabError::expected(section.path(key), expected, format!("{} ({})", shown(value), error.message()))
    })
}

pub(super) fn batch(section: &Section, default: Batch) -> Result<Batch, LabError> {
    let expected = "a whole number of at least 1, { epoch = NUMBER }, or \"full\"";
    let Some(value) = section.value("batch") else {
        let shown = match default {
            Batch::Size(n) => Value::from(n as i64),
            _ => Value::from("full"),
        };
        section.keep("batch", shown);
        return Ok(default);
    };
    let size = |value: &Value| value.as_integer().and_then(|n| usize::try_from(n).ok());
    let epoch = || value.as_table().filter(|table| table.len() == 1).and_then(|table| table.get("epoch"));
    let batch = match value {
        Value::String(word) if word == "full" => Some(Batch::Full),
        Value::Table(_) => epoch().and_then(size).map(Batch::Epoch),
        other => size(other).map(Batch::Size),
    };
    section.keep("batch", value.clone());
    if let Some(Batch::Size(rows) | Batch::Epoch(rows)) = batch {
        let bytes = rows as f64 * size_of::<usize>() as f64;
        room::check(section.path("batch"), "fewer samples", rows, "a list of them", bytes)?;
    }
    batch.filter(|batch| batch.is_valid()).ok_or_else(|| section.refuse("batch", value, expected))
}

pub(super) fn partition(section: &Section) -> Result<Partition, LabError> {
    let expected = "{ kind = \"iid\" | \"dirichlet\" | \"shards\" | \"label-quantity\", ... }";
    let iid = Value::Table(Table::from_iter([("kind".to_owned(), Value::from("iid"))]));
    let value = match section.value("partition") {
        Some(Value::String(kind)) => {
            &Value::Table(Table::from_iter([("kind".to_owned(), Value::from(kind.as_str()))]))
        }
        Some(value) => value,
        None => &iid,
    };
    let partition: Partition = typed(section, "partition", value, expected)?;
    partition.validate().map_err(|error| LabError::config(section.path("partition"), error))?;
    Ok(partition)
}
