//! Quadratics whose curvature is at least that of a table's objectives, at every point:
//!
//! ```text
//! q_i(x) = w_i (beta/(2 m_i) sum_j u_j (a_j'x)^2 + ridge/2 |x|^2)
//! ```
//!
//! with the rows a_j of agent i and their weights u_j. beta is the largest curvature of the loss of a row ([`Loss::largest_curvature`]), ridge that of the
//! smooth penalty. With several classes every class has the same bound, so x is that of one of them.

use super::rows::Samples;
use super::{Loss, Table};
use crate::problems::{Failure, Problem};
use crate::real::Real;

/// The bounds of all agents.
pub(super) struct Bound<'a, T> {
    table: &'a Table<T>,
    beta: f64,
    /// The targets of all rows.
    zeros: Vec<T>,
}

impl<'a, T: Real> Bound<'a, T> {
    /// None if the curvature of the loss has no bound, or is the same everywhere.
    pub(super) fn of(table: &'a Table<T>) -> Option<Self> {
        let loss = table.objective.loss;
        let beta = loss.largest_curvature().filter(|_| loss != Loss::LeastSquares)?;
        let most = table.rows().into_iter().max().unwrap_or(0);
        Some(Self { table, beta, zeros: vec![T::zero(); most] })
    }
}

impl<T: Real> Problem<T> for Bound<'_, T> {
    fn agents(&self) -> usize {
        self.table.agents()
    }

    fn dim(&self) -> usize {
        self.table.columns
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        let mut gradient = vec![T::zero(); x.len()];
        self.gradient(agent, x, &mut gradient)?;
        Ok(x.iter().zip(&gradient).map(|(x, g)| 0.5 * x.wide() * g.wide()).sum())
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        let Table { columns, shards, objective, factors, isa, .. } = self.table;
        let ridge = match objective.loss {
            // The second derivative of x^2/(1 + x^2) is largest at 0.
            Loss::NonconvexLogistic => 2.0 * objective.l2,
            _ => objective.l2,
        };
        let (factor, penalised) = (factors[agent], self.table.penalised());
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = T::of(factor * ridge) * *x);
        gradient[penalised..].fill(T::zero());
        let rows = shards[agent].targets.len();
        let samples = Samples::new(*columns, &shards[agent]).with_targets(&self.zeros);
        let scale = T::of(factor * self.beta / rows as f64);
        samples.add_gradient(*isa, Loss::LeastSquares, 0..rows, scale, x, gradient);
        Ok(())
    }
}
