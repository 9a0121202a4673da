//! `kind = "images"`: a neural network on an image data set.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mile::problems::Problem;
use mile::ranks::Together;
use mile::real::Precision;
use mile::with_precision;
use mile_nn::data::{self, Dataset, Images, Values};
use mile_nn::{ImageProblem, KernelScalar};

use super::arrays::{NewArrays, TrainedNetwork};
use super::samples::{Training, refused};
use super::{AnyProblem, Curvature, EvaluationRows, Facts, Objectives, RowCounts, Setting};
use crate::digest;
use crate::error::LabError;
use crate::predictions::tagged;
use crate::section::{Section, resolve};

/// The section `[problem]` of this kind.
#[derive(Clone, Debug, PartialEq)]
struct ImagesSpec {
    /// Name of the data set.
    dataset: String,
    /// Folder to search first.
    data_dir: Option<PathBuf>,
    training: Training,
}

/// A data set that was loaded, and what is known about it.
struct LoadedDataset {
    /// Not kept where only some agents' samples are kept.
    set: Option<Arc<Dataset>>,
    about: About,
}

/// What is known about a data set.
#[derive(Clone, Debug)]
struct About {
    digest: String,
    training: usize,
    test: usize,
    bytes: usize,
}

/// Name of a data set, and the folder to search first.
type Key = (String, Option<PathBuf>);

/// Data sets in memory, shared by all seeds and by the points of a sweep.
#[derive(Default)]
pub(super) struct DatasetCache {
    sets: Mutex<HashMap<Key, LoadedDataset>>,
}

impl DatasetCache {
    fn with<V>(
        &self,
        config: &ImagesSpec,
        is_enough: impl Fn(&LoadedDataset) -> bool,
        take: impl FnOnce(&mut LoadedDataset) -> V,
    ) -> Result<V, LabError> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (config.dataset.clone(), config.data_dir.clone());
        if let Some(kept) = sets.get_mut(&key).filter(|kept| is_enough(kept)) {
            return Ok(take(kept));
        }
        let set = Arc::new(data::load(&config.dataset, config.data_dir.as_deref())?);
        let parts = [&set.train, &set.test];
        let about = About {
            digest: digest::of_pieces(parts.iter().flat_map(|part| [bytes(part), part.labels()])),
            training: set.train.len(),
            test: set.test.len(),
            bytes: set.train.bytes() + set.test.bytes(),
        };
        let mut kept = LoadedDataset { set: Some(set), about };
        let taken = take(&mut kept);
        sets.insert(key, kept);
        Ok(taken)
    }

    fn about(&self, config: &ImagesSpec) -> Result<About, LabError> {
        self.with(config, |_| true, |kept| kept.about.clone())
    }

    /// The data set, which is kept in memory if asked.
    fn dataset(&self, config: &ImagesSpec, keep: bool) -> Result<Arc<Dataset>, LabError> {
        let take = |kept: &mut LoadedDataset| if keep { kept.set.clone() } else { kept.set.take() };
        let found = self.with(config, |kept| kept.set.is_some(), take)?;
        found.ok_or_else(|| LabError::config("problem.dataset", "not loaded"))
    }
}

/// The pixels of images, which all data sets have as bytes.
fn bytes(images: &Images) -> &[u8] {
    if let Values::Bytes(bytes) = &images.pixels { bytes } else { &[] }
}

struct ImageObjectives {
    config: ImagesSpec,
    library: Arc<DatasetCache>,
    /// The agents that are hosted here, if not all.
    here: Option<Vec<usize>>,
}

pub(super) fn read(
    section: &Section,
    setting: Setting,
    library: Arc<DatasetCache>,
) -> Result<Arc<dyn Objectives>, LabError> {
    Ok(Arc::new(ImageObjectives { config: config(section, setting)?, library, here: None }))
}

