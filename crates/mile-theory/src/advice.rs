//! Warnings about the parameters of a run, before it starts.

use mile::digits::{number, round_down};
use mile::methods::catalogue::{DEFAULT_LOCAL_STEPS, Entry, Parameters};
use mile::methods::{Mile, Momentum};
use mile::network::Network;
use mile::schedule::Weight;
use mile::spectrum::Spectrum;
use serde::Serialize;

use crate::auto::{self, Question};
use crate::drops::growth_under_drops;
use crate::mixed::{StepLimits, auto_step, is_stable};
use crate::modes::Modes;
use crate::momentum;
use crate::stability::contraction;
use crate::weights::xi_ranges;
use crate::{TheoryError, valid_smoothness, valid_step_size};

/// Most agents for which stability under dropped edges is simulated.
const MAX_SIMULATED_AGENTS: usize = 512;

/// How serious a piece of advice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information.
    Note,
    /// Outside the proven range, but it may work.
    Caution,
    /// Known to be unstable: expect divergence.
    Warning,
}

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// How serious it is.
    pub severity: Severity,
    /// Name of the parameter in experiment files.
    pub parameter: &'static str,
    /// The advice, in a sentence.
    pub message: String,
    /// A value inside the stable range, if one is known.
    pub suggestion: Option<f64>,
}

/// The run that advice is about.
#[derive(Clone, Copy, Debug)]
pub struct AdvisedRun<'a> {
    /// The method.
    pub entry: &'a Entry,
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// The network, with its drop rate.
    pub network: &'a Network,
    /// Step size alpha.
    pub step_size: f64,
    /// Smoothness L, if known.
    pub smoothness: Option<f64>,
    /// Seed of the run.
    pub seed: u64,
}

/// Advice on a planned run, the most serious first; empty if there is none. A weight that changes during the run is checked
/// at both ends, an adaptive one at its largest.
pub fn advise(plan: &AdvisedRun) -> Result<Vec<Advice>, TheoryError> {
    let ends = match plan.parameters.xi {
        Some(Weight::Geometric { from, to, .. }) => vec![(from, "in the first round"), (to, "at the end")],
        Some(Weight::Adaptive(most)) => vec![(most, "where all differences stay steady")],
        _ => return advise_constant(plan),
    };
    let mut advice: Vec<Advice> = Vec::new();
    for (end, when) in ends {
        let found = matches!(plan.parameters.xi, Some(Weight::Adaptive(_)));
        let gamma = found.then(|| Mile::adaptive_gamma(plan.network.extremes().lambda_n));
        let gamma = plan.parameters.gamma.or(gamma);
        let parameters = Parameters { xi: Some(end.into()), gamma, ..plan.parameters.clone() };
        let found = advise_constant(&AdvisedRun { parameters: &parameters, ..*plan })?;
        advice.extend(found.into_iter().map(|advice| {
            let message = format!("{when}, with xi = {end}: {}", advice.message);
            Advice { message, ..advice }
        }));
    }
    advice.sort_by_key(|a| std::cmp::Reverse(a.severity));
    Ok(advice)
}

fn advise_constant(plan: &AdvisedRun) -> Result<Vec<Advice>, TheoryError> {
    valid_step_size(plan.step_size)?;
    let spectrum = plan.network.spectrum();
    let mut advice = Vec::new();
    if plan.network.agents() > 1 {
        weights(plan, spectrum, &mut advice)?;
        drops(plan, &mut advice)?;
    }
    step_size(plan, &mut advice)?;
    advice.sort_by_key(|a| std::cmp::Reverse(a.severity));
    Ok(advice)
}

fn is_mile(plan: &AdvisedRun) -> bool {
    plan.entry.takes("xi")
}

fn momentum(plan: &AdvisedRun) -> Result<Option<Momentum>, TheoryError> {
    Ok(plan.parameters.checked_momentum(&plan.entry.name)?)
}

fn question<'a>(plan: &AdvisedRun<'a>) -> Question<'a> {
    Question {
        network: plan.network,
        local_steps: plan.parameters.local_steps.unwrap_or(DEFAULT_LOCAL_STEPS),
        step_size: plan.step_size,
        smoothness: plan.smoothness,
        scatter: None,
        seed: plan.seed,
    }
}

