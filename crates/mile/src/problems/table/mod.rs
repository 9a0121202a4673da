//! Regression and classification on tabular data.
//!
//! ```text
//! f_i(x) = w_i (1/m_i sum_j u_j loss(a_j'x + o_j, b_j) + l2/2 |x|^2)
//! ```
//!
//! with the rows a_j and targets b_j of agent i and the losses of [`Loss`]. Without weights of rows u_j = 1, and with weights v_j they are
//! `u_j = m_i v_j/(v_1 + ... + v_m)`, so that their mean is 1; without offsets o_j = 0. The penalty of the nonconvex logistic loss is
//! `l2 sum_k x_k^2/(1 + x_k^2)` instead. With l1 the network minimises `f + l1 |x|_1` ([`Penalty`]). Coefficients of an intercept are
//! not penalised. The factors w_i are 1 for agents of equal weight, and `N m_i/sum_j m_j` for agents that count by their rows, with the
//! sum of their weights for m_i ([`AgentWeights`]).

mod bound;
mod gram;
mod held_out;
mod information;
mod loss;
mod objective;
mod products;
mod rows;
mod shard;
mod softmax;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use self::bound::Bound;
use self::gram::Gram;
use self::held_out::HeldOutRows;
pub use self::loss::Loss;
pub use self::objective::{AgentWeights, TableObjective};
use self::rows::Samples;
pub use self::shard::Shard;
use super::{Batch, DeviceForm, Draw, Failure, HeldOut, Information, InvalidPenalty, Penalty, Problem};
use crate::block;
use crate::isa::Isa;
use crate::real::Real;

/// Whether gradients and losses of an agent with `samples` samples are formed from its normal equations, which have as many rows as
/// columns: for exact least squares with at least twice as many samples as columns, if there are not too many columns.
///
/// Forming them takes as many operations as n/4 gradients, at several times their speed.
pub fn has_normal_equations(loss: Loss, batch: Batch, columns: usize, samples: usize) -> bool {
    const MOST_COLUMNS: usize = 1024;
    loss == Loss::LeastSquares && batch == Batch::Full && columns <= MOST_COLUMNS && 2 * columns <= samples
}

/// Regression or classification in which each agent has its own samples.
#[derive(Clone, Debug)]
pub struct Table<T> {
    columns: usize,
    /// Their weights have mean 1.
    shards: Vec<Shard<T>>,
    /// The sum of the weights of each agent's samples, as they were given.
    masses: Vec<f64>,
    /// Held-out rows of each agent; empty if there are none at all.
    test: Vec<HeldOutRows<T>>,
    objective: TableObjective,
    /// The nonsmooth term, if there is one.
    penalty: Option<Penalty>,
    /// The factor of each agent.
    factors: Vec<f64>,
    batch: Batch,
    isa: Isa,
    /// The normal equations of each agent whose gradients and losses are formed from them.
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
        "agent {agent} has {rows} targets and {features} feature values: give {columns} feature values per target"
    )]
    Ragged {
        /// The agent.
        agent: usize,
        /// Number of feature values.
        features: usize,
        /// Number of targets, one per row.
        rows: usize,
        /// Number of features per row.
        columns: usize,
    },
    /// A target that the loss does not accept.
    #[error("agent {agent}, row {row}: the target: expected {expected}, got {got}")]
    Target {
        /// The agent.
        agent: usize,
        /// The agent's row, from 0.
        row: usize,
        /// The target given.
        got: f64,
        /// The targets allowed.
        expected: String,
    },
    /// The number of weights or offsets is not that of the rows.
    #[error("agent {agent} has {rows} targets and {got} {what}s: give a {what} for each target, or none")]
    Incomplete {
        /// The agent.
        agent: usize,
        /// Which: a weight or an offset.
        what: &'static str,
        /// How many there are.
        got: usize,
        /// Number of targets, one per row.
        rows: usize,
    },
    /// A weight or an offset that is out of range.
    #[error("agent {agent}, row {row}: the {what}: expected {expected}, got {got}")]
    RowValue {
        /// The agent.
        agent: usize,
        /// The agent's row, from 0.
        row: usize,
        /// Which: a weight or an offset.
        what: &'static str,
        /// The value given.
        got: f64,
        /// The values allowed.
        expected: &'static str,
    },
    /// The weights of an agent's samples are all 0, or too large for a sum.
    #[error(
        "agent {agent}: the weights of its samples: expected a finite sum above 0, got {got}; give its rows other weights, or leave the agent out"
    )]
    Weightless {
        /// The agent.
        agent: usize,
        /// Their sum.
        got: f64,
    },
    /// A parameter that is out of range.
    #[error("{key}: expected {expected}, got {got}")]
    Parameter {
        /// Name of the parameter.
        key: &'static str,
        /// The value given.
        got: f64,
        /// The values allowed.
        expected: &'static str,
    },
    /// The mini-batch size is 0.
    #[error("batch: expected a whole number of at least 1, or \"full\", got 0")]
    Batch,
    /// The total number of rows given, or of their weights, is smaller than one agent's number.
    #[error(
        "the rows of all agents together count {got}, but those of one agent {least}: give the sum over all agents"
    )]
    TotalRows {
        /// The number given.
        got: f64,
        /// The largest number of an agent.
        least: f64,
    },
    /// Factors that are not one finite, nonnegative number for each agent.
    #[error(
        "the agents' factors are {got:?}: give a finite number of at least 0 for each of the {agents} agents"
    )]
    Factors {
        /// The factors given.
        got: Vec<f64>,
        /// Number of agents.
        agents: usize,
    },
    /// There are held-out rows for a number of agents that is not the problem's.
    #[error(
        "there are held-out rows for {got} agents, but there are {agents} agents: give rows for each, or none"
    )]
    TestAgents {
        /// Number of agents with held-out rows.
        got: usize,
        /// Number of agents.
        agents: usize,
    },
}

