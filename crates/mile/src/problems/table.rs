//! Linear and logistic regression on tabular data, and logistic regression with a nonconvex penalty.
//!
//! ```text
//! least-squares        f_i(x) = 1/(2 m_i) |A_i x - b_i|^2 + l2/2 |x|^2
//! logistic             f_i(x) = 1/m_i sum_j log(1 + exp(-b_j a_j'x)) + l2/2 |x|^2,      b_j in {-1, 1}
//! nonconvex-logistic   f_i(x) = 1/m_i sum_j log(1 + exp(-b_j a_j'x)) + l2 sum_k x_k^2/(1 + x_k^2)
//! ```

use super::{Batch, Draw, Failure, Problem};
use crate::block;
use crate::real::Real;

/// The loss function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Least squares.
    LeastSquares,
    /// Logistic loss for two classes.
    Logistic,
    /// Logistic loss with a bounded, nonconvex penalty.
    NonconvexLogistic,
}

/// The samples of one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shard<T> {
    /// Features, one row per sample.
    pub features: Vec<T>,
    /// One target per sample: a number, or a class -1 or 1.
    pub targets: Vec<T>,
}

/// Regression or classification in which each agent has its own samples.
#[derive(Clone, Debug)]
pub struct Table<T> {
    dim: usize,
    shards: Vec<Shard<T>>,
    loss: Loss,
    l2: f64,
    batch: Batch,
}

/// Why data and parameters are not a valid problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTable {
    /// An agent has no samples.
    #[error("agent {agent} has no samples: use fewer agents, more data or another partition")]
    Empty {
        /// The agent.
        agent: usize,
    },
    /// The number of features is not rows times columns.
    #[error(
        "agent {agent} has {rows} targets and {features} feature values: give {dim} feature values per target"
    )]
    Ragged {
        /// The agent.
        agent: usize,
        /// Number of feature values.
        features: usize,
        /// Number of targets, one per row.
        rows: usize,
        /// Number of features per row.
        dim: usize,
    },
    /// A target of a logistic loss that is neither -1 nor 1.
    #[error("agent {agent}, row {row}: the target is {got}, but a logistic loss needs -1 or 1")]
    Target {
        /// The agent.
        agent: usize,
        /// The agent's row, from 0.
        row: usize,
        /// The target given.
        got: f64,
    },
    /// The weight of the penalty is negative or not finite.
    #[error("l2 = {0} is out of range: it must be a finite number from 0")]
    Penalty(f64),
    /// The mini-batch size is 0.
    #[error("batch = 0 is out of range: it must be a whole number from 1, or \"full\"")]
    Batch,
}

impl<T: Real> Table<T> {
    /// The objectives of all agents, one shard each; every sample has `dim` features.
    pub fn new(
        dim: usize,
        shards: Vec<Shard<T>>,
        loss: Loss,
        l2: f64,
        batch: Batch,
    ) -> Result<Self, InvalidTable> {
        if !(l2 >= 0.0 && l2.is_finite()) {
            return Err(InvalidTable::Penalty(l2));
        }
        if !batch.is_valid() {
            return Err(InvalidTable::Batch);
        }
        for (agent, shard) in shards.iter().enumerate() {
            let (features, rows) = (shard.features.len(), shard.targets.len());
            if rows == 0 {
                return Err(InvalidTable::Empty { agent });
            }
            if Some(features) != rows.checked_mul(dim) {
                return Err(InvalidTable::Ragged { agent, features, rows, dim });
            }
            let class = |b: &T| b.wide().abs() == 1.0;
            if loss != Loss::LeastSquares
                && let Some(row) = shard.targets.iter().position(|b| !class(b))
            {
                return Err(InvalidTable::Target { agent, row, got: shard.targets[row].wide() });
            }
        }
        Ok(Self { dim, shards, loss, l2, batch })
    }

    /// Number of samples of each agent.
    pub fn rows(&self) -> Vec<usize> {
        self.shards.iter().map(|shard| shard.targets.len()).collect()
    }

    fn row(&self, agent: usize, row: usize) -> (&[T], T) {
        let shard = &self.shards[agent];
        (&shard.features[row * self.dim..(row + 1) * self.dim], shard.targets[row])
    }

    /// Adds `scale` times the gradient of one row's loss.
    fn add_row(&self, agent: usize, row: usize, x: &[T], scale: T, gradient: &mut [T]) {
        let (a, b) = self.row(agent, row);
        let product = block::dot(a, x);
        let slope = match self.loss {
            Loss::LeastSquares => product - b,
            Loss::Logistic | Loss::NonconvexLogistic => -b / (T::one() + (b * product).exp()),
        };
        block::combine(gradient, 1.0, &[((scale * slope).wide(), a)]);
    }

