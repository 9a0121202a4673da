//! Which xi and gamma are admissible, and which mix fastest, as the step size goes to zero.
//!
//! With d = 1 - lambda a disagreement mode of decoupled MILE has the period matrix
//!
//! ```text
//! [[1 - gamma d, tau (1 - gamma d)], [-xi d, 1 - tau xi d]]     on (x, c)
//! determinant 1 - gamma d,  trace 2 - gamma d - tau xi d
//! ```
//!
//! By Jury's criterion both eigenvalues are inside the unit circle iff `xi > 0`, `0 < gamma d < 2` and
//! `(tau xi + 2 gamma) d < 4`; the paper's MILE is gamma = xi. See docs/src/theory.md for the derivation.

use mile::methods::Mile;
use mile::schedule::Weight;
use mile::spectrum::Extremes;
use serde::Serialize;

use crate::{TheoryError, valid_local_steps, valid_xi};

/// A weight as given in an experiment file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightChoice {
    /// A number.
    Number(f64),
    /// A weight that changes from round to round.
    Changing(Weight),
    /// `"paper"`: 0.9 * 2/(tau + 3).
    Paper,
    /// `"auto"`: chosen by [`auto`](crate::auto) from the spectrum, the step size and the curvature.
    Auto,
    /// `"adaptive"`: adapted by each edge, up to the weight that [`auto`](crate::auto::adaptive) computes from the network.
    Adaptive,
}

impl From<Weight> for WeightChoice {
    fn from(weight: Weight) -> Self {
        match weight {
            Weight::Constant(number) => Self::Number(number),
            changing => Self::Changing(changing),
        }
    }
}

impl WeightChoice {
    /// The weight; none for [`Auto`](Self::Auto) and [`Adaptive`](Self::Adaptive), which depend on the network.
    pub fn weight(self, local_steps: u64) -> Option<Weight> {
        match self {
            Self::Number(number) => Some(number.into()),
            Self::Changing(weight) => Some(weight),
            Self::Paper => Some(Mile::paper_xi(local_steps).into()),
            Self::Auto | Self::Adaptive => None,
        }
    }

    /// Its value, or the one it ends with; none where there is no [`weight`](Self::weight).
    pub fn number(self, local_steps: u64) -> Option<f64> {
        self.weight(local_steps).map(Weight::last)
    }
}

/// Upper bounds of xi for the paper's MILE.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct XiRanges {
    /// The paper's bound, for any graph: 2/(tau + 3).
    pub paper: f64,
    /// The paper's condition with this graph's spectrum: 4/((tau + 3)(1 - lambda_n)).
    pub spectrum: f64,
    /// The exact stability limit as the step size goes to zero: 4/((tau + 2)(1 - lambda_n)).
    pub exact: f64,
}

/// The upper bounds of xi on a graph.
pub fn xi_ranges(local_steps: u64, extremes: Extremes) -> Result<XiRanges, TheoryError> {
    let tau = valid_local_steps(local_steps)? as f64;
    let d = 1.0 - extremes.lambda_n;
    Ok(XiRanges {
        paper: 2.0 / (tau + 3.0),
        spectrum: 4.0 / ((tau + 3.0) * d),
        exact: 4.0 / ((tau + 2.0) * d),
    })
}

/// `xi = "paper"`: 0.9 times the paper's bound.
pub fn paper_xi(local_steps: u64) -> Result<f64, TheoryError> {
    Ok(Mile::paper_xi(valid_local_steps(local_steps)?))
}

/// Whether decoupled MILE is stable as the step size goes to zero, if the smallest eigenvalue of W is `lambda_n`:
/// `(tau xi + 2 gamma)(1 - lambda_n) < 4` and `gamma (1 - lambda_n) < 2`.
pub fn is_stable(local_steps: u64, xi: f64, gamma: f64, lambda_n: f64) -> bool {
    let (tau, d) = (local_steps as f64, 1.0 - lambda_n);
    xi > 0.0 && gamma > 0.0 && (tau * xi + 2.0 * gamma) * d < 4.0 && gamma * d < 2.0
}

/// The upper bound of xi at a given gamma; 0 if gamma itself is too large.
pub fn xi_limit(local_steps: u64, gamma: f64, lambda_n: f64) -> f64 {
    let d = 1.0 - lambda_n;
    if gamma * d >= 2.0 { 0.0 } else { (4.0 / d - 2.0 * gamma) / local_steps as f64 }
}

/// Modulus of the larger eigenvalue of one disagreement mode, as the step size goes to zero.
pub fn mode_modulus(local_steps: u64, xi: f64, gamma: f64, lambda: f64) -> f64 {
    let (tau, d) = (local_steps as f64, 1.0 - lambda);
    let (determinant, half) = (1.0 - gamma * d, 1.0 - 0.5 * (gamma + tau * xi) * d);
    let under = half * half - determinant;
    if under < 0.0 { determinant.sqrt() } else { half.abs() + under.sqrt() }
}

/// Modulus of the slowest disagreement mode, as the step size goes to zero. As lambda decreases, the modulus first
/// falls and then rises, so it is that of the second or the smallest eigenvalue.
pub fn slowest_modulus(local_steps: u64, xi: f64, gamma: f64, extremes: Extremes) -> f64 {
    let modulus = |lambda| mode_modulus(local_steps, xi, gamma, lambda);
    modulus(extremes.lambda_2).max(modulus(extremes.lambda_n))
}

/// The xi in (0, 1] that minimises the modulus of the slowest disagreement mode of the paper's MILE, and
/// that modulus.
pub fn best_xi(local_steps: u64, extremes: Extremes) -> Result<(f64, f64), TheoryError> {
    let end = xi_ranges(local_steps, extremes)?.exact.min(1.0);
    let modulus = |xi: f64| slowest_modulus(local_steps, xi, xi, extremes);
    let xi = golden_section(0.0, end, modulus);
    Ok((valid_xi(xi)?, modulus(xi)))
}

/// Minimiser of a unimodal function, by golden-section search.
fn golden_section(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let ratio = 0.5 * (5f64.sqrt() - 1.0);
    for _ in 0..80 {
        let (a, b) = (high - ratio * (high - low), low + ratio * (high - low));
        if f(a) <= f(b) { high = b } else { low = a }
    }
    0.5 * (low + high)
}
