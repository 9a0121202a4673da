//! A problem whose precision is known at run time only.

use std::sync::Arc;

use mile::problems::Problem;
use mile::real::Precision;

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
