//! The objectives of the agents that take part.

use crate::problems::{Draw, Failure, HeldOut, HeldOutByAgent, Metric, NamedTensors, Penalty, Problem};
use crate::real::Real;

/// The objectives of some agents, by their places: the network minimises the mean of these.
///
/// Mini-batches follow the agents' numbers, so they do not change when another agent leaves or joins.
pub struct Present<'a, T> {
    problem: &'a dyn Problem<T>,
    members: &'a [usize],
    held_out: Option<HeldOutOfMembers<'a, T>>,
}

impl<'a, T: Real> Present<'a, T> {
    /// The objectives of these agents, in increasing order.
    pub fn new(problem: &'a dyn Problem<T>, members: &'a [usize]) -> Self {
        let agents = problem.agents();
        let held_out = problem.held_out().map(|all| HeldOutOfMembers { all, members, agents });
        Self { problem, members, held_out }
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

    fn held_out(&self) -> Option<&dyn HeldOut<T>> {
        self.held_out.as_ref().map(|held_out| held_out as &dyn HeldOut<T>)
    }

    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        let (dim, points) = (self.problem.dim(), self.problem.initial(seed)?);
        let of_members = |points: &Vec<T>| {
            self.members
                .iter()
                .flat_map(|agent| points[agent * dim..(agent + 1) * dim].iter().copied())
                .collect()
        };
        Ok(points.map(|points| if points.len() == dim { points } else { of_members(&points) }))
    }

    fn tensors(&self) -> Option<&dyn NamedTensors<T>> {
        self.problem.tensors()
    }

    fn class_counts(&self) -> Option<Vec<Vec<usize>>> {
        let counts = self.problem.class_counts()?;
        Some(self.members.iter().filter_map(|agent| counts.get(*agent).cloned()).collect())
    }
}

/// The held-out data of the members, or all held-out data if they belong to no agents.
struct HeldOutOfMembers<'a, T> {
    all: &'a dyn HeldOut<T>,
    members: &'a [usize],
    /// The number of agents that have data.
    agents: usize,
}

impl<T: Real> HeldOut<T> for HeldOutOfMembers<'_, T> {
    fn metrics(&self) -> &[Metric] {
        self.all.metrics()
    }

    fn own_metrics(&self) -> &[String] {
        self.all.own_metrics()
    }

    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure> {
        if self.all.by_agent().is_none() {
            return self.all.measure(x);
        }
        let places = 0..self.members.len();
        let numbers = places.map(|agent| self.numbers(agent, x)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.combine(&numbers))
    }

    fn by_agent(&self) -> Option<&dyn HeldOutByAgent<T>> {
        self.all.by_agent().map(|_| self as &dyn HeldOutByAgent<T>)
    }
}

impl<T: Real> HeldOutByAgent<T> for HeldOutOfMembers<'_, T> {
    fn numbers(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        self.all.by_agent().map_or(Ok(Vec::new()), |all| all.numbers(self.members[agent], x))
    }

    fn combine(&self, numbers: &[Vec<f64>]) -> Vec<f64> {
        let mut all = vec![Vec::new(); self.agents];
        self.members.iter().zip(numbers).for_each(|(agent, numbers)| all[*agent].clone_from(numbers));
        self.all.by_agent().map_or(Vec::new(), |by_agent| by_agent.combine(&all))
    }
}
