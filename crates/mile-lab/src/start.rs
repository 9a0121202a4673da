//! The agents' starting points.

use mile::problems::Problem;
use mile::random::{Purpose, stream};
use mile::real::Real;
use rand::RngExt;
use rand_distr::StandardNormal;

use crate::config::Start;
use crate::error::LabError;
use crate::objectives::failed;

/// The starting points of some agents: one row for all agents, or one row for each of these.
pub(crate) fn points<T: Real>(
    start: Start,
    problem: &dyn Problem<T>,
    agents: &[usize],
    seed: u64,
) -> Result<Vec<T>, LabError> {
    let zeros = || vec![T::zero(); problem.dim()];
    let random = |index: u64| {
        let mut random = stream(seed, Purpose::Start, index, 0);
        (0..problem.dim()).map(move |_| T::of(random.sample::<f64, _>(StandardNormal)))
    };
    Ok(match start {
        Start::Zeros => zeros(),
        Start::Model => problem.initial(seed).map_err(failed)?.unwrap_or_else(zeros),
        Start::Common => random(u64::MAX).collect(),
        Start::Random => agents.iter().flat_map(|agent| random(*agent as u64)).collect(),
    })
}
