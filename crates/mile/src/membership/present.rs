//! The objectives of the agents that take part.

use crate::problems::{Draw, Failure, Metric, Penalty, Problem, Tensor};
use crate::real::Real;

/// The objectives of some agents, by their places: the network minimises the mean of these.
///
/// Mini-batches are those of the agents' numbers, so they do not change when another agent leaves or joins.
pub struct Present<'a, T> {
    problem: &'a dyn Problem<T>,
    members: &'a [usize],
}

impl<'a, T: Real> Present<'a, T> {
    /// Of these agents, in increasing order.
    pub fn new(problem: &'a dyn Problem<T>, members: &'a [usize]) -> Self {
        Self { problem, members }
    }
}

impl<T: Real> Problem<T> for Present<'_, T> {
    fn agents(&self) -> usize {
        self.members.len()
    }

    fn dim(&self) -> usize {
        self.problem.dim()
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        self.problem.loss(self.members[agent], x)
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        self.problem.gradient(self.members[agent], x, gradient)
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        self.problem.sample_gradient(self.members[agent], x, draw, gradient)
    }

    fn penalty(&self) -> Option<&Penalty> {
        self.problem.penalty()
    }

    fn records_gradient_norm(&self) -> bool {
        self.problem.records_gradient_norm()
    }

    fn metrics(&self) -> &'static [Metric] {
        self.problem.metrics()
    }

    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure> {
        if !self.measures_by_agent() {
            return self.problem.measure(x);
        }
        let held_out =
            (0..self.agents()).map(|agent| self.held_out(agent, x)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.measure_from(&held_out))
    }

    fn measures_by_agent(&self) -> bool {
        self.problem.measures_by_agent()
    }

    fn held_out(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        self.problem.held_out(self.members[agent], x)
    }

    fn measure_from(&self, held_out: &[Vec<f64>]) -> Vec<f64> {
        let mut all = vec![Vec::new(); self.problem.agents()];
        self.members.iter().zip(held_out).for_each(|(agent, numbers)| all[*agent].clone_from(numbers));
        self.problem.measure_from(&all)
    }

    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        self.problem.initial(seed)
    }

    fn tensors(&self, x: &[T]) -> Vec<Tensor> {
        self.problem.tensors(x)
    }

    fn class_counts(&self) -> Vec<Vec<usize>> {
        let counts = self.problem.class_counts();
        self.members.iter().filter_map(|agent| counts.get(*agent).cloned()).collect()
    }
}
