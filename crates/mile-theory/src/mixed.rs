//! The largest stable step size on a network as it is: the agents' Hessians differ, and edges may change from round to round.
//!
//! Period matrices are exact when all agents have the same Hessian and the network is the same in every round. Different Hessians
//! couple the modes, and so do changing edges; both reduce the stable step size of some methods considerably. There is no closed form,
//! so it is measured by running the method's own code, on the edges of each round, on sixteen families of
//! two-dimensional quadratics with curvatures 0.02 L and L: agents with high and low curvature in several patterns, and randomly rotated
//! Hessians. Where edges change, there are twelve more, in which all agents have the same of 24 curvatures between these: weights that change
//! in step with the oscillation of a method with momentum can excite it. The result is the worst of them; worse families may exist.
//!
//! This limit, [`StepLimits::different`], is the one that `step_size = "auto"` stays below and that advice before a run warns of.

use std::borrow::Cow;

use mile::agents::Vector;
use mile::graph::Topology;
use mile::method::Method;
use mile::mixing::MixingMatrix;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile::spectrum::Extremes;
use rand::RngExt;
use serde::Serialize;

use crate::TheoryError;
use crate::drops::slope;
use crate::modes::Modes;
use crate::stability::{StepLimit, average_limit, step_limit};

/// Most agents of a network that is simulated itself, if it is the same in every round.
const MAX_AGENTS: usize = 64;
/// The largest share of the limit that `step_size = "auto"` takes. A step size counts as stable only if this share of it does.
const AUTO_SHARE: f64 = 0.5;
/// The smallest rate of the step of `"auto"`, as a share of the best rate of the steps up to it.
const SLOWEST: f64 = 0.2;
/// The same where edges change: there the rate is that of a sample of rounds, and in a longer run it may be smaller.
const VARYING_SLOWEST: f64 = 0.5;
/// Steps that are tried, each this share of the one before.
const SMALLER_STEPS: i32 = 9;
const SMALLER: f64 = 0.6;
/// Two-dimensional quadratics that are run together, two columns each.
const PLANES: usize = 16;
/// Planes from this one on have rotated Hessians.
const ROTATED: usize = 10;
/// Planes of equal Hessians where edges change.
const EQUAL: usize = 12;
/// The low curvature, in units of L.
const LOW_CURVATURE: f64 = 0.02;
/// Rounds before the measurement (burn-in).
const BURN_IN: usize = 30;
/// Rounds measured.
const ROUNDS: usize = 300;
/// Logarithmic growth per round up to which a method counts as stable.
const TOLERATED: f64 = 1e-4;
/// The same where edges change.
const VARYING_TOLERATED: f64 = 1e-3;
/// The smallest share of the limit for equal Hessians that is tried.
const SMALLEST: f64 = 1e-4;
/// A plane whose norm falls below this share of its largest counts as vanished.
const VANISHED: f64 = 1e-12;
/// A norm above this, from a start near 1, is that of a plane that grows.
const FAR: f64 = 1e12;
/// A method that is stable at this share of the limit for equal Hessians keeps that limit.
const CLOSE: f64 = 0.95;

/// A symmetric 2 x 2 Hessian: (xx, xy, yy).
type Hessian = (f64, f64, f64);

/// `f_i(x) = 1/2 sum_k x_k' H_ik x_k` over planes k, with different Hessians per agent.
struct DifferentHessians {
    hessians: Vec<Vec<Hessian>>,
}

impl DifferentHessians {
    /// High and low curvatures in several patterns over the agents, then randomly rotated Hessians. Where edges change, agents are not
    /// alike even on a ring: there some patterns are those in which all but one agent curve, or all do, instead of random ones, and
    /// equal Hessians with curvatures between the low and the high follow.
    fn new(agents: usize, varies: bool) -> Self {
        let mut random = stream(0, Purpose::Probe, 4, agents as u64);
        let mut hessians_of = |agent: usize| {
            let level = |high: bool| if high { 1.0 } else { LOW_CURVATURE };
            let both = |x: bool, y: bool| (level(x), 0.0, level(y));
            let mut hessians = vec![(0.0, 0.0, 0.0); PLANES];
            hessians[0] = both(agent.is_multiple_of(2), 2 * agent < agents);
            hessians[1] = both(agent == 0, agent != 0);
            hessians[2] = both(agent % 4 < 2, agent % 4 == 1 || agent % 4 == 2);
            hessians[3] = both(agent.is_multiple_of(3), agent % 3 == 1);
            let all_but = |one: usize| one == 0 || agent != one % agents;
            for (k, drawn) in hessians[4..ROTATED].iter_mut().enumerate() {
                let at_random = both(random.random(), random.random());
                *drawn = if varies { both(all_but(2 * k), all_but(2 * k + 1)) } else { at_random };
            }
            for rotated in &mut hessians[ROTATED..] {
                let (sine, cosine) = (std::f64::consts::PI * random.random::<f64>()).sin_cos();
                let (s, c) = (sine * sine, cosine * cosine);
                *rotated =
                    (c + LOW_CURVATURE * s, (1.0 - LOW_CURVATURE) * sine * cosine, s + LOW_CURVATURE * c);
            }
            let between = |k: usize| LOW_CURVATURE.powf(k as f64 / (2 * EQUAL) as f64);
            let equal = (0..EQUAL).map(|k| (between(2 * k), 0.0, between(2 * k + 1)));
            hessians.extend(equal.filter(|_| varies));
            hessians
        };
        Self { hessians: (0..agents).map(&mut hessians_of).collect() }
    }

