//! Chooses `step_size = "auto"`: half of the largest step size with which the method is stable on a quadratic of the
//! estimated curvature, on this network. With momentum in the local steps it is 1 - mu times that: a constant gradient then moves a
//! model as far as without momentum, and the proof of exactness covers it (docs/src/theory.md).

use mile::digits::round_down;
use mile::methods::catalogue::Parameters;
use mile::network::Network;
use mile::schedule::Weight;
use mile_theory::TheoryError;
use mile_theory::modes::Modes;
use mile_theory::momentum;
use mile_theory::stability::step_limit;
use mile_theory::weights::WeightChoice;

use super::{adaptive, estimate, smoothness_bound, steps, theory_error};
use crate::error::LabError;
use crate::objectives::Curvature;
use crate::spec::{AlgorithmSpec, Spec};

/// The fraction of the stability limit that is chosen.
const PART: f64 = 0.5;

/// Gives every algorithm with `step_size = "auto"` its step size.
///
/// Weights that are `"auto"` too are chosen afterwards, for this step size; here they are the paper's.
pub(crate) fn choose_step_sizes(spec: &mut Spec, network: &Network) -> Result<(), LabError> {
    let Some(first) = spec.algorithms.iter().position(|algorithm| algorithm.auto_step_size) else {
        return Ok(());
    };
    let key = |k: usize| format!("algorithm[{k}].step_size");
    if spec.objectives.curvature() == Curvature::Changing {
        let problem = "\"auto\" needs a curvature that stays as it is at the start, but that of this problem changes; \
                       give a number, or try several in a section [sweep]";
        return Err(LabError::config(key(first), problem));
    }
    // At the cost of a round, so that it stays the same when a run is extended.
    let found = estimate(spec, steps(&spec.algorithms[first]))?;
    let Some(smoothness) = smoothness_bound(spec, &found) else {
        return Err(LabError::config(key(first), "\"auto\" found no curvature at the start; give a number"));
    };
    for k in 0..spec.algorithms.len() {
        let algorithm = &mut spec.algorithms[k];
        if !algorithm.auto_step_size {
            continue;
        }
        let limit = limit(algorithm, network, smoothness).map_err(|error| theory_error(&key(k), error))?;
        if limit <= 0.0 {
            let problem = format!(
                "{} is unstable on this network for every step size; mile theory shows why",
                algorithm.entry.title
            );
            return Err(LabError::config(key(k), problem));
        }
        let momentum = algorithm.parameters.checked_momentum(&algorithm.entry.name);
        let momentum = momentum.map_err(|error| theory_error(&key(k), error.into()))?;
        let slack = momentum.map_or(1.0, |momentum| 1.0 - momentum.mu);
        algorithm.schedule.step_size = round_down(PART * slack * limit);
        algorithm.auto_step_size = false;
    }
    Ok(())
}

/// The largest stable step size of an algorithm; 0 if there is none.
fn limit(algorithm: &AlgorithmSpec, network: &Network, smoothness: f64) -> Result<f64, TheoryError> {
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
    let at = |xi: Option<f64>| {
        let parameters = Parameters {
            xi: xi.map(Weight::from),
            gamma,
            // For the smooth part of the objective.
            penalty: false,
            ..algorithm.parameters.clone()
        };
        let method = algorithm.entry.build(&parameters, network, 0)?;
        Ok(step_limit(&Modes::of(&*method)?, network.spectrum())?.step_size(smoothness))
    };
    // A weight that changes is stable if it is at both ends.
    let Some([from, to]) = xi.map(Weight::ends) else { return at(None) };
    Ok(f64::min(at(Some(from))?, at(Some(to))?))
}
