//! Objectives of the agents.
//!
//! A [`Problem`] has N local objectives `f_i` of the same variable; the network minimises
//! `f = (1/N) sum_i f_i`, plus a [`Penalty`] if there is one. Implement the trait for your own objectives.

mod batch;
pub mod device;
mod held_out;
mod information;
mod metric;
mod penalty;
mod quadratic;
mod table;
mod tensors;

pub use batch::{Batch, BatchSamples};
pub use held_out::{HeldOut, HeldOutByAgent};
pub use information::{Covariance, Information};
pub use metric::Metric;
pub use penalty::{InvalidPenalty, Penalty};
pub use quadratic::{InvalidQuadratic, Quadratic};
pub use table::{AgentWeights, InvalidTable, Loss, Shard, Table, TableObjective, has_normal_equations};
pub use tensors::{NamedTensors, Tensor, TensorPart, matrices};

pub use crate::agents::Failure;

use crate::real::Real;
use device::NetworkForm;

/// Identifies a mini-batch: the same draw always gives an agent the same samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the draw: 0 for the start-up, t + 1 for step t.
    pub step: u64,
}

/// Everything a device needs to compute losses, gradients and mini-batches of a problem as the problem itself would.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum DeviceForm<'a, T> {
    /// Quadratic objectives.
    Quadratic(&'a Quadratic<T>),
    /// Regression or classification on tables.
    Table(&'a Table<T>),
    /// A neural network on samples.
    Network(NetworkForm<'a>),
}

impl<T> DeviceForm<'_, T> {
    /// The factor w of a term `(w/2) |x|^2` of every `f_i` that the losses and gradients of samples do not include and that an engine adds
    /// to them; 0 if there is none. A table includes its own in its loss.
    pub fn weight_decay(&self) -> f64 {
        match self {
            Self::Network(network) => network.weight_decay,
            Self::Quadratic(_) | Self::Table(_) => 0.0,
        }
    }
}

/// N local objectives of a `dim`-dimensional variable.
///
/// Only [`agents`](Self::agents), [`dim`](Self::dim), [`loss`](Self::loss) and
/// [`gradient`](Self::gradient) are required. They are called from several threads at once, each for a different
/// agent. An evaluation may fail with an error of any type; it ends the run, and the records made so far are kept.
///
/// Optional capabilities have separate methods: [`penalty`](Self::penalty), [`held_out`](Self::held_out),
/// [`tensors`](Self::tensors), [`device_form`](Self::device_form) and others return them, or none. A problem that wraps another passes on
/// what is also true of itself; a wrapper that changes losses or gradients has no device form.
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

    /// A nonsmooth term that all agents share and that is added to f; none by default. Losses and gradients of
    /// agents do not include it.
    fn penalty(&self) -> Option<&Penalty> {
        None
    }

    /// `f(x)`, the objective of the whole network, with the penalty if there is one: the mean of the losses, summed in
    /// increasing agent. Over several ranks it is computed from each agent's loss in this way.
    fn objective(&self, x: &[T]) -> Result<f64, Failure> {
        let mut sum = 0.0;
        for agent in 0..self.agents() {
            sum += self.loss(agent, x)?;
        }
        let mean = sum / self.agents() as f64;
        Ok(self.penalty().map_or(mean, |penalty| mean + penalty.value(x)))
    }

    /// A quadratic problem of as many agents whose objectives have at each point at least the curvature of these, in every
    /// direction, so that their largest curvature is a bound for a whole run; none by default. A variable of several equal parts, such as
    /// classes, may be bounded by one of them. A problem of constant curvature needs none.
    fn quadratic_bound(&self) -> Option<Box<dyn Problem<T> + '_>> {
        None
    }

    /// Whether the gradient of f is cheap enough to record its norm during a run.
    fn records_gradient_norm(&self) -> bool {
        true
    }

    /// Data on which models are measured; none by default.
    fn held_out(&self) -> Option<&dyn HeldOut<T>> {
        None
    }

    /// The information that standard errors of coefficients need; none by default.
    fn information(&self) -> Option<&dyn Information<T>> {
        None
    }

    /// The problem's own starting point, such as a neural network's initialisation, or one for each agent, row after row; none to start at
    /// zero.
    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        let _ = seed;
        Ok(None)
    }

    /// The named tensors that the variable consists of, such as the layers of a neural network; none if it is a single vector.
    fn tensors(&self) -> Option<&dyn NamedTensors<T>> {
        None
    }

    /// Training samples of each class at each agent, `counts[agent][class]`; none if there are no classes.
    fn class_counts(&self) -> Option<Vec<Vec<usize>>> {
        None
    }

    /// The form in which a device, such as a GPU, can compute the problem; none by default: then the CPU computes it.
    fn device_form(&self) -> Option<DeviceForm<'_, T>> {
        None
    }
}
