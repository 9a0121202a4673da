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

use crate::real::Real;

/// Names one draw of a stochastic gradient: the same draw always sees the same samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the run.
    pub seed: u64,
    /// Which draw: 0 for the start-up, t + 1 for step t.
    pub step: u64,
}

/// N private objectives over `dim`-dimensional vectors.
///
/// Only [`agents`](Self::agents), [`dim`](Self::dim), [`loss`](Self::loss) and
/// [`gradient`](Self::gradient) are needed. Methods take `&self` and are called from several threads
/// at once, each for another agent.
pub trait Problem<T: Real>: Sync {
    /// Number of agents N.
    fn agents(&self) -> usize;

    /// Dimension n of the variable.
    fn dim(&self) -> usize;

    /// `f_agent(x)`.
    fn loss(&self, agent: usize, x: &[T]) -> f64;

    /// Writes the exact gradient of `f_agent` at `x` into `gradient`.
    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]);

    /// Writes a stochastic gradient, a pure function of `(agent, x, draw)`; unless overridden, the
    /// exact one.
    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) {
        let _ = draw;
        self.gradient(agent, x, gradient);
    }

    /// `f(x)`, the objective of the whole network.
    fn objective(&self, x: &[T]) -> f64 {
        let n = self.agents();
        (0..n).map(|i| self.loss(i, x)).sum::<f64>() / n as f64
    }

    /// Whether the gradient of the whole objective is cheap enough to be recorded during a run.
    fn records_gradient_norm(&self) -> bool {
        true
    }

    /// Accuracy on held-out data, for problems that have such a thing.
    fn accuracy(&self, x: &[T]) -> Option<f64> {
        let _ = x;
        None
    }

    /// The starting point this problem prefers (a network's initialisation), if it has one.
    fn initial(&self, seed: u64) -> Option<Vec<T>> {
        let _ = seed;
        None
    }
}
