//! Exchanges in pairs: which xi is stable where agents exchange one edge at a time.
//!
//! For small step sizes two agents with tau_1 and tau_2 local steps are stable iff
//!
//! ```text
//! xi (tau_1 + tau_2)/2 + 2 gamma < 4
//! ```
//!
//! which is the rule of decoupled MILE for the one mode of their exchange, whose eigenvalue is 0. With more agents products of many different matrices
//! decide, and nothing is proven. Measured on seven graphs of up to 16 agents, with equal and unequal speeds and numbers of steps, every product of the largest
//! number of local steps and xi up to [`MEASURED`] times gamma was stable (`docs/src/theory.md`).

use mile::schedule::Weight;

use crate::advice::{Advice, AdvisedRun, Severity};
use crate::{TheoryError, valid_step_size};

/// The largest number of local steps times xi, in units of gamma, up to which more than two agents were stable wherever that was measured.
pub const MEASURED: f64 = 0.4;

/// The xi below which exchanges in pairs are stable for small step sizes: proven for two agents, measured for more.
pub fn limit(local_steps: &[u64], gamma: f64) -> f64 {
    match local_steps {
        &[one, other] => (4.0 - 2.0 * gamma) * 2.0 / (one + other) as f64,
        several => MEASURED * gamma / several.iter().copied().max().unwrap_or(1) as f64,
    }
}

/// Advice on a run in pairs, the most serious first.
pub fn advise(run: &AdvisedRun) -> Result<Vec<Advice>, TheoryError> {
    valid_step_size(run.step_size)?;
    let (parameters, agents) = (run.parameters, run.network.agents());
    let tau = parameters.local_steps.unwrap_or(1);
    let local_steps = parameters.own_steps.as_deref().map_or_else(|| vec![tau; agents], <[u64]>::to_vec);
    let mut advice = Vec::new();
    let xi = parameters.xi.map_or(0.0, Weight::last);
    let limit = limit(&local_steps, parameters.gamma.unwrap_or(1.0));
    if xi >= limit {
        let (severity, what) = match agents {
            2 => (Severity::Warning, "is unstable"),
            _ => (Severity::Caution, "may be unstable: it is above what was stable wherever it was measured"),
        };
        let message =
            format!("xi = {xi} with exchanges in pairs {what}; try xi = {:.2e} or less", 0.5 * limit);
        advice.push(Advice { severity, parameter: "xi", message, suggestion: Some(0.5 * limit) });
    }
    let plain = parameters.local.optimizer.is_none() && parameters.momentum.is_none();
    if let Some(smoothness) = run.smoothness.filter(|l| plain && run.step_size * l >= 2.0) {
        let message = format!(
            "step_size = {} is unstable: local steps alone diverge from 2/L = {:.3e} on",
            run.step_size,
            2.0 / smoothness
        );
        advice.push(Advice {
            severity: Severity::Warning,
            parameter: "step_size",
            message,
            suggestion: Some(1.0 / smoothness),
        });
    }
    advice.sort_by_key(|advice| std::cmp::Reverse(advice.severity));
    Ok(advice)
}
