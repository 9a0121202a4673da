//! A problem whose precision is known at run time only.

use std::ops::Range;
use std::sync::Arc;

use mile::problems::Problem;
use mile::real::Precision;

use crate::error::LabError;

/// A problem in one of the two precisions.
#[derive(Clone)]
pub enum AnyProblem {
    /// In single precision.
    F32(Arc<dyn Problem<f32>>),
    /// In double precision.
    F64(Arc<dyn Problem<f64>>),
}

impl AnyProblem {
    /// Its precision.
    pub fn precision(&self) -> Precision {
        match self {
            Self::F32(_) => Precision::F32,
            Self::F64(_) => Precision::F64,
        }
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        match self {
            Self::F32(problem) => problem.agents(),
            Self::F64(problem) => problem.agents(),
        }
    }

    /// A digest of the losses and gradients of these agents at the problem's starting point, and of its penalty.
    pub fn values_at_start(&self, agents: Range<usize>) -> Result<String, LabError> {
        match self {
            Self::F32(problem) => crate::values(&**problem, agents),
            Self::F64(problem) => crate::values(&**problem, agents),
        }
    }
}

impl From<Arc<dyn Problem<f32>>> for AnyProblem {
    fn from(problem: Arc<dyn Problem<f32>>) -> Self {
        Self::F32(problem)
    }
}

impl From<Arc<dyn Problem<f64>>> for AnyProblem {
    fn from(problem: Arc<dyn Problem<f64>>) -> Self {
        Self::F64(problem)
    }
}
