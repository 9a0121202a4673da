//! `kind = "images"`: a neural network on an image data set.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mile::problems::{Batch, Problem};
use mile::real::Precision;
use mile_nn::data::{self, Dataset};
use mile_nn::model::ModelSpec;
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageConfig, ProblemError};
use mile_nn::{ImageProblem, Scalar};
use toml::Value;

use super::{Curvature, Facts, Objectives, Setting, samples};
use crate::digest;
use crate::error::LabError;
use crate::section::{Section, resolve};

/// The section `[problem]` of this kind.
#[derive(Clone, Debug, PartialEq)]
struct ImagesConfig {
    /// Name of the data set.
    dataset: String,
    /// Folder to search first.
    data_dir: Option<PathBuf>,
    /// The neural network.
    model: ModelSpec,
    /// Batch size.
    batch: Batch,
    /// How the training set is divided among the agents.
    partition: Partition,
    /// Training samples on which losses are evaluated.
    evaluation: Evaluation,
    /// Number of test samples for the accuracy; `None`: all.
    test_samples: Option<usize>,
    /// Seed of the partition; `None`: the seed of the run.
    seed: Option<u64>,
    /// Number of agents.
    agents: usize,
    /// Name of the neural network.
    model_name: String,
}

/// A data set in memory, with its digest.
#[derive(Clone)]
struct LoadedDataset {
    set: Arc<Dataset>,
    digest: String,
}

/// Name of a data set, and the folder to search first.
type Key = (String, Option<PathBuf>);

/// Data sets in memory, shared by all seeds and by the points of a sweep.
#[derive(Default)]
pub(super) struct DatasetCache {
    sets: Mutex<HashMap<Key, LoadedDataset>>,
}

impl DatasetCache {
    fn dataset(&self, config: &ImagesConfig) -> Result<LoadedDataset, LabError> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (config.dataset.clone(), config.data_dir.clone());
        if let Some(kept) = sets.get(&key) {
            return Ok(kept.clone());
        }
        let set = Arc::new(data::load(&config.dataset, config.data_dir.as_deref())?);
        let parts = [&set.train, &set.test];
        let digest = digest::of_pieces(parts.iter().flat_map(|part| [&part.pixels[..], &part.labels[..]]));
        let kept = LoadedDataset { set, digest };
        sets.insert(key, kept.clone());
        Ok(kept)
    }
}

struct ImageObjectives {
    config: ImagesConfig,
    library: Arc<DatasetCache>,
}

pub(super) fn read(
    section: &Section,
    setting: Setting,
    library: Arc<DatasetCache>,
) -> Result<Arc<dyn Objectives>, LabError> {
    Ok(Arc::new(ImageObjectives { config: config(section, setting)?, library }))
}

fn config(section: &Section, setting: Setting) -> Result<ImagesConfig, LabError> {
    let names: Vec<_> = mile_nn::data::list().iter().map(|entry| (entry.name, entry.name)).collect();
    let dataset = section.choice("dataset", &names, Some("glyphs"))?;
    let preset = Value::from(if dataset == "cifar10" { "cifar-cnn" } else { "mnist-cnn" });
    let model = section.value("model").unwrap_or(&preset);
    let model_name = model.as_str().unwrap_or("a custom model").to_owned();
    let takes = "mnist-cnn, cifar-cnn, linear, mlp, or a list of layers";
    let model = samples::typed(section, "model", model, takes)?;
    let data_dir = section.text("data_dir", "a folder")?.map(|path| resolve(setting.folder, path));
    data_dir.iter().for_each(|path| section.keep("data_dir", path.display().to_string()));
    Ok(ImagesConfig {
        dataset: dataset.to_owned(),
        data_dir,
        model,
        batch: samples::batch(section, Batch::Size(32))?,
        partition: samples::partition(section)?,
        evaluation: samples::count(section, "eval_samples")?.map_or(Evaluation::All, Evaluation::PerAgent),
        test_samples: samples::count(section, "test_samples")?,
        seed: section.whole("seed", "a whole number")?,
        agents: setting.agents,
        model_name,
    })
}

impl ImageObjectives {
    fn build<T: Scalar>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        let config = &self.config;
        let image = ImageConfig {
            model: config.model.clone(),
            partition: config.partition,
            agents: config.agents,
            seed: config.seed.unwrap_or(seed),
            batch: config.batch,
            evaluation: config.evaluation,
            test_samples: config.test_samples,
        };
        let problem = ImageProblem::<T>::try_new(self.library.dataset(config)?.set, &image);
        Ok(Arc::new(problem.map_err(|error| refused(&error))?))
    }
}

fn refused(error: &ProblemError) -> LabError {
    match error {
        ProblemError::TestSamples { got, most } => {
            let takes = format!("a whole number from 1 to {most} (the size of the test set), or \"all\"");
            LabError::config("problem.test_samples", format!("got {got}, takes {takes}"))
        }
        _ => LabError::config("problem", error),
    }
}

impl Objectives for ImageObjectives {
    fn title(&self) -> String {
        let batch = match self.config.batch {
            Batch::Full => "full batches".into(),
            Batch::Size(n) => format!("batch {n}"),
            Batch::Epoch(n) => format!("batch {{ epoch = {n} }}"),
        };
        format!("{} on {}, {batch}", self.config.model_name, self.config.dataset)
    }

    fn single(&self, seed: u64) -> Result<Arc<dyn Problem<f32>>, LabError> {
        self.build(seed)
    }

    fn double(&self, seed: u64) -> Result<Arc<dyn Problem<f64>>, LabError> {
        self.build(seed)
    }

    fn precision(&self) -> Precision {
        Precision::F32
    }

    fn is_stochastic(&self) -> bool {
        self.config.batch != Batch::Full
    }

    fn curvature(&self) -> Curvature {
        Curvature::Changing
    }

    fn evaluated_on(&self) -> Option<String> {
        let losses = match self.config.evaluation {
            Evaluation::All => None,
            Evaluation::PerAgent(n) => Some(format!("losses over {n} training samples of each agent")),
        };
        let accuracies = self.config.test_samples.map(|n| format!("accuracies on {n} test images"));
        let parts: Vec<String> = losses.into_iter().chain(accuracies).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn path_keys(&self) -> &'static [&'static str] {
        &["data_dir"]
    }

    fn digests(&self) -> Result<Facts, LabError> {
        Ok(Facts::from([("problem.dataset".into(), self.library.dataset(&self.config)?.digest)]))
    }
}
