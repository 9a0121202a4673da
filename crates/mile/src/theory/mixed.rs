//! The largest step size when agents differ in curvature.
//!
//! Period matrices are exact when all agents have the same Hessian. Agents that differ couple the modes,
//! which costs some methods much of their step size. There is no closed answer, so it is measured on eight
//! families of quadratics in the plane, curvatures 0.02 L and L: sharp and flat agents in several patterns,
//! and Hessians turned at random. The method's own code is run on them while the state is scaled back to
//! length one after every round. The worst family counts; a worse one may exist.

use rand::RngExt;

use super::TheoryError;
use super::drops::slope;
use crate::agents::Vector;
use crate::method::Method;
use crate::network::Network;
use crate::problems::{Failure, Problem};
use crate::random::{Purpose, stream};
use crate::run::Run;
use crate::schedule::Schedule;
use crate::simulator::Simulator;

/// Larger networks are not simulated.
const AGENTS_MAX: usize = 64;
/// Quadratics in the plane that are run together, two columns each.
const PLANES: usize = 8;
const COLUMNS: usize = 2 * PLANES;
/// Curvature along the flat direction, in units of L.
const FLAT: f64 = 0.02;
const SETTLING: usize = 30;
const ROUNDS: usize = 100;
/// Smallest alpha L looked at.
const SMALLEST: f64 = 1e-3;

/// A symmetric 2 x 2 Hessian: (xx, xy, yy).
type Hessian = (f64, f64, f64);

/// `f_i(x) = 1/2 sum_k x_k' H_ik x_k` over planes k.
struct Mixed {
    hessians: Vec<[Hessian; PLANES]>,
}

impl Mixed {
    /// Sharp and flat agents side by side in several patterns, then Hessians turned at random.
    fn new(agents: usize, seed: u64) -> Self {
        let mut random = stream(seed, Purpose::Probe, 4, agents as u64);
        let mut one = |agent: usize| {
            let level = |sharp: bool| if sharp { 1.0 } else { FLAT };
            let mut hessians = [(0.0, 0.0, 0.0); PLANES];
            hessians[0] = (level(agent.is_multiple_of(2)), 0.0, level(2 * agent < agents));
            hessians[1] = (level(agent == 0), 0.0, level(agent != 0));
            hessians[2] = (level(random.random()), 0.0, level(random.random()));
            for turned in &mut hessians[3..] {
                let (sine, cosine) = (std::f64::consts::PI * random.random::<f64>()).sin_cos();
                let (s, c) = (sine * sine, cosine * cosine);
                *turned = (c + FLAT * s, (1.0 - FLAT) * sine * cosine, s + FLAT * c);
            }
            hessians
        };
        Self { hessians: (0..agents).map(&mut one).collect() }
    }
}

impl Problem<f64> for Mixed {
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

/// The largest alpha L, to one part in ten, at which none of the families makes the method grow; 0 if all that were tried do, none for networks of more than 64 agents.
///
/// Edges do not drop here.
pub fn mixed_step_limit(
    method: &dyn Method,
    network: &Network,
    seed: u64,
) -> Result<Option<f64>, TheoryError> {
    if network.agents() > AGENTS_MAX {
        return Ok(None);
    }
    let network = Network::with_matrix(network.graph().clone(), network.mixing().clone());
    let Ok(network) = network else { return Ok(None) };
    let problem = Mixed::new(network.agents(), seed);
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
    problem: &Mixed,
    step_size: f64,
    seed: u64,
) -> Result<f64, TheoryError> {
    let states = method.layout().state.len();
    let mut random = stream(seed, Purpose::Probe, 5, 0);
    let start: Vec<f64> = (0..network.agents() * COLUMNS).map(|_| random.random::<f64>() - 0.5).collect();
    let mut agents = Simulator::new(problem, network, method, &start, seed)?;
    let mut run = Run::start(method, Schedule::constant(step_size), &mut agents)?;
    let mut logs = vec![vec![0.0]; PLANES];
    for _ in 0..SETTLING + ROUNDS {
        run.round(&mut agents)?;
        for (plane, log) in logs.iter_mut().enumerate() {
            let norm = normalise(&mut agents, states, plane);
            if !norm.is_finite() {
                return Ok(f64::INFINITY);
            }
            log.push(log[log.len() - 1] + norm.max(f64::MIN_POSITIVE).ln());
        }
    }
    Ok(logs.iter().map(|log| slope(&log[SETTLING..])).fold(f64::NEG_INFINITY, f64::max))
}

/// Scales one plane of all state vectors to length one together; the length it had.
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
