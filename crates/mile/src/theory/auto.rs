//! `xi = "auto"` and `gamma = "auto"`: weights that are safe in practice.
//!
//! The linear limits of [`weights`](super::weights) hold when the curvature never changes. On a real
//! objective it changes from round to round, and a product of stable matrices need not be stable: with
//! alpha h anywhere in [0, 1], a ring of 10 with weights 1/3 and tau = 10 tolerates xi = 0.15 and not 0.175,
//! although the limit for constant curvature is 0.25. So `auto` demands that no sequence of curvatures in
//! [0, L] makes a disagreement mode grow ([`switching_growth`]), keeps a tenth of distance from that
//! limit, and among what is left takes the weights
//!
//! * that shrink disagreement faster than the paper's xi by the largest factor that holds for every
//!   curvature in [0, L], when gradients are exact;
//! * with the least mean squared disagreement over the run, from the differences between the agents'
//!   gradients (which call for a large xi) and their noise (which calls for a small one), when they are
//!   not: decoupled weights only, and xi at most 0.3 of its limit for constant curvature.
//!
//! On a network that drops edges xi also stays below 0.7 of the limit measured there.

use serde::Serialize;

use super::drops::xi_limit_under_drops;
use super::smoothness::Scatter;
use super::weights::{paper_xi, xi_limit, xi_ranges};
use super::{TheoryError, valid_local_steps, valid_smoothness, valid_step_size};
use crate::network::Network;
use crate::spectrum::Spectrum;

/// alpha L assumed when L is not known, and the most that is ever demanded: beyond one, no weights
/// withstand every sequence of curvatures.
pub const MOST_CURVATURE: f64 = 1.0;
/// Distance kept from the limits.
const MARGIN: f64 = 0.9;
const DROP_MARGIN: f64 = 0.7;
/// Share of the linear limit that xi may have when gradients are stochastic and gamma is free: measured on
/// networks, where the heterogeneity at the start says little about the rest of the run.
const NOISY_SHARE: f64 = 0.3;
/// Growth per round of a sequence that counts as growth.
const GROWS: f64 = 1.0 + 1e-4;
/// Curvatures of the sequences, in units of their largest.
const LEVELS: [f64; 5] = [0.0, 0.1, 0.3, 0.6, 1.0];
/// Rounds of a sequence, and sequences kept from each length to the next.
const DEPTH: usize = 6;
const BEAM: usize = 32;
/// Values of gamma that are tried.
const GAMMAS: [f64; 10] = [1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.32, 0.25, 0.18, 0.1];
/// Eigenvalues of W looked at.
const MODES: usize = 7;
/// Most rounds over which disagreement is averaged.
const HORIZON: u64 = 300;

/// What is known when weights are to be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The network, with its drop rate.
    pub network: &'a Network,
    /// Local steps tau.
    pub local_steps: u64,
    /// Step size alpha.
    pub step_size: f64,
    /// A bound of the curvature over the whole run, if known: alpha L = 1 is assumed otherwise. An
    /// estimate at the start of training is not such a bound for a neural network: its curvature grows.
    pub smoothness: Option<f64>,
    /// Noise and heterogeneity of gradients, if they are stochastic.
    pub scatter: Option<Scatter>,
    /// Rounds of the run.
    pub rounds: u64,
    /// Seed of the run, for the edges that drop.
    pub seed: u64,
}

/// The weights chosen and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Weight of the correction.
    pub xi: f64,
    /// Weight of the mixing.
    pub gamma: f64,
    /// Largest xi, at this gamma, that withstands every sequence of curvatures.
    pub switching_limit: f64,
    /// Largest xi, at this gamma, on the dropping network; none if nothing drops.
    pub drop_limit: Option<f64>,
    /// Growth per round of the slowest mode for constant curvature in [0, L].
    pub contraction: f64,
}