    /// Writes the gradient of the penalty.
    fn penalty(&self, x: &[T], gradient: &mut [T]) {
        let l2 = T::of(self.l2);
        let two = T::of(2.0);
        for (g, x) in gradient.iter_mut().zip(x) {
            *g = match self.loss {
                Loss::NonconvexLogistic => two * l2 * *x / (T::one() + *x * *x).powi(2),
                Loss::LeastSquares | Loss::Logistic => l2 * *x,
            };
        }
    }

    fn mean_gradient(&self, agent: usize, rows: impl ExactSizeIterator<Item = usize>, x: &[T], g: &mut [T]) {
        self.penalty(x, g);
        let scale = T::of(1.0 / rows.len() as f64);
        for row in rows {
            self.add_row(agent, row, x, scale, g);
        }
    }
}

impl<T: Real> Problem<T> for Table<T> {
    fn agents(&self) -> usize {
        self.shards.len()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        let rows = self.shards[agent].targets.len();
        let one = |row: usize| {
            let (a, b) = self.row(agent, row);
            let product: f64 = a.iter().zip(x).map(|(a, x)| a.wide() * x.wide()).sum();
            match self.loss {
                Loss::LeastSquares => 0.5 * (product - b.wide()).powi(2),
                Loss::Logistic | Loss::NonconvexLogistic => log_one_plus_exp(-b.wide() * product),
            }
        };
        let penalty = |x: &T| match self.loss {
            Loss::NonconvexLogistic => x.wide().powi(2) / (1.0 + x.wide().powi(2)),
            Loss::LeastSquares | Loss::Logistic => 0.5 * x.wide().powi(2),
        };
        let data = (0..rows).map(one).sum::<f64>() / rows as f64;
        Ok(data + self.l2 * x.iter().map(penalty).sum::<f64>())
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        self.mean_gradient(agent, 0..self.shards[agent].targets.len(), x, gradient);
        Ok(())
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        let rows = self.shards[agent].targets.len();
        self.mean_gradient(agent, self.batch.samples(rows, agent, draw), x, gradient);
        Ok(())
    }
}

/// `log(1 + exp(z))` without overflow.
fn log_one_plus_exp(z: f64) -> f64 {
    z.max(0.0) + (-z.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(batch: Batch) -> Table<f64> {
        let shard = |agent: usize| Shard {
            features: (0..14).map(|k| ((k * 7 + agent * 3) % 11) as f64 / 5.0 - 1.0).collect(),
            targets: (0..7).map(|k| if (k + agent).is_multiple_of(3) { 1.0 } else { -1.0 }).collect(),
        };
        Table::new(2, vec![shard(0), shard(1)], Loss::Logistic, 0.1, batch).unwrap()
    }

    #[test]
    fn mini_batch_gradients_are_unbiased() {
        let (table, x) = (table(Batch::Size(2)), [0.3, -0.2]);
        let (mut exact, mut sum, mut g) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        table.gradient(0, &x, &mut exact).unwrap();
        let draws = 40_000;
        for step in 0..draws {
            table.sample_gradient(0, &x, Draw { seed: 1, step }, &mut g).unwrap();
            sum = [sum[0] + g[0], sum[1] + g[1]];
        }
        for k in 0..2 {
            assert!((sum[k] / draws as f64 - exact[k]).abs() < 0.01, "{sum:?} {exact:?}");
        }
    }

    #[test]
    fn what_makes_no_objective_is_refused() {
        let shard = |targets: &[f64]| Shard { features: vec![1.0; targets.len()], targets: targets.to_vec() };
        let new = |shards, loss, l2, batch| Table::new(1, shards, loss, l2, batch).unwrap_err();
        let both = vec![shard(&[1.0]), shard(&[])];
        assert_eq!(new(both, Loss::LeastSquares, 0.0, Batch::Full), InvalidTable::Empty { agent: 1 });
        let classes = vec![shard(&[1.0, 0.0])];
        assert!(matches!(
            new(classes, Loss::Logistic, 0.0, Batch::Full),
            InvalidTable::Target { row: 1, .. }
        ));
        let good = || vec![shard(&[1.0])];
        assert!(matches!(new(good(), Loss::Logistic, f64::NAN, Batch::Full), InvalidTable::Penalty(_)));
        assert_eq!(new(good(), Loss::Logistic, 0.0, Batch::Size(0)), InvalidTable::Batch);
    }

    #[test]
    fn far_out_logistic_losses_do_not_overflow() {
        assert_eq!(log_one_plus_exp(1e4), 1e4);
        assert_eq!(log_one_plus_exp(-1e4), 0.0);
        assert!((log_one_plus_exp(0.0) - 2f64.ln()).abs() < 1e-15);
    }
}
