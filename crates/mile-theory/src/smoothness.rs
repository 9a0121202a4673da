//! Estimates of the smoothness constant L, gradient noise and heterogeneity, from gradients only.
//!
//! `L` is estimated agent by agent: a power iteration on central differences of the gradient,
//! `v <- (grad f_i(x + e v) - grad f_i(x - e v))/2e`, finds the largest |curvature| at a point x; the
//! largest over points and agents is the estimate. It is a lower bound of the true constant, which is a
//! supremum over all points; the spread over points shows how much the curvature varies.
//!
//! [`estimate`] spends a fixed effort. [`Ascent`] is the same iteration at one point, a few steps at a time, for callers
//! with a budget: it can begin on a sample of the rows and continue with more of them. Both use all cores, one agent each,
//! and give the same bits for any number of threads.

use mile::agents::AgentsError;
use mile::problems::{Draw, Failure, Problem};
use mile::random::{Purpose, stream};
use mile::real::Real;
use rand::RngExt;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::Serialize;

use crate::TheoryError;
use crate::sample::Sample;

/// An [`Ascent`] stops at a relative change of the curvature below this. On isotropic Gaussian rows, the slowest case, it
/// is then 3% below its limit after 8 gradients of all rows; with 1e-4 it would be 2% below it after 120
/// (`a_sample_of_the_rows_is_close_to_all_of_them`).
const SETTLED: f64 = 1e-3;

/// How many gradients an estimate may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Points at which the curvature is measured.
    pub points: usize,
    /// Steps of the power iteration at each point, two gradients each.
    pub iterations: usize,
    /// Number of agents used, spread evenly over all.
    pub agents: usize,
    /// Use stochastic gradients, with one mini-batch per point, for problems whose exact gradient is expensive.
    pub stochastic: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Self { points: 5, iterations: 30, agents: 16, stochastic: false }
    }
}

impl Effort {
    /// Number of agents used, of `all`.
    pub fn agents_of(&self, all: usize) -> usize {
        all.min(self.agents.max(1))
    }

    /// The most gradients that an estimate with `all` agents evaluates.
    pub fn gradients(&self, all: usize) -> u64 {
        (2 * self.iterations.max(2) * self.points.max(1) * self.agents_of(all)) as u64
    }
}

/// An estimate of the smoothness constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Smoothness {
    /// Largest |curvature| found over points and agents: the estimate of L.
    pub estimate: f64,
    /// Smallest and largest curvature over the points (each the maximum over agents).
    pub spread: (f64, f64),
    /// Relative change in the last step of the power iteration that gave the estimate: its convergence.
    pub unsettled: f64,
    /// Whether the direction that gave the estimate has negative curvature.
    pub negative: bool,
    /// Gradients evaluated.
    pub gradients: u64,
    /// What it was estimated from; none if from all agents and rows, at several points.
    pub sample: Option<Sample>,
}

impl Smoothness {
    /// A smoothness constant that is known rather than estimated.
    pub fn known(largest: f64) -> Self {
        Self { estimate: largest, spread: (largest, largest), ..Self::nothing() }
    }

    fn nothing() -> Self {
        Self {
            estimate: 0.0,
            spread: (f64::INFINITY, 0.0),
            unsettled: 0.0,
            negative: false,
            gradients: 0,
            sample: None,
        }
    }

    /// Takes in the results at one point, in increasing agent.
    fn add_point<'a>(&mut self, agents: impl Iterator<Item = &'a Curvature>) -> Result<(), TheoryError> {
        let mut largest = 0.0f64;
        for here in agents {
            crate::require(
                "gradient",
                here.value,
                true,
                "a finite number (check the gradient of the problem near its starting point)",
            )?;
            largest = largest.max(here.value.abs());
            if here.value.abs() > self.estimate {
                self.estimate = here.value.abs();
                self.unsettled = here.unsettled;
                self.negative = here.value < 0.0;
            }
        }
        self.spread = (self.spread.0.min(largest), self.spread.1.max(largest));
        Ok(())
    }
}

/// The curvature of largest modulus at a point.
#[derive(Clone, Copy, Debug)]
struct Curvature {
    value: f64,
    unsettled: f64,
}