/// Whether the agents' disagreement is simulated with the edges of each round. Then the spectrum of all edges together decides nothing.
fn is_simulated(network: &Network) -> bool {
    network.varies() && network.agents() <= MAX_SIMULATED_AGENTS
}

/// Whether the agents reach consensus as the step size goes to zero, and whether that is proven.
fn weights(plan: &AdvisedRun, spectrum: &Spectrum, advice: &mut Vec<Advice>) -> Result<(), TheoryError> {
    let method = plan.entry.build(&plan.parameters.alike(), plan.network, plan.seed)?;
    let growth = match is_simulated(plan.network) {
        true => 0.0,
        false => contraction(&Modes::of(&*method)?, spectrum)?,
    };
    let title = &plan.entry.title;
    if growth > 1.0 + 1e-9 {
        let message = format!(
            "{title} is unstable on this network for every step size: the disagreement between agents grows by a factor of {growth:.3} per round"
        );
        if let (true, Some(momentum)) = (is_mile(plan), momentum(plan)?) {
            let (tau, plain) = (question(plan).local_steps, auto::decoupled(question(plan))?.xi);
            let (xi, gamma) = momentum::weights(tau, momentum, plain, None, plan.network)?;
            let message = format!(
                "{message}; gamma = {} and xi = {} are stable with this momentum",
                number(gamma),
                number(round_down(xi))
            );
            advice.push(Advice {
                severity: Severity::Warning,
                parameter: "xi",
                message,
                suggestion: Some(xi),
            });
        } else if is_mile(plan) {
            let xi = auto::xi(question(plan))?.xi;
            let message = format!("{message}; xi = {} is inside the stable range", number(xi));
            advice.push(Advice {
                severity: Severity::Warning,
                parameter: "xi",
                message,
                suggestion: Some(xi),
            });
        } else {
            let message = format!(
                "{message}; use mixing = \"lazy-metropolis\", which raises the smallest eigenvalue from {}",
                number(spectrum.extremes().lambda_n)
            );
            advice.push(Advice {
                severity: Severity::Warning,
                parameter: "mixing",
                message,
                suggestion: None,
            });
        }
    } else if growth > 1.0 - 1e-9 {
        let message = format!(
            "{title} is at the limit of stability on this network (smallest eigenvalue {}); use mixing = \"lazy-metropolis\"",
            number(spectrum.extremes().lambda_n)
        );
        advice.push(Advice { severity: Severity::Caution, parameter: "mixing", message, suggestion: None });
    } else if is_mile(plan) && momentum(plan)?.is_none() && !plan.parameters.is_preconditioned() {
        xi_beyond_proven_range(plan, spectrum, advice)?;
    }
    Ok(())
}

/// Advice on an xi that is stable for constant curvature but not for changing curvature, or not proven.
fn xi_beyond_proven_range(
    plan: &AdvisedRun,
    spectrum: &Spectrum,
    advice: &mut Vec<Advice>,
) -> Result<(), TheoryError> {
    let tau = plan.parameters.local_steps.unwrap_or(DEFAULT_LOCAL_STEPS);
    let ranges = xi_ranges(tau, spectrum.extremes())?;
    let Some(xi) = plan.parameters.xi.map(Weight::last) else { return Ok(()) };
    let coupled = plan.parameters.gamma.is_none_or(|gamma| gamma == xi);
    let top = plan.smoothness.map_or(auto::MAX_STEP_TIMES_SMOOTHNESS, |l| {
        (l * plan.step_size).min(auto::MAX_STEP_TIMES_SMOOTHNESS)
    });
    let gamma = if coupled { None } else { plan.parameters.gamma };
    let limit = auto::switching_limit(tau, gamma, &spectrum.disagreement(7), top);
    if xi > limit {
        let message = format!(
            "xi = {xi} is stable for constant curvature but above {}, where curvature that changes during the run can make the agents diverge (seen on neural networks)",
            number(round_down(limit))
        );
        let suggestion = Some(0.9 * limit);
        advice.push(Advice { severity: Severity::Caution, parameter: "xi", message, suggestion });
    } else if coupled && xi >= ranges.paper {
        let message = format!(
            "xi = {xi} is outside the paper's range (0, {}) but stable on this graph, where the range is (0, {})",
            number(ranges.paper),
            number(ranges.exact)
        );
        advice.push(Advice { severity: Severity::Note, parameter: "xi", message, suggestion: None });
    }
    Ok(())
}

