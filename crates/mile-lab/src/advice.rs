//! Theory applied to a plan: advice before step 0, and the input of `mile theory`.

use mile::theory::advice::{self, Advice};
use mile::theory::report::Inquiry;
use mile::theory::weights::WeightChoice;

use crate::auto::{ProblemEstimate, estimate, smoothness_bound, theory_error};
use crate::error::LabError;
use crate::objectives::Curvature;
use crate::plan::Plan;

/// Advice for every algorithm of a plan, with its label.
pub fn advise(plan: &Plan) -> Result<Vec<(String, Advice)>, LabError> {
    let smoothness = match plan.experiment.objectives.curvature() {
        Curvature::Known(largest) => Some(largest),
        Curvature::Steady => smoothness_bound(&plan.experiment, &estimate(&plan.experiment)?),
        Curvature::Changing => None,
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
        let advice = advice.map_err(|error| theory_error(&format!("algorithm[{k}]"), error))?;
        found.extend(advice.into_iter().map(|advice| (algorithm.label.clone(), advice)));
    }
    Ok(found)
}

/// The theory inquiry for an experiment, about its first MILE algorithm, or else its first algorithm.
pub fn inquiry<'a>(plan: &'a Plan, estimate: &'a ProblemEstimate) -> Inquiry<'a> {
    let algorithms = &plan.experiment.algorithms;
    let k = algorithms.iter().position(|a| a.entry.takes("xi")).unwrap_or(0);
    let parameters = &plan.methods[k].parameters;
    let exact = smoothness_bound(&plan.experiment, estimate).is_some();
    Inquiry {
        network: &plan.network,
        local_steps: parameters.local_steps.unwrap_or(1),
        xi: parameters.xi.map_or(WeightChoice::Paper, WeightChoice::Number),
        gamma: parameters.gamma.map(WeightChoice::Number),
        smoothness: estimate.smoothness.estimate,
        estimate: (!exact).then_some(&estimate.smoothness),
        step_size: Some(algorithms[k].schedule.step_size),
        scatter: plan.experiment.objectives.is_stochastic().then_some(estimate.scatter),
        rounds: Some(plan.experiment.rounds),
        seed: plan.experiment.seeds[0],
    }
}
