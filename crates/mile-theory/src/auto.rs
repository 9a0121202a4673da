//! `xi = "auto"` and `gamma = "auto"`: the automatic choice of the weights.
//!
//! The limits of [`weights`](crate::weights) hold for constant curvature. On a real objective the curvature changes
//! from round to round, and a product of stable matrices need not be stable: with alpha h anywhere in [0, 1], a
//! ring of 10 with weights 1/3 and tau = 10 is stable for xi = 0.15 and unstable for 0.175, although the limit for
//! constant curvature is 0.25. So `auto` requires that no disagreement mode grows under any sequence of curvatures
//! in [0, L] ([`switching_growth`]), stays at least a tenth below that limit, and of the remaining weights chooses
//!
//! * with exact gradients: those whose convergence rate of the consensus error, relative to the paper's xi, is best
//!   in the worst case over curvatures in [0, L];
//! * with stochastic gradients (decoupled weights only): those with the smallest mean squared consensus error over
//!   300 rounds. Heterogeneity of the gradients favours a large xi, their noise a small one; xi is at most 0.3 of its
//!   limit for constant curvature.
//!
//! Runs with stochastic gradients and `gamma = "auto"` do not use these but an adaptive xi ([`noisy`]): no fixed weight was
//! good in all of the experiments (`experiments/auto/matrix`).
//!
//! On a network whose edges drop, xi also stays below 0.7 of the limit measured there.

use mile::digits::round_down;
use mile::methods::{Mile, Momentum};
use mile::network::Network;
use mile::spectrum::Spectrum;
use serde::Serialize;

use crate::drops::xi_limit_under_drops;
use crate::momentum;
use crate::smoothness::Scatter;
use crate::weights::{paper_xi, xi_limit, xi_ranges};
use crate::{TheoryError, valid_local_steps, valid_smoothness, valid_step_size};

/// The alpha L assumed when L is not known, and the largest one considered: above 1, no weights are stable for
/// every sequence of curvatures.
pub const MAX_STEP_TIMES_SMOOTHNESS: f64 = 1.0;
/// Largest xi as a share of its limit for changing curvature, and of its limit under dropped edges.
const MARGIN: f64 = 0.9;
const DROP_MARGIN: f64 = 0.7;
/// Largest xi as a share of its limit for constant curvature, with stochastic gradients and decoupled weights. Chosen
/// by experiments on neural networks, whose heterogeneity at the start says little about the rest of the run.
const NOISY_SHARE: f64 = 0.3;
/// The largest adaptive xi with stochastic gradients, times the local steps; and the largest such product with the spectral gap. Chosen by
/// experiments, see [`noisy`].
const NOISY_MOST: f64 = 0.3;
const NOISY_MOST_OF_GAP: f64 = 0.05;
/// A sequence of curvatures is unstable if its growth per round is above this.
const GROWS: f64 = 1.0 + 1e-4;
/// Curvatures of the sequences, in units of the largest.
const LEVELS: [f64; 5] = [0.0, 0.1, 0.3, 0.6, 1.0];
/// Rounds of the longest sequence.
const DEPTH: usize = 6;
/// Sequences kept from each length to the next (beam width).
const BEAM: usize = 32;
/// Values of gamma that are tried.
const GAMMAS: [f64; 10] = [1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.32, 0.25, 0.18, 0.1];
/// Number of eigenvalues of W considered.
const MODES: usize = 7;
/// Rounds over which the consensus error is averaged. Not those of the run, so that an extended run keeps its weights.
const HORIZON: u64 = 300;

/// What the choice of the weights depends on.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The network, with its drop rate.
    pub network: &'a Network,
    /// Local steps tau.
    pub local_steps: u64,
    /// Step size alpha.
    pub step_size: f64,
    /// An upper bound of the curvature during the whole run, if known; otherwise alpha L = 1 is assumed. For a
    /// neural network an estimate at the start of training is not such a bound, since the curvature grows.
    pub smoothness: Option<f64>,
    /// Noise and heterogeneity of the gradients, if they are stochastic.
    pub scatter: Option<Scatter>,
    /// Seed of the run, which decides which edges drop.
    pub seed: u64,
}

