//! Whether an agent of a swarm can work with its own data. `mile run` estimates everybody's curvature before it starts, and refuses data
//! that give no finite number; an agent that has only its own data does the same with these.

use mile::problems::Draw;
use mile::with_precision;
use mile_theory::TheoryError;
use mile_theory::smoothness::check_agent;

use crate::engines::Scalar;
use crate::error::LabError;
use crate::objectives::Curvature;
use crate::plan::Plan;
use crate::refused::of_theory;

/// Checks that an agent's loss, gradient and curvature at its starting point are finite, for the first seed.
///
/// # Errors
/// In the key `problem` if they are not.
pub fn check_own_data(plan: &Plan, agent: usize) -> Result<(), LabError> {
    with_precision!(plan.spec.precision, T => check::<T>(plan, agent))
}

fn check<T: Scalar>(plan: &Plan, agent: usize) -> Result<(), LabError> {
    let seed = plan.spec.seeds[0];
    let problem = plan.problem::<T>(seed)?;
    let points = plan.start(&*problem, seed)?;
    let dim = problem.dim();
    // There is one row for all agents, or one for each that is there from the beginning.
    let x = points.chunks(dim).nth(agent).unwrap_or(&points[..dim]);
    // Of a network, a mini-batch has to do.
    let of_network = plan.spec.objectives.curvature() == Curvature::Changing;
    let draw = of_network.then_some(Draw { seed, step: 0 });
    match check_agent(&*problem, agent, x, draw) {
        Err(TheoryError::Parameter { got, .. }) => Err(LabError::expected(
            "problem",
            "data that give finite gradients",
            format!(
                "{got} near the starting point of agent {agent}; look for values in this agent's data that are far too large, or for \
                 numbers that stand for missing values"
            ),
        )),
        checked => checked.map_err(|error| of_theory("problem", error)),
    }
}
