//! The problems of a plan: checked once, and shared by jobs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mile::problems::{Metric, Problem, TensorPart};

use crate::engines::{Scalar, WeakProblem};
use crate::error::LabError;
use crate::objectives::Objectives;
use crate::room;
use crate::spec::Spec;

/// Properties of an experiment's problems; except for the class counts, they are the same for all seeds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProblemSize {
    /// Dimension of the problem.
    pub dim: usize,
    /// Whether gradient norms are recorded.
    pub records_gradient_norm: bool,
    /// Whether there is a nonsmooth penalty.
    pub has_penalty: bool,
    /// What is measured on held-out data.
    pub metrics: Vec<Metric>,
    /// The parts of the variable, if it has names for them.
    pub tensors: Vec<TensorPart>,
    /// Number of training samples of each class at each agent, by seed; empty for problems without classes.
    pub class_counts: Vec<(u64, Vec<Vec<usize>>)>,
}

/// Problems in use by some job, by seed.
#[derive(Default)]
pub(super) struct Problems(Mutex<HashMap<u64, WeakProblem>>);

impl Problems {
    /// The problem of a seed: that of another job which uses it, or a new one.
    pub(super) fn get<T: Scalar>(
        &self,
        objectives: &dyn Objectives,
        seed: u64,
    ) -> Result<Arc<dyn Problem<T>>, LabError> {
        let mut in_use = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = in_use.get(&seed).and_then(T::upgrade) {
            return Ok(problem);
        }
        let problem = T::problem(objectives, seed)?;
        in_use.insert(seed, T::downgrade(&problem));
        Ok(problem)
    }
}

/// Builds the problem of every seed once, and checks that they match the network and each other.
pub(super) fn check<T: Scalar>(spec: &Spec, numbers: usize, hosted: usize) -> Result<ProblemSize, LabError> {
    let mut found: Option<ProblemSize> = None;
    for seed in &spec.seeds {
        let problem = T::problem(&*spec.objectives, *seed)?;
        let (agents, dim) = (problem.agents(), problem.dim());
        if agents != numbers {
            let joining = if numbers > spec.network.agents { " with those that join" } else { "" };
            let problem = format!(
                "expected {agents}, the number of objectives of the problem (seed {seed}), got {numbers}{joining}"
            );
            return Err(LabError::config("network.agents", problem));
        }
        if dim == 0 {
            return Err(LabError::config("problem", "expected a dimension of at least 1, got 0"));
        }
        // One vector is the minimum: what a method needs is checked before it is run.
        let bytes = hosted as f64 * dim as f64 * size_of::<T>() as f64;
        let what = format!("a vector of dimension {dim} for each agent");
        room::check("network.agents", "fewer agents", agents, &what, bytes)?;
        let mut size = found.take().unwrap_or_else(|| ProblemSize {
            dim,
            records_gradient_norm: problem.records_gradient_norm(),
            has_penalty: problem.penalty().is_some(),
            metrics: problem.held_out().map_or(Vec::new(), |held_out| held_out.metrics().to_vec()),
            tensors: problem.tensors().map_or(Vec::new(), |tensors| tensors.parts()),
            class_counts: Vec::new(),
        });
        if dim != size.dim {
            let problem = format!(
                "has dimension {} with seed {} and {dim} with seed {seed}: it must be the same for all seeds",
                size.dim, spec.seeds[0]
            );
            return Err(LabError::config("problem", problem));
        }
        // A partition that does not depend on the seed is kept only once.
        if let Some(counts) = problem.class_counts()
            && size.class_counts.last().is_none_or(|(_, last)| *last != counts)
        {
            size.class_counts.push((*seed, counts));
        }
        found = Some(size);
    }
    Ok(found.unwrap_or_default())
}
