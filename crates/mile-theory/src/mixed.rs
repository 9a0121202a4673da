//! The largest stable step size when the agents' Hessians differ.
//!
//! Period matrices are exact when all agents have the same Hessian. Different Hessians couple the modes, which
//! reduces the stable step size of some methods considerably. There is no closed form, so it is measured by running
//! the method's own code on eight families of two-dimensional quadratics with curvatures 0.02 L and L: agents with
//! high and low curvature in several patterns, and randomly rotated Hessians. The state is normalised after every
//! round. The result is the worst of the eight; worse families may exist.

use mile::agents::Vector;
use mile::method::Method;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rand::RngExt;

use crate::TheoryError;
use crate::drops::slope;

/// Most agents for which it is simulated.
const MAX_AGENTS: usize = 64;
/// Two-dimensional quadratics that are run together, two columns each.
const PLANES: usize = 8;
const COLUMNS: usize = 2 * PLANES;
/// The low curvature, in units of L.
const LOW_CURVATURE: f64 = 0.02;
/// Rounds before the measurement (burn-in).
const BURN_IN: usize = 30;
/// Rounds measured.
const ROUNDS: usize = 100;
/// Smallest alpha L tried.
const SMALLEST: f64 = 1e-3;

/// A symmetric 2 x 2 Hessian: (xx, xy, yy).
type Hessian = (f64, f64, f64);

/// `f_i(x) = 1/2 sum_k x_k' H_ik x_k` over planes k, with different Hessians per agent.
struct DifferentHessians {
    hessians: Vec<[Hessian; PLANES]>,
}

impl DifferentHessians {
    /// High and low curvatures in several patterns over the agents, then randomly rotated Hessians.
    fn new(agents: usize, seed: u64) -> Self {
        let mut random = stream(seed, Purpose::Probe, 4, agents as u64);
        let mut hessians_of = |agent: usize| {
            let level = |high: bool| if high { 1.0 } else { LOW_CURVATURE };
            let mut hessians = [(0.0, 0.0, 0.0); PLANES];
            hessians[0] = (level(agent.is_multiple_of(2)), 0.0, level(2 * agent < agents));
            hessians[1] = (level(agent == 0), 0.0, level(agent != 0));
            hessians[2] = (level(random.random()), 0.0, level(random.random()));
            for rotated in &mut hessians[3..] {
                let (sine, cosine) = (std::f64::consts::PI * random.random::<f64>()).sin_cos();
                let (s, c) = (sine * sine, cosine * cosine);
                *rotated =
                    (c + LOW_CURVATURE * s, (1.0 - LOW_CURVATURE) * sine * cosine, s + LOW_CURVATURE * c);
            }
            hessians
        };
        Self { hessians: (0..agents).map(&mut hessians_of).collect() }
    }
}

impl Problem<f64> for DifferentHessians {
    fn agents(&self) -> usize {
        self.hessians.len()
    }

    fn dim(&self) -> usize {
        COLUMNS
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        let mut gradient = [0.0; COLUMNS];
        self.gradient(agent, x, &mut gradient)?;
        Ok(gradient.iter().zip(x).map(|(g, x)| 0.5 * g * x).sum())
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        let planes = x.chunks_exact(2).zip(gradient.chunks_exact_mut(2));
        for ((x, g), (xx, xy, yy)) in planes.zip(self.hessians[agent]) {
            (g[0], g[1]) = (xx * x[0] + xy * x[1], xy * x[0] + yy * x[1]);
        }
        Ok(())
    }
}

/// The largest alpha L, to one part in ten, at which the method is stable on all families; 0 if it is unstable at
/// every alpha L tried, none for networks of more than 64 agents.
///
/// The drop rate of the network is ignored.
pub fn mixed_step_limit(
    method: &dyn Method,
    network: &Network,
    seed: u64,
) -> Result<Option<f64>, TheoryError> {
    if network.agents() > MAX_AGENTS {
        return Ok(None);
    }
    let network = Network::with_matrix(network.graph().clone(), network.mixing().clone());
    let Ok(network) = network else { return Ok(None) };
    let problem = DifferentHessians::new(network.agents(), seed);
    let grows = |alpha: f64| growth(method, &network, &problem, alpha, seed).map(|log| log > 1e-4);
    let (mut stable, mut unstable) = (2.0, 2.0);
    while grows(stable)? {
        (unstable, stable) = (stable, 0.6 * stable);
        if stable < SMALLEST {
            return Ok(Some(0.0));
        }
    }
    while unstable > 1.1 * stable {
        let middle = (stable * unstable).sqrt();
        if grows(middle)? { unstable = middle } else { stable = middle }
    }
    Ok(Some(stable))
}

/// Largest logarithmic growth per round over the planes.
fn growth(
    method: &dyn Method,
    network: &Network,
    problem: &DifferentHessians,
    step_size: f64,
    seed: u64,
) -> Result<f64, TheoryError> {
    let states = method.layout().state.len();
    let mut random = stream(seed, Purpose::Probe, 5, 0);
    let start: Vec<f64> = (0..network.agents() * COLUMNS).map(|_| random.random::<f64>() - 0.5).collect();
    let mut agents = Simulator::new(problem, network, method, &start, seed)?;
    let mut run = Run::start(method, Schedule::constant(step_size), &mut agents)?;
    let mut logs = vec![vec![0.0]; PLANES];
    for _ in 0..BURN_IN + ROUNDS {
        run.round(&mut agents)?;
        for (plane, log) in logs.iter_mut().enumerate() {
            let norm = normalise(&mut agents, states, plane);
            if !norm.is_finite() {
                return Ok(f64::INFINITY);
            }
            log.push(log[log.len() - 1] + norm.max(f64::MIN_POSITIVE).ln());
        }
    }
    Ok(logs.iter().map(|log| slope(&log[BURN_IN..])).fold(f64::NEG_INFINITY, f64::max))
}

/// Scales one plane of all state vectors together to norm 1. Returns the norm before.
fn normalise(agents: &mut Simulator<f64>, states: usize, plane: usize) -> f64 {
    let columns = 2 * plane..2 * plane + 2;
    let square = |v: &[f64]| -> f64 {
        v.chunks_exact(COLUMNS).flat_map(|row| &row[columns.clone()]).map(|v| v * v).sum()
    };
    let norm = (0..states).map(|k| square(agents.vector(Vector(k)))).sum::<f64>().sqrt();
    if norm > 0.0 && norm.is_finite() {
        for k in 0..states {
            for row in agents.vector_mut(Vector(k)).chunks_exact_mut(COLUMNS) {
                row[columns.clone()].iter_mut().for_each(|v| *v /= norm);
            }
        }
    }
    norm
}