type Matrix = [[f64; 2]; 2];

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| a[i][0] * b[0][j] + a[i][1] * b[1][j]))
}

fn radius(m: &Matrix) -> f64 {
    let half = 0.5 * (m[0][0] + m[1][1]);
    let under = 0.25 * (m[0][0] - m[1][1]).powi(2) + m[0][1] * m[1][0];
    if under < 0.0 { (half * half - under).sqrt() } else { half.abs() + under.sqrt() }
}

fn size(m: &Matrix) -> f64 {
    m.iter().flatten().map(|v| v * v).sum()
}

/// One mode of MILE on (x, c): `x <- (1 - a) x + c` tau times, then an exchange.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    tau: u64,
    xi: f64,
    gamma: f64,
    d: f64,
}

impl Kernel {
    fn local(a: f64, steps: u64) -> Matrix {
        (0..steps).fold([[1.0, 0.0], [0.0, 1.0]], |m, _| product(&[[1.0 - a, 1.0], [0.0, 1.0]], &m))
    }

    fn exchange(&self, v: &Matrix) -> Matrix {
        product(&[[1.0 - self.gamma * self.d, 0.0], [-self.xi * self.d, 1.0]], v)
    }

    /// One round at curvature a, or changing from a to b half-way.
    fn round(&self, a: f64, b: f64) -> Matrix {
        let half = self.tau / 2;
        self.exchange(&product(&Self::local(b, half), &Self::local(a, self.tau - half)))
    }
}

/// Largest growth per round of one disagreement mode over sequences of up to six rounds in which
/// `a = alpha h` takes any of five values in [0, top], changing between rounds or half-way through one.
///
/// A lower bound of the joint spectral radius, by beam search.
pub fn switching_growth(local_steps: u64, xi: f64, gamma: f64, lambda: f64, top: f64) -> f64 {
    let kernel = Kernel { tau: local_steps, xi, gamma, d: 1.0 - lambda };
    let levels = LEVELS.map(|level| level * top);
    let rounds: Vec<Matrix> = levels.iter().flat_map(|a| levels.map(|b| kernel.round(*a, b))).collect();
    let (mut worst, mut kept) = (0.0f64, rounds.clone());
    for length in 1..=DEPTH {
        let here = kept.iter().map(radius).fold(0.0, f64::max);
        worst = worst.max(here.powf(1.0 / length as f64));
        if length == DEPTH {
            break;
        }
        let mut longer: Vec<Matrix> =
            kept.iter().flat_map(|m| rounds.iter().map(move |r| product(r, m))).collect();
        if longer.len() > BEAM {
            longer.select_nth_unstable_by(BEAM, |a, b| size(b).total_cmp(&size(a)));
            longer.truncate(BEAM);
        }
        kept = longer;
    }
    worst
}

/// The largest xi at which no disagreement mode grows under any sequence of curvatures with
/// `alpha h` in [0, top]; `gamma` stays as given, or follows xi if it is not.
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

/// A choice in the making.
struct Search<'a> {
    question: Question<'a>,
    spectrum: &'a Spectrum,
    lambda: Vec<f64>,
    /// Largest alpha h that is reckoned with.
    top: f64,
    /// Rates of the paper's weights, to be beaten.
    paper: [f64; 6],
}

