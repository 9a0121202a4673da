//! Problems and networks.

use mile::graph::Topology;
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rand::RngExt;
use rand_distr::StandardNormal;

pub fn network(topology: Topology, agents: usize, rule: Rule) -> Network {
    Network::new(topology.build(agents, 1).unwrap(), rule).unwrap()
}

pub fn ring(agents: usize, rule: Rule) -> Network {
    network(Topology::Ring, agents, rule)
}

pub fn gaussian(seed: u64, len: usize) -> Vec<f64> {
    let mut random = stream(seed, Purpose::Start, 77, 0);
    (0..len).map(|_| random.sample::<f64, _>(StandardNormal)).collect()
}

/// `f_i(x) = 1/2 sum_k h_k (x_k - b_ik)^2`: one Hessian for all, different minimisers.
pub struct Diagonal {
    pub curvature: Vec<f64>,
    pub minimisers: Vec<Vec<f64>>,
}

impl Diagonal {
    pub fn new(agents: usize, curvature: &[f64]) -> Self {
        let minimisers = (0..agents).map(|i| gaussian(100 + i as u64, curvature.len())).collect();
        Self { curvature: curvature.to_vec(), minimisers }
    }

    pub fn minimiser(&self) -> Vec<f64> {
        let n = self.minimisers.len() as f64;
        (0..self.curvature.len()).map(|k| self.minimisers.iter().map(|b| b[k]).sum::<f64>() / n).collect()
    }
}

impl Problem<f64> for Diagonal {
    fn agents(&self) -> usize {
        self.minimisers.len()
    }

    fn dim(&self) -> usize {
        self.curvature.len()
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        let b = &self.minimisers[agent];
        Ok((0..x.len()).map(|k| 0.5 * self.curvature[k] * (x[k] - b[k]).powi(2)).sum())
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        for k in 0..x.len() {
            gradient[k] = self.curvature[k] * (x[k] - self.minimisers[agent][k]);
        }
        Ok(())
    }
}

pub fn build(name: &str, parameters: &Parameters, network: &Network) -> Box<dyn Method> {
    catalogue::find(name).unwrap().build(parameters, network, 3).unwrap()
}

pub fn tau(local_steps: u64) -> Parameters {
    Parameters { local_steps: Some(local_steps), ..Parameters::default() }
}

/// Largest distance of an agent from `target` after each of `rounds` rounds; stops at 1e12 or NaN.
pub fn errors(
    problem: &dyn Problem<f64>,
    network: &Network,
    method: &dyn Method,
    step_size: f64,
    rounds: usize,
    target: &[f64],
) -> Vec<f64> {
    let start = gaussian(9, network.agents() * problem.dim());
    let mut agents = Simulator::new(problem, network, method, &start, 3).unwrap();
    let mut run = Run::start(method, Schedule::constant(step_size), &mut agents).unwrap();
    let mut found = Vec::new();
    for _ in 0..rounds {
        run.round(&mut agents).unwrap();
        let away = |row: &[f64]| row.iter().zip(target).map(|(x, t)| (x - t).powi(2)).sum::<f64>().sqrt();
        let error = agents
            .models()
            .chunks(problem.dim())
            .map(away)
            .fold(0.0, |worst: f64, e| if e.is_nan() { f64::INFINITY } else { worst.max(e) });
        found.push(error);
        if error > 1e12 {
            break;
        }
    }
    found
}
