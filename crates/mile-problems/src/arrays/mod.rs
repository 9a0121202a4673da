//! `kind = "arrays"`: a neural network on the user's own arrays, from `.npy`, `.npz` and `.safetensors` files.

mod checked;
mod file;
mod load;
mod look;
mod network;
mod new;
mod npy;
mod some;
mod spec;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use mile::problems::Problem;
use mile::ranks::Together;
use mile::real::Precision;
use mile::with_precision;
use mile_nn::data::Dataset;
use mile_nn::partition::hold_out;
use mile_nn::problem::{ImageSpec, Parts};
use mile_nn::{ImageProblem, KernelScalar};

use super::samples::{Training, refused};
use super::{AnyProblem, Curvature, EvaluationRows, Fact, Facts, Objectives, RowCounts, Setting};
use crate::digest;
use crate::error::LabError;
use crate::predictions::tagged;
use crate::section::Section;
use load::{Arrays, Extent};
pub use look::{ArrayLook, ArrayNumbers};
pub use network::TrainedNetwork;
pub(crate) use new::NewArrays;
use spec::{ArraysSpec, DataSpec, Test};

/// The arrays that were read last: planning and the run, all seeds and the points of a sweep read the files once.
#[derive(Default)]
pub(super) struct ArrayCache {
    last: Mutex<Option<(Key, Arc<Arrays>)>>,
}

/// What was read, how much of it, and size and time of each file.
type Key = (DataSpec, Extent, Vec<Option<(u64, Option<SystemTime>)>>);

impl ArrayCache {
    fn arrays(&self, config: &DataSpec, extent: Extent) -> Result<Arc<Arrays>, LabError> {
        let stamp =
            |path: PathBuf| std::fs::metadata(path).ok().map(|about| (about.len(), about.modified().ok()));
        let stamps = files(config).into_iter().map(|(.., path)| stamp(path)).collect();
        let key = (config.clone(), extent, stamps);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = last.as_ref().filter(|(known, _)| *known == key) {
            return Ok(kept.clone());
        }
        *last = None;
        let arrays = Arc::new(load::load(config, extent)?);
        *last = Some((key, arrays.clone()));
        Ok(arrays)
    }
}

/// The files that are available: key, agent whose file it is, path.
fn files(config: &DataSpec) -> Vec<(&'static str, Option<usize>, PathBuf)> {
    let mut files = Vec::new();
    for place in config.files() {
        if place.is_per_agent() {
            files.extend(config.available().map(|agent| (place.key, Some(agent), place.file_of(agent))));
        } else {
            files.push((place.key, None, place.path.clone()));
        }
    }
    files
}

/// Digests of the files that are available.
fn digests(config: &DataSpec) -> Result<Facts, LabError> {
    let digest = |(key, agent, path): (&str, Option<usize>, PathBuf)| {
        let fact = Fact::from(digest::of_file(&path)?);
        Ok(match agent {
            None => (format!("problem.{key}"), fact),
            Some(agent) => (format!("problem.{key}[{agent}]"), fact.of_agent(agent)),
        })
    };
    files(config).into_iter().map(digest).collect()
}

struct ArrayObjectives {
    data: DataSpec,
    training: Training,
    cache: Arc<ArrayCache>,
    /// The agents that are hosted here, if not all.
    here: Option<Vec<usize>>,
}

pub(super) fn read(
    section: &Section,
    setting: Setting,
    cache: Arc<ArrayCache>,
) -> Result<Arc<dyn Objectives>, LabError> {
    let ArraysSpec { data, training } = ArraysSpec::read(section, setting)?;
    Ok(Arc::new(ArrayObjectives { data, training, cache, here: None }))
}

impl ArrayObjectives {
    /// All samples; for a rank, what is known about them without reading them all.
    fn arrays(&self) -> Result<Arc<Arrays>, LabError> {
        let extent = if self.here.is_some() { Extent::Outline } else { Extent::All };
        self.cache.arrays(&self.data, extent)
    }

    fn build<T: KernelScalar>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        let arrays = self.arrays()?;
        let mut config = self.training.config(seed);
        let hold_out = |parts: &mut [Vec<u32>]| match self.data.test {
            Test::Fraction(part) => Some(hold_out(parts, part, self.training.held_out_seed())),
            _ => None,
        };
        let (train, held_out) = match arrays.owned() {
            Some(owned) => {
                let mut own = self.owned(owned);
                let held_out = hold_out(&mut own);
                (own, held_out)
            }
            // Before they are divided, so that what is held out does not depend on the seed of the run.
            None => {
                let mut rest = [(0..arrays.set.train.len() as u32).collect::<Vec<u32>>()];
                let held_out = hold_out(&mut rest);
                (divide(&arrays.set, &rest[0], &config)?, held_out)
            }
        };
        if held_out.as_ref().is_some_and(Vec::is_empty) {
            let problem = "holds out no sample of any agent; hold out a larger part, or use fewer agents";
            return Err(LabError::config("problem.test", problem));
        }
        let test = held_out.as_ref().map_or(arrays.set.test.len(), Vec::len);
        config.test_samples = match config.test_samples {
            // With only its own file, an agent has a part of the test samples, and none of them is measured.
            _ if self.data.only.is_some() => None,
            // Rows that are held out are rounded for each agent.
            Some(chosen) if !self.training.is_evaluation_given() => Some(chosen.min(test)),
            given => given,
        };
        let problem = ImageProblem::<T>::with_parts(arrays.set.clone(), &config, Parts { train, held_out });
        let decayed = problem.and_then(|problem| problem.with_weight_decay(self.training.weight_decay()));
        let problem = decayed.map_err(refused)?;
        Ok(Arc::new(match &self.here {
            None => problem,
            Some(here) => problem.hosting_from(here, |kept| load::some_of(&self.data, &arrays, kept))?,
        }))
    }

    /// What an agent reads: with one file for each, its own.
    fn own(&self, agent: usize) -> DataSpec {
        let only = self.data.train.inputs.is_per_agent().then_some(agent);
        DataSpec { only, ..self.data.clone() }
    }

    /// The samples of each agent, with one file for each.
    fn owned(&self, owned: &[std::ops::Range<u32>]) -> Vec<Vec<u32>> {
        match self.data.only {
            None => owned.iter().map(|range| range.clone().collect()).collect(),
            // The objectives of other agents are never evaluated here, but must exist.
            Some(only) => {
                let own = |agent| if agent == only { owned[0].clone().collect() } else { vec![0] };
                (0..self.data.agents).map(own).collect()
            }
        }
    }
}

