//! Chooses the weights `xi = "auto"` and `gamma = "auto"` from estimates of the problem and from the network.

mod budget;
mod step;

use mile::methods::catalogue::Parameters;
use mile::methods::{Momentum, OuterMomentum};
use mile::network::Network;
use mile::schedule::Weight;
use mile::with_precision;
use mile_theory::TheoryError;
use mile_theory::auto::{self, Question};
use mile_theory::smoothness::{self, Scatter, Smoothness};
use mile_theory::weights::WeightChoice;
use mile_theory::{momentum, outer};

use crate::engines::Scalar;
use crate::error::LabError;
use crate::objectives::Curvature;
use crate::refused::{invalid, of_algorithm};
use crate::spec::{AlgorithmSpec, Spec};
use crate::start;

pub(crate) use step::{choose_step_sizes, step_size};

/// Stochastic gradients per agent from which the gradient noise is estimated.
const DRAWS: u64 = 8;

/// The smoothness of an experiment's problem: known, or estimated with its first seed, at and near its starting point, at
/// the cost of at most `steps` steps of a run, or of what is always allowed ([`budget`]).
pub(crate) fn estimate(spec: &Spec, steps: f64) -> Result<Smoothness, LabError> {
    if let Curvature::Known(largest) = spec.objectives.curvature() {
        return Ok(Smoothness::known(largest));
    }
    with_precision!(spec.precision, T => budget::estimate::<T>(spec, steps))
}

/// Noise and heterogeneity of the gradients at the starting point; none if gradients are exact.
pub(crate) fn scatter(spec: &Spec) -> Result<Option<Scatter>, LabError> {
    let stochastic = spec.objectives.is_stochastic();
    stochastic.then(|| with_precision!(spec.precision, T => scatter_as::<T>(spec))).transpose()
}

fn scatter_as<T: Scalar>(spec: &Spec) -> Result<Scatter, LabError> {
    let seed = spec.seeds[0];
    let problem = T::problem(&*spec.objectives, seed)?;
    // Only the first point is used.
    let start = start::points(&spec.start, &*problem, &[0], seed)?;
    Ok(smoothness::scatter(&*problem, &start[..problem.dim()], DRAWS, seed)?)
}

/// The steps that an estimate for `"auto"` may cost: those of a round. More rounds, seeds and algorithms, with which a
/// run may be resumed, do not change what was chosen.
pub(crate) fn steps(algorithm: &AlgorithmSpec) -> f64 {
    algorithm.parameters.local_steps.unwrap_or(1) as f64
}

/// The L that everything `"auto"` is chosen for; none if nothing is to be chosen, or if nothing is known about the curvature of a
/// whole run.
pub(crate) fn smoothness(spec: &Spec) -> Result<Option<f64>, LabError> {
    let asks = |algorithm: &&AlgorithmSpec| {
        (algorithm.auto_step_size || algorithm.has_auto()) && !algorithm.parameters.is_preconditioned()
    };
    match spec.algorithms.iter().find(asks) {
        Some(first) if spec.objectives.curvature() != Curvature::Changing => {
            Ok(smoothness_bound(spec, &estimate(spec, steps(first))?))
        }
        _ => Ok(None),
    }
}

/// The L of a whole run, which advice and `mile theory` use: the known one, or the estimate plus a tenth of it. `None` where
/// the curvature changes during training, as that of neural networks does.
pub(crate) fn smoothness_bound(spec: &Spec, estimate: &Smoothness) -> Option<f64> {
    match spec.objectives.curvature() {
        Curvature::Changing => None,
        Curvature::Known(largest) => Some(largest),
        Curvature::Steady => Some(1.1 * estimate.estimate).filter(|l| *l > 0.0),
    }
}

/// Gives an algorithm with an adaptive xi its largest weight and its gamma, where they are not given.
pub(crate) fn choose_adaptive(
    index: usize,
    algorithm: &AlgorithmSpec,
    spec: &Spec,
    network: &Network,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    let chosen = adaptive(algorithm, network, spec.seeds[0], parameters);
    let chosen = chosen.map_err(|error| of_algorithm(index, &algorithm.entry, "xi", error))?;
    parameters.xi.get_or_insert(Weight::Adaptive(chosen.xi));
    parameters.gamma = Some(chosen.gamma);
    Ok(())
}

