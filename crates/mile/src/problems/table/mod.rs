//! Linear and logistic regression on tabular data, and logistic regression with a nonconvex penalty.
//!
//! ```text
//! least-squares        f_i(x) = 1/(2 m_i) |A_i x - b_i|^2 + l2/2 |x|^2
//! logistic             f_i(x) = 1/m_i sum_j log(1 + exp(-b_j a_j'x)) + l2/2 |x|^2,      b_j in {-1, 1}
//! nonconvex-logistic   f_i(x) = 1/m_i sum_j log(1 + exp(-b_j a_j'x)) + l2 sum_k x_k^2/(1 + x_k^2)
//! ```

mod gram;
mod rows;

use rayon::prelude::*;

use self::gram::Gram;
use self::rows::Samples;
use super::{Batch, Draw, Failure, Problem};
use crate::block;
use crate::exp::{log_one_plus_exp, one_over_one_plus_exp};
use crate::isa::Isa;
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

impl Loss {
    /// Replaces each product p = a'x by `scale` times the derivative of its row's loss in p.
    #[inline(always)]
    fn slopes<T: Real>(self, scale: T, products: &mut [T], targets: &[T]) {
        let rows = products.iter_mut().zip(targets);
        match self {
            Self::LeastSquares => rows.for_each(|(p, b)| *p = scale * (*p - *b)),
            Self::Logistic | Self::NonconvexLogistic => {
                rows.for_each(|(p, b)| *p = scale * (-*b * one_over_one_plus_exp(*b * *p)));
            }
        }
    }

    /// Replaces each product p = a'x by its row's loss.
    #[inline(always)]
    fn values<T: Real>(self, products: &mut [f64], targets: &[T]) {
        let rows = products.iter_mut().zip(targets);
        match self {
            Self::LeastSquares => rows.for_each(|(p, b)| *p = 0.5 * (*p - b.wide()).powi(2)),
            Self::Logistic | Self::NonconvexLogistic => {
                rows.for_each(|(p, b)| *p = log_one_plus_exp(-b.wide() * *p));
            }
        }
    }
}

