//! Chooses the weights `xi = "auto"` and `gamma = "auto"` from estimates of the problem and from the network.

use mile::methods::catalogue::Parameters;
use mile::network::Network;
use mile::theory::TheoryError;
use mile::theory::auto::{self, Question};
use mile::theory::smoothness::{self, Effort, Scatter, Smoothness};
use mile::theory::weights::WeightChoice;
use mile::with_precision;

use crate::config::{AlgorithmConfig, Experiment};
use crate::engines::Scalar;
use crate::error::LabError;
use crate::objectives::Curvature;
use crate::start;

/// Stochastic gradients per agent from which the gradient noise is estimated.
const DRAWS: u64 = 8;

/// Estimates of an experiment's problem, with its first seed, at its starting point.
#[derive(Clone, Debug, PartialEq)]
pub struct ProblemEstimate {
    /// The smoothness constant L.
    pub smoothness: Smoothness,
    /// Noise and heterogeneity of the gradients.
    pub scatter: Scatter,
}

/// Estimates the smoothness, gradient noise and heterogeneity of an experiment's problem.
pub fn estimate(experiment: &Experiment) -> Result<ProblemEstimate, LabError> {
    with_precision!(experiment.precision, T => estimate_as::<T>(experiment))
}

fn estimate_as<T: Scalar>(experiment: &Experiment) -> Result<ProblemEstimate, LabError> {
    let seed = experiment.seeds[0];
    let problem = T::problem(&*experiment.objectives, seed)?;
    let start = start::points(experiment.start, &*problem, seed)?;
    let x = &start[..problem.dim()];
    let effort = match experiment.objectives.curvature() {
        Curvature::Changing => Effort { points: 2, iterations: 8, agents: 4, stochastic: true },
        _ => Effort::default(),
    };
    let smoothness =
        smoothness::estimate(&*problem, x, effort, seed).map_err(|error| theory_error("problem", error))?;
    Ok(ProblemEstimate { smoothness, scatter: smoothness::scatter(&*problem, x, DRAWS, seed)? })
}

/// Converts an error of the theory into one of a key, except for a failing objective.
pub(crate) fn theory_error(key: &str, error: TheoryError) -> LabError {
    match error {
        TheoryError::Agents(error) => error.into(),
        error => LabError::config(key, error),
    }
}

/// An upper bound of the smoothness constant over a whole run; `None` where the curvature changes during training, as that
/// of neural networks does.
pub(crate) fn smoothness_bound(experiment: &Experiment, estimate: &ProblemEstimate) -> Option<f64> {
    match experiment.objectives.curvature() {
        Curvature::Changing => None,
        _ => Some(1.1 * estimate.smoothness.estimate).filter(|l| *l > 0.0),
    }
}

/// Chooses xi and gamma of an algorithm with `"auto"`.
pub(crate) fn choose(
    index: usize,
    algorithm: &AlgorithmConfig,
    experiment: &Experiment,
    network: &Network,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    let estimate = estimate(experiment)?;
    let question = Question {
        network,
        local_steps: parameters.local_steps.unwrap_or(1),
        step_size: algorithm.schedule.step_size,
        smoothness: smoothness_bound(experiment, &estimate),
        scatter: experiment.objectives.is_stochastic().then_some(estimate.scatter),
        rounds: experiment.rounds,
        seed: experiment.seeds[0],
    };
    let chosen = match (algorithm.xi, algorithm.gamma) {
        (_, Some(WeightChoice::Auto)) => auto::decoupled(question),
        (_, None) => auto::xi(question),
        // With gamma given, xi is half of the limit of stability under changing curvature.
        (_, Some(_)) => {
            let gamma = parameters.gamma.unwrap_or(1.0);
            auto::judge(question, 1e-6, gamma).map(|at| {
                let limit = at.drop_limit.map_or(at.switching_limit, |drop| drop.min(at.switching_limit));
                auto::Choice { xi: (0.5 * limit).max(1e-6), ..at }
            })
        }
    };
    let key = if algorithm.gamma == Some(WeightChoice::Auto) { "gamma" } else { "xi" };
    let chosen = chosen.map_err(|error| theory_error(&format!("algorithm[{index}].{key}"), error))?;
    parameters.xi = Some(chosen.xi);
    parameters.gamma = (chosen.gamma != chosen.xi).then_some(chosen.gamma);
    Ok(())
}