/// Estimates L at `centre` and at random points around it, at increasing distance.
pub fn estimate<T: Real>(
    problem: &dyn Problem<T>,
    centre: &[T],
    effort: Effort,
    seed: u64,
) -> Result<Smoothness, TheoryError> {
    let all = problem.agents();
    let agents = effort.agents_of(all);
    let size = norm(centre) / (centre.len().max(1) as f64).sqrt();
    let points: Vec<Vec<T>> = (0..effort.points.max(1))
        .map(|point| {
            let radius = 0.25 * point as f64 * if size > 0.0 { size } else { 1.0 };
            let mut random = stream(seed, Purpose::Probe, 2, point as u64);
            let near = |c: &T| T::of(c.wide() + radius * random.sample::<f64, _>(StandardNormal));
            centre.iter().map(near).collect()
        })
        .collect();
    let of_agent = |k: usize| {
        let agent = k * all / agents;
        let at_point = |(point, x): (usize, &Vec<T>)| {
            let draw = effort.stochastic.then_some(Draw { seed, step: point as u64 });
            let mut power = PowerIteration::new(x.len(), agent, seed);
            for _ in 0..effort.iterations.max(2) {
                if !power.step(problem, agent, x, draw)? {
                    break;
                }
            }
            Ok((power.found, power.gradients))
        };
        points.iter().enumerate().map(at_point).collect::<Result<Vec<_>, Failure>>()
    };
    let found: Vec<_> = (0..agents).into_par_iter().map(|k| (k, of_agent(k))).collect();
    let found: Vec<Vec<(Curvature, u64)>> = found
        .into_iter()
        .map(|(k, found)| found.map_err(AgentsError::objective(k * all / agents)))
        .collect::<Result<_, _>>()?;
    let mut smoothness = Smoothness::nothing();
    smoothness.gradients = found.iter().flatten().map(|(_, gradients)| gradients).sum();
    for point in 0..points.len() {
        smoothness.add_point(found.iter().map(|points| &points[point].0))?;
    }
    let sample = Sample { agents: (agents, all), rows: None, one_point: false };
    smoothness.sample = (agents < all).then_some(sample);
    Ok(smoothness)
}

/// Checks that the gradient of one agent at `x`, and its curvature there, are finite: two steps of the power iteration, with the exact
/// gradient or that of a mini-batch.
///
/// # Errors
/// If they are not finite, or cannot be evaluated.
pub fn check_agent<T: Real>(
    problem: &dyn Problem<T>,
    agent: usize,
    x: &[T],
    draw: Option<Draw>,
) -> Result<(), TheoryError> {
    let mut power = PowerIteration::new(x.len(), agent, 0);
    for _ in 0..2 {
        if !power.step(problem, agent, x, draw).map_err(AgentsError::objective(agent))? {
            break;
        }
    }
    Smoothness::nothing().add_point(std::iter::once(&power.found))
}

/// Power iterations at one point, one for each agent, that can be continued on another problem of the same agents:
/// one with more rows.
pub struct Ascent<T> {
    x: Vec<T>,
    agents: Vec<PowerIteration<T>>,
}

impl<T: Real> Ascent<T> {
    /// Begins at `x`, with random directions for as many agents.
    pub fn new(x: &[T], agents: usize, seed: u64) -> Self {
        let direction = |agent: usize| PowerIteration::new(x.len(), agent, seed);
        Self { x: x.to_vec(), agents: (0..agents).map(direction).collect() }
    }

    /// Does at least 2 and at most `iterations` steps for each agent, fewer where the curvature has settled, and returns
    /// the number of gradients evaluated. A problem with more agents is asked for as many, spread evenly.
    pub fn go_on(&mut self, problem: &dyn Problem<T>, iterations: usize) -> Result<u64, TheoryError> {
        let (x, chosen, before) = (&self.x, self.agents.len(), self.gradients());
        let improve = |(k, power): (usize, &mut PowerIteration<T>)| {
            let agent = k * problem.agents() / chosen;
            for done in 1..=iterations.max(2) {
                let stays = power.step(problem, agent, x, None).map_err(AgentsError::objective(agent))?;
                if !stays || (done >= 2 && power.found.unsettled < SETTLED) {
                    break;
                }
            }
            Ok(())
        };
        let done: Vec<Result<(), AgentsError>> =
            self.agents.par_iter_mut().enumerate().map(improve).collect();
        done.into_iter().collect::<Result<(), _>>()?;
        Ok(self.gradients() - before)
    }

    /// The result so far.
    pub fn found(&self) -> Result<Smoothness, TheoryError> {
        let mut smoothness = Smoothness { gradients: self.gradients(), ..Smoothness::nothing() };
        smoothness.add_point(self.agents.iter().map(|power| &power.found))?;
        Ok(smoothness)
    }

    fn gradients(&self) -> u64 {
        self.agents.iter().map(|power| power.gradients).sum()
    }
}

/// Power iteration on central differences of one agent's gradient at one point.
struct PowerIteration<T> {
    /// The direction, of norm 1.
    v: Vec<f64>,
    image: Vec<f64>,
    at: Vec<T>,
    plus: Vec<T>,
    minus: Vec<T>,
    found: Curvature,
    gradients: u64,
}

impl<T: Real> PowerIteration<T> {
    fn new(n: usize, agent: usize, seed: u64) -> Self {
        let mut random = stream(seed, Purpose::Probe, 3, agent as u64);
        let mut v: Vec<f64> = (0..n).map(|_| random.sample(StandardNormal)).collect();
        normalise(&mut v);
        Self {
            v,
            image: vec![0.0; n],
            at: vec![T::zero(); n],
            plus: vec![T::zero(); n],
            minus: vec![T::zero(); n],
            found: Curvature { value: 0.0, unsettled: 1.0 },
            gradients: 0,
        }
    }

