//! `kind = "quadratic"`: generated quadratic objectives.

use std::sync::Arc;

use mile::problems::{Problem, Quadratic};
use mile::ranks::Together;
use mile::real::{Precision, Real};
use mile::with_precision;

use super::{AnyProblem, Curvature, Objectives, RowCounts, Setting};
use crate::error::LabError;
use crate::room;
use crate::section::Section;

/// The section `[problem]` of this kind.
#[derive(Clone)]
struct Quadratics {
    agents: usize,
    dim: usize,
    condition: f64,
    heterogeneity: f64,
    /// Seed of the data; `None`: the seed of the run.
    seed: Option<u64>,
    /// The agents that are hosted here, if not all.
    here: Option<Vec<usize>>,
}

pub(super) fn read(section: &Section, setting: Setting) -> Result<Arc<dyn Objectives>, LabError> {
    Ok(Arc::new(Quadratics {
        agents: setting.agents,
        dim: section.whole_or("dim", "a whole number of at least 1", 20)? as usize,
        condition: section.number_or("condition", "a number", 10.0)?,
        heterogeneity: section.number_or("heterogeneity", "a number", 1.0)?,
        seed: section.whole("seed", "a whole number")?,
        here: None,
    }))
}

impl Quadratics {
    fn build<T: Real>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        let Self { agents, dim, condition, heterogeneity, seed: own, .. } = *self;
        let hosted = self.here.as_ref().map_or(agents, Vec::len);
        // Two vectors for each agent.
        let bytes = 2.0 * hosted as f64 * dim as f64 * size_of::<T>() as f64;
        let what = format!("the objectives of {hosted} agents");
        room::check("problem.dim", "a smaller dimension", dim, &what, bytes)?;
        let is_here = |agent: usize| self.here.as_ref().is_none_or(|here| here.contains(&agent));
        match Quadratic::<T>::hosting(&is_here, agents, dim, condition, heterogeneity, own.unwrap_or(seed)) {
            Ok(problem) => Ok(Arc::new(problem)),
            Err(error) => {
                Err(LabError::expected(format!("problem.{}", error.key), error.expected, error.got))
            }
        }
    }
}

impl Objectives for Quadratics {
    fn title(&self) -> String {
        let Self { dim, condition, heterogeneity, .. } = self;
        format!("quadratics of dimension {dim}, condition number {condition}, heterogeneity {heterogeneity}")
    }

    fn problem(&self, seed: u64, precision: Precision) -> Result<AnyProblem, LabError> {
        Ok(with_precision!(precision, T => self.build::<T>(seed)?.into()))
    }

    fn rows(&self, _: u64) -> Result<Option<RowCounts>, LabError> {
        // A gradient reads a few vectors.
        Ok(Some(RowCounts { all: 1, run: 1, largest_sample: 0 }))
    }

    fn curvature(&self) -> Curvature {
        Curvature::Known(1.0)
    }

    fn for_ranks(&self, hosted: &[usize], _: Together<'_>) -> Result<Option<Arc<dyn Objectives>>, LabError> {
        Ok(Some(Arc::new(Self { here: Some(hosted.to_vec()), ..self.clone() })))
    }
}
