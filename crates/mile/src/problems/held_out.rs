//! What a problem can measure of models on held-out data.

use super::{Failure, Metric};
use crate::real::Real;

/// Held-out data, on which models are measured and which no gradient sees.
pub trait HeldOut<T: Real>: Send + Sync {
    /// What is measured, in the order of [`measure`](Self::measure).
    fn metrics(&self) -> &[Metric];

    /// Names of further measures, which [`measure`](Self::measure) gives after the others; none by default. It is not known which of their
    /// values are better.
    fn own_metrics(&self) -> &[String] {
        &[]
    }

    /// Measures the model `x`: one number for each of [`metrics`](Self::metrics) and of [`own_metrics`](Self::own_metrics), NaN where it is
    /// undefined.
    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure>;

    /// Measures the model `x` of an agent, which may have data of its own besides it, such as the statistics of batch norms. Called
    /// where the agent is hosted.
    fn measure_of(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        let _ = agent;
        self.measure(x)
    }

    /// The data of each agent, if they belong to agents; none if every process has all of them.
    fn by_agent(&self) -> Option<&dyn HeldOutByAgent<T>> {
        None
    }
}

/// Held-out data that are divided among the agents: [`HeldOut::measure`] is [`combine`](Self::combine) of the
/// [`numbers`](Self::numbers) of all agents, so no process needs all of the data.
pub trait HeldOutByAgent<T: Real>: Send + Sync {
    /// What metrics need from an agent's data for the model `x`, such as its predictions.
    fn numbers(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure>;

    /// The metrics from the numbers of all agents, in increasing agent.
    fn combine(&self, numbers: &[Vec<f64>]) -> Vec<f64>;
}
