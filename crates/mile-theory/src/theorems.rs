//! Theorems 1 to 4 on an actual run: left side, right side as printed, right side as corrected.
//!
//! Theorems 2 and 4, which bound the consensus error, are false as printed: unlike their proofs, their statements
//! lack a factor 1/(alpha L)^2 in one term and have tau^3 instead of tau in two. What follows from the proofs is,
//! with S = |X(0)|_F^2 + |X(1)|_F^2 and T = tau (K + 1),
//!
//! ```text
//! 2: 4 alpha (f(xbar(1)) - f*)/(tau K) + 3 alpha^2 |g(0)|^2/(tau K) + 12 S/(tau K)
//!      + 6 S/(alpha^2 L^2 rho^2 tau^4 K)
//! 4: 24 alpha (E f(xbar(1)) - f*)/(tau K) + 78 alpha^2 E|g(0)|^2/(tau K) + 156 E S/(tau K)
//!      + 26 E S/(alpha^2 L^2 rho^2 tau^4 K) + (2028 B_2 + 6) alpha^2 sigma^2
//! ```
//!
//! The derivation is in docs/src/theory.md. Theorems 1 and 3 are correct as printed.

use mile::agents::AgentsError;
use mile::block;
use mile::methods::Mile;
use mile::network::Network;
use mile::problems::{Draw, Failure, Problem};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rand::RngExt;
use rand_distr::StandardNormal;
use serde::Serialize;

use crate::constants::{Constants, Start};
use crate::{TheoryError, require, valid_smoothness};

/// A run on which the theorems are checked.
#[derive(Clone, Copy)]
pub struct TheoremSetting<'a> {
    /// The objectives. Theorems 1 and 2 use the exact gradients, 3 and 4 the stochastic ones.
    pub problem: &'a dyn Problem<f64>,
    /// The network; its drop rate must be 0.
    pub network: &'a Network,
    /// Local steps tau.
    pub local_steps: u64,
    /// The paper's xi.
    pub xi: f64,
    /// Smoothness L of every f_i.
    pub smoothness: f64,
    /// A lower bound of f; its minimum gives the sharpest check.
    pub lowest: f64,
    /// Variance sigma^2 of a stochastic gradient.
    pub variance: f64,
    /// The starting point x(-1): one row per agent, or a single one for all.
    pub start: &'a [f64],
    /// K: the run has T = tau (K + 1) iterations.
    pub k: u64,
}

/// Both sides of one theorem's inequality.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Number of the theorem, 1 to 4.
    pub theorem: u8,
    /// Local steps.
    pub tau: u64,
    /// Weight xi.
    pub xi: f64,
    /// The step size: the largest that the theorem allows.
    pub step_size: f64,
    /// Left side: measured.
    pub left: f64,
    /// Half-width of its 95 % confidence interval over seeds; 0 for exact gradients.
    pub left_error: f64,
    /// Right side as printed in the paper.
    pub printed: f64,
    /// Right side that follows from the proof.
    pub corrected: f64,
    /// Whether the printed inequality holds; false only if it fails by more than `left_error`.
    pub printed_holds: bool,
    /// Whether the corrected inequality holds.
    pub corrected_holds: bool,
}

impl Row {
    /// Left side divided by the printed right side: above 1 the printed theorem is false.
    pub fn factor(&self) -> f64 {
        self.left / self.printed
    }
}

/// The measurements of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// `1/T sum_t |grad f(xbar(t))|^2`.
    gradient: f64,
    /// `1/(N T) sum_t sum_i |xbar(t) - x_i(t)|^2`.
    consensus: f64,
    start: Start,
}

/// Theorems 1 and 2, with exact gradients and the largest step size they allow.
pub fn exact(setting: &TheoremSetting) -> Result<[Row; 2], TheoryError> {
    let constants = constants(setting)?;
    let step_size = constants.step_size_max(setting.smoothness)?;
    let measured = [measure(setting, step_size, &Exact(setting.problem), 0)?];
    let terms = Terms::new(setting, &constants, step_size, &measured);
    let row = |theorem, left: fn(&Measured) -> f64, printed, corrected| {
        evaluate(setting, step_size, theorem, measured.map(|m| left(&m)).to_vec(), printed, corrected)
    };
    let first = terms.first();
    Ok([
        row(1, |m| m.gradient, first, first),
        row(2, |m| m.consensus, terms.second(false), terms.second(true)),
    ])
}

