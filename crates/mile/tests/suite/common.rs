//! Problems, networks, and how to drive a method.

use mile::agents::Vector;
use mile::block;
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::{MixingMatrix, Rule};
use mile::network::Network;
use mile::problems::{Batch, Draw, Failure, Loss, Penalty, Problem, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::real::Real;
use mile::run::Run;
use mile::schedule::{Schedule, Weight};
use mile::simulator::Simulator;
use rand::RngExt;
use rand_distr::StandardNormal;

pub const AGENTS: usize = 8;
pub const DIM: usize = 5;

pub fn ring(rule: Rule) -> Network {
    network(Topology::Ring, AGENTS, rule)
}

pub fn network(topology: Topology, agents: usize, rule: Rule) -> Network {
    Network::new(topology.build(agents, 1).unwrap(), rule).unwrap()
}

/// The same graph with `(1 - xi) I + xi W`.
pub fn damped(network: &Network, xi: f64) -> Network {
    let graph = network.graph().clone();
    let mixing = MixingMatrix::from_edges(&graph, |i, j| xi * network.mixing().weight(i, j)).unwrap();
    Network::with_matrix(graph, mixing).unwrap()
}

/// Nonconvex logistic regression; every agent has rows around its own centre.
pub fn nonconvex<T: Real>(agents: usize, dim: usize, batch: Batch) -> Table<T> {
    let rows = 12;
    let shard = |agent: usize| {
        let mut random = stream(11, Purpose::Data, agent as u64, 0);
        let mut gaussian = || -> f64 { random.sample(StandardNormal) };
        let centre: Vec<f64> = (0..dim).map(|_| 0.8 * gaussian()).collect();
        let truth: Vec<f64> =
            (0..dim).map(|k| if (k + agent).is_multiple_of(2) { 1.0 } else { -0.6 }).collect();
        let mut shard = Shard::default();
        for _ in 0..rows {
            let a: Vec<f64> = centre.iter().map(|c| c + gaussian()).collect();
            let score: f64 = a.iter().zip(&truth).map(|(a, t)| a * t).sum::<f64>() + 0.5 * gaussian();
            shard.features.extend(a.into_iter().map(T::of));
            shard.targets.push(T::of(score.signum()));
        }
        shard
    };
    Table::new(
        dim,
        (0..agents).map(shard).collect(),
        TableObjective::new(Loss::NonconvexLogistic, 0.1),
        batch,
    )
    .unwrap()
}

/// Objectives with an additional penalty.
pub struct Penalised<P>(pub P, pub Penalty);

impl<T: Real, P: Problem<T>> Problem<T> for Penalised<P> {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        self.0.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        self.0.gradient(agent, x, gradient)
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        self.0.sample_gradient(agent, x, draw, gradient)
    }

    fn penalty(&self) -> Option<&Penalty> {
        Some(&self.1)
    }
}

/// A different starting point for each agent.
pub fn scattered<T: Real>(agents: usize, dim: usize) -> Vec<T> {
    let mut random = stream(5, Purpose::Start, 0, 0);
    (0..agents * dim).map(|_| T::of(random.sample::<f64, _>(StandardNormal))).collect()
}

pub fn build(name: &str, parameters: &Parameters, network: &Network) -> Box<dyn Method> {
    catalogue::find(name).unwrap().build(parameters, network, 3).unwrap()
}

pub fn tau(local_steps: u64) -> Parameters {
    Parameters { local_steps: Some(local_steps), ..Parameters::default() }
}

pub fn xi(local_steps: u64, xi: f64) -> Parameters {
    Parameters { xi: Some(xi.into()), ..tau(local_steps) }
}

/// A weight xi that grows during the run.
pub fn growing(local_steps: u64, from: f64, to: f64, rounds: u64) -> Parameters {
    Parameters { xi: Some(Weight::Geometric { from, to, rounds }), ..tau(local_steps) }
}

/// A weight xi that the edges determine.
pub fn adaptive(local_steps: u64, most: f64, gamma: f64) -> Parameters {
    Parameters { xi: Some(Weight::Adaptive(most)), gamma: Some(gamma), ..tau(local_steps) }
}

/// The same parameters with momentum.
pub fn with_momentum(parameters: Parameters, mu: f64, nesterov: bool) -> Parameters {
    Parameters { momentum: Some(mu), nesterov: Some(nesterov), ..parameters }
}

/// The agents' models after each of `rounds` rounds.
pub fn trajectory(
    problem: &dyn Problem<f64>,
    network: &Network,
    method: &dyn Method,
    start: &[f64],
    step_size: f64,
    rounds: usize,
) -> Vec<Vec<f64>> {
    let mut agents = Simulator::new(problem, network, method, start, 3).unwrap();
    let mut run = Run::start(method, Schedule::constant(step_size), &mut agents).unwrap();
    let mut round = || {
        run.round(&mut agents).unwrap();
        agents.models().to_vec()
    };
    (0..rounds).map(|_| round()).collect()
}

/// Largest difference between two trajectories; NaN counts as infinite.
pub fn distance(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |worst, d| if d.is_nan() { f64::INFINITY } else { worst.max(d) })
}

pub fn gradient_norm<T: Real>(problem: &dyn Problem<T>, x: &[T]) -> f64 {
    let (n, mut g) = (problem.agents(), vec![T::zero(); problem.dim()]);
    let mut sum = vec![0.0; problem.dim()];
    for agent in 0..n {
        problem.gradient(agent, x, &mut g).unwrap();
        sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g.wide() / n as f64);
    }
    block::norm_sq(&sum).sqrt()
}

/// The number of a state vector.
pub fn vector(method: &dyn Method, name: &str) -> Vector {
    Vector(method.layout().state.iter().position(|(n, _)| *n == name).unwrap())
}