    /// One step at `x`; false if there is no direction to continue with: the curvature is zero, or not finite.
    fn step(
        &mut self,
        problem: &dyn Problem<T>,
        agent: usize,
        x: &[T],
        draw: Option<Draw>,
    ) -> Result<bool, Failure> {
        let epsilon = T::epsilon().wide().cbrt() * norm(x).max(1.0);
        let Self { v, image, at, plus, minus, found, .. } = self;
        for (sign, gradient) in [(1.0, &mut *plus), (-1.0, &mut *minus)] {
            shifted(at, x, sign * epsilon, v);
            match draw {
                Some(draw) => problem.sample_gradient(agent, at, draw, gradient)?,
                None => problem.gradient(agent, at, gradient)?,
            }
        }
        self.gradients += 2;
        quotient(image, plus, minus, 2.0 * epsilon);
        let (along, length) = (product(image, v), product(image, image).sqrt());
        let value = length.copysign(along);
        found.unsettled = ((value.abs() - found.value.abs()) / value.abs().max(f64::MIN_POSITIVE)).abs();
        found.value = value;
        let goes_on = normalise(image);
        if goes_on {
            std::mem::swap(v, image);
        }
        Ok(goes_on)
    }
}

/// `at <- x + by v`.
fn shifted<T: Real>(at: &mut [T], x: &[T], by: f64, v: &[f64]) {
    for ((at, x), v) in at.iter_mut().zip(x).zip(v) {
        *at = T::of(x.wide() + by * v);
    }
}

/// `image <- (plus - minus)/by`.
fn quotient<T: Real>(image: &mut [f64], plus: &[T], minus: &[T], by: f64) {
    for ((i, p), m) in image.iter_mut().zip(plus).zip(minus) {
        *i = (p.wide() - m.wide()) / by;
    }
}

/// `mean <- mean + sample/draws`; the squared norm of the sample.
fn add_sample<T: Real>(mean: &mut [f64], sample: &[T], draws: f64) -> f64 {
    mean.iter_mut().zip(sample).for_each(|(m, s)| *m += s.wide() / draws);
    sample.iter().map(|s| s.wide().powi(2)).sum()
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm<T: Real>(x: &[T]) -> f64 {
    x.iter().map(|v| v.wide().powi(2)).sum::<f64>().sqrt()
}

/// Scales to norm 1; false if the norm is zero or not finite.
fn normalise(v: &mut [f64]) -> bool {
    let length = v.iter().map(|v| v * v).sum::<f64>().sqrt();
    if !(length > 0.0 && length.is_finite()) {
        return false;
    }
    v.iter_mut().for_each(|v| *v /= length);
    true
}

/// Noise and heterogeneity of the gradients at a point, averaged over agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scatter {
    /// Mean squared distance of an agent's stochastic gradient from its exact one: the paper's sigma^2.
    pub noise: f64,
    /// Mean squared distance of the agents' exact gradients from their mean.
    pub heterogeneity: f64,
}

/// Measures noise and heterogeneity of gradients at a point from `draws` (at least two) stochastic
/// gradients per agent; exact gradients are not needed. Both estimates are unbiased, up to clipping negative
/// values.
pub fn scatter<T: Real>(
    problem: &dyn Problem<T>,
    x: &[T],
    draws: u64,
    seed: u64,
) -> Result<Scatter, AgentsError> {
    let (agents, n, draws) = (problem.agents(), x.len(), draws.max(2));
    let of_agent = |agent: usize| -> Result<(Vec<f64>, f64), Failure> {
        let (mut sample, mut mean, mut squares) = (vec![T::zero(); n], vec![0.0; n], 0.0);
        for step in 0..draws {
            problem.sample_gradient(agent, x, Draw { seed, step }, &mut sample)?;
            squares += add_sample(&mut mean, &sample, draws as f64);
        }
        Ok((mean, squares))
    };
    let found: Vec<_> = (0..agents).into_par_iter().map(of_agent).collect();
    let (mut means, mut noise) = (Vec::with_capacity(agents), 0.0);
    for (agent, found) in found.into_iter().enumerate() {
        let (mean, squares) = found.map_err(AgentsError::objective(agent))?;
        let centre: f64 = mean.iter().map(|m| m * m).sum();
        noise += (squares - draws as f64 * centre).max(0.0) / ((draws - 1) * agents as u64) as f64;
        means.push(mean);
    }
    let centre: Vec<f64> = (0..n).map(|k| means.iter().map(|m| m[k]).sum::<f64>() / agents as f64).collect();
    let apart = |m: &Vec<f64>| -> f64 { m.iter().zip(&centre).map(|(m, c)| (m - c).powi(2)).sum() };
    let spread = means.iter().map(apart).sum::<f64>() / agents as f64;
    // The variance of each mean is noise/draws, and a share of 1/N of it is also in the centre.
    let excess = noise / draws as f64 * (1.0 - 1.0 / agents as f64);
    let rounding = 1e-9 * spread;
    let noise = if noise < rounding { 0.0 } else { noise };
    Ok(Scatter { noise, heterogeneity: (spread - excess).max(0.0) })
}
