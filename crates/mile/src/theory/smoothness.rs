//! Estimates of the smoothness constant L, gradient noise and heterogeneity, from gradients only.
//!
//! `L` is estimated agent by agent: a power iteration on central differences of the gradient,
//! `v <- (grad f_i(x + e v) - grad f_i(x - e v))/2e`, finds the largest |curvature| at a point x; the
//! largest over points and agents is the estimate. It is a lower bound of the true constant, which is a
//! supremum over all points; the spread over points shows how much the curvature varies.

use rand::RngExt;
use rand_distr::StandardNormal;
use serde::Serialize;

use super::TheoryError;
use crate::agents::AgentsError;
use crate::problems::{Draw, Failure, Problem};
use crate::random::{Purpose, stream};
use crate::real::Real;

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

/// An estimate of the smoothness constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
}

/// The curvature of largest modulus at a point.
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
    let agents = problem.agents().min(effort.agents.max(1));
    let mut found = Smoothness {
        estimate: 0.0,
        spread: (f64::INFINITY, 0.0),
        unsettled: 0.0,
        negative: false,
        gradients: 0,
    };
    let size = norm(centre) / (centre.len().max(1) as f64).sqrt();
    for point in 0..effort.points.max(1) {
        let radius = 0.25 * point as f64 * if size > 0.0 { size } else { 1.0 };
        let mut random = stream(seed, Purpose::Probe, 2, point as u64);
        let x: Vec<T> = centre
            .iter()
            .map(|c| T::of(c.wide() + radius * random.sample::<f64, _>(StandardNormal)))
            .collect();
        let mut largest = 0.0f64;
        for k in 0..agents {
            let agent = k * problem.agents() / agents;
            let draw = effort.stochastic.then_some(Draw { seed, step: point as u64 });
            let here = curvature(problem, agent, &x, draw, effort.iterations.max(2), seed)
                .map_err(AgentsError::objective(agent))?;
            found.gradients += 2 * effort.iterations.max(2) as u64;
            super::require(
                "gradient",
                here.value,
                true,
                "finite: check the gradient of the problem near its starting point",
            )?;
            largest = largest.max(here.value.abs());
            if here.value.abs() > found.estimate {
                found.estimate = here.value.abs();
                found.unsettled = here.unsettled;
                found.negative = here.value < 0.0;
            }
        }
        found.spread = (found.spread.0.min(largest), found.spread.1.max(largest));
    }
    Ok(found)
}

/// Power iteration on central differences of one agent's gradient at one point.
fn curvature<T: Real>(
    problem: &dyn Problem<T>,
    agent: usize,
    x: &[T],
    draw: Option<Draw>,
    iterations: usize,
    seed: u64,
) -> Result<Curvature, Failure> {
    let n = x.len();
    let epsilon = T::epsilon().wide().cbrt() * norm(x).max(1.0);
    let mut random = stream(seed, Purpose::Probe, 3, agent as u64);
    let mut v: Vec<f64> = (0..n).map(|_| random.sample(StandardNormal)).collect();
    normalise(&mut v);
    let (mut plus, mut minus) = (vec![T::zero(); n], vec![T::zero(); n]);
    let gradient = |v: &[f64], sign: f64, out: &mut [T]| {
        let at: Vec<T> = x.iter().zip(v).map(|(x, v)| T::of(x.wide() + sign * epsilon * v)).collect();
        match draw {
            Some(draw) => problem.sample_gradient(agent, &at, draw, out),
            None => problem.gradient(agent, &at, out),
        }
    };
    let mut found = Curvature { value: 0.0, unsettled: 1.0 };
    for _ in 0..iterations {
        gradient(&v, 1.0, &mut plus)?;
        gradient(&v, -1.0, &mut minus)?;
        let image: Vec<f64> =
            plus.iter().zip(&minus).map(|(p, m)| (p.wide() - m.wide()) / (2.0 * epsilon)).collect();
        let along: f64 = image.iter().zip(&v).map(|(i, v)| i * v).sum();
        let length = image.iter().map(|i| i * i).sum::<f64>().sqrt();
        let value = length.copysign(along);
        found.unsettled = ((value.abs() - found.value.abs()) / value.abs().max(f64::MIN_POSITIVE)).abs();
        found.value = value;
        v = image;
        if !normalise(&mut v) {
            break;
        }
    }
    Ok(found)
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
/// gradients per agent; exact gradients are not needed. Both estimates are unbiased, up to cutting off negative
/// values.
pub fn scatter<T: Real>(
    problem: &dyn Problem<T>,
    x: &[T],
    draws: u64,
    seed: u64,
) -> Result<Scatter, AgentsError> {
    let (agents, n, draws) = (problem.agents(), x.len(), draws.max(2));
    let mut sample = vec![T::zero(); n];
    let (mut means, mut noise) = (Vec::with_capacity(agents), 0.0);
    for agent in 0..agents {
        let (mut mean, mut squares) = (vec![0.0; n], 0.0);
        for step in 0..draws {
            problem
                .sample_gradient(agent, x, Draw { seed, step }, &mut sample)
                .map_err(AgentsError::objective(agent))?;
            mean.iter_mut().zip(&sample).for_each(|(m, s)| *m += s.wide() / draws as f64);
            squares += sample.iter().map(|s| s.wide().powi(2)).sum::<f64>();
        }
        let centre: f64 = mean.iter().map(|m| m * m).sum();
        noise += (squares - draws as f64 * centre).max(0.0) / ((draws - 1) * agents as u64) as f64;
        means.push(mean);
    }
    let centre: Vec<f64> = (0..n).map(|k| means.iter().map(|m| m[k]).sum::<f64>() / agents as f64).collect();
    let apart = |m: &Vec<f64>| -> f64 { m.iter().zip(&centre).map(|(m, c)| (m - c).powi(2)).sum() };
    let spread = means.iter().map(apart).sum::<f64>() / agents as f64;
    // The variance of each mean is noise/draws, of which a share of 1/N is also in the centre.
    let excess = noise / draws as f64 * (1.0 - 1.0 / agents as f64);
    let rounding = 1e-9 * spread;
    let noise = if noise < rounding { 0.0 } else { noise };
    Ok(Scatter { noise, heterogeneity: (spread - excess).max(0.0) })
}