    fn planes(&self) -> usize {
        self.hessians.first().map_or(0, Vec::len)
    }
}

impl Problem<f64> for DifferentHessians {
    fn agents(&self) -> usize {
        self.hessians.len()
    }

    fn dim(&self) -> usize {
        2 * self.planes()
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        let mut gradient = vec![0.0; x.len()];
        self.gradient(agent, x, &mut gradient)?;
        Ok(gradient.iter().zip(x).map(|(g, x)| 0.5 * g * x).sum())
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        let planes = x.chunks_exact(2).zip(gradient.chunks_exact_mut(2));
        for ((x, g), &(xx, xy, yy)) in planes.zip(&self.hessians[agent]) {
            (g[0], g[1]) = (xx * x[0] + xy * x[1], xy * x[0] + yy * x[1]);
        }
        Ok(())
    }
}

/// The largest step sizes with which a method is stable on a network, in units of 1/L.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepLimits {
    /// For agents with the same Hessian that use all edges in every round: exact.
    pub equal: StepLimit,
    /// For agents with different Hessians, with the edges of each round: simulated, to one part in ten; 0 if it is unstable
    /// with every step size tried. Where edges do not change it is at most that for equal Hessians.
    pub different: f64,
}

impl StepLimits {
    /// The limits of a method on a network.
    pub fn of(method: &dyn Method, network: &Network, seed: u64) -> Result<Self, TheoryError> {
        let modes = Modes::of(method)?;
        let equal = step_limit(&modes, network.spectrum())?;
        let top = if network.varies() { average_limit(&modes)? } else { equal.step_times_smoothness };
        let simulated = Simulated::new(network, seed);
        let fails = |a: f64| Ok(simulated.grows(method, a)? || simulated.grows(method, AUTO_SHARE * a)?);
        let different = if network.agents() == 1 { top } else { largest_stable(top, fails)? };
        Ok(Self { equal, different })
    }

    /// The largest stable step size for a smoothness constant.
    pub fn step_size(&self, smoothness: f64) -> f64 {
        self.different / smoothness
    }
}

/// The step size of `"auto"`, in units of 1/L: `share` times half of the limit, or less where the slowest family would then shrink more than
/// five times as slowly as with a smaller step, or twice where edges change. Trackers converge ever more slowly towards their limit. 0 if
/// the method is unstable with every step size.
pub fn auto_step(method: &dyn Method, network: &Network, share: f64, seed: u64) -> Result<f64, TheoryError> {
    let largest = share * AUTO_SHARE * StepLimits::of(method, network, seed)?.different;
    if largest == 0.0 || network.agents() == 1 {
        return Ok(largest);
    }
    let simulated = Simulated::new(network, seed);
    // All of them: a method may be slow or unstable between two step sizes at which it is neither.
    let mut tried: Vec<(f64, f64)> = Vec::new();
    for k in 0..SMALLER_STEPS {
        let step = largest * SMALLER.powi(k);
        tried.push((step, -simulated.growth(method, step)?));
    }
    let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let slowest = if network.varies() { VARYING_SLOWEST } else { SLOWEST };
    Ok(tried.iter().find(|(_, rate)| *rate >= slowest * best).map_or(largest, |(step, _)| *step))
}

/// Whether a method is stable at one step size, for agents with different Hessians, with the edges of each round.
pub fn is_stable(
    method: &dyn Method,
    network: &Network,
    step_times_smoothness: f64,
    seed: u64,
) -> Result<bool, TheoryError> {
    let alone = network.agents() == 1;
    Ok(alone || !Simulated::new(network, seed).grows(method, step_times_smoothness)?)
}

/// The network and the quadratics that methods are run on.
struct Simulated<'a> {
    network: Cow<'a, Network>,
    problem: DifferentHessians,
    seed: u64,
}