/// Weights, with their limits and convergence rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Weight of the correction.
    pub xi: f64,
    /// Weight of the mixing.
    pub gamma: f64,
    /// Largest xi, at this gamma, that is stable for every sequence of curvatures.
    pub switching_limit: f64,
    /// Largest stable xi, at this gamma, with the network's drop rate; none if no edges drop.
    pub drop_limit: Option<f64>,
    /// Factor of the disagreement per round, for the slowest mode and the worst constant curvature in [0, L].
    pub contraction: f64,
}

type Matrix = [[f64; 2]; 2];

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| a[i][0] * b[0][j] + a[i][1] * b[1][j]))
}

fn spectral_radius(m: &Matrix) -> f64 {
    let half = 0.5 * (m[0][0] + m[1][1]);
    let under = 0.25 * (m[0][0] - m[1][1]).powi(2) + m[0][1] * m[1][0];
    if under < 0.0 { (half * half - under).sqrt() } else { half.abs() + under.sqrt() }
}

fn norm_sq(m: &Matrix) -> f64 {
    m.iter().flatten().map(|v| v * v).sum()
}

/// One mode of MILE on (x, c), with d = 1 - lambda: `x <- (1 - a) x + c` tau times, then an exchange.
#[derive(Clone, Copy, Debug)]
struct MileMode {
    tau: u64,
    xi: f64,
    gamma: f64,
    d: f64,
}

impl MileMode {
    fn local(a: f64, steps: u64) -> Matrix {
        (0..steps).fold([[1.0, 0.0], [0.0, 1.0]], |m, _| product(&[[1.0 - a, 1.0], [0.0, 1.0]], &m))
    }

    fn exchange(&self, v: &Matrix) -> Matrix {
        product(&[[1.0 - self.gamma * self.d, 0.0], [-self.xi * self.d, 1.0]], v)
    }

    /// One round in which the curvature changes from a to b half-way.
    fn round(&self, a: f64, b: f64) -> Matrix {
        let half = self.tau / 2;
        self.exchange(&product(&Self::local(b, half), &Self::local(a, self.tau - half)))
    }
}

/// Largest growth per round of one disagreement mode over sequences of up to six rounds in which
/// `a = alpha h` takes any of five values in [0, top], changing between rounds or half-way through one.
///
/// A lower bound of the joint spectral radius, found by beam search.
pub fn switching_growth(local_steps: u64, xi: f64, gamma: f64, lambda: f64, top: f64) -> f64 {
    let mode = MileMode { tau: local_steps, xi, gamma, d: 1.0 - lambda };
    let levels = LEVELS.map(|level| level * top);
    let rounds: Vec<Matrix> = levels.iter().flat_map(|a| levels.map(|b| mode.round(*a, b))).collect();
    let (mut worst, mut kept) = (0.0f64, rounds.clone());
    for length in 1..=DEPTH {
        let here = kept.iter().map(spectral_radius).fold(0.0, f64::max);
        worst = worst.max(here.powf(1.0 / length as f64));
        if length == DEPTH {
            break;
        }
        let mut longer: Vec<Matrix> =
            kept.iter().flat_map(|m| rounds.iter().map(move |r| product(r, m))).collect();
        if longer.len() > BEAM {
            longer.select_nth_unstable_by(BEAM, |a, b| norm_sq(b).total_cmp(&norm_sq(a)));
            longer.truncate(BEAM);
        }
        kept = longer;
    }
    worst
}