impl From<InvalidPenalty> for InvalidTable {
    fn from(InvalidPenalty(got): InvalidPenalty) -> Self {
        Self::Parameter { key: "l1", got, expected: "a finite number of at least 0" }
    }
}

impl<T: Real> Table<T> {
    /// The objectives of all agents, one shard each; every sample has `columns` features. The variable has a number for each
    /// column or, for several classes, for each column of each class ([`Loss::Softmax`]).
    pub fn new(
        columns: usize,
        mut shards: Vec<Shard<T>>,
        objective: TableObjective,
        batch: Batch,
    ) -> Result<Self, InvalidTable> {
        let TableObjective { loss, l2, l1, intercept, .. } = objective;
        if !(l2 >= 0.0 && l2.is_finite()) {
            return Err(InvalidTable::Parameter {
                key: "l2",
                got: l2,
                expected: "a finite number of at least 0",
            });
        }
        if !batch.is_valid() {
            return Err(InvalidTable::Batch);
        }
        loss.check()?;
        let intercepts = (1..=loss.classes()).map(|class| (class * columns).saturating_sub(1));
        let penalty = Penalty::l1(l1)?.except(intercepts.filter(|_| intercept));
        let penalty = (l1 > 0.0).then_some(penalty);
        for (agent, shard) in shards.iter().enumerate() {
            if shard.targets.is_empty() {
                return Err(InvalidTable::Empty { agent });
            }
            shard.check(agent, columns, loss)?;
        }
        let masses: Vec<f64> = shards.iter().map(Shard::mass).collect();
        if let Some(agent) = masses.iter().position(|mass| !(*mass > 0.0 && mass.is_finite())) {
            return Err(InvalidTable::Weightless { agent, got: masses[agent] });
        }
        let factors = objective.weights.factors(&masses)?;
        shards.iter_mut().zip(&masses).for_each(|(shard, mass)| shard.scale_weights(*mass));
        shards.iter().for_each(|shard| block::move_to_huge_pages(&shard.features));
        let (test, isa) = (Vec::new(), Isa::best());
        let gram = |shard: &Shard<T>| {
            has_normal_equations(loss, batch, columns, shard.targets.len())
                .then(|| Gram::new(isa, Samples::new(columns, shard)))
        };
        let grams = shards.par_iter().map(gram).collect();
        Ok(Self { columns, shards, masses, test, objective, penalty, factors, batch, isa, grams })
    }

    /// Adds held-out rows for each agent; some agents may have none. The metrics in [`Loss::metrics`] are measured on the rows of
    /// all agents together, each of which counts by its weight.
    pub fn with_test(self, shards: Vec<Shard<T>>) -> Result<Self, InvalidTable> {
        let some = shards.iter().any(|shard| !shard.targets.is_empty());
        let mut with = self.with_part_of_test(shards)?;
        with.test.retain(|_| some);
        Ok(with)
    }