impl<'a> Simulated<'a> {
    /// A large network that is the same in every round is represented by four agents.
    fn new(network: &'a Network, seed: u64) -> Self {
        let small =
            (network.agents() > MAX_AGENTS && !network.varies()).then(|| stand_in(network.extremes()));
        let network = small.flatten().map_or(Cow::Borrowed(network), Cow::Owned);
        let problem = DifferentHessians::new(network.agents(), network.varies());
        Self { network, problem, seed }
    }

    /// Whether some family grows at a step size, for L = 1.
    fn grows(&self, method: &dyn Method, step_size: f64) -> Result<bool, TheoryError> {
        let tolerated = if self.network.varies() { VARYING_TOLERATED } else { TOLERATED };
        Ok(self.growth(method, step_size)? > tolerated)
    }

    fn growth(&self, method: &dyn Method, step_size: f64) -> Result<f64, TheoryError> {
        growth(method, &self.network, &self.problem, step_size, self.seed)
    }
}

/// Four agents whose mixing matrix has these extreme eigenvalues, one half-way between them, and the eigenvectors of a Hadamard matrix.
fn stand_in(extremes: Extremes) -> Option<Network> {
    let Extremes { lambda_2, lambda_n, .. } = extremes;
    let lambda = [lambda_2, lambda_n, 0.5 * (lambda_2 + lambda_n)];
    let sign =
        |mode: usize, agent: usize| if [0b1100, 0b1010, 0b0110][mode] >> agent & 1 == 1 { -1.0 } else { 1.0 };
    let along = |i: usize, j: usize| (0..3).map(|m| lambda[m] * sign(m, i) * sign(m, j)).sum::<f64>();
    let graph = Topology::Complete.build(4, 0).ok()?;
    let matrix = MixingMatrix::from_edges(&graph, |i, j| 0.25 * (1.0 + along(i, j))).ok()?;
    Network::with_matrix(graph, matrix).ok()
}

/// The largest step size up to `top` that is stable, to one part in ten, searched from above; 0 if no step size is.
fn largest_stable(top: f64, grows: impl Fn(f64) -> Result<bool, TheoryError>) -> Result<f64, TheoryError> {
    if top == 0.0 || !grows(CLOSE * top)? {
        return Ok(top);
    }
    let (mut unstable, mut stable) = (CLOSE * top, 0.6 * top);
    while grows(stable)? {
        (unstable, stable) = (stable, 0.6 * stable);
        if stable < SMALLEST * top {
            return Ok(0.0);
        }
    }
    while unstable > 1.1 * stable {
        let middle = (stable * unstable).sqrt();
        if grows(middle)? { unstable = middle } else { stable = middle }
    }
    Ok(stable)
}

/// Largest logarithmic growth per round over the planes. A plane is not measured further once it has all but vanished: what is left of it
/// then is rounding, which obeys no conservation law.
fn growth(
    method: &dyn Method,
    network: &Network,
    problem: &DifferentHessians,
    step_size: f64,
    seed: u64,
) -> Result<f64, TheoryError> {
    let states = method.layout().state.len();
    let mut random = stream(0, Purpose::Probe, 5, 0);
    let start: Vec<f64> =
        (0..network.agents() * problem.dim()).map(|_| random.random::<f64>() - 0.5).collect();
    let mut agents = Simulator::new(problem, network, method, &start, seed)?;
    let mut run = Run::start(method, Schedule::constant(step_size), &mut agents)?;
    let mut planes = vec![(0.0f64, Vec::new()); problem.planes()];
    for _ in 0..BURN_IN + ROUNDS {
        run.round(&mut agents)?;
        for ((peak, logs), norm) in planes.iter_mut().zip(norms(&agents, states, problem.dim())) {
            if norm.is_nan() || norm > FAR {
                return Ok(f64::INFINITY);
            }
            *peak = peak.max(norm);
            logs.push((norm / *peak > VANISHED).then(|| norm.ln()));
        }
        if planes.iter().all(|(_, logs)| logs.last().is_some_and(Option::is_none)) {
            break;
        }
    }
    let of_plane = |(_, logs): &(f64, Vec<Option<f64>>)| {
        let seen: Vec<f64> = logs.iter().map_while(|log| *log).collect();
        if seen.len() < logs.len() {
            VANISHED.ln() / (seen.len() + 1) as f64
        } else {
            slope(&seen[BURN_IN..])
        }
    };
    Ok(planes.iter().map(of_plane).fold(f64::NEG_INFINITY, f64::max))
}

/// The norms of the planes, each over all state vectors together.
fn norms(agents: &Simulator<f64>, states: usize, dim: usize) -> Vec<f64> {
    let mut squares = vec![0.0; dim / 2];
    for row in (0..states).flat_map(|k| agents.vector(Vector(k)).chunks_exact(dim)) {
        for (square, plane) in squares.iter_mut().zip(row.chunks_exact(2)) {
            *square += plane[0] * plane[0] + plane[1] * plane[1];
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}