/// Whether the agents reach consensus when edges are down in some rounds, where f has no curvature.
fn drops(plan: &AdvisedRun, advice: &mut Vec<Advice>) -> Result<(), TheoryError> {
    if !is_simulated(plan.network) {
        return Ok(());
    }
    let method = plan.entry.build(&plan.parameters.alike(), plan.network, plan.seed)?;
    let growth = growth_under_drops(&*method, plan.network, plan.seed)?;
    if growth.is_stable() {
        return Ok(());
    }
    let damped = match plan.smoothness {
        Some(smoothness) => is_stable(&*method, plan.network, plan.step_size * smoothness, plan.seed)?,
        None => false,
    };
    let (severity, place) = if damped {
        (Severity::Caution, " in directions in which f hardly curves; elsewhere its curvature prevents that")
    } else {
        (Severity::Warning, "")
    };
    let measured = format!(
        "with {}, the disagreement of {} grows by a factor of {:.3} per round in simulation{place}",
        plan.network.variation(),
        plan.entry.title,
        growth.per_round
    );
    let (parameter, suggestion, remedy) = remedy(plan)?;
    let message = format!("{measured}; {remedy}");
    advice.push(Advice { severity, parameter, message, suggestion });
    Ok(())
}

/// What to change where the disagreement grows as edges change: a key, a value and advice in words.
fn remedy(plan: &AdvisedRun) -> Result<(&'static str, Option<f64>, String), TheoryError> {
    if !is_mile(plan) || momentum(plan)?.is_some() {
        let weight = if is_mile(plan) { "a smaller xi, " } else { "" };
        return Ok(("local_steps", None, format!("use {weight}fewer local steps or a lower drop rate")));
    }
    let smaller = auto::xi(question(plan))?.xi;
    if smaller > 0.3 * plan.parameters.xi.map_or(smaller, Weight::last) {
        return Ok(("xi", Some(smaller), format!("use a smaller xi, {}", number(round_down(smaller)))));
    }
    let both = auto::decoupled(question(plan))?;
    let (gamma, xi) = (number(both.gamma), number(both.xi));
    let remedy = format!("use gamma = {gamma} and xi = {xi}, since strong mixing tolerates dropped edges");
    Ok(("gamma", Some(both.gamma), remedy))
}

/// Whether the step size is below its limit for this L, and stable itself: below the limit there may be unstable step sizes.
fn step_size(plan: &AdvisedRun, advice: &mut Vec<Advice>) -> Result<(), TheoryError> {
    // Steps that are divided by the size of gradients do not scale with the curvature.
    let Some(smoothness) = plan.smoothness.filter(|_| !plan.parameters.is_preconditioned()) else {
        return Ok(());
    };
    let method = plan.entry.build(&plan.parameters.alike(), plan.network, plan.seed)?;
    let limit = StepLimits::of(&*method, plan.network, plan.seed)?.step_size(valid_smoothness(smoothness)?);
    let (given, title, largest) = (plan.step_size, &plan.entry.title, number(smoothness));
    let quadratics = format!("quadratics with curvature up to {largest} that differ between agents");
    let (message, suggestion) = if limit == 0.0 {
        return Ok(());
    } else if given > limit {
        let shown = number(round_down(limit));
        let message = format!(
            "step_size = {given} is above {shown}, the largest stable step size of {title} on this network, for {quadratics}"
        );
        (message, 0.9 * limit)
    } else if !is_stable(&*method, plan.network, given * smoothness, plan.seed)? {
        let stable = auto_step(&*method, plan.network, 1.0, plan.seed)? / smoothness;
        let message = format!(
            "step_size = {given} is unstable for {title} on this network in simulation, for {quadratics}; \
             some larger and smaller ones are stable, such as {}",
            number(round_down(stable))
        );
        (message, stable)
    } else {
        return Ok(());
    };
    let suggestion = Some(suggestion);
    advice.push(Advice { severity: Severity::Warning, parameter: "step_size", message, suggestion });
    Ok(())
}
