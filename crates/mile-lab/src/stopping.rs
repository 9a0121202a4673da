//! Whether a rule of `stop` may hold after a round, asked by runs and by dry runs.

use mile::agents::AgentsError;
use mile::engine::Engine;
use mile::problems::Problem;
use mile::ranks::Together;
use mile::real::Real;

use crate::record::{MODELS, average, gradient_norm_sq};
use crate::spec::StopRule;

/// Whether the rule may hold now, so that a record is worth its cost. What costs least is measured first.
pub(crate) fn may_hold<T: Real>(
    rule: StopRule,
    together: Together<'_>,
    problem: &dyn Problem<T>,
    engine: &mut dyn Engine<T>,
) -> Result<bool, AgentsError> {
    if let Some(tolerance) = rule.consensus
        && engine.consensus_error(together, MODELS)? > tolerance
    {
        return Ok(false);
    }
    let Some(tolerance) = rule.grad_norm else { return Ok(true) };
    let average = average(together, engine)?;
    Ok(gradient_norm_sq(together, problem, engine, &average)?.sqrt() <= tolerance)
}