/// Divides some samples among the agents.
fn divide(set: &Dataset, some: &[u32], config: &ImageSpec) -> Result<Vec<Vec<u32>>, LabError> {
    let labels = set.train.labels();
    // Least squares has no classes, and divides at random.
    let label = |sample: &u32| if labels.is_empty() { 0 } else { labels[*sample as usize] };
    let of_some: Vec<u8> = some.iter().map(label).collect();
    let split = config.partition.split(&of_some, set.classes, config.agents, config.seed);
    let split = split.map_err(|error| LabError::config("problem.partition", error))?;
    let sample = |place: &u32| some[*place as usize];
    Ok(split.iter().map(|places| places.iter().map(sample).collect()).collect())
}

impl Objectives for ArrayObjectives {
    fn title(&self) -> String {
        let path = &self.data.train.inputs.path;
        let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        self.training.title(&file)
    }

    fn problem(&self, seed: u64, precision: Precision) -> Result<AnyProblem, LabError> {
        Ok(with_precision!(precision, T => self.build::<T>(seed)?.into()))
    }

    fn precision(&self) -> Precision {
        Precision::F32
    }

    fn is_stochastic(&self) -> bool {
        self.training.is_stochastic()
    }

    fn curvature(&self) -> Curvature {
        Curvature::Changing
    }

    fn are_networks(&self) -> bool {
        true
    }

    fn rows(&self, _: u64) -> Result<Option<RowCounts>, LabError> {
        let samples = self.arrays()?.set.train.len();
        // With only its own file, an agent knows its own samples.
        let known = if self.data.only.is_some() { samples * self.data.agents } else { samples };
        Ok(Some(self.training.rows(known)))
    }

    fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
        let set = self.arrays()?.set.clone();
        let test = match self.data.test {
            Test::Fraction(part) => (part * set.train.len() as f64) as usize,
            _ => set.test.len(),
        };
        let rows = self.training.evaluation_rows(set.train.len(), test);
        Ok(Some(EvaluationRows { is_given: rows.is_given || self.data.only.is_some(), ..rows }))
    }

    fn evaluating(&self, per_agent: usize, test: usize) -> Option<Arc<dyn Objectives>> {
        let (data, cache, here) = (self.data.clone(), self.cache.clone(), self.here.clone());
        Some(Arc::new(Self { data, training: self.training.evaluating(per_agent, test), cache, here }))
    }

    fn data_bytes(&self, _: u64) -> Result<u64, LabError> {
        Ok(self.arrays()?.bytes)
    }

    fn for_ranks(&self, hosted: &[usize], _: Together<'_>) -> Result<Option<Arc<dyn Objectives>>, LabError> {
        let (data, training, cache) = (self.data.clone(), self.training.clone(), self.cache.clone());
        Ok(Some(Arc::new(Self { data, training, cache, here: Some(hosted.to_vec()) })))
    }

    fn evaluated_on(&self) -> Option<String> {
        self.training.evaluated_on("samples")
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        self.data.files().into_iter().map(|place| (place.key, place.path.clone())).collect()
    }

    fn path_keys(&self) -> &'static [&'static str] {
        match (&self.data.train.inputs.array, &self.data.test) {
            (Some(_), Test::Arrays(source)) if source.inputs.key == "test" => &["data", "test"],
            (Some(_), _) => &["data"],
            (None, Test::Arrays(_)) => &["inputs", "targets", "test_inputs", "test_targets"],
            (None, _) => &["inputs", "targets"],
        }
    }

    fn digests(&self) -> Result<Facts, LabError> {
        digests(&self.data)
    }

    fn shared_facts(&self, agent: usize) -> Result<Facts, LabError> {
        let own = self.own(agent);
        let set = self.cache.arrays(&own, Extent::All)?.set.clone();
        let mut facts = digests(&own)?;
        facts.retain(|_, fact| fact.agent.is_none());
        facts.insert("problem.shape".into(), set.shape.to_string().into());
        facts.insert("problem.outputs".into(), set.classes.to_string().into());
        Ok(facts)
    }

    fn form(&self, _: &toml::Table) -> Result<Option<serde_json::Value>, LabError> {
        let set = &self.arrays()?.set;
        let shape = [set.shape.height, set.shape.width, set.shape.channels];
        let (model, arrays) = (self.training.model().clone(), NewArrays::like(&self.data));
        Ok(Some(tagged("network", &TrainedNetwork { model, shape, outputs: set.classes, arrays })))
    }

    fn are_divided(&self) -> bool {
        !self.data.train.inputs.is_per_agent()
    }

    fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
        let is_own = self.data.train.inputs.is_per_agent();
        let (training, cache) = (self.training.clone(), self.cache.clone());
        let own = || Self { data: self.own(agent), training, cache, here: None };
        is_own.then(|| Arc::new(own()) as Arc<dyn Objectives>)
    }
}