/// The largest xi at which no disagreement mode grows under any sequence of curvatures with
/// `alpha h` in [0, top]. Without `gamma`, gamma = xi.
pub fn switching_limit(local_steps: u64, gamma: Option<f64>, lambda: &[f64], top: f64) -> f64 {
    let Some(lambda_n) = lambda.last() else { return 1.0 };
    let end = match gamma {
        Some(gamma) => xi_limit(local_steps, gamma, *lambda_n),
        None => 4.0 / ((local_steps as f64 + 2.0) * (1.0 - lambda_n)),
    };
    let grows = |xi: f64| {
        lambda.iter().any(|l| switching_growth(local_steps, xi, gamma.unwrap_or(xi), *l, top) > GROWS)
    };
    let (mut stable, mut unstable) = (0.0, end.clamp(0.0, 1.0));
    if unstable == 0.0 || !grows(unstable) {
        return unstable;
    }
    while unstable - stable > 2e-3 * unstable {
        let middle = 0.5 * (stable + unstable);
        if grows(middle) { unstable = middle } else { stable = middle }
    }
    stable
}

/// The search for the best weights.
struct Search<'a> {
    question: Question<'a>,
    spectrum: &'a Spectrum,
    lambda: Vec<f64>,
    /// Largest alpha h considered.
    top: f64,
    /// Convergence rates with the paper's weights.
    paper: [f64; 6],
}

impl<'a> Search<'a> {
    fn new(question: Question<'a>) -> Result<Self, TheoryError> {
        valid_local_steps(question.local_steps)?;
        let step_size = valid_step_size(question.step_size)?;
        let top = match question.smoothness {
            Some(smoothness) => (step_size * valid_smoothness(smoothness)?).min(MAX_STEP_TIMES_SMOOTHNESS),
            None => MAX_STEP_TIMES_SMOOTHNESS,
        };
        let spectrum = question.network.spectrum();
        let lambda = spectrum.disagreement(MODES);
        let mut search = Self { question, spectrum, lambda, top, paper: [0.0; 6] };
        let paper = paper_xi(question.local_steps)?;
        search.paper = search.rates(paper, paper);
        Ok(search)
    }

    /// Growth per round of the slowest mode at each of six constant curvatures in [0, top].
    fn rates(&self, xi: f64, gamma: f64) -> [f64; 6] {
        let tau = self.question.local_steps;
        [0.0, 0.03, 0.1, 0.25, 0.5, 1.0].map(|part| {
            let a = part * self.top;
            let growth = |l: &f64| spectral_radius(&MileMode { tau, xi, gamma, d: 1.0 - l }.round(a, a));
            self.lambda.iter().map(growth).fold(0.0, f64::max)
        })
    }

    fn contraction(&self, xi: f64, gamma: f64) -> f64 {
        self.rates(xi, gamma).into_iter().fold(0.0, f64::max)
    }

    /// By what factor the weights converge faster than the paper's, in the worst case over curvatures, plus a tenth
    /// of the mean over curvatures to break ties.
    fn gain(&self, xi: f64, gamma: f64) -> f64 {
        let speed = |rate: f64| -rate.clamp(1e-6, 1.0 - 1e-12).ln();
        let gains: Vec<f64> =
            self.rates(xi, gamma).iter().zip(&self.paper).map(|(r, p)| speed(*r) / speed(*p)).collect();
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        gains.into_iter().fold(f64::INFINITY, f64::min) + 0.1 * mean
    }

    /// Mean squared disagreement over the first rounds, after each exchange, in units of alpha^2.
    fn disagreement(&self, xi: f64, gamma: f64, scatter: Scatter) -> f64 {
        let tau = self.question.local_steps;
        let mut sum = 0.0;
        for lambda in &self.lambda {
            for part in [0.003, 0.03, 0.3] {
                let mode = MileMode { tau, xi, gamma, d: 1.0 - lambda };
                sum += mean_square(&mode, part * self.top, HORIZON, scatter);
            }
        }
        sum / (3 * self.lambda.len().max(1)) as f64
    }