    /// The same where rows of other agents may be elsewhere: metrics are measured even if no agent has held-out rows here.
    pub fn with_part_of_test(mut self, shards: Vec<Shard<T>>) -> Result<Self, InvalidTable> {
        let (got, agents) = (shards.len(), self.shards.len());
        if got != agents {
            return Err(InvalidTable::TestAgents { got, agents });
        }
        for (agent, shard) in shards.iter().enumerate() {
            shard.check(agent, self.columns, self.objective.loss)?;
        }
        let (columns, loss, batch, isa) = (self.columns, self.objective.loss, self.batch, self.isa);
        let rows = |shard| HeldOutRows::new(isa, columns, loss, batch, shard);
        self.test = shards.into_par_iter().map(rows).collect();
        Ok(self)
    }

    /// Number of samples of each agent.
    pub fn rows(&self) -> Vec<usize> {
        self.shards.iter().map(|shard| shard.targets.len()).collect()
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The samples of each agent; their weights have mean 1.
    pub fn shards(&self) -> &[Shard<T>] {
        &self.shards
    }

    /// Loss and penalties.
    pub fn terms(&self) -> &TableObjective {
        &self.objective
    }

    /// The factor w_i of each agent's objective.
    pub fn factors(&self) -> &[f64] {
        &self.factors
    }

    /// The mini-batch of a stochastic gradient.
    pub fn batch(&self) -> Batch {
        self.batch
    }

    fn samples(&self, agent: usize) -> Samples<'_, T> {
        Samples::new(self.columns, &self.shards[agent])
    }

    /// Columns whose coefficients are penalised: the first ones.
    fn penalised(&self) -> usize {
        self.columns - usize::from(self.objective.intercept && self.columns > 0)
    }

    /// Writes the gradient of the smooth penalty.
    fn l2_gradient(&self, factor: f64, x: &[T], gradient: &mut [T]) {
        let l2 = T::of(factor * self.objective.l2);
        let two = T::of(2.0);
        let slope = |x: &T| match self.objective.loss {
            Loss::NonconvexLogistic => two * l2 * *x / (T::one() + *x * *x).powi(2),
            _ => l2 * *x,
        };
        let (columns, penalised) = (self.columns.max(1), self.penalised());
        for (x, gradient) in x.chunks_exact(columns).zip(gradient.chunks_exact_mut(columns)) {
            gradient.iter_mut().zip(x).for_each(|(g, x)| *g = slope(x));
            gradient[penalised..].fill(T::zero());
        }
    }

    fn mean_gradient(&self, agent: usize, rows: impl ExactSizeIterator<Item = usize>, x: &[T], g: &mut [T]) {
        let factor = self.factors[agent];
        self.l2_gradient(factor, x, g);
        let scale = T::of(factor / rows.len() as f64);
        self.samples(agent).add_gradient(self.isa, self.objective.loss, rows, scale, x, g);
    }
}

impl<T: Real> Problem<T> for Table<T> {
    fn agents(&self) -> usize {
        self.shards.len()
    }

    fn dim(&self) -> usize {
        self.columns * self.objective.loss.classes()
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        let TableObjective { loss, l2, .. } = self.objective;
        let penalty = |x: &T| match loss {
            Loss::NonconvexLogistic => x.wide().powi(2) / (1.0 + x.wide().powi(2)),
            _ => 0.5 * x.wide().powi(2),
        };
        let (columns, penalised) = (self.columns.max(1), self.penalised());
        let of_class = |x: &[T]| x[..penalised].iter().map(penalty).sum::<f64>();
        let penalty: f64 = x.chunks_exact(columns).map(of_class).sum();
        let mean = match &self.grams[agent] {
            Some(gram) => gram.loss(self.isa, x),
            None => self.samples(agent).loss(self.isa, loss, x) / self.samples(agent).len() as f64,
        };
        Ok(self.factors[agent] * (mean + l2 * penalty))
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        match &self.grams[agent] {
            Some(gram) => {
                let (l2, factor) = (self.objective.l2, self.factors[agent]);
                gram.gradient(self.isa, factor, x, l2, self.penalised(), gradient);
            }
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

    fn penalty(&self) -> Option<&Penalty> {
        self.penalty.as_ref()
    }

    fn quadratic_bound(&self) -> Option<Box<dyn Problem<T> + '_>> {
        Bound::of(self).map(|bound| Box::new(bound) as Box<dyn Problem<T> + '_>)
    }

    fn held_out(&self) -> Option<&dyn HeldOut<T>> {
        (!self.test.is_empty()).then_some(self)
    }

    fn information(&self) -> Option<&dyn Information<T>> {
        self.as_information()
    }

    fn device_form(&self) -> Option<DeviceForm<'_, T>> {
        Some(DeviceForm::Table(self))
    }
}
