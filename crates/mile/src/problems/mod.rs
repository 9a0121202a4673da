//! Objectives: what the agents minimise together.
//!
//! A [`Problem`] is N private objectives `f_i` over the same space; the network minimises
//! `f = (1/N) sum_i f_i`. Implement the trait for your own.

mod batch;
mod quadratic;
mod table;

pub use batch::{Batch, Samples};
pub use quadratic::{InvalidQuadratic, Quadratic};
pub use table::{InvalidTable, Loss, Shard, Table};

pub use crate::agents::Failure;

use crate::real::Real;

/// Names one draw of a stochastic gradient: the same draw always sees the same samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the run.
    pub seed: u64,
    /// Which draw: 0 for the start-up, t + 1 for step t.
    pub step: u64,
}

/// A named array of numbers, row after row: a part of a variable that has parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name, such as `conv1.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub values: Vec<f32>,
}

/// N private objectives over `dim`-dimensional vectors.
///
/// Only [`agents`](Self::agents), [`dim`](Self::dim), [`loss`](Self::loss) and
/// [`gradient`](Self::gradient) are needed. Methods take `&self` and are called from several threads
/// at once, each for another agent. What is evaluated may fail with an error of any type; it ends the run, with
/// what was recorded until then kept.
///
/// ```
/// use mile::problems::{Failure, Problem};
///
/// /// f_i(x) = log cosh(x - i): agent i wants x to be i.
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

    /// Writes a stochastic gradient, a pure function of `(agent, x, draw)`; unless overridden, the
    /// exact one.
    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        let _ = draw;
        self.gradient(agent, x, gradient)
    }

    /// `f(x)`, the objective of the whole network.
    fn objective(&self, x: &[T]) -> Result<f64, Failure> {
        let mut sum = 0.0;
        for agent in 0..self.agents() {
            sum += self.loss(agent, x)?;
        }
        Ok(sum / self.agents() as f64)
    }

    /// Whether the gradient of the whole objective is cheap enough to be recorded during a run.
    fn records_gradient_norm(&self) -> bool {
        true
    }

    /// Whether there are held-out data on which [`accuracy`](Self::accuracy) is measured.
    fn records_accuracy(&self) -> bool {
        false
    }

    /// Accuracy on held-out data, for problems that have such a thing.
    fn accuracy(&self, x: &[T]) -> Result<Option<f64>, Failure> {
        let _ = x;
        Ok(None)
    }

    /// The starting point this problem prefers (a network's initialisation), if it has one.
    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        let _ = seed;
        Ok(None)
    }

    /// The named parts of a variable, such as the layers of a network, for those who use a result elsewhere;
    /// none if the variable is one vector.
    fn tensors(&self, x: &[T]) -> Vec<Tensor> {
        let _ = x;
        Vec::new()
    }

    /// Training samples of each class at each agent, `counts[agent][class]`; empty if there are no classes.
    fn class_counts(&self) -> Vec<Vec<usize>> {
        Vec::new()
    }
}
