//! Objectives of the agents.
//!
//! A [`Problem`] has N local objectives `f_i` of the same variable; the network minimises
//! `f = (1/N) sum_i f_i`, plus a [`Penalty`] if there is one. Implement the trait for objectives of your own.

mod batch;
mod metric;
mod penalty;
mod quadratic;
mod table;

use std::any::Any;

pub use batch::{Batch, Samples};
pub use metric::Metric;
pub use penalty::{InvalidPenalty, Penalty};
pub use quadratic::{InvalidQuadratic, Quadratic};
pub use table::{AgentWeights, InvalidTable, Loss, Shard, Table, TableObjective, has_normal_equations};

pub use crate::agents::Failure;

use crate::real::Real;

/// Identifies a mini-batch: the same draw always gives an agent the same samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the draw: 0 for the start-up, t + 1 for step t.
    pub step: u64,
}

/// A named part of the variable in row-major order, such as a layer's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name, such as `conv1.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub values: Vec<f32>,
}

/// N local objectives of a `dim`-dimensional variable.
///
/// Only [`agents`](Self::agents), [`dim`](Self::dim), [`loss`](Self::loss) and
/// [`gradient`](Self::gradient) are required. They are called from several threads at once, each for a different
/// agent. An evaluation may fail with an error of any type; it ends the run, and the records made so far are kept.
///
/// ```
/// use mile::problems::{Failure, Problem};
///
/// /// f_i(x) = log cosh(x - i), with its minimum at x = i.
/// struct Opinions;
///
/// impl Problem<f64> for Opinions {
///     fn agents(&self) -> usize { 5 }
///     fn dim(&self) -> usize { 1 }
///     fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
///         Ok((x[0] - agent as f64).cosh().ln())
///     }
///     fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
///         gradient[0] = (x[0] - agent as f64).tanh();
///         Ok(())
///     }
/// }
/// # assert_eq!(Opinions.objective(&[0.0])?, (0..5).map(|i| (i as f64).cosh().ln()).sum::<f64>() / 5.0);
/// # Ok::<(), Failure>(())
/// ```
pub trait Problem<T: Real>: Send + Sync {
    /// Number of agents N.
    fn agents(&self) -> usize;

    /// Dimension n of the variable.
    fn dim(&self) -> usize;

    /// `f_agent(x)`.
    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure>;

    /// Writes the exact gradient of `f_agent` at `x` into `gradient`.
    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure>;

    /// Writes a stochastic gradient, a pure function of `(agent, x, draw)`. By default the exact gradient.
    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        let _ = draw;
        self.gradient(agent, x, gradient)
    }

    /// A nonsmooth term that all agents have in common and that is added to f; none by default. Losses and gradients of
    /// agents are without it.
    fn penalty(&self) -> Option<&Penalty> {
        None
    }

    /// `f(x)`, the objective of the whole network, with the penalty if there is one: the mean of the losses, summed in
    /// increasing agent. Over several ranks it is formed from the losses of each agent in this way.
    fn objective(&self, x: &[T]) -> Result<f64, Failure> {
        let mut sum = 0.0;
        for agent in 0..self.agents() {
            sum += self.loss(agent, x)?;
        }
        let mean = sum / self.agents() as f64;
        Ok(self.penalty().map_or(mean, |penalty| mean + penalty.value(x)))
    }

    /// Whether the gradient of f is cheap enough to record its norm during a run.
    fn records_gradient_norm(&self) -> bool {
        true
    }

    /// What is measured on held-out data, in the order of [`measure`](Self::measure); nothing for problems without.
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    /// Measures the model `x` on held-out data: one number for each of [`metrics`](Self::metrics), NaN where it is not defined.
    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure> {
        let _ = x;
        Ok(Vec::new())
    }

    /// Measures the model `x` of an agent, which may have something of its own beside it, such as the statistics of batch norms. Called
    /// where the agent is hosted.
    fn measure_of(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        let _ = agent;
        self.measure(x)
    }

    /// Whether the held-out data belong to agents: then [`measure`](Self::measure) is
    /// [`measure_from`](Self::measure_from) what [`held_out`](Self::held_out) gives for each agent, and need not have all
    /// of them in one process.
    fn measures_by_agent(&self) -> bool {
        false
    }

    /// What metrics need from an agent's held-out data for the model `x`: numbers such as its predictions.
    fn held_out(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        let _ = (agent, x);
        Ok(Vec::new())
    }

    /// The metrics from the numbers of [`held_out`](Self::held_out) of all agents, in increasing agent.
    fn measure_from(&self, held_out: &[Vec<f64>]) -> Vec<f64> {
        let _ = held_out;
        Vec::new()
    }

    /// The problem's own starting point, such as a neural network's initialisation; none to start at zero.
    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        let _ = seed;
        Ok(None)
    }

    /// The named parts of the variable `x`, such as the layers of a neural network, for export; empty if the
    /// variable is one vector.
    fn tensors(&self, x: &[T]) -> Vec<Tensor> {
        let _ = x;
        Vec::new()
    }

    /// Training samples of each class at each agent, `counts[agent][class]`; empty if there are no classes.
    fn class_counts(&self) -> Vec<Vec<usize>> {
        Vec::new()
    }

    /// The problem itself, for engines that compute problems of some types in a way of their own, such as on a GPU; none by
    /// default. A wrapper that changes losses or gradients must not pass on what it wraps.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}