/// Theorems 3 and 4, with stochastic gradients and the largest step size they allow; expectations are means over
/// seeds.
pub fn stochastic(setting: &TheoremSetting, seeds: &[u64]) -> Result<[Row; 2], TheoryError> {
    require("seeds", seeds.len() as f64, seeds.len() >= 2, "at least two, for a confidence interval")?;
    let constants = constants(setting)?;
    let step_size = constants.step_size_max_stochastic(setting.smoothness)?;
    let run = |seed: &u64| measure(setting, step_size, setting.problem, *seed);
    let measured = seeds.iter().map(run).collect::<Result<Vec<_>, _>>()?;
    let terms = Terms::new(setting, &constants, step_size, &measured);
    let row = |theorem, left: fn(&Measured) -> f64, printed, corrected| {
        evaluate(setting, step_size, theorem, measured.iter().map(left).collect(), printed, corrected)
    };
    let third = terms.third();
    Ok([
        row(3, |m| m.gradient, third, third),
        row(4, |m| m.consensus, terms.fourth(false), terms.fourth(true)),
    ])
}

fn constants(setting: &TheoremSetting) -> Result<Constants, TheoryError> {
    require("k", setting.k as f64, setting.k >= 1, "a whole number of at least 1")?;
    let drops = setting.network.drop_rate();
    require("drop_rate", drops, drops == 0.0, "0, since the theorems assume that no edges drop")?;
    let outages = setting.network.bursts().is_some() || setting.network.absence().is_some();
    let expected = "no bursts and no absence, since the theorems assume that no edges drop";
    require("bursts", f64::from(u8::from(outages)), !outages, expected)?;
    let varying = f64::from(u8::from(setting.network.time_varying().is_some()));
    require(
        "time_varying",
        varying,
        varying == 0.0,
        "0, since the theorems assume the same graph in every round",
    )?;
    valid_smoothness(setting.smoothness)?;
    Constants::new(setting.local_steps, setting.xi, setting.network.spectrum())
}

fn evaluate(
    setting: &TheoremSetting,
    step_size: f64,
    theorem: u8,
    samples: Vec<f64>,
    printed: f64,
    corrected: f64,
) -> Row {
    let n = samples.len() as f64;
    let left = samples.iter().sum::<f64>() / n;
    let spread = samples.iter().map(|s| (s - left).powi(2)).sum::<f64>();
    let left_error =
        if n > 1.0 { student_t(samples.len() - 1) * (spread / (n - 1.0) / n).sqrt() } else { 0.0 };
    let holds = |right: f64| left - left_error <= right;
    Row {
        theorem,
        tau: setting.local_steps,
        xi: setting.xi,
        step_size,
        left,
        left_error,
        printed,
        corrected,
        printed_holds: holds(printed),
        corrected_holds: holds(corrected),
    }
}

/// 97.5 % quantile of Student's t distribution.
fn student_t(degrees_of_freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    TABLE.get(degrees_of_freedom - 1).copied().unwrap_or(1.96 + 2.6 / degrees_of_freedom as f64)
}

fn measure(
    setting: &TheoremSetting,
    step_size: f64,
    problem: &dyn Problem<f64>,
    seed: u64,
) -> Result<Measured, TheoryError> {
    let method = Mile::new(setting.local_steps, setting.xi)?;
    let (agents, dim) = (problem.agents(), problem.dim());
    let mut simulator = Simulator::new(problem, setting.network, &method, setting.start, seed)?;
    let mut run = Run::start(&method, Schedule::constant(step_size), &mut simulator)?;
    let mut found = Measured::default();
    found.start.s = block::norm_sq(simulator.models());
    found.start.a2 = disagreement(simulator.models(), dim);
    found.start.gradient = mean_gradient(problem, |i| simulator.model(i))?;
    let iterations = setting.local_steps * (setting.k + 1);
    for t in 1..=iterations {
        run.step(&mut simulator)?;
        let mean = block::mean_row(simulator.models(), dim);
        if t == 1 {
            found.start.s += block::norm_sq(simulator.models());
            found.start.a2 += disagreement(simulator.models(), dim);
            found.start.excess = problem.objective(&mean).map_err(AgentsError::Evaluation)? - setting.lowest;
        }
        found.gradient += mean_gradient(problem, |_| &mean)? / iterations as f64;
        found.consensus += block::consensus_error(simulator.models(), dim) / iterations as f64;
    }
    debug_assert_eq!(agents, setting.network.agents());
    Ok(found)
}

/// `sqrt(sum_i |xbar - x_i|^2)`.
fn disagreement(models: &[f64], dim: usize) -> f64 {
    (block::consensus_error(models, dim) * (models.len() / dim.max(1)) as f64).sqrt()
}

/// `|1/N sum_i grad f_i(x_i)|^2`.
fn mean_gradient<'x>(problem: &dyn Problem<f64>, x: impl Fn(usize) -> &'x [f64]) -> Result<f64, AgentsError> {
    let (n, dim) = (problem.agents(), problem.dim());
    let (mut sum, mut g) = (vec![0.0; dim], vec![0.0; dim]);
    for agent in 0..n {
        problem.gradient(agent, x(agent), &mut g).map_err(AgentsError::objective(agent))?;
        sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g / n as f64);
    }
    Ok(block::norm_sq(&sum))
}