impl<'a> Search<'a> {
    fn new(question: Question<'a>) -> Result<Self, TheoryError> {
        valid_local_steps(question.local_steps)?;
        let step_size = valid_step_size(question.step_size)?;
        let top = match question.smoothness {
            Some(smoothness) => (step_size * valid_smoothness(smoothness)?).min(MOST_CURVATURE),
            None => MOST_CURVATURE,
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
            let growth = |l: &f64| radius(&Kernel { tau, xi, gamma, d: 1.0 - l }.round(a, a));
            self.lambda.iter().map(growth).fold(0.0, f64::max)
        })
    }

    fn contraction(&self, xi: f64, gamma: f64) -> f64 {
        self.rates(xi, gamma).into_iter().fold(0.0, f64::max)
    }

    /// How many times faster than the paper's weights, at the curvature where that is least, with a
    /// tenth of the mean over curvatures to break ties. Nobody knows which curvature will matter.
    fn gain(&self, xi: f64, gamma: f64) -> f64 {
        let speed = |rate: f64| -rate.clamp(1e-6, 1.0 - 1e-12).ln();
        let gains: Vec<f64> =
            self.rates(xi, gamma).iter().zip(&self.paper).map(|(r, p)| speed(*r) / speed(*p)).collect();
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        gains.into_iter().fold(f64::INFINITY, f64::min) + 0.1 * mean
    }

    /// Mean squared disagreement over the run, right after exchanges, in units of alpha^2.
    fn disagreement(&self, xi: f64, gamma: f64, scatter: Scatter) -> f64 {
        let tau = self.question.local_steps;
        let rounds = self.question.rounds.clamp(1, HORIZON);
        let mut sum = 0.0;
        for lambda in &self.lambda {
            for part in [0.003, 0.03, 0.3] {
                let kernel = Kernel { tau, xi, gamma, d: 1.0 - lambda };
                sum += mean_square(&kernel, part * self.top, rounds, scatter);
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

    /// The largest xi on the dropping network; none if nothing drops.
    fn drop_limit(&self, gamma: Option<f64>) -> Result<Option<f64>, TheoryError> {
        let Question { network, local_steps, seed, .. } = self.question;
        let drops = network.drop_rate() > 0.0 && network.agents() > 1;
        drops.then(|| xi_limit_under_drops(local_steps, gamma, network, seed)).transpose()
    }

    /// The weights, below the limit of the network's drops too.
    fn settle(&self, xi: f64, mut gamma: f64, coupled: bool) -> Result<Choice, TheoryError> {
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

/// Mean over `rounds` of E x^2 after each exchange, from x = c = 0: a constant gradient of
/// `heterogeneity` and white noise of `noise` at every step, both for alpha = 1.
fn mean_square(kernel: &Kernel, a: f64, rounds: u64, scatter: Scatter) -> f64 {
    let round = kernel.round(a, a);
    let mut forcing = [0.0; 2];
    let mut noise: Matrix = [[0.0; 2]; 2];
    for j in 0..kernel.tau {
        let push = kernel.exchange(&Kernel::local(a, j));
        let column = [push[0][0], push[1][0]];
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
    search.settle(xi, xi, true)
}

/// The same figures for weights of your own, which stay as they are.
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

fn coupled(search: &Search) -> Result<f64, TheoryError> {
    let tau = search.question.local_steps;
    if search.lambda.is_empty() {
        return paper_xi(tau);
    }
    let end = MARGIN * switching_limit(tau, None, &search.lambda, search.top);
    let candidates = (1..=30).map(|k| end * k as f64 / 30.0).chain([paper_xi(tau)?.min(end)]);
    Ok(least(candidates, |xi| -search.gain(*xi, *xi)))
}

/// `gamma = "auto"`: both weights.
pub fn decoupled(question: Question) -> Result<Choice, TheoryError> {
    let search = Search::new(question)?;
    let tau = question.local_steps;
    let paper = paper_xi(tau)?;
    if search.lambda.is_empty() {
        return search.settle(paper, paper, true);
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
    let (xi, gamma) = least(candidates.into_iter(), |(xi, gamma)| search.score(*xi, *gamma));
    search.settle(xi, gamma, false)
}

fn least<C: Clone>(mut candidates: impl Iterator<Item = C>, score: impl Fn(&C) -> f64) -> C {
    let first = candidates.next().expect("there is always a candidate");
    let start = (score(&first), first);
    let better = |best: (f64, C), next: C| {
        let found = score(&next);
        if found < best.0 { (found, next) } else { best }
    };
    candidates.fold(start, better).1
}
