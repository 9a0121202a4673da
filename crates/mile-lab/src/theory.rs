//! What the theory says about an experiment: weights to be chosen, advice, and the report.

use mile::methods::catalogue::Parameters;
use mile::network::Network;
use mile::problems::Problem;
use mile::theory::TheoryError;
use mile::theory::advice::{self, Advice};
use mile::theory::auto::{self, Question};
use mile::theory::report::{self, Inquiry};
use mile::theory::smoothness::{self, Effort, Scatter, Smoothness};
use mile_nn::{Batch, Scalar};

use crate::config::{AlgorithmConfig, Experiment, Precision, ProblemConfig, Weight};
use crate::error::LabError;
use crate::plan::Plan;
use crate::problem::{self, Library};

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
pub fn measure(plan: &Plan) -> Result<Measured, LabError> {
    measure_with(&plan.experiment, &plan.library)
}

fn measure_with(experiment: &Experiment, library: &Library) -> Result<Measured, LabError> {
    match experiment.precision {
        Precision::F32 => measure_as::<f32>(experiment, library),
        Precision::F64 => measure_as::<f64>(experiment, library),
    }
}

fn measure_as<T: Scalar>(experiment: &Experiment, library: &Library) -> Result<Measured, LabError> {
    let seed = experiment.seeds[0];
    let built = problem::build::<T>(experiment, seed, library)?;
    let problem: &dyn Problem<T> = built.as_dyn();
    let start = problem::start(experiment.start, problem, seed);
    let x = &start[..problem.dim()];
    let effort = match experiment.problem {
        ProblemConfig::Images(_) => Effort { points: 2, iterations: 8, agents: 4, stochastic: true },
        _ => Effort::default(),
    };
    let smoothness =
        smoothness::estimate(problem, x, effort, seed).map_err(|error| refuse("problem", error))?;
    Ok(Measured { smoothness, scatter: smoothness::scatter(problem, x, DRAWS, seed) })
}

fn refuse(key: &str, error: TheoryError) -> LabError {
    LabError::config(key, error)
}

/// A bound of the curvature over a whole run, where one can be had: a network's curvature grows as it
/// learns, so none for images.
fn bound(experiment: &Experiment, measured: &Measured) -> Option<f64> {
    match &experiment.problem {
        ProblemConfig::Images(_) => None,
        _ => Some(1.1 * measured.smoothness.estimate).filter(|l| *l > 0.0),
    }
}

/// Whether gradients are stochastic.
fn is_stochastic(experiment: &Experiment) -> bool {
    match &experiment.problem {
        ProblemConfig::Quadratic { .. } => false,
        ProblemConfig::Table(table) => table.batch != Batch::Full,
        ProblemConfig::Images(images) => images.batch != Batch::Full,
    }
}

/// Whether a weight of the algorithm is left to us.
pub(crate) fn has_auto(algorithm: &AlgorithmConfig) -> bool {
    [algorithm.xi, algorithm.gamma].contains(&Some(Weight::Auto))
}

/// Fills in xi and gamma of an algorithm that asks for `"auto"`.
pub(crate) fn choose(
    index: usize,
    algorithm: &AlgorithmConfig,
    experiment: &Experiment,
    network: &Network,
    library: &Library,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    let measured = measure_with(experiment, library)?;
    let question = Question {
        network,
        local_steps: parameters.local_steps.unwrap_or(1),
        step_size: algorithm.schedule.step_size,
        smoothness: bound(experiment, &measured),
        scatter: is_stochastic(experiment).then_some(measured.scatter),
        rounds: experiment.rounds,
        seed: experiment.seeds[0],
    };
    let chosen = match (algorithm.xi, algorithm.gamma) {
        (_, Some(Weight::Auto)) => auto::decoupled(question),
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
    let key = if algorithm.gamma == Some(Weight::Auto) { "gamma" } else { "xi" };
    let chosen = chosen.map_err(|error| refuse(&format!("algorithm[{index}].{key}"), error))?;
    parameters.xi = Some(chosen.xi);
    parameters.gamma = (chosen.gamma != chosen.xi).then_some(chosen.gamma);
    Ok(())
}

/// Advice for every algorithm of a plan, with its label.
pub fn advise(plan: &Plan) -> Result<Vec<(String, Advice)>, LabError> {
    let smoothness = match plan.experiment.problem {
        ProblemConfig::Quadratic { .. } => Some(1.0), // by construction
        ProblemConfig::Table(_) => bound(&plan.experiment, &measure(plan)?),
        ProblemConfig::Images(_) => None, // what it is at the start says little about a network's later curvature
    };
    let mut found = Vec::new();
    for (k, (algorithm, planned)) in plan.experiment.algorithms.iter().zip(&plan.methods).enumerate() {
        let advice = advice::advise(&advice::Plan {
            entry: algorithm.entry,
            parameters: &planned.parameters,
            network: &plan.network,
            step_size: algorithm.schedule.step_size,
            smoothness,
            seed: plan.experiment.seeds[0],
        });
        let advice = advice.map_err(|error| refuse(&format!("algorithm[{k}]"), error))?;
        found.extend(advice.into_iter().map(|advice| (algorithm.label.clone(), advice)));
    }
    Ok(found)
}

/// The inquiry that an experiment stands for: its first MILE, or its first algorithm.
pub fn inquiry<'a>(plan: &'a Plan, measured: &'a Measured) -> Inquiry<'a> {
    let algorithms = &plan.experiment.algorithms;
    let k = algorithms.iter().position(|a| a.entry.takes("xi")).unwrap_or(0);
    let parameters = &plan.methods[k].parameters;
    let exact = bound(&plan.experiment, measured).is_some();
    Inquiry {
        network: &plan.network,
        local_steps: parameters.local_steps.unwrap_or(1),
        xi: parameters.xi.map_or(report::Weight::Paper, report::Weight::Number),
        gamma: parameters.gamma.map(report::Weight::Number),
        smoothness: measured.smoothness.estimate,
        estimate: (!exact).then_some(&measured.smoothness),
        step_size: Some(algorithms[k].schedule.step_size),
        scatter: is_stochastic(&plan.experiment).then_some(measured.scatter),
        rounds: Some(plan.experiment.rounds),
        seed: plan.experiment.seeds[0],
    }
}