    fn score(&self, xi: f64, gamma: f64) -> f64 {
        match self.question.scatter.filter(|s| s.noise > 0.0) {
            Some(scatter) => self.disagreement(xi, gamma, scatter),
            None => -self.gain(xi, gamma),
        }
    }

    /// The largest stable xi where edges are down in some rounds; none if none are.
    fn drop_limit(&self, gamma: Option<f64>) -> Result<Option<f64>, TheoryError> {
        let Question { network, local_steps, seed, .. } = self.question;
        let drops = network.varies() && network.agents() > 1;
        drops.then(|| xi_limit_under_drops(local_steps, gamma, network, seed)).transpose()
    }

    /// The choice, with xi reduced below its limit under dropped edges.
    fn choice(&self, xi: f64, mut gamma: f64, coupled: bool) -> Result<Choice, TheoryError> {
        let mut drop_limit = self.drop_limit((!coupled).then_some(gamma))?;
        while !coupled && drop_limit == Some(0.0) && gamma > 0.05 {
            gamma *= 0.5;
            drop_limit = self.drop_limit(Some(gamma))?;
        }
        let xi = drop_limit.map_or(xi, |limit| xi.min(DROP_MARGIN * limit).max(1e-6));
        let (gamma, apart) = if coupled { (xi, None) } else { (gamma, Some(gamma)) };
        Ok(Choice {
            xi,
            gamma,
            switching_limit: switching_limit(self.question.local_steps, apart, &self.lambda, self.top),
            drop_limit,
            contraction: self.contraction(xi, gamma),
        })
    }
}

/// Mean over `rounds` of E x^2 after each exchange, starting from x = c = 0 with alpha = 1. Every step adds a constant
/// gradient with square `heterogeneity` and white noise with variance `noise`.
fn mean_square(mode: &MileMode, a: f64, rounds: u64, scatter: Scatter) -> f64 {
    let round = mode.round(a, a);
    let mut forcing = [0.0; 2];
    let mut noise: Matrix = [[0.0; 2]; 2];
    for j in 0..mode.tau {
        let response = mode.exchange(&MileMode::local(a, j));
        let column = [response[0][0], response[1][0]];
        for i in 0..2 {
            forcing[i] += column[i];
            for k in 0..2 {
                noise[i][k] += column[i] * column[k];
            }
        }
    }
    let (mut state, mut covariance, mut sum) = ([0.0; 2], [[0.0; 2]; 2], 0.0);
    let transposed = [[round[0][0], round[1][0]], [round[0][1], round[1][1]]];
    for _ in 0..rounds {
        state = std::array::from_fn(|i| round[i][0] * state[0] + round[i][1] * state[1] - forcing[i]);
        let moved = product(&product(&round, &covariance), &transposed);
        covariance = std::array::from_fn(|i| std::array::from_fn(|j| moved[i][j] + noise[i][j]));
        sum += scatter.heterogeneity * state[0] * state[0] + scatter.noise * covariance[0][0];
    }
    sum / rounds as f64
}

/// `xi = "auto"`: the paper's MILE, gamma = xi.
pub fn xi(question: Question) -> Result<Choice, TheoryError> {
    let search = Search::new(question)?;
    let xi = coupled(&search)?;
    search.choice(xi, xi, true)
}

/// Limits and convergence rate of given weights, which are not changed.
pub fn judge(question: Question, xi: f64, gamma: f64) -> Result<Choice, TheoryError> {
    let search = Search::new(question)?;
    let apart = (xi != gamma).then_some(gamma);
    Ok(Choice {
        xi,
        gamma,
        switching_limit: switching_limit(question.local_steps, apart, &search.lambda, search.top),
        drop_limit: search.drop_limit(apart)?,
        contraction: search.contraction(xi, gamma),
    })
}

