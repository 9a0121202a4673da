//! The report of `mile theory`, in one struct: `Serialize` for JSON, `Display` for text.

use mile::methods::catalogue::{self, Parameters};
use mile::methods::{Mile, Momentum};
use mile::network::Network;
use mile::schedule::Weight;
use mile::spectrum::{Extremes, Spectrum};
use serde::Serialize;

use crate::advice::{Advice, AdvisedRun, advise};
use crate::auto::{self, Choice, Question};
use crate::constants::Constants;
use crate::mixed::StepLimits;
use crate::modes::Modes;
use crate::momentum;
use crate::sample::Sample;
use crate::smoothness::{Scatter, Smoothness};
use crate::stability::contraction;
use crate::weights::{WeightChoice, best_xi, paper_xi, slowest_modulus, xi_ranges};
use crate::{TheoryError, valid_local_steps, valid_smoothness, valid_step_size, valid_xi};

/// The input of a report.
#[derive(Clone, Copy, Debug)]
pub struct Inquiry<'a> {
    /// The network.
    pub network: &'a Network,
    /// Local steps tau; the largest number, if agents differ.
    pub local_steps: u64,
    /// The agents' numbers of local steps, if they differ.
    pub own_steps: Option<&'a [u64]>,
    /// Weight xi of the correction.
    pub xi: WeightChoice,
    /// Weight gamma of the mixing; without it gamma = xi, the paper's method.
    pub gamma: Option<WeightChoice>,
    /// Momentum of the local steps, of the methods that have one.
    pub momentum: Option<Momentum>,
    /// Smoothness L of every f_i.
    pub smoothness: f64,
    /// The estimate of L, if it was estimated and need not hold for the whole run.
    pub estimate: Option<&'a Smoothness>,
    /// What L was estimated from, if not from everything.
    pub sample: Option<Sample>,
    /// Step size, if given.
    pub step_size: Option<f64>,
    /// Noise and heterogeneity of gradients, if known.
    pub scatter: Option<Scatter>,
    /// Seed.
    pub seed: u64,
}

impl<'a> Inquiry<'a> {
    /// About the paper's method with ten local steps, for objectives of smoothness 1, without a step size.
    pub fn new(network: &'a Network) -> Self {
        Self {
            network,
            local_steps: 10,
            own_steps: None,
            xi: WeightChoice::Paper,
            gamma: None,
            momentum: None,
            smoothness: 1.0,
            estimate: None,
            sample: None,
            step_size: None,
            scatter: None,
            seed: 0,
        }
    }
}

/// Stability of one method on this graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MethodLine {
    /// Its name in experiment files.
    pub name: &'static str,
    /// Its name in tables and figures.
    pub title: &'static str,
    /// Largest stable step size for curvatures in (0, L] where all agents have the same Hessian and use all edges; 0 if it is
    /// unstable for every one.
    pub step_size_limit: f64,
    /// Eigenvalue of W of the mode that sets this limit; 1 is the average of all agents.
    pub limiting_lambda: f64,
    /// The same when the agents' Hessians differ, with the edges of each round, simulated.
    pub step_size_limit_mixed: f64,
    /// Factor of the disagreement per round as the step size goes to zero.
    pub contraction_per_round: f64,
    /// Whether both come from exact period matrices, and not from averages over random communication.
    pub exact: bool,
}

