//! Which weights are stable with momentum, as the step size goes to zero.
//!
//! With d = 1 - lambda, g = 1 - gamma d, q = mu^tau, S = (1 - q)/(1 - mu), b = mu (heavy ball) or mu^2 (Nesterov) and
//! T = (tau - b S)/(1 - mu), tau local steps take (x, m, c) to v = x - b S m + T c and m to q m - S c, and a disagreement mode has
//! the period matrix
//!
//! ```text
//! [[g, -g b S, g T], [0, q, -S], [-xi d, xi d b S, 1 - xi d T]]     on (x, m, c)
//! characteristic polynomial (z - 1)(z - g)(z - q) + xi d z (T (z - q) + b S^2)
//! ```
//!
//! By Jury's criterion all eigenvalues are inside the unit circle iff `xi > 0`, `0 < gamma d < 2` and
//!
//! ```text
//! xi d (tau (1 + q) - 2 b S) < 2 (1 - mu)(1 + q)(2 - gamma d)         tightest at the smallest eigenvalue of W
//! xi (b S^2 - q T gamma d)   < gamma (1 - q)(1 - g q)                 tightest at the second largest
//! ```
//!
//! The first is the rule without momentum if mu = 0. The second is new: as d goes to 0 it is `b xi < gamma (1 - mu)^2`, which is
//! sufficient on every graph. See docs/src/theory.md for the derivation; a test compares the rule with the period matrices of
//! MILE's own code.

use mile::methods::{Mile, Momentum};
use mile::network::Network;
use mile::spectrum::{Extremes, Spectrum};

use crate::TheoryError;
use crate::modes::Modes;
use crate::stability::contraction;

/// The largest share of the limit that `"auto"` uses. The limit is that of small step sizes and of constant curvature; without
/// momentum, changing curvature costs up to two fifths of it.
const SHARE: f64 = 0.5;
/// Values of gamma that `"auto"` tries.
const GAMMAS: [f64; 6] = [1.0, 0.85, 0.7, 0.5, 0.35, 0.2];

/// The numbers of the rule.
struct Rule {
    slack: f64,
    q: f64,
    s: f64,
    b: f64,
    t: f64,
    tau: f64,
}

impl Rule {
    fn new(local_steps: u64, momentum: Momentum) -> Self {
        let (tau, slack) = (local_steps as f64, 1.0 - momentum.mu);
        let q = momentum.mu.powf(tau);
        let (s, b) = ((1.0 - q) / slack, momentum.mu.powi(momentum.order()));
        Self { slack, q, s, b, t: (tau - b * s) / slack, tau }
    }

    /// The upper bound of xi at a given gamma.
    fn xi_limit(&self, gamma: f64, extremes: Extremes) -> f64 {
        let Self { slack, q, s, b, t, tau } = *self;
        let (near, far) = (1.0 - extremes.lambda_2, 1.0 - extremes.lambda_n);
        if gamma * far >= 2.0 {
            return 0.0;
        }
        let first = 2.0 * slack * (1.0 + q) * (2.0 - gamma * far) / (far * (tau * (1.0 + q) - 2.0 * b * s));
        let under = b * s * s - q * t * gamma * near;
        let second = gamma * (1.0 - q) * (1.0 - q + q * gamma * near) / under;
        if under > 0.0 { first.min(second) } else { first }
    }
}

/// The upper bound of xi at a given gamma, as the step size goes to zero; 0 if gamma itself is too large.
pub fn xi_limit(local_steps: u64, gamma: f64, momentum: Momentum, extremes: Extremes) -> f64 {
    Rule::new(local_steps, momentum).xi_limit(gamma, extremes)
}

/// Whether MILE with momentum is stable as the step size goes to zero.
pub fn is_stable(local_steps: u64, xi: f64, gamma: f64, momentum: Momentum, extremes: Extremes) -> bool {
    xi > 0.0 && gamma > 0.0 && xi < xi_limit(local_steps, gamma, momentum, extremes)
}

/// The weights (xi, gamma) of `"auto"` with momentum. `plain` is the xi without momentum: the drift of local steps is 1/(1 - mu) times
/// larger, so xi is (1 - mu) times that, and at most half of its limit. Without a given gamma, it is the one with which
/// disagreement shrinks fastest for small step sizes.
pub fn weights(
    local_steps: u64,
    momentum: Momentum,
    plain: f64,
    gamma: Option<f64>,
    network: &Network,
) -> Result<(f64, f64), TheoryError> {
    let (spectrum, scaled) = (network.spectrum(), (1.0 - momentum.mu) * plain);
    if network.agents() == 1 {
        return Ok((scaled, gamma.unwrap_or(1.0)));
    }
    let xi = |gamma: f64| {
        scaled.min(SHARE * xi_limit(local_steps, gamma, momentum, spectrum.extremes())).max(1e-9)
    };
    if let Some(gamma) = gamma {
        return Ok((xi(gamma), gamma));
    }
    let mut best = (f64::INFINITY, 1.0);
    for gamma in GAMMAS {
        let growth = disagreement(local_steps, xi(gamma), gamma, momentum, spectrum)?;
        if growth < best.0 {
            best = (growth, gamma);
        }
    }
    Ok((xi(best.1), best.1))
}

/// Factor of the disagreement per round as the step size goes to zero.
pub fn disagreement(
    local_steps: u64,
    xi: f64,
    gamma: f64,
    momentum: Momentum,
    spectrum: &Spectrum,
) -> Result<f64, TheoryError> {
    let method = Mile::decoupled(local_steps, xi, gamma)?.with_momentum(Some(momentum));
    contraction(&Modes::of(&method)?, spectrum)
}
