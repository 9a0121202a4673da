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
//! With AdamW or Muon (ours) c acts on the step or on the gradient, as in [`Mile`](super::Mile), and beta is by default 0.4/tau.
//!
//! With [`OuterMomentum`] (ours) a finished round moves phi along its progress from the model a at its start before phi is sent:
//! `u = mu u + (a - phi) ;  phi = a - eta (mu u + a - phi)`. Progress is then up to eta/(1 - mu) times as large, and the default beta is as
//! much smaller.
//!
//! Sent: phi. Stored: x, c; with momentum also m; with outer momentum also a and u.

use super::parts::{Local, Pace};
use super::primal_dual::{PLAIN, Steps};
use super::{CorrectionAt, LocalSteps, Momentum, Optimizer, OuterMomentum};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};
use crate::network::Network;
use crate::optimiser::Muon;

/// tau beta with AdamW or Muon, whose steps are as large where gradients are small.
const PRECONDITIONED: f64 = 0.4;

/// Local exact diffusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Led {
    pace: Pace,
    beta: f64,
    steps: Steps,
}

impl Led {
    /// `beta` is 1/tau unless given.
    pub fn new(local_steps: u64, beta: Option<f64>) -> Result<Self, InvalidParameter> {
        Self::with_parts(local_steps, beta, None, &LocalSteps::default(), None)
    }

    /// With momentum or another optimiser in the local steps, or momentum on the progress of rounds.
    pub fn with_parts(
        local_steps: u64,
        beta: Option<f64>,
        momentum: Option<Momentum>,
        local: &LocalSteps,
        outer: Option<OuterMomentum>,
    ) -> Result<Self, InvalidParameter> {
        let check = Checker("led");
        let (local, outer) = (Local::of("led", momentum, local)?, OuterMomentum::of("led", outer)?);
        let pace = Pace::new(check, local_steps)?;
        let tau = pace.most() as f64;
        let usual = match (&local.by, local.at) {
            (Optimizer::Momentum(momentum), CorrectionAt::Gradient { .. }) => {
                let slack = 1.0 - momentum.mu;
                (slack / tau).min(0.5 * slack * slack / momentum.mu.powi(momentum.order()))
            }
            (by, _) if by.is_preconditioned() => PRECONDITIONED / tau,
            _ => 1.0 / tau,
        };
        let gain = outer.map_or(1.0, |outer| outer.gain().max(1.0));
        let beta = beta.unwrap_or(usual / gain);
        let beta =
            check.number("beta", beta, beta > 0.0 && beta <= 1.0, "a number in (0, 1]; 1/tau is usual")?;
        Ok(Self { pace, beta, steps: Steps { local, outer, ..PLAIN } })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("led"), own)?;
        Ok(Self { pace, ..self })
    }
}

impl Method for Led {
    fn layout(&self) -> Layout {
        self.steps.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        if self.pace.begins(s.t) {
            self.steps.begin_round(s)?;
        }
        self.pace.each(s, |s, t, _| self.steps.local_step(s, t + 1))?;
        if self.pace.exchanges(s.t) {
            self.steps.exchange(s, 1.0, self.beta)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.steps.check("led", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.steps.local.muon()
    }
}
