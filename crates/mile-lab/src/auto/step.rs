//! Chooses `step_size = "auto"`: half of the largest step size with which the method is stable on this network, where the agents'
//! Hessians differ and their curvature is at most that of the problem, or less where that converges much faster ([`auto_step`]). With
//! momentum in the local steps it is 1 - mu times that: a constant gradient then moves a model as far as without momentum, and the
//! proof of exactness covers it (docs/src/theory.md). With AdamW or Muon it is 0.001.

use mile::digits::round_down;
use mile::methods::Mile;
use mile::methods::catalogue::Parameters;
use mile::network::Network;
use mile::schedule::Weight;
use mile_theory::TheoryError;
use mile_theory::auto::{self, Question};
use mile_theory::mixed::auto_step;
use mile_theory::weights::WeightChoice;
use mile_theory::{momentum, outer};

use super::adaptive;
use crate::error::LabError;
use crate::objectives::Curvature;
use crate::refused::of_algorithm;
use crate::spec::{AlgorithmSpec, Spec};

/// The step size with AdamW, AMSGrad or Muon, whose steps do not scale with the curvature: PyTorch's default.
const PRECONDITIONED: f64 = 1e-3;

/// Gives every algorithm with `step_size = "auto"` its step size, for objectives of this smoothness.
///
/// Weights that are `"auto"` too are chosen afterwards, for this step size; here they are the paper's.
pub(crate) fn choose_step_sizes(
    spec: &mut Spec,
    network: &Network,
    smoothness: Option<f64>,
) -> Result<(), LabError> {
    for algorithm in &mut spec.algorithms {
        if algorithm.auto_step_size && algorithm.parameters.is_preconditioned() {
            algorithm.schedule.step_size = PRECONDITIONED;
            algorithm.auto_step_size = false;
        }
    }
    let Some(first) = spec.algorithms.iter().position(|algorithm| algorithm.auto_step_size) else {
        return Ok(());
    };
    let Some(smoothness) = smoothness else {
        let problem = if spec.objectives.curvature() == Curvature::Changing {
            "\"auto\" needs a bound of the curvature, and this problem has none: that of a neural network changes \
             during training, that of a Poisson loss grows with its predictions; give a number, or try several in a \
             section [sweep]"
        } else {
            "\"auto\" found no curvature at the start; give a number"
        };
        return Err(LabError::config(format!("algorithm[{first}].step_size"), problem));
    };
    for k in (0..spec.algorithms.len()).filter(|k| spec.algorithms[*k].auto_step_size).collect::<Vec<_>>() {
        let parameters = preliminary(&spec.algorithms[k], network)
            .map_err(|error| of_algorithm(k, &spec.algorithms[k].entry, "step_size", error))?;
        let step_size = step_size(k, spec, &parameters, network, smoothness)?;
        let algorithm = &mut spec.algorithms[k];
        algorithm.schedule.step_size = step_size;
        algorithm.auto_step_size = false;
    }
    Ok(())
}

/// The step size of an algorithm with these parameters.
pub(crate) fn step_size(
    index: usize,
    spec: &Spec,
    parameters: &Parameters,
    network: &Network,
    smoothness: f64,
) -> Result<f64, LabError> {
    let algorithm = &spec.algorithms[index];
    let found = stable(algorithm, parameters, network, spec.seeds[0])
        .map_err(|error| of_algorithm(index, &algorithm.entry, "step_size", error))?;
    if found <= 0.0 {
        let remedy = match algorithm.entry.takes("xi") && !algorithm.has_auto() {
            true => "give xi = \"auto\" and gamma = \"auto\", whose weights follow from the network",
            false => "mile theory shows why",
        };
        let title = &algorithm.entry.title;
        let problem = format!("{title} is unstable on this network for every step size; {remedy}");
        return Err(LabError::config(format!("algorithm[{index}].step_size"), problem));
    }
    Ok(round_down(found / smoothness))
}

/// The parameters of an algorithm before its weights are chosen.
fn preliminary(algorithm: &AlgorithmSpec, network: &Network) -> Result<Parameters, TheoryError> {
    let tau = algorithm.parameters.local_steps.unwrap_or(1);
    let weight = |choice: Option<WeightChoice>| match choice {
        Some(WeightChoice::Auto) => WeightChoice::Paper.weight(tau),
        other => other.and_then(|weight| weight.weight(tau)),
    };
    let (mut xi, mut gamma) = (weight(algorithm.xi), weight(algorithm.gamma).map(Weight::last));
    let momentum = algorithm.parameters.checked_momentum(&algorithm.entry.name)?;
    if algorithm.is_adaptive() {
        let given = Parameters { xi, gamma, ..algorithm.parameters.clone() };
        let chosen = adaptive(algorithm, network, 0, &given)?;
        (xi, gamma) = (xi.or(Some(chosen.xi.into())), Some(chosen.gamma));
    }
    if let (true, Some(momentum)) = (algorithm.has_auto(), momentum) {
        let given = gamma.filter(|_| algorithm.gamma != Some(WeightChoice::Auto));
        let plain = xi.map_or(1.0, Weight::last);
        let chosen = momentum::weights(tau, momentum, plain, given, network)?;
        (xi, gamma) = (Some(chosen.0.into()), Some(chosen.1));
    }
    // Where edges change the paper's weights may be unstable, and those that will be chosen are not.
    if algorithm.has_auto() && momentum.is_none() && network.varies() && network.agents() > 1 {
        let question =
            Question { network, local_steps: tau, step_size: 1.0, smoothness: None, scatter: None, seed: 0 };
        let chosen = match algorithm.gamma {
            Some(WeightChoice::Auto) => Some(auto::decoupled(question)?),
            Some(_) => None,
            None => Some(auto::xi(question)?),
        };
        if let Some(auto::Choice { xi: best, gamma: mixing, .. }) = chosen {
            (xi, gamma) = (Some(best.into()), (mixing != best).then_some(mixing));
        }
    }
    let mut parameters = Parameters { xi, gamma, ..algorithm.parameters.clone() };
    if let (true, Some(given)) = (algorithm.has_auto(), parameters.outer) {
        // Near the one that will be chosen: the paper's is too small for outer momentum.
        if algorithm.gamma == Some(WeightChoice::Auto) && momentum.is_none() {
            parameters.gamma = Some(Mile::adaptive_gamma(network.extremes().lambda_n));
            parameters.xi.get_or_insert(Mile::paper_xi(tau).into());
        }
        outer::choose_xi(&algorithm.entry, given, network, &mut parameters)?;
    }
    Ok(parameters)
}

/// The step size for objectives of smoothness 1; 0 if none is stable.
fn stable(
    algorithm: &AlgorithmSpec,
    parameters: &Parameters,
    network: &Network,
    seed: u64,
) -> Result<f64, TheoryError> {
    let momentum = parameters.checked_momentum(&algorithm.entry.name)?;
    let slack = momentum.map_or(1.0, |momentum| 1.0 - momentum.mu);
    let at = |xi: Option<f64>| {
        // For the smooth part of the objective.
        let parameters = Parameters { xi: xi.map(Weight::from), penalty: false, ..parameters.alike() };
        let method = algorithm.entry.build(&parameters, network, seed)?;
        auto_step(&*method, network, slack, seed)
    };
    // A weight that changes is stable if it is at both ends.
    match parameters.xi.map(Weight::ends) {
        None => at(None),
        Some([from, to]) if from == to => at(Some(from)),
        Some([from, to]) => Ok(f64::min(at(Some(from))?, at(Some(to))?)),
    }
}