/// `xi = "adaptive"`: the largest weight of an edge, from the network alone. It is a tenth below the limit of stability
/// for every sequence of curvatures with alpha L up to 1 and, with momentum, at most half of its limit, like that of `"auto"`.
/// Without a given gamma it is [`Mile::adaptive_gamma`].
pub fn adaptive(
    question: Question,
    gamma: Option<f64>,
    momentum: Option<Momentum>,
) -> Result<Choice, TheoryError> {
    let question = Question { smoothness: None, scatter: None, ..question };
    let network = question.network;
    let gamma = gamma.unwrap_or_else(|| Mile::adaptive_gamma(network.extremes().lambda_n));
    let limits = judge(question, f64::MIN_POSITIVE, gamma)?;
    let plain = MARGIN * limits.switching_limit;
    let plain = limits.drop_limit.map_or(plain, |limit| plain.min(DROP_MARGIN * limit));
    let xi = match momentum {
        None => plain,
        Some(momentum) => momentum::weights(question.local_steps, momentum, plain, Some(gamma), network)?.0,
    };
    judge(question, round_down(xi).max(1e-6), gamma)
}

/// `gamma = "auto"` with stochastic gradients: each edge adapts its xi as with [`adaptive`], up to 0.3/tau and, where the graph mixes fast,
/// up to 0.05/(tau (1 - l_2)). On such graphs many local steps on very different data make larger weights unsteady, and the best fixed
/// weight is smaller (`experiments/auto/matrix`, `experiments/auto/strong`).
pub fn noisy(question: Question) -> Result<Choice, TheoryError> {
    let limits = adaptive(question, None, None)?;
    // One agent has no second eigenvalue.
    let gap = 1.0 - question.network.extremes().lambda_2.max(-1.0);
    let most = NOISY_MOST.min(NOISY_MOST_OF_GAP / gap) / question.local_steps as f64;
    judge(Question { smoothness: None, scatter: None, ..question }, limits.xi.min(most), limits.gamma)
}

fn coupled(search: &Search) -> Result<f64, TheoryError> {
    let tau = search.question.local_steps;
    if search.lambda.is_empty() {
        return paper_xi(tau);
    }
    let end = MARGIN * switching_limit(tau, None, &search.lambda, search.top);
    let candidates = (1..=30).map(|k| end * k as f64 / 30.0).chain([paper_xi(tau)?.min(end)]);
    Ok(argmin(candidates, |xi| -search.gain(*xi, *xi)))
}

/// `gamma = "auto"`: decoupled MILE, both weights.
pub fn decoupled(question: Question) -> Result<Choice, TheoryError> {
    let search = Search::new(question)?;
    let tau = question.local_steps;
    let paper = paper_xi(tau)?;
    if search.lambda.is_empty() {
        return search.choice(paper, paper, true);
    }
    let same = coupled(&search)?;
    let mut candidates = vec![(same, same)];
    if xi_ranges(tau, search.spectrum.extremes())?.exact > paper
        && switching_limit(tau, None, &search.lambda, search.top) > paper
    {
        candidates.push((paper, paper));
    }
    let noisy = question.scatter.is_some_and(|s| s.noise > 0.0);
    for gamma in GAMMAS {
        let mut end = MARGIN * switching_limit(tau, Some(gamma), &search.lambda, search.top);
        if noisy {
            end = end.min(NOISY_SHARE * xi_limit(tau, gamma, search.spectrum.extremes().lambda_n));
        }
        let parts = [0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 0.9, 1.0];
        candidates.extend(parts.map(|part| (part * end, gamma)).into_iter().filter(|(xi, _)| *xi > 0.0));
    }
    let (xi, gamma) = argmin(candidates.into_iter(), |(xi, gamma)| search.score(*xi, *gamma));
    search.choice(xi, gamma, false)
}

fn argmin<C: Clone>(mut candidates: impl Iterator<Item = C>, score: impl Fn(&C) -> f64) -> C {
    let first = candidates.next().expect("there is always a candidate");
    let start = (score(&first), first);
    let better = |best: (f64, C), next: C| {
        let found = score(&next);
        if found < best.0 { (found, next) } else { best }
    };
    candidates.fold(start, better).1
}