/// Spectrum, weights, constants, step sizes, rates and advice for one network and tau.
///
/// The names of the fields are those of `mile theory --format json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TheoryReport {
    /// Number of agents.
    pub agents: usize,
    /// Number of edges.
    pub edges: usize,
    /// How the eigenvalues were computed.
    pub solver: &'static str,
    /// Whether `lambda` has all eigenvalues, and not only the two largest and the smallest.
    pub complete: bool,
    /// Eigenvalues of W, descending.
    pub lambda: Vec<f64>,
    /// Second largest eigenvalue; none for one agent.
    pub lambda_2: Option<f64>,
    /// Smallest eigenvalue.
    pub lambda_n: f64,
    /// 1 - max(|lambda_2|, |lambda_n|).
    pub spectral_gap: f64,
    /// tau; the largest, if agents differ.
    pub local_steps: u64,
    /// The harmonic mean of the agents' own numbers of local steps, in proportion to which MILE and LED progress; none if they do not differ.
    pub local_steps_harmonic: Option<f64>,
    /// The paper's upper bound of xi: 2/(tau + 3).
    pub xi_paper_max: f64,
    /// The same condition with this graph's spectrum: 4/((tau + 3)(1 - lambda_n)).
    pub xi_spectrum_max: f64,
    /// The exact limit as the step size goes to zero: 4/((tau + 2)(1 - lambda_n)).
    pub xi_exact_max: f64,
    /// Largest xi that is stable for changing curvature, at this gamma.
    pub xi_switching_max: f64,
    /// Largest stable xi with the network's drop rate, at this gamma; none if no edges drop.
    pub xi_drop_max: Option<f64>,
    /// The xi that minimises the modulus of the slowest disagreement mode.
    pub xi_best: f64,
    /// That modulus.
    pub xi_best_contraction: f64,
    /// The value of `xi = "paper"`.
    pub xi_paper: f64,
    /// The value of `xi = "auto"`.
    pub xi_auto: f64,
    /// The weights of `gamma = "auto"`.
    pub decoupled_auto: Choice,
    /// The xi in use; if it changes from round to round the last one, if it is adaptive the largest.
    pub xi: f64,
    /// How xi changes from round to round, if it does, or that it is adaptive.
    pub xi_schedule: Option<String>,
    /// The gamma in use.
    pub gamma: f64,
    /// Momentum of the local steps; none if there is no momentum.
    pub momentum: Option<f64>,
    /// Whether it has Nesterov's form.
    pub nesterov: bool,
    /// The exact limit of xi with this momentum and gamma, as the step size goes to zero.
    pub xi_momentum_max: Option<f64>,
    /// The weights (xi, gamma) of `gamma = "auto"` with this momentum.
    pub momentum_auto: Option<(f64, f64)>,
    /// Eigenvalues of W~ = (1 - xi) I + xi W.
    pub rho: Vec<f64>,
    /// Factor of the disagreement per round as the step size goes to zero: the modulus of the slowest mode.
    pub contraction_per_round: f64,
    /// Rounds in which the disagreement falls tenfold, at that rate.
    pub rounds_per_digit: Option<f64>,
    /// A_1; none where the theorems do not apply.
    pub a1: Option<f64>,
    /// A_3.
    pub a3: Option<f64>,
    /// A_4.
    pub a4: Option<f64>,
    /// B_2.
    pub b2: Option<f64>,
    /// Why the constants are missing, if they are.
    pub outside_theorems: Option<String>,
    /// L.
    pub smoothness: f64,
    /// How L was estimated, if it was.
    pub smoothness_estimate: Option<Smoothness>,
    /// What L was estimated from, if not from everything.
    pub smoothness_sample: Option<Sample>,
    /// Step-size bound of Theorems 1 and 2: 1/(sqrt(5 B_2) L).
    pub step_size_max: Option<f64>,
    /// Step-size bound of Theorems 3 and 4: 1/(sqrt(13 B_2) L).
    pub step_size_max_stochastic: Option<f64>,
    /// Drop rate of the network.
    pub drop_rate: f64,
    /// The share of the rounds in which an edge is down, bursts and absent agents included.
    pub lost_share: f64,
    /// How the graph changes from round to round, if it does.
    pub time_varying: Option<String>,
    /// Every method with local steps on this graph.
    pub methods: Vec<MethodLine>,
    /// Advice for MILE with these weights and step size.
    pub advice: Vec<Advice>,
}

fn harmonic_mean(own: &[u64]) -> f64 {
    own.len() as f64 / own.iter().map(|steps| 1.0 / *steps as f64).sum::<f64>()
}