/// Whether gradients of an agent with so many samples are formed by its normal equations, which have as many rows as
/// columns: for exact least squares with at least twice as many samples as columns, of which there are not too many.
///
/// Forming them takes the arithmetic of n/4 gradients, at several times their speed.
pub fn has_normal_equations(loss: Loss, batch: Batch, dim: usize, samples: usize) -> bool {
    const MOST_COLUMNS: usize = 1024;
    loss == Loss::LeastSquares && batch == Batch::Full && dim <= MOST_COLUMNS && 2 * dim <= samples
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
    isa: Isa,
    /// The normal equations of each agent, where gradients are formed by them.
    grams: Vec<Option<Gram>>,
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
        shards.iter().for_each(|shard| block::move_to_huge_pages(&shard.features));
        let gram = |shard: &Shard<T>| {
            has_normal_equations(loss, batch, dim, shard.targets.len())
                .then(|| Gram::new(Samples::new(dim, &shard.features, &shard.targets)))
        };
        let grams = shards.par_iter().map(gram).collect();
        Ok(Self { dim, shards, loss, l2, batch, isa: Isa::best(), grams })
    }

    /// Number of samples of each agent.
    pub fn rows(&self) -> Vec<usize> {
        self.shards.iter().map(|shard| shard.targets.len()).collect()
    }

    fn samples(&self, agent: usize) -> Samples<'_, T> {
        let shard = &self.shards[agent];
        Samples::new(self.dim, &shard.features, &shard.targets)
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
        self.samples(agent).add_gradient(self.isa, self.loss, rows, scale, x, g);
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
        let penalty = |x: &T| match self.loss {
            Loss::NonconvexLogistic => x.wide().powi(2) / (1.0 + x.wide().powi(2)),
            Loss::LeastSquares | Loss::Logistic => 0.5 * x.wide().powi(2),
        };
        let samples = self.samples(agent);
        let data = samples.loss(self.isa, self.loss, x) / samples.len() as f64;
        Ok(data + self.l2 * x.iter().map(penalty).sum::<f64>())
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        match &self.grams[agent] {
            Some(gram) => gram.gradient(self.isa, x, self.l2, gradient),
            None => self.mean_gradient(agent, 0..self.samples(agent).len(), x, gradient),
        }
        Ok(())
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        if self.batch == Batch::Full {
            return self.gradient(agent, x, gradient);
        }
        let rows = self.shards[agent].targets.len();
        self.mean_gradient(agent, self.batch.samples(rows, agent, draw), x, gradient);
        Ok(())
    }
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

    /// A table of odd numbers, whose gradients are not formed by normal equations.
    fn odd<T: Real>(dim: usize, rows: usize, loss: Loss, isa: Isa) -> Table<T> {
        let value = |k: usize| T::of(((k * 7919) % 2003) as f64 / 1000.0 - 1.0);
        let target =
            |k: usize| if loss == Loss::LeastSquares { value(5 * k) } else { value(3 * k + 1).signum() };
        let shard = Shard {
            features: (0..rows * dim).map(value).collect(),
            targets: (0..rows).map(target).collect(),
        };
        let batch = Batch::Size(1);
        Table { isa, ..Table::new(dim, vec![shard], loss, 0.1, batch).unwrap() }
    }

    /// Loss and gradient by the formula, in `f64`.
    fn by_formula<T: Real>(table: &Table<T>, x: &[T]) -> (f64, Vec<f64>) {
        let (x, l2) = (x.iter().map(|x| x.wide()).collect::<Vec<_>>(), table.l2);
        let nonconvex = table.loss == Loss::NonconvexLogistic;
        let penalty = |x: &f64| if nonconvex { l2 * x * x / (1.0 + x * x) } else { l2 / 2.0 * x * x };
        let slope = |x: &f64| if nonconvex { 2.0 * l2 * x / (1.0 + x * x).powi(2) } else { l2 * x };
        let mut loss = x.iter().map(penalty).sum::<f64>();
        let mut gradient: Vec<f64> = x.iter().map(slope).collect();
        let shard = &table.shards[0];
        let rows = shard.targets.len();
        for (j, b) in shard.targets.iter().map(|b| b.wide()).enumerate() {
            let a = |k: usize| shard.features[j * table.dim + k].wide();
            let p: f64 = (0..table.dim).map(|k| a(k) * x[k]).sum();
            let (value, slope) = match table.loss {
                Loss::LeastSquares => (0.5 * (p - b).powi(2), p - b),
                _ => ((-b * p).exp().ln_1p(), -b / (1.0 + (b * p).exp())),
            };
            loss += value / rows as f64;
            (0..table.dim).for_each(|k| gradient[k] += slope * a(k) / rows as f64);
        }
        (loss, gradient)
    }

    fn passes_over_odd_shapes<T: Real>(tolerance: f64) {
        for (dim, rows) in
            [(0, 3), (1, 1), (3, 2), (7, 9), (8, 64), (15, 65), (16, 5), (17, 131), (30, 200), (515, 23)]
        {
            let x: Vec<T> = (0..dim).map(|k| T::of((k % 5) as f64 / 4.0 - 0.5)).collect();
            for loss in [Loss::LeastSquares, Loss::Logistic, Loss::NonconvexLogistic] {
                let at = |isa: Isa| {
                    let table = odd::<T>(dim, rows, loss, isa);
                    let mut g = vec![T::nan(); dim];
                    table.gradient(0, &x, &mut g).unwrap();
                    (table.loss(0, &x).unwrap(), g)
                };
                let found = at(Isa::Portable);
                for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                    assert_eq!(at(isa), found, "{isa:?}, {rows} x {dim}, {loss:?}: the same bits");
                }
                let (value, gradient) = by_formula(&odd::<T>(dim, rows, loss, Isa::Portable), &x);
                assert!((found.0 - value).abs() <= 1e-13 * (1.0 + value.abs()), "{rows} x {dim}, {loss:?}");
                let largest = gradient.iter().fold(1.0, |m: f64, g| m.max(g.abs()));
                for (found, expected) in found.1.iter().zip(&gradient) {
                    let error = (found.wide() - expected).abs();
                    assert!(error <= tolerance * largest, "{rows} x {dim}, {loss:?}: {error:e}");
                }
            }
        }
    }

    #[test]
    fn passes_over_odd_shapes_are_the_formula_with_the_same_bits_everywhere() {
        passes_over_odd_shapes::<f64>(1e-14);
        passes_over_odd_shapes::<f32>(1e-5);
    }

    #[test]
    fn normal_equations_give_the_gradient_to_rounding() {
        for (dim, rows) in [(1, 2), (5, 11), (31, 63), (33, 67), (65, 131), (97, 400)] {
            let rows_only = odd::<f64>(dim, rows, Loss::LeastSquares, Isa::best());
            let exact =
                Table::new(dim, rows_only.shards.clone(), Loss::LeastSquares, 0.1, Batch::Full).unwrap();
            assert!(exact.grams[0].is_some() && rows_only.grams[0].is_none());
            let x: Vec<f64> = (0..dim).map(|k| (k % 5) as f64 / 4.0 - 0.5).collect();
            let (mut by_rows, mut by_gram) = (vec![0.0; dim], vec![0.0; dim]);
            rows_only.gradient(0, &x, &mut by_rows).unwrap();
            exact.sample_gradient(0, &x, Draw { seed: 1, step: 2 }, &mut by_gram).unwrap();
            for (a, b) in by_rows.iter().zip(&by_gram) {
                assert!((a - b).abs() < 1e-14 * dim as f64, "{rows} x {dim}: {a} {b}");
            }
        }
        let pays = |dim, samples| has_normal_equations(Loss::LeastSquares, Batch::Full, dim, samples);
        assert!(pays(9, 18) && !pays(9, 17) && !pays(5_000, 50_000));
    }

    #[test]
    fn normal_equations_in_single_precision_lose_no_digits_to_large_features() {
        let (dim, rows) = (7, 400);
        let value = |k: usize| ((k * 7919) % 2003) as f32 / 1000.0 + 30.0;
        let shard = Shard {
            features: (0..rows * dim).map(value).collect(),
            targets: (0..rows).map(|k| value(5 * k)).collect(),
        };
        let table = Table::new(dim, vec![shard], Loss::LeastSquares, 0.1, Batch::Full).unwrap();
        let x: Vec<f32> = (0..dim).map(|k| 1.0 / dim as f32 + k as f32 / 1000.0 - 0.003).collect();
        let (mut found, expected) = (vec![0.0f32; dim], by_formula(&table, &x).1);
        table.gradient(0, &x, &mut found).unwrap();
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-6 * expected.abs(), "{found} {expected}");
        }
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
}