fn config(section: &Section, setting: Setting) -> Result<ImagesSpec, LabError> {
    let names: Vec<_> = mile_nn::data::list().iter().map(|entry| (entry.name, entry.name)).collect();
    let dataset = section.choice("dataset", &names, Some("glyphs"))?;
    let preset = if dataset == "cifar10" { "cifar-cnn" } else { "mnist-cnn" };
    let training = Training::read(section, setting, preset)?;
    let data_dir = section.text("data_dir", "a folder")?.map(|path| resolve(setting.folder, path));
    data_dir.iter().for_each(|path| section.keep("data_dir", path.display().to_string()));
    Ok(ImagesSpec { dataset: dataset.to_owned(), data_dir, training })
}

impl ImageObjectives {
    fn build<T: KernelScalar>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        let set = self.library.dataset(&self.config, self.here.is_none())?;
        let training = &self.config.training;
        let problem = ImageProblem::<T>::try_new(set, &training.config(seed));
        let decayed = problem.and_then(|problem| problem.with_weight_decay(training.weight_decay()));
        let problem = decayed.map_err(refused)?;
        Ok(Arc::new(match &self.here {
            None => problem,
            Some(here) => problem.hosting(here),
        }))
    }
}

impl Objectives for ImageObjectives {
    fn title(&self) -> String {
        self.config.training.title(&self.config.dataset)
    }

    fn problem(&self, seed: u64, precision: Precision) -> Result<AnyProblem, LabError> {
        Ok(with_precision!(precision, T => self.build::<T>(seed)?.into()))
    }

    fn precision(&self) -> Precision {
        Precision::F32
    }

    fn is_stochastic(&self) -> bool {
        self.config.training.is_stochastic()
    }

    fn curvature(&self) -> Curvature {
        Curvature::Changing
    }

    fn are_networks(&self) -> bool {
        true
    }

    fn rows(&self, _: u64) -> Result<Option<RowCounts>, LabError> {
        Ok(Some(self.config.training.rows(self.library.about(&self.config)?.training)))
    }

    fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
        let About { training, test, .. } = self.library.about(&self.config)?;
        Ok(Some(self.config.training.evaluation_rows(training, test)))
    }

    fn evaluating(&self, per_agent: usize, test: usize) -> Option<Arc<dyn Objectives>> {
        let training = self.config.training.evaluating(per_agent, test);
        let config = ImagesSpec { training, ..self.config.clone() };
        Some(Arc::new(Self { config, library: self.library.clone(), here: self.here.clone() }))
    }

    fn data_bytes(&self, _: u64) -> Result<u64, LabError> {
        Ok(self.library.about(&self.config)?.bytes as u64)
    }

    fn for_ranks(&self, hosted: &[usize], _: Together<'_>) -> Result<Option<Arc<dyn Objectives>>, LabError> {
        let (config, library) = (self.config.clone(), self.library.clone());
        Ok(Some(Arc::new(Self { config, library, here: Some(hosted.to_vec()) })))
    }

    fn form(&self, _: &toml::Table) -> Result<Option<serde_json::Value>, LabError> {
        let entry = data::list().iter().find(|entry| entry.name == self.config.dataset);
        let form = |entry: &data::DatasetEntry| TrainedNetwork {
            model: self.config.training.model().clone(),
            shape: [entry.shape.height, entry.shape.width, entry.shape.channels],
            outputs: entry.classes,
            arrays: NewArrays::of_images(),
        };
        Ok(entry.map(form).map(|form| tagged("network", &form)))
    }

    fn evaluated_on(&self) -> Option<String> {
        self.config.training.evaluated_on("images")
    }

    fn path_keys(&self) -> &'static [&'static str] {
        &["data_dir"]
    }

    fn are_divided(&self) -> bool {
        true
    }

    fn digests(&self) -> Result<Facts, LabError> {
        Ok(Facts::from([("problem.dataset".into(), self.library.about(&self.config)?.digest.into())]))
    }
}
