//! Weights that are left to be chosen: `xi = "auto"`, `gamma = "auto"`, from the problem and the network.

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

/// Stochastic gradients an agent from which noise is estimated.
const DRAWS: u64 = 8;

/// What was found out about an experiment's problem, with its first seed, at its starting point.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// An estimate of L.
    pub smoothness: Smoothness,
    /// Noise and heterogeneity of gradients.
    pub scatter: Scatter,
}

/// Estimates smoothness and noise of an experiment's problem.
pub fn measure(experiment: &Experiment) -> Result<Measured, LabError> {
    with_precision!(experiment.precision, T => measure_as::<T>(experiment))
}

fn measure_as<T: Scalar>(experiment: &Experiment) -> Result<Measured, LabError> {
    let seed = experiment.seeds[0];
    let problem = T::problem(&*experiment.objectives, seed)?;
    let start = start::points(experiment.start, &*problem, seed)?;
    let x = &start[..problem.dim()];
    let effort = match experiment.objectives.curvature() {
        Curvature::Changing => Effort { points: 2, iterations: 8, agents: 4, stochastic: true },
        _ => Effort::default(),
    };
    let smoothness =
        smoothness::estimate(&*problem, x, effort, seed).map_err(|error| refuse("problem", error))?;
    Ok(Measured { smoothness, scatter: smoothness::scatter(&*problem, x, DRAWS, seed)? })
}

/// A question that the theory cannot answer; a failing objective is no fault of the key.
pub(crate) fn refuse(key: &str, error: TheoryError) -> LabError {
    match error {
        TheoryError::Agents(error) => error.into(),
        error => LabError::config(key, error),
    }
}

/// A bound of the curvature over a whole run, where one can be had: a network's curvature grows as it
/// learns.
pub(crate) fn bound(experiment: &Experiment, measured: &Measured) -> Option<f64> {
    match experiment.objectives.curvature() {
        Curvature::Changing => None,
        _ => Some(1.1 * measured.smoothness.estimate).filter(|l| *l > 0.0),
    }
}

/// Fills in xi and gamma of an algorithm that asks for `"auto"`.
pub(crate) fn choose(
    index: usize,
    algorithm: &AlgorithmConfig,
    experiment: &Experiment,
    network: &Network,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    let measured = measure(experiment)?;
    let question = Question {
        network,
        local_steps: parameters.local_steps.unwrap_or(1),
        step_size: algorithm.schedule.step_size,
        smoothness: bound(experiment, &measured),
        scatter: experiment.objectives.is_stochastic().then_some(measured.scatter),
        rounds: experiment.rounds,
        seed: experiment.seeds[0],
    };
    let chosen = match (algorithm.xi, algorithm.gamma) {
        (_, Some(WeightChoice::Auto)) => auto::decoupled(question),
        (_, None) => auto::xi(question),
        // A gamma of the user's own: half of what withstands changing curvature there.
        (_, Some(_)) => {
            let gamma = parameters.gamma.unwrap_or(1.0);
            auto::judge(question, 1e-6, gamma).map(|at| {
                let limit = at.drop_limit.map_or(at.switching_limit, |drop| drop.min(at.switching_limit));
                auto::Choice { xi: (0.5 * limit).max(1e-6), ..at }
            })
        }
    };
    let key = if algorithm.gamma == Some(WeightChoice::Auto) { "gamma" } else { "xi" };
    let chosen = chosen.map_err(|error| refuse(&format!("algorithm[{index}].{key}"), error))?;
    parameters.xi = Some(chosen.xi);
    parameters.gamma = (chosen.gamma != chosen.xi).then_some(chosen.gamma);
    Ok(())
}
