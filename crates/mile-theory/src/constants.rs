//! The constants of the paper's analysis and the step sizes they admit.
//!
//! With `rho_i = 1 - xi + xi lambda_i`, `rho = rho_2` and `D_i = sqrt(4 rho_i - (rho_i (tau+1) + 1 - tau)^2)`:
//!
//! ```text
//! A_1 = max_i 2 tau / D_i
//! A_3 = max_i max{2 sqrt(rho_i) + 2, 2 sqrt(rho_i) (1 + |tau sqrt(rho_i) - (tau-1)/sqrt(rho_i)|)} / D_i
//! A_4 = max{A_1, A_3}
//! B_2 = 3 tau^4 + tau^2 (tau+1) (2 tau+1) (rho tau + tau - 1)^2 A_4^2 / (2 (1 - sqrt(rho))^2)
//! step size <= 1/(sqrt(5 B_2) L), with stochastic gradients 1/(sqrt(13 B_2) L)
//! ```
//!
//! The paper prints A_3 with rho_2 only; the bound it is used for needs the maximum over i, taken here.

use mile::spectrum::{Extremes, Spectrum};
use serde::Serialize;

use crate::lemma1::is_complex_pair;
use crate::weights::xi_ranges;
use crate::{TheoryError, valid_local_steps, valid_smoothness, valid_xi};

/// The constants that depend only on the graph, tau and xi.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Constants {
    /// Local steps.
    pub tau: u64,
    /// The paper's rho: 1 - xi + xi lambda_2.
    pub rho: f64,
    /// A_1.
    pub a1: f64,
    /// A_3, the maximum over i.
    pub a3: f64,
    /// A_4.
    pub a4: f64,
    /// B_2.
    pub b2: f64,
}

/// The quantities at the start of a run that the bounds depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Start {
    /// `S = |X(0)|_F^2 + |X(1)|_F^2`.
    pub s: f64,
    /// `|g(0)|^2`, g(0) being the mean gradient at X(0).
    pub gradient: f64,
    /// A bound of `A_2 = max_i |y_i(1)| + |y_i(0)|`: the disagreement of X(1) plus that of X(0).
    pub a2: f64,
    /// `f(xbar(1)) - f*`.
    pub excess: f64,
}

impl Constants {
    /// The constants; an error if the modes of some rho_i are not a complex pair.
    pub fn new(local_steps: u64, xi: f64, spectrum: &Spectrum) -> Result<Self, TheoryError> {
        let tau = valid_local_steps(local_steps)? as f64;
        valid_xi(xi)?;
        let Extremes { lambda_2, .. } = spectrum.extremes();
        let rho = 1.0 - xi + xi * if lambda_2.is_finite() { lambda_2 } else { 0.0 };
        let (mut a1, mut a3) = (0.0f64, 0.0f64);
        for lambda in &spectrum.lambda[1..] {
            let rho = 1.0 - xi + xi * lambda;
            if !is_complex_pair(local_steps, rho) {
                let xi_max = xi_ranges(local_steps, spectrum.extremes())?.spectrum;
                return Err(TheoryError::OutsideTheorems { xi, tau: local_steps, rho, xi_max });
            }
            let root = rho.sqrt();
            let d = (4.0 * rho - (rho * (tau + 1.0) + 1.0 - tau).powi(2)).sqrt();
            a1 = a1.max(2.0 * tau / d);
            let second = 2.0 * root * (1.0 + (tau * root - (tau - 1.0) / root).abs());
            a3 = a3.max((2.0 * root + 2.0).max(second) / d);
        }
        let a4 = a1.max(a3);
        let b2 = 3.0 * tau.powi(4)
            + tau.powi(2) * (tau + 1.0) * (2.0 * tau + 1.0) * (rho * tau + tau - 1.0).powi(2) * a4 * a4
                / (2.0 * (1.0 - rho.sqrt()).powi(2));
        Ok(Self { tau: local_steps, rho, a1, a3, a4, b2 })
    }

    /// Largest step size of Theorems 1 and 2: `1/(sqrt(5 B_2) L)`.
    pub fn step_size_max(&self, smoothness: f64) -> Result<f64, TheoryError> {
        Ok(1.0 / ((5.0 * self.b2).sqrt() * valid_smoothness(smoothness)?))
    }

    /// Largest step size of Theorems 3 and 4: `1/(sqrt(13 B_2) L)`.
    pub fn step_size_max_stochastic(&self, smoothness: f64) -> Result<f64, TheoryError> {
        Ok(1.0 / ((13.0 * self.b2).sqrt() * valid_smoothness(smoothness)?))
    }

    /// `B_1`, from A_2 of a run.
    pub fn b1(&self, a2: f64) -> f64 {
        let tau = self.tau as f64;
        tau * (tau + 1.0) * (2.0 * tau + 1.0) / (2.0 * (1.0 - self.rho)) * (a2 * self.a4).powi(2)
    }

    /// `B_3 = 1 - 4 alpha^2 L^2 B_2`.
    pub fn b3(&self, step_times_smoothness: f64) -> f64 {
        1.0 - 4.0 * step_times_smoothness.powi(2) * self.b2
    }

    /// `B_4 = 1 - 12 alpha^2 L^2 B_2`.
    pub fn b4(&self, step_times_smoothness: f64) -> f64 {
        1.0 - 12.0 * step_times_smoothness.powi(2) * self.b2
    }

    /// `C_1`, with a = alpha L.
    pub fn c1(&self, agents: usize, step_size: f64, smoothness: f64, start: &Start) -> f64 {
        let (n, a) = (agents as f64, step_size * smoothness);
        a * a * n * self.b2 * (step_size.powi(2) * start.gradient + 2.0 * start.a2.powi(2))
            + n * self.b1(start.a2)
    }

    /// `C_2`; its `A_5^2` is read as `2 |X(1)|^2 + 2 |X(0)|^2`, which the proof uses.
    pub fn c2(&self, agents: usize, step_size: f64, smoothness: f64, start: &Start) -> f64 {
        let (n, a) = (agents as f64, step_size * smoothness);
        6.0 * a * a * n * self.b2 * (step_size.powi(2) * start.gradient + 2.0 * start.s)
            + n * self.b1(start.a2)
    }
}