impl TheoryReport {
    /// Computes the report.
    pub fn new(inquiry: &Inquiry) -> Result<Self, TheoryError> {
        let tau = valid_local_steps(inquiry.local_steps)?;
        let smoothness = valid_smoothness(inquiry.smoothness)?;
        let spectrum = inquiry.network.spectrum();
        let extremes = spectrum.extremes();
        let alone = inquiry.network.agents() == 1;
        let (chosen, coupled, both) = choose(inquiry)?;
        let ranges = xi_ranges(tau, extremes)?;
        let best = if alone { (paper_xi(tau)?, 0.0) } else { best_xi(tau, extremes)? };
        let constants = Constants::new(tau, chosen.xi, spectrum);
        let found = constants.as_ref().ok().filter(|_| !alone);
        let slowest = match inquiry.momentum {
            _ if alone => 0.0,
            None => slowest_modulus(tau, chosen.xi, chosen.gamma, extremes),
            Some(momentum) => momentum::disagreement(tau, chosen.xi, chosen.gamma, momentum, spectrum)?,
        };
        Ok(Self {
            agents: inquiry.network.agents(),
            edges: inquiry.network.graph().edges().count(),
            solver: spectrum.solver.name(),
            complete: spectrum.complete,
            lambda_2: spectrum.lambda.get(1).copied(),
            lambda_n: extremes.lambda_n,
            spectral_gap: spectral_gap(extremes),
            local_steps: tau,
            local_steps_harmonic: inquiry.own_steps.map(harmonic_mean),
            xi_paper_max: ranges.paper,
            xi_spectrum_max: ranges.spectrum,
            xi_exact_max: ranges.exact,
            xi_switching_max: chosen.switching_limit,
            xi_drop_max: chosen.drop_limit,
            xi_best: best.0,
            xi_best_contraction: best.1,
            xi_paper: paper_xi(tau)?,
            xi_auto: coupled.xi,
            decoupled_auto: both,
            xi: chosen.xi,
            xi_schedule: match inquiry.xi {
                WeightChoice::Changing(weight) => Some(weight.to_string()),
                WeightChoice::Adaptive => Some(Weight::Adaptive(chosen.xi).to_string()),
                _ if edges_find(inquiry) => Some(Weight::Adaptive(chosen.xi).to_string()),
                _ => None,
            },
            gamma: chosen.gamma,
            momentum: inquiry.momentum.map(|momentum| momentum.mu),
            nesterov: inquiry.momentum.is_some_and(|momentum| momentum.nesterov),
            xi_momentum_max: inquiry
                .momentum
                .filter(|_| !alone)
                .map(|momentum| momentum::xi_limit(tau, chosen.gamma, momentum, extremes)),
            momentum_auto: momentum_auto(inquiry, &both)?,
            rho: spectrum.lambda.iter().map(|l| 1.0 - chosen.xi + chosen.xi * l).collect(),
            contraction_per_round: slowest,
            rounds_per_digit: (slowest > 0.0 && slowest < 1.0).then(|| -1.0 / slowest.log10()),
            a1: found.map(|c| c.a1),
            a3: found.map(|c| c.a3),
            a4: found.map(|c| c.a4),
            b2: found.map(|c| c.b2),
            outside_theorems: why_outside_theorems(inquiry, constants.as_ref().err(), &chosen),
            smoothness,
            smoothness_estimate: inquiry.estimate.cloned(),
            smoothness_sample: inquiry.sample,
            step_size_max: found.map(|c| c.step_size_max(smoothness)).transpose()?,
            step_size_max_stochastic: found.map(|c| c.step_size_max_stochastic(smoothness)).transpose()?,
            drop_rate: inquiry.network.drop_rate(),
            lost_share: 1.0 - inquiry.network.kept_share(),
            time_varying: inquiry.network.time_varying().map(ToString::to_string),
            methods: methods(inquiry, &chosen, spectrum)?,
            advice: advice(inquiry, &chosen)?,
            lambda: spectrum.lambda.clone(),
        })
    }
}

/// `1 - max(|lambda_2|, |lambda_n|)`; 1 for one agent, which has no second eigenvalue.
fn spectral_gap(extremes: Extremes) -> f64 {
    let Extremes { lambda_2, lambda_n, .. } = extremes;
    if lambda_2.is_finite() { 1.0 - lambda_2.abs().max(lambda_n.abs()) } else { 1.0 }
}

fn why_outside_theorems(inquiry: &Inquiry, refusal: Option<&TheoryError>, chosen: &Choice) -> Option<String> {
    if inquiry.network.varies() {
        return Some("the theorems assume the same edges in every round, and so do the constants".into());
    }
    if inquiry.momentum.is_some() {
        return Some("the theorems cover MILE without momentum, and so do the constants".into());
    }
    if chosen.gamma != chosen.xi {
        return Some("the theorems assume gamma = xi, and so do the constants".into());
    }
    refusal.map(ToString::to_string)
}

/// The weights of `gamma = "auto"` with the momentum, from those without.
fn momentum_auto(inquiry: &Inquiry, plain: &Choice) -> Result<Option<(f64, f64)>, TheoryError> {
    let chosen = |momentum| momentum::weights(inquiry.local_steps, momentum, plain.xi, None, inquiry.network);
    inquiry.momentum.map(chosen).transpose()
}

