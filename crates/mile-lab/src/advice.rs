//! Theory applied to a plan: advice before step 0, and the input of `mile theory`.

use mile::digits::number;
use mile::methods::LocalSteps;
use mile::methods::catalogue::Parameters;
use mile::schedule::Weight;
use mile_theory::advice::{self, Advice};
use mile_theory::pairs;
use mile_theory::report::Inquiry;
use mile_theory::sample::Sample;
use mile_theory::smoothness::{Scatter, Smoothness};
use mile_theory::weights::WeightChoice;

use crate::auto::{self, smoothness_bound};
use crate::error::LabError;
use crate::objectives::Curvature;
use crate::plan::{Plan, PlannedMethod};
use crate::refused::of_algorithm;
use crate::spec::{AlgorithmSpec, StartSpec};

/// The largest fraction of a plan's gradient work that an estimate before it may cost.
const SHARE: f64 = 0.05;

/// Estimates of a plan's problem, with its first seed, at its starting point.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProblemEstimate {
    /// The smoothness constant L.
    pub smoothness: Smoothness,
    /// Noise and heterogeneity of the gradients; none if they are exact.
    pub scatter: Option<Scatter>,
}

/// Advice on a plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanAdvice {
    /// The estimate of L, if it was needed.
    pub estimate: Option<Smoothness>,
    /// The L that was used: known, or the estimate and a tenth of it.
    pub smoothness: Option<f64>,
    /// What is worth knowing about the network, the data and the choices that were made.
    pub notes: Vec<String>,
    /// Advice on algorithms, each with its label.
    pub of_algorithms: Vec<(String, Advice)>,
}

impl PlanAdvice {
    /// The L that was used and what it was estimated from, if not from everything.
    pub fn sampled(&self) -> Option<(f64, Sample)> {
        self.smoothness.zip(self.estimate.as_ref().and_then(|found| found.sample))
    }
}

/// Estimates the smoothness, gradient noise and heterogeneity of a plan's problem.
pub fn estimate(plan: &Plan) -> Result<ProblemEstimate, LabError> {
    let spec = &plan.spec;
    let smoothness = auto::estimate(spec, steps(plan))?;
    Ok(ProblemEstimate { smoothness, scatter: auto::scatter(spec)? })
}

/// The steps of one job that an estimate of L may cost: a fraction of those of all jobs. A plan with `"auto"` has one
/// estimate for both, which does not depend on the length of the run.
fn steps(plan: &Plan) -> f64 {
    let spec = &plan.spec;
    let is_chosen = |planned: &PlannedMethod| planned.chosen.weights || planned.chosen.step_size;
    if let Some(k) = plan.methods.iter().position(is_chosen) {
        return auto::steps(&spec.algorithms[k]);
    }
    let per_round: f64 = spec.algorithms.iter().map(auto::steps).sum();
    SHARE * per_round * spec.rounds as f64 * spec.seeds.len() as f64
}

/// Advice for every algorithm of a plan, except for methods in files.
pub fn advise(plan: &Plan) -> Result<PlanAdvice, LabError> {
    let spec = &plan.spec;
    let estimate = match spec.objectives.curvature() {
        Curvature::Changing => None,
        _ => Some(auto::estimate(spec, steps(plan))?),
    };
    let smoothness = estimate.as_ref().and_then(|found| smoothness_bound(spec, found));
    let mut found = Vec::new();
    // A method in a file may apply functions, of which the theory knows nothing.
    let known = |(_, (algorithm, _)): &(usize, (&AlgorithmSpec, _))| algorithm.factory.is_none();
    for (k, (algorithm, planned)) in plan.spec.algorithms.iter().zip(&plan.methods).enumerate().filter(known)
    {
        // For the smooth part of the objective.
        let parameters = Parameters { penalty: false, ..planned.parameters.clone() };
        let run = advice::AdvisedRun {
            entry: &algorithm.entry,
            parameters: &parameters,
            network: plan.network(),
            step_size: algorithm.schedule.step_size,
            smoothness,
            seed: plan.spec.seeds[0],
        };
        let advice = if parameters.pairs { pairs::advise(&run) } else { advice::advise(&run) };
        let advice = advice.map_err(|error| of_algorithm(k, &algorithm.entry, "step_size", error))?;
        found.extend(advice.into_iter().map(|advice| (algorithm.label.clone(), advice)));
    }
    let mut notes = notes(plan);
    notes.extend(spec.objectives.notes()?);
    Ok(PlanAdvice { estimate, smoothness, notes, of_algorithms: found })
}