/// The quantities in the right sides of the theorems.
struct Terms {
    tau: f64,
    k: f64,
    alpha: f64,
    /// alpha^2 L^2.
    curvature: f64,
    rho: f64,
    b2: f64,
    variance: f64,
    smoothness: f64,
    start: Start,
}

impl Terms {
    fn new(setting: &TheoremSetting, constants: &Constants, alpha: f64, measured: &[Measured]) -> Self {
        let mean = |of: fn(&Start) -> f64| {
            measured.iter().map(|m| of(&m.start)).sum::<f64>() / measured.len() as f64
        };
        Self {
            tau: setting.local_steps as f64,
            k: setting.k as f64,
            alpha,
            curvature: (alpha * setting.smoothness).powi(2),
            rho: constants.rho,
            b2: constants.b2,
            variance: setting.variance,
            smoothness: setting.smoothness,
            start: Start {
                s: mean(|s| s.s),
                gradient: mean(|s| s.gradient),
                a2: mean(|s| s.a2),
                excess: mean(|s| s.excess),
            },
        }
    }

    /// `1/(rho^2 tau^4 K)`.
    fn last(&self) -> f64 {
        1.0 / (self.rho.powi(2) * self.tau.powi(4) * self.k)
    }

    fn first(&self) -> f64 {
        let (cube, square) = (self.tau.powi(3) * self.k, self.alpha.powi(2));
        2.0 * self.start.excess / (self.tau * self.alpha * self.k)
            + self.start.gradient / cube
            + 4.0 * self.start.s / (cube * square)
            + 2.0 * self.start.s * self.last() / square
    }

    fn second(&self, corrected: bool) -> f64 {
        let (power, curvature) = self.differing_factors(corrected);
        4.0 * self.alpha * self.start.excess / (self.tau * self.k)
            + 3.0 * self.alpha.powi(2) * self.start.gradient / (power * self.k)
            + 12.0 * self.start.s / (power * self.k)
            + 6.0 * self.start.s * self.last() / curvature
    }

    fn third(&self) -> f64 {
        let (cube, square) = (self.tau.powi(3) * self.k, self.alpha.powi(2));
        2.0 * self.start.excess / (self.alpha * self.tau * self.k)
            + 2.0 * self.start.s * self.last() / square
            + 12.0 * self.start.s / (cube * square)
            + 6.0 * self.start.gradient / cube
            + self.smoothness * self.alpha * self.variance
            + 156.0 * self.b2 * self.curvature * self.variance
    }

    fn fourth(&self, corrected: bool) -> f64 {
        let (power, curvature) = self.differing_factors(corrected);
        24.0 * self.alpha * self.start.excess / (self.tau * self.k)
            + 78.0 * self.alpha.powi(2) * self.start.gradient / (power * self.k)
            + 26.0 * self.start.s * self.last() / curvature
            + 2028.0 * self.b2 * self.alpha.powi(2) * self.variance
            + 156.0 * self.start.s / (power * self.k)
            + 6.0 * self.alpha.powi(2) * self.variance
    }

    /// Where statement and proof differ: (tau^3, 1) as printed, (tau, alpha^2 L^2) as corrected.
    fn differing_factors(&self, corrected: bool) -> (f64, f64) {
        if corrected { (self.tau, self.curvature) } else { (self.tau.powi(3), 1.0) }
    }
}

/// The same objectives, with exact gradients in place of stochastic ones.
struct Exact<'a>(&'a dyn Problem<f64>);

impl Problem<f64> for Exact<'_> {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        self.0.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        self.0.gradient(agent, x, gradient)
    }
}

/// Objectives whose stochastic gradients are the exact ones plus white Gaussian noise.
pub struct Noisy<'a> {
    /// The objectives.
    pub problem: &'a dyn Problem<f64>,
    /// Variance sigma^2 of the whole gradient vector.
    pub variance: f64,
}

impl Problem<f64> for Noisy<'_> {
    fn agents(&self) -> usize {
        self.problem.agents()
    }

    fn dim(&self) -> usize {
        self.problem.dim()
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        self.problem.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        self.problem.gradient(agent, x, gradient)
    }

    fn sample_gradient(
        &self,
        agent: usize,
        x: &[f64],
        draw: Draw,
        gradient: &mut [f64],
    ) -> Result<(), Failure> {
        self.problem.gradient(agent, x, gradient)?;
        let scale = (self.variance / self.dim() as f64).sqrt();
        let mut random = stream(draw.seed, Purpose::Batch, agent as u64, draw.step);
        gradient.iter_mut().for_each(|g| *g += scale * random.sample::<f64, _>(StandardNormal));
        Ok(())
    }
}
