//! From a problem's description to the problem.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mile::problems::{Problem, Quadratic};
use mile::random::{Purpose, stream};
use mile_nn::data::{self, Dataset};
use mile_nn::problem::{ImageConfig, ProblemError};
use mile_nn::{ImageProblem, Scalar};
use rand::RngExt;
use rand_distr::StandardNormal;

use crate::config::{Experiment, ImagesConfig, ProblemConfig, Start};
use crate::error::LabError;
use crate::tables;

/// A problem of one of the built-in kinds.
pub enum AnyProblem<T> {
    /// Generated quadratics.
    Quadratic(Quadratic<T>),
    /// The user's table.
    Table(mile::problems::Table<T>),
    /// Images and a network.
    Images(Box<ImageProblem<T>>),
}

impl<T: Scalar> AnyProblem<T> {
    /// The problem itself.
    pub fn as_dyn(&self) -> &dyn Problem<T> {
        match self {
            Self::Quadratic(problem) => problem,
            Self::Table(problem) => problem,
            Self::Images(problem) => &**problem,
        }
    }
}

/// Data sets that have been read, shared by all seeds and by the points of a sweep.
#[derive(Default)]
pub(crate) struct Library {
    sets: Mutex<HashMap<Key, Arc<Dataset>>>,
}

/// Which data set, and where it is looked for first.
type Key = (String, Option<PathBuf>);

impl Library {
    fn dataset(&self, config: &ImagesConfig) -> Result<Arc<Dataset>, LabError> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (config.dataset.clone(), config.data_dir.clone());
        if let Some(set) = sets.get(&key) {
            return Ok(set.clone());
        }
        let set = Arc::new(data::load(&config.dataset, config.data_dir.as_deref())?);
        sets.insert(key, set.clone());
        Ok(set)
    }
}

/// The problem of an experiment for one seed.
pub(crate) fn build<T: Scalar>(
    experiment: &Experiment,
    seed: u64,
    library: &Library,
) -> Result<AnyProblem<T>, LabError> {
    let agents = experiment.network.agents;
    match &experiment.problem {
        ProblemConfig::Quadratic { dim, condition, heterogeneity, seed: own } => {
            Quadratic::new(agents, *dim, *condition, *heterogeneity, own.unwrap_or(seed))
                .map(AnyProblem::Quadratic)
                .map_err(|error| {
                    let problem = format!("got {}, takes {}", error.got, error.takes);
                    LabError::config(format!("problem.{}", error.key), problem)
                })
        }
        ProblemConfig::Table(config) => tables::load(config, agents, seed).map(AnyProblem::Table),
        ProblemConfig::Images(config) => {
            let image = ImageConfig {
                model: config.model.clone(),
                partition: config.partition,
                agents,
                seed: config.seed.unwrap_or(seed),
                batch: config.batch,
                evaluation: config.evaluation,
                test_samples: config.test_samples,
            };
            ImageProblem::try_new(library.dataset(config)?, &image)
                .map(|problem| AnyProblem::Images(Box::new(problem)))
                .map_err(|error| refused(&error))
        }
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

/// The agents' starting points: one row for all, or one for each.
pub(crate) fn start<T: Scalar>(start: Start, problem: &dyn Problem<T>, seed: u64) -> Vec<T> {
    let zeros = || vec![T::zero(); problem.dim()];
    let random = |index: u64| {
        let mut random = stream(seed, Purpose::Start, index, 0);
        (0..problem.dim()).map(move |_| T::of(random.sample::<f64, _>(StandardNormal)))
    };
    match start {
        Start::Zeros => zeros(),
        Start::Model => problem.initial(seed).unwrap_or_else(zeros),
        Start::Common => random(u64::MAX).collect(),
        Start::Random => (0..problem.agents() as u64).flat_map(random).collect(),
    }
}