/// What is worth knowing about the network and the choices that were made.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let agents = plan.network().agents();
    if let Some((topology, simpler)) =
        plan.spec.network.topology().and_then(|topology| Some((topology, topology.simpler(agents)?)))
    {
        let (name, simpler) = (topology.name(), simpler.name());
        notes.push(format!("network: {agents} is a prime number, so the {name} is a {simpler}"));
    }
    if plan.spec.seeds.len() > 1 && !depends_on_seed(plan) {
        notes.push(
            "seeds: all seeds give the same run, because gradients are exact and nothing is random".into(),
        );
    }
    for (algorithm, planned) in plan.spec.algorithms.iter().zip(&plan.methods) {
        let mut chosen = Vec::new();
        if planned.chosen.step_size {
            chosen.push(format!("step_size = {}", number(algorithm.schedule.step_size)));
        }
        if planned.chosen.weights {
            let xi = planned.parameters.xi.map_or(0.0, Weight::last);
            let gamma = planned.parameters.gamma.unwrap_or(xi);
            let found = matches!(planned.parameters.xi, Some(Weight::Adaptive(_)));
            let most = if found { "adaptive, up to " } else { "" };
            chosen.push(format!("xi = {most}{}, gamma = {}", number(xi), number(gamma)));
        }
        if planned.chosen.adaptive {
            let Parameters { xi, gamma, .. } = &planned.parameters;
            let (most, gamma) = (xi.map_or(0.0, Weight::last), gamma.unwrap_or(1.0));
            let label = &algorithm.label;
            notes.push(format!(
                "{label}: each edge adapts its xi, up to {}; gamma = {}",
                number(most),
                number(gamma)
            ));
        }
        if !chosen.is_empty() {
            notes.push(format!("{}: auto chose {}", algorithm.label, chosen.join(", ")));
        }
    }
    notes.extend(recommended(plan));
    notes
}

/// What is recommended for networks, for each algorithm `mile` that leaves it all to the defaults, which are the paper's.
pub fn recommended(plan: &Plan) -> Vec<String> {
    if !plan.spec.objectives.are_networks() {
        return Vec::new();
    }
    let says_nothing = |algorithm: &&AlgorithmSpec| {
        let AlgorithmSpec { entry, parameters, xi, gamma, .. } = *algorithm;
        let Parameters { momentum, nesterov, local, outer, compression, pairs, robust, .. } = parameters;
        let has_weights = xi.is_some() || gamma.is_some();
        let has_steps = momentum.is_some() || nesterov.is_some() || *local != LocalSteps::default();
        let has_exchange = outer.is_some() || compression.is_some() || *pairs || robust.is_some();
        entry.name == "mile" && !has_weights && !has_steps && !has_exchange
    };
    let silent = plan.spec.algorithms.iter().filter(says_nothing);
    silent
        .map(|algorithm| {
            format!(
                "{} runs with the paper's xi and without momentum; momentum = 0.9 and xi = \"adaptive\" are recommended \
                 for networks, and xi = \"paper\" says that the paper's method is meant",
                algorithm.label
            )
        })
        .collect()
}

/// Whether jobs may differ by more than the number of their seed.
fn depends_on_seed(plan: &Plan) -> bool {
    let spec = &plan.spec;
    spec.objectives.depends_on_seed()
        || matches!(spec.start, StartSpec::Common | StartSpec::Random)
        || plan.network().varies()
        || spec.algorithms.iter().any(|algorithm| algorithm.entry.takes("probability"))
}

/// The theory inquiry for an experiment, about its first MILE algorithm, or else its first algorithm; those in pairs do not count.
///
/// # Errors
/// If all algorithms are in pairs.
pub fn inquiry<'a>(plan: &'a Plan, estimate: &'a ProblemEstimate) -> Result<Inquiry<'a>, LabError> {
    let algorithms = &plan.spec.algorithms;
    let in_rounds = || (0..algorithms.len()).filter(|k| !algorithms[*k].parameters.pairs);
    let k = in_rounds().find(|k| algorithms[*k].entry.takes("xi")).or_else(|| in_rounds().next());
    let expected = "\"rounds\" for a report of the theory; what is known about pairs is advice of mile run";
    let k = k.ok_or_else(|| LabError::expected("algorithm[0].exchange", expected, "\"pairs\""))?;
    let parameters = &plan.methods[k].parameters;
    let bound = smoothness_bound(&plan.spec, &estimate.smoothness);
    Ok(Inquiry {
        network: plan.network(),
        local_steps: parameters.local_steps.unwrap_or(1),
        own_steps: parameters.own_steps.as_deref(),
        xi: parameters.xi.map_or(WeightChoice::Paper, WeightChoice::from),
        gamma: parameters.gamma.map(WeightChoice::Number),
        momentum: parameters.checked_momentum(&algorithms[k].entry.name).ok().flatten(),
        smoothness: bound.unwrap_or(estimate.smoothness.estimate),
        estimate: bound.is_none().then_some(&estimate.smoothness),
        sample: estimate.smoothness.sample,
        step_size: Some(algorithms[k].schedule.step_size),
        scatter: estimate.scatter,
        seed: plan.spec.seeds[0],
    })
}
