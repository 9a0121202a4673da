//! LED: local exact diffusion (Alghunaim, "Local Exact-Diffusion for Decentralized Optimization and
//! Learning", 2024).
//!
//! ```text
//! repeat tau times:  phi = phi - alpha grad f(phi) - beta y
//! send phi ;  x = W phi ;  y = y + (phi - x)
//! ```
//!
//! with y = 0 at the start and beta = 1/tau. Here x stores phi, and c = -beta y.
//! For small step sizes the mode of an eigenvalue l of W is stable iff
//! beta tau (1 - l) < 2 (1 + l): with beta = 1/tau, l_N > -1/3.
//!
//! With momentum mu (ours) the correction passes through it: `m = mu m + alpha grad f(phi) + beta y ;  phi = phi - m`, or with
//! Nesterov's form `phi - (mu m + alpha grad f(phi) + beta y)`. The drift of local steps is then up to 1/(1 - mu) times as large,
//! so beta is by default `min((1 - mu)/tau, (1 - mu)^2/(2 mu))`, with mu^2 instead of the last mu in Nesterov's form; see
//! `mile_theory::momentum`.
//!
//! With [`OuterMomentum`] (ours) a finished round moves phi along its progress from the model a at its start before phi is sent:
//! `u = mu u + (a - phi) ;  phi = a - eta (mu u + a - phi)`. Progress is then up to eta/(1 - mu) times as large, and the default beta is as
//! much smaller.
//!
//! Sent: phi. Stored: x, c; with momentum also m; with outer momentum also a and u.

use super::primal_dual::{PLAIN, Steps};
use super::{Momentum, OuterMomentum};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};

/// Local exact diffusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Led {
    local_steps: u64,
    beta: f64,
    steps: Steps,
}

impl Led {
    /// `beta` is 1/tau unless given.
    pub fn new(local_steps: u64, beta: Option<f64>) -> Result<Self, InvalidParameter> {
        Self::with_momentum(local_steps, beta, None, None)
    }

    /// With momentum in the local steps, or on the progress of rounds.
    pub fn with_momentum(
        local_steps: u64,
        beta: Option<f64>,
        momentum: Option<Momentum>,
        outer: Option<OuterMomentum>,
    ) -> Result<Self, InvalidParameter> {
        let check = Checker("led");
        let outer = OuterMomentum::of("led", outer)?;
        let local_steps = check.at_least_one("local_steps", local_steps)?;
        let tau = local_steps as f64;
        let usual = momentum.map_or(1.0 / tau, |momentum| {
            let slack = 1.0 - momentum.mu;
            (slack / tau).min(0.5 * slack * slack / momentum.mu.powi(momentum.order()))
        });
        let gain = outer.map_or(1.0, |outer| outer.gain().max(1.0));
        let beta = beta.unwrap_or(usual / gain);
        let beta =
            check.number("beta", beta, beta > 0.0 && beta <= 1.0, "a number in (0, 1]; 1/tau is usual")?;
        Ok(Self { local_steps, beta, steps: Steps { local: momentum.into(), outer, ..PLAIN } })
    }
}

impl Method for Led {
    fn layout(&self) -> Layout {
        self.steps.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        if s.t.is_multiple_of(self.local_steps) {
            self.steps.begin_round(s)?;
        }
        self.steps.local_step(s)?;
        if (s.t + 1).is_multiple_of(self.local_steps) {
            self.steps.exchange(s, 1.0, self.beta)?;
        }
        Ok(())
    }
}
