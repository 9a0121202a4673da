//! How certain the coefficients of a model are.

use super::Failure;
use crate::real::Real;

/// The Fisher information of a model, in sums over each agent's rows: agents that share these sums share no row.
pub trait Information<T: Real>: Send + Sync {
    /// The sums over an agent's rows for the model `x`.
    fn sums(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure>;

    /// The covariance of the coefficients, from the sums of all agents in increasing agent; none if the rows do not determine them.
    fn covariance(&self, sums: &[Vec<f64>]) -> Option<Covariance>;
}

/// The estimated covariance of the coefficients of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Covariance {
    /// The matrix, row after row.
    pub matrix: Vec<f64>,
    /// Degrees of freedom of the estimated variance of the residuals, for Student's distribution; none where no variance is estimated, for
    /// the normal distribution.
    pub degrees: Option<f64>,
}
