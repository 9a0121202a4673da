//! Lemma 1 of the paper: a periodic second-order recursion in closed form.
//!
//! ```text
//! a(t+1) = rho(t) (2 a(t) - a(t-1) + b(t) - b(t-1)),   rho(t) = rho if tau divides t, else 1
//! ```
//!
//! for t >= 1, with a(0), a(1) given and `4 rho > (rho (tau + 1) + 1 - tau)^2` (a complex pair). A mode of
//! MILE is this recursion with `b = -alpha h_i` and its own rho_i: the paper's per-mode formula prints
//! rho (= rho_2) in G_11 and F_22, which is wrong for every other mode; see [`mode`].

use crate::{TheoryError, require, valid_local_steps};

/// The closed form of Lemma 1 for one (tau, rho).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lemma1 {
    tau: usize,
    rho: f64,
    theta: f64,
}

/// Whether the modes of `rho` are a complex pair: `4 rho > (rho (tau + 1) + 1 - tau)^2`.
pub fn is_complex_pair(local_steps: u64, rho: f64) -> bool {
    let tau = local_steps as f64;
    4.0 * rho > (rho * (tau + 1.0) + 1.0 - tau).powi(2)
}

impl Lemma1 {
    /// An error if tau is 0 or the modes of rho are not a complex pair.
    pub fn new(local_steps: u64, rho: f64) -> Result<Self, TheoryError> {
        let tau = valid_local_steps(local_steps)? as f64;
        let expected = "a number below 1 with 4 rho > (rho (tau + 1) + 1 - tau)^2";
        require("rho", rho, rho < 1.0 && is_complex_pair(local_steps, rho), expected)?;
        let cosine = (rho * (tau + 1.0) + 1.0 - tau) / (2.0 * rho.sqrt());
        Ok(Self { tau: local_steps as usize, rho, theta: cosine.acos() })
    }

    /// `sin(s theta)/sin(theta)`.
    fn u(&self, s: f64) -> f64 {
        (s * self.theta).sin() / self.theta.sin()
    }

    /// `F_11(s)`.
    pub fn f11(&self, s: usize) -> f64 {
        self.u(s as f64 + 1.0) + (self.tau as f64 - 1.0) / self.rho.sqrt() * self.u(s as f64)
    }

    /// `F_12(s)`.
    pub fn f12(&self, s: usize) -> f64 {
        -(self.tau as f64) * self.rho.sqrt() * self.u(s as f64)
    }

    /// `F_21(s)`.
    pub fn f21(&self, s: usize) -> f64 {
        self.tau as f64 / self.rho.sqrt() * self.u(s as f64)
    }

    /// `F_22(s)`.
    pub fn f22(&self, s: usize) -> f64 {
        -self.u(s as f64 - 1.0) - (self.tau as f64 - 1.0) / self.rho.sqrt() * self.u(s as f64)
    }

    /// `(G_11(s), G_21(s))`.
    fn g(&self, s: usize, b: &[f64]) -> (f64, f64) {
        let end = (s + 1) * self.tau;
        let (mut first, mut second) = (0.0, 0.0);
        for j in 1..=self.tau {
            let change = b[end + 1 - j] - b[end - j];
            first += j as f64 * change;
            second += (j as f64 - 1.0) * change;
        }
        (self.rho * first, second)
    }

    /// `a(t)` from a(0), a(1) and b(0), ..., b(t-1).
    ///
    /// # Panics
    /// If `b` has fewer than t entries.
    pub fn at(&self, t: usize, a0: f64, a1: f64, b: &[f64]) -> f64 {
        if t == 0 {
            return a0;
        }
        // t = k tau + p with 1 <= p <= tau.
        let (k, p) = ((t - 1) / self.tau, (t - 1) % self.tau + 1);
        let root = self.rho.sqrt();
        let power = |e: usize| root.powi(e as i32);
        let mut after = power(k) * (self.f11(k) * a1 + self.f12(k) * a0);
        let mut at = power(k) * (self.f21(k) * a1 + self.f22(k) * a0);
        for s in 0..k {
            let (g11, g21) = self.g(s, b);
            let (scale, e) = (power(k - 1 - s), k - 1 - s);
            after += scale * (self.f11(e) * g11 + self.f12(e) * g21);
            at += scale * (self.f21(e) * g11 + self.f22(e) * g21);
        }
        let base = k * self.tau;
        let drift: f64 = (1..p).map(|q| b[base + q] - b[base]).sum();
        p as f64 * after - (p as f64 - 1.0) * at + drift
    }
}

/// The recursion itself: a(0), ..., a(t).
pub fn recursion(local_steps: u64, rho: f64, a0: f64, a1: f64, b: &[f64], t: usize) -> Vec<f64> {
    let mut a = vec![a0, a1];
    for now in 1..t {
        let factor = if (now as u64).is_multiple_of(local_steps) { rho } else { 1.0 };
        a.push(factor * (2.0 * a[now] - a[now - 1] + b[now] - b[now - 1]));
    }
    a.truncate(t + 1);
    a
}

/// One mode of MILE at time t, corrected: `y_i(t)` from y_i(0), y_i(1) and the mode's gradients
/// h_i(0), ..., h_i(t-1), with rho_i everywhere.
pub fn mode(
    local_steps: u64,
    rho_i: f64,
    step_size: f64,
    y0: f64,
    y1: f64,
    h: &[f64],
    t: usize,
) -> Result<f64, TheoryError> {
    let b: Vec<f64> = h.iter().map(|h| -step_size * h).collect();
    Ok(Lemma1::new(local_steps, rho_i)?.at(t, y0, y1, &b))
}