/// What [`choose_adaptive`] chooses, from the network, the local steps and the momentum.
pub(super) fn adaptive(
    algorithm: &AlgorithmSpec,
    network: &Network,
    seed: u64,
    parameters: &Parameters,
) -> Result<auto::Choice, TheoryError> {
    let local_steps = parameters.local_steps.unwrap_or(1);
    let step_size = algorithm.schedule.step_size;
    let question = Question { network, local_steps, step_size, smoothness: None, scatter: None, seed };
    auto::adaptive(question, parameters.gamma, parameters.checked_momentum(&algorithm.entry.name)?)
}

/// The weights of MILE with AdamW or Muon, where they are not given as numbers: tau xi = 0.4, less with outer momentum and where that is not stable
/// for small steps, and a gamma that leaves room for it.
pub(crate) fn choose_preconditioned(
    index: usize,
    algorithm: &AlgorithmSpec,
    network: &Network,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    if !algorithm.entry.takes("xi") || algorithm.is_adaptive() {
        return Ok(());
    }
    let is_chosen =
        matches!(algorithm.xi, None | Some(WeightChoice::Auto)) && parameters.compression.is_none();
    if algorithm.has_auto() {
        let is_word = |weight| weight == Some(WeightChoice::Auto);
        parameters.xi = parameters.xi.filter(|_| !is_word(algorithm.xi));
        parameters.gamma = parameters.gamma.filter(|_| !is_word(algorithm.gamma));
    }
    if parameters.compression.is_none() || algorithm.has_auto() {
        parameters.weights_of_optimizer(network.extremes().lambda_n);
    }
    let unchanged = OuterMomentum { momentum: 0.0, step_size: 1.0 };
    if is_chosen {
        let outer = parameters.outer.unwrap_or(unchanged);
        outer::choose_xi(&algorithm.entry, outer, network, parameters)
            .map_err(|error| of_algorithm(index, &algorithm.entry, "xi", error))?;
    }
    Ok(())
}

/// Chooses xi and gamma of an algorithm with `"auto"`, for objectives of this smoothness, if it is known.
pub(crate) fn choose(
    index: usize,
    algorithm: &AlgorithmSpec,
    spec: &Spec,
    network: &Network,
    smoothness: Option<f64>,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    let question = Question {
        network,
        local_steps: parameters.local_steps.unwrap_or(1),
        step_size: algorithm.schedule.step_size,
        smoothness,
        scatter: scatter(spec)?,
        seed: spec.seeds[0],
    };
    let momentum = parameters
        .checked_momentum(&algorithm.entry.name)
        .map_err(|error| invalid(index, &algorithm.entry, error))?;
    if let Some(momentum) = momentum {
        return choose_with_momentum(index, algorithm, question, momentum, parameters);
    }
    let noisy = question.scatter.is_some_and(|scatter| scatter.noise > 0.0);
    let whole = parameters.compression.is_none();
    let adapts = noisy && whole && algorithm.gamma == Some(WeightChoice::Auto);
    let chosen = match (algorithm.xi, algorithm.gamma) {
        _ if adapts => auto::noisy(question),
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
    let chosen = chosen.map_err(|error| of_algorithm(index, &algorithm.entry, key, error))?;
    parameters.xi = Some(if adapts { Weight::Adaptive(chosen.xi) } else { chosen.xi.into() });
    parameters.gamma = (chosen.gamma != chosen.xi).then_some(chosen.gamma);
    Ok(())
}

/// The same with momentum: xi in units of 1 - mu, and below its limit with momentum.
fn choose_with_momentum(
    index: usize,
    algorithm: &AlgorithmSpec,
    question: Question,
    momentum: Momentum,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    if algorithm.gamma.is_none() {
        let problem = format!(
            "\"auto\" with momentum needs a separate mixing weight, since the paper's gamma = xi is unstable with a \
             momentum of {} on most networks; give gamma = \"auto\" too",
            momentum.mu
        );
        return Err(LabError::config(format!("algorithm[{index}].xi"), problem));
    }
    let refuse = |error| of_algorithm(index, &algorithm.entry, "gamma", error);
    let plain = auto::decoupled(question).map_err(refuse)?.xi;
    let (xi, gamma) =
        momentum::weights(question.local_steps, momentum, plain, parameters.gamma, question.network)
            .map_err(refuse)?;
    (parameters.xi, parameters.gamma) = (Some(xi.into()), Some(gamma));
    Ok(())
}

/// The xi that was chosen, made smaller as outer momentum needs it.
pub(crate) fn allow_for_outer_momentum(
    index: usize,
    algorithm: &AlgorithmSpec,
    network: &Network,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    let Some(given) = parameters.outer else { return Ok(()) };
    outer::choose_xi(&algorithm.entry, given, network, parameters)
        .map_err(|error| of_algorithm(index, &algorithm.entry, "outer", error))
}
