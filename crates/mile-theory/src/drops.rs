//! Stability when edges drop at random (link failures).
//!
//! With dropped edges there is no period matrix: the disagreement after many rounds is a product of random
//! matrices, and the method is stable if its mean logarithmic growth per round is negative. The growth is measured
//! by running the method's own code with zero gradients on the network with its drop rate, normalising the state
//! after every round. Randomly changing weights excite the oscillation of a mode, and gamma damps it: the paper's
//! method, in which gamma is as small as xi, tolerates few dropped edges at many local steps, while a gamma near 1
//! tolerates many. Curvature damps it as well, which is not considered here.

use mile::agents::{Agents, AgentsError, Vector};
use mile::block;
use mile::method::Method;
use mile::methods::Mile;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rand::RngExt;
use serde::Serialize;

use crate::TheoryError;

/// Rounds measured.
const ROUNDS: u64 = 400;
/// Rounds before the measurement (burn-in).
const BURN_IN: u64 = 60;
/// Seeds per measurement.
const SEEDS: u64 = 3;
/// Dimension of the variable: independent copies that are run together.
const COLUMNS: usize = 2;
/// Logarithmic growth per round up to which a method counts as stable: a factor e in 300 rounds. Without damping,
/// small weights give a growth near zero, and 400 rounds cannot measure it more precisely.
pub const TOLERATED_LOG_GROWTH: f64 = 1.0 / 300.0;

/// Growth of the disagreement between agents on a network whose edges drop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DropGrowth {
    /// Geometric mean of the factor per round; below 1 the agents reach consensus.
    pub per_round: f64,
    /// Standard error of the logarithm of that factor, over seeds.
    pub standard_error: f64,
}

impl DropGrowth {
    /// Whether the disagreement does not grow, up to [`TOLERATED_LOG_GROWTH`].
    pub fn is_stable(&self) -> bool {
        self.per_round.ln() < TOLERATED_LOG_GROWTH
    }
}

/// Objectives that are zero everywhere.
struct ZeroObjectives {
    agents: usize,
}

impl Problem<f64> for ZeroObjectives {
    fn agents(&self) -> usize {
        self.agents
    }

    fn dim(&self) -> usize {
        COLUMNS
    }

    fn loss(&self, _agent: usize, _x: &[f64]) -> Result<f64, Failure> {
        Ok(0.0)
    }

    fn gradient(&self, _agent: usize, _x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        gradient.fill(0.0);
        Ok(())
    }
}

/// Growth per round of the disagreement of a method on a network, over three seeds from `seed` on.
pub fn growth_under_drops(
    method: &dyn Method,
    network: &Network,
    seed: u64,
) -> Result<DropGrowth, TheoryError> {
    let logs: Vec<f64> =
        (0..SEEDS).map(|k| log_growth(method, network, seed.wrapping_add(k))).collect::<Result<_, _>>()?;
    let mean = logs.iter().sum::<f64>() / SEEDS as f64;
    let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (SEEDS - 1) as f64;
    Ok(DropGrowth { per_round: mean.exp(), standard_error: (variance / SEEDS as f64).sqrt() })
}

fn log_growth(method: &dyn Method, network: &Network, seed: u64) -> Result<f64, TheoryError> {
    let agents = network.agents();
    if agents == 1 {
        return Ok(f64::NEG_INFINITY);
    }
    let problem = ZeroObjectives { agents };
    let states = method.layout().state.len();
    let mut random = stream(seed, Purpose::Probe, 1, 0);
    let mut noise = || -> Vec<f64> { (0..agents * COLUMNS).map(|_| random.random::<f64>() - 0.5).collect() };
    let mut simulator = Simulator::new(&problem, network, method, &noise(), seed)?;
    let mut run = Run::start(method, Schedule::constant(1.0), &mut simulator)?;
    for k in 0..states {
        let start = noise();
        simulator.vector_mut(Vector(k)).copy_from_slice(&start);
    }
    normalise(&mut simulator, states)?;
    let mut log = 0.0;
    let mut logs = Vec::new();
    for round in 0..BURN_IN + ROUNDS {
        run.round(&mut simulator)?;
        let norm = normalise(&mut simulator, states)?;
        if norm == 0.0 || !norm.is_finite() {
            return Ok(if norm == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        log += norm.ln();
        if round >= BURN_IN {
            logs.push(log);
        }
    }
    Ok(slope(&logs))
}

/// Slope per round of an oscillating sequence of logarithms, from the peak in its first third to that in its last.
pub(super) fn slope(logs: &[f64]) -> f64 {
    let third = logs.len() / 3;
    let peak = |part: &[f64]| {
        part.iter().enumerate().fold((0, f64::NEG_INFINITY), |p, (k, l)| if *l > p.1 { (k, *l) } else { p })
    };
    let ((first, low), (last, high)) = (peak(&logs[..third]), peak(&logs[logs.len() - third..]));
    (high - low) / (logs.len() - third + last - first) as f64
}

/// Subtracts the mean over agents from every state vector and scales all of them together to norm 1. Returns the norm
/// before.
fn normalise(simulator: &mut Simulator<f64>, states: usize) -> Result<f64, AgentsError> {
    let mut square = 0.0;
    for k in 0..states {
        let vector = simulator.vector_mut(Vector(k));
        let mean = block::mean_row(vector, COLUMNS);
        for row in vector.chunks_exact_mut(COLUMNS) {
            row.iter_mut().zip(&mean).for_each(|(v, m)| *v -= m);
        }
        square += block::norm_sq(vector);
    }
    let norm = square.sqrt();
    for k in 0..states {
        simulator.combine(Vector(k), 1.0 / norm.max(f64::MIN_POSITIVE), &[])?;
    }
    simulator.settle()?;
    Ok(norm)
}

/// The largest xi, to one part in a hundred, at which the disagreement of MILE does not grow on this network with
/// its drop rate. Without `gamma`, gamma = xi.
pub fn xi_limit_under_drops(
    local_steps: u64,
    gamma: Option<f64>,
    network: &Network,
    seed: u64,
) -> Result<f64, TheoryError> {
    let grows = |xi: f64| -> Result<bool, TheoryError> {
        let method = Mile::decoupled(local_steps, xi, gamma.unwrap_or(xi))?;
        Ok(!growth_under_drops(&method, network, seed)?.is_stable())
    };
    let lambda_n = network.extremes().lambda_n;
    let end = match gamma {
        Some(gamma) => crate::weights::xi_limit(local_steps, gamma, lambda_n),
        None => crate::weights::xi_ranges(local_steps, network.extremes())?.exact,
    };
    let (mut unstable, mut stable) = (end.clamp(1e-6, 1.0), 0.0);
    if !grows(unstable)? {
        return Ok(unstable);
    }
    // Halve until it is stable: the limit may be far below the one without drops.
    while unstable > 1e-6 {
        let half = 0.5 * unstable;
        if !grows(half)? {
            stable = half;
            break;
        }
        unstable = half;
    }
    while unstable - stable > 0.01 * unstable && stable > 0.0 {
        let middle = 0.5 * (stable + unstable);
        if grows(middle)? { unstable = middle } else { stable = middle }
    }
    Ok(stable)
}