/// The weights in use, and those of `xi = "auto"` and `gamma = "auto"`.
fn choose(inquiry: &Inquiry) -> Result<(Choice, Choice, Choice), TheoryError> {
    // Without a step size, or with an L that was only estimated at some points, auto assumes the largest alpha L it
    // considers.
    let step_size = inquiry.step_size.map_or(Ok(1.0 / inquiry.smoothness), valid_step_size)?;
    let question = Question {
        network: inquiry.network,
        local_steps: inquiry.local_steps,
        step_size,
        smoothness: inquiry.estimate.is_none().then_some(inquiry.smoothness),
        scatter: inquiry.scatter,
        seed: inquiry.seed,
    };
    let (coupled, both) = (auto::xi(question)?, auto::decoupled(question)?);
    let xi = match inquiry.xi {
        WeightChoice::Number(xi) => valid_xi(xi)?,
        WeightChoice::Changing(weight) => {
            weight.ends().into_iter().try_for_each(|end| valid_xi(end).map(drop))?;
            weight.last()
        }
        WeightChoice::Paper => paper_xi(inquiry.local_steps)?,
        WeightChoice::Auto | WeightChoice::Adaptive => coupled.xi,
    };
    let number = |choice: Option<WeightChoice>| match choice {
        Some(WeightChoice::Number(gamma)) => {
            crate::require("gamma", gamma, gamma > 0.0 && gamma <= 1.0, "a number in (0, 1]").map(Some)
        }
        _ => Ok(None),
    };
    let chosen = match inquiry.gamma {
        given if inquiry.xi == WeightChoice::Adaptive => {
            auto::adaptive(question, number(given)?, inquiry.momentum)?
        }
        _ if edges_find(inquiry) => auto::noisy(question)?,
        Some(WeightChoice::Auto) => match momentum_auto(inquiry, &both)? {
            None => both,
            Some((xi, gamma)) => auto::judge(question, xi, gamma)?,
        },
        None if inquiry.xi == WeightChoice::Auto => coupled,
        given => {
            let default = match inquiry.xi {
                WeightChoice::Changing(Weight::Adaptive(_)) => {
                    Mile::adaptive_gamma(inquiry.network.extremes().lambda_n)
                }
                _ => xi,
            };
            auto::judge(question, xi, number(given)?.unwrap_or(default))?
        }
    };
    Ok((chosen, coupled, both))
}

/// Whether `gamma = "auto"` makes xi adaptive, since gradients are stochastic.
fn edges_find(inquiry: &Inquiry) -> bool {
    let noisy = inquiry.scatter.is_some_and(|scatter| scatter.noise > 0.0);
    noisy && inquiry.gamma == Some(WeightChoice::Auto) && inquiry.momentum.is_none()
}

fn parameters(inquiry: &Inquiry, chosen: &Choice) -> Parameters {
    Parameters {
        local_steps: Some(inquiry.local_steps),
        xi: Some(chosen.xi.into()),
        gamma: (chosen.gamma != chosen.xi).then_some(chosen.gamma),
        momentum: inquiry.momentum.map(|momentum| momentum.mu),
        nesterov: inquiry.momentum.map(|momentum| momentum.nesterov),
        ..Parameters::default()
    }
}

/// Every method that has local steps and can run on this network.
fn methods(inquiry: &Inquiry, chosen: &Choice, spectrum: &Spectrum) -> Result<Vec<MethodLine>, TheoryError> {
    let given = parameters(inquiry, chosen);
    // The weights that were chosen are those of MILE.
    let others = Parameters { gamma: None, ..given.clone() };
    let mut lines = Vec::new();
    for entry in catalogue::ALL.iter().filter(|e| e.has_local_steps() || inquiry.local_steps == 1) {
        let given = if entry.takes("xi") { &given } else { &others };
        let Ok(method) = entry.build(given, inquiry.network, inquiry.seed) else { continue };
        let limits = StepLimits::of(&*method, inquiry.network, inquiry.seed)?;
        lines.push(MethodLine {
            name: &entry.name,
            title: &entry.title,
            step_size_limit: limits.equal.step_size(inquiry.smoothness),
            limiting_lambda: limits.equal.lambda,
            step_size_limit_mixed: limits.step_size(inquiry.smoothness),
            contraction_per_round: contraction(&Modes::of(&*method)?, spectrum)?,
            exact: limits.equal.exact,
        });
    }
    Ok(lines)
}

fn advice(inquiry: &Inquiry, chosen: &Choice) -> Result<Vec<Advice>, TheoryError> {
    let (Some(entry), Some(step_size)) = (catalogue::find("mile"), inquiry.step_size) else {
        return Ok(Vec::new());
    };
    let mut given = parameters(inquiry, chosen);
    if let WeightChoice::Changing(weight) = inquiry.xi {
        given.xi = Some(weight);
    }
    advise(&AdvisedRun {
        entry,
        parameters: &given,
        network: inquiry.network,
        step_size,
        smoothness: Some(inquiry.smoothness),
        seed: inquiry.seed,
    })
}
