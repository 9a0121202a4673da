//! MILE: multiple local updates with one exchanged vector.
//!
//! J. Liu, Z. Wang, Y. Wang, "Guaranteeing Both Consensus and Optimality in Decentralized Nonconvex
//! Optimization with Multiple Local Updates", Algorithm 1, in correction form:
//!
//! ```text
//! x(0) = x(-1) - alpha grad f(x(-1)),  c = 0
//! v = x - alpha grad f(x) + c
//! t mod tau = 0:  send v ;  m = W v ;  c = c - xi (v - m) ;  x = (1 - gamma) v + gamma m
//! otherwise:      x = v
//! ```
//!
//! With gamma = xi this is the paper's recursion
//! `x(t+1) = W~(t) (2x(t) - x(t-1) - alpha grad f(x(t)) + alpha grad f(x(t-1)))`, and c replaces its
//! differences; this form needs one gradient per step, which may be stochastic. A gamma different from xi is our
//! extension (decoupled MILE): gamma sets how fast the agents reach consensus, xi how strongly the drift of local
//! steps is corrected. It reaches a stationary point for every stable pair. So does an xi that changes from round to round
//! ([`Weight`]), since it is the same for all agents. The nearest published relative of decoupled MILE is FSPDA-SA (Yau, Liu, Wai
//! 2024), for random edges and tau = 1, in which exchange and step start from the same x (`fspda.rs`).
//!
//! With momentum mu, also ours, the correction passes through it:
//!
//! ```text
//! m = mu m + (alpha grad f(x) - c) ;  v = x - m        (Nesterov: v = x - (mu m + alpha grad f(x) - c))
//! ```
//!
//! A fixed point has m = 0, so it is exact as before. m is not sent, and an exchange leaves it unchanged. For small step
//! sizes it needs about `mu xi < gamma (1 - mu)^2` (`mile_theory::momentum`).
//!
//! With another [optimiser](crate::optimiser) s, such as AdamW or Muon, also ours, c acts on its step or on the gradient
//! ([`CorrectionAt`](super::CorrectionAt)):
//!
//! ```text
//! "step":      v = x - alpha s(grad f(x)) + c
//! "gradient":  v = x - alpha s(grad f(x) - (p/alpha) c)
//! ```
//!
//! With [`Weight::Adaptive`], also ours, the edges determine xi: each counts to the extent that the difference of its ends points in
//! the same direction from exchange to exchange ([`steady`](crate::steady)), as the drift of local steps does and the noise of
//! gradients does not.
//!
//! ```text
//! d_i = sum_j w_ij (v_j - v_i) ;  e_i = sum_j w_ij rho_ij (v_j - v_i) ;  c = c + xi e ;  x = v + gamma d
//! ```
//!
//! rho_ij is the same at both ends, so the c_i sum to zero. A fixed point is that of MILE: if nothing changes, every nonzero difference
//! is as steady as possible. The running mean of the cosines has the share 1/k in the k-th exchange after the first, and
//! at least 1/10: in the first two exchanges there is no correction.
//!
//! With [compression](crate::compression), also ours, agents send differences from public copies, and `W v - v` is what the neighbours know of it
//! (`methods/parts/public_copy.rs`): `s = W y - y ; c = c + xi s ; x = v + gamma s`. A fixed point has y = v, so it is exact as before. With eight bits
//! it converges as if nothing were compressed; with few elements it needs smaller weights.
//!
//! With [`OuterMomentum`], also ours, a finished round moves v along its progress from the model a at its start before v is sent:
//! `u = mu u + (a - v) ; v = a - eta (mu u + a - v)`. A fixed point has v = a and u = 0, so it is exact as before.
//!
//! With a [robust](crate::robust) exchange whose threshold is the same at both ends of an edge, also ours, no difference counts for more than
//! that: `d_i = sum_j w_ij min(1, t/|v_j - v_i|) (v_j - v_i) ; c = c + xi d ; x = v + gamma d`. The c_i sum to zero, every s_ij is positive, so
//! fixed points are those of MILE, and once all differences are shorter than t the steps are too. Rules by which each agent finds its own threshold are refused.
//!
//! Sent: v; adaptive also a summary of up to 513 numbers; compressed C(v - y). Stored: x, c; with momentum also m; with AdamW or Muon
//! also m and v, with AMSGrad v_max too; adaptive also p, the
//! last v; compressed also y and s; with outer momentum also a and u.

use super::parts::{Exchange, Local, Pace};
use super::primal_dual::{PLAIN, Steps};
use super::{LocalSteps, Momentum, OuterMomentum};
use crate::agents::{AgentsError, Step};
use crate::compression::Compression;
use crate::method::{Checker, InvalidParameter, Layout, Method};
use crate::network::Network;
use crate::optimiser::Muon;
use crate::robust::Robust;
use crate::schedule::Weight;

/// MILE, the paper's (`gamma = xi`) or decoupled.
#[derive(Clone, Debug, PartialEq)]
pub struct Mile {
    pace: Pace,
    xi: Weight,
    /// The weight of the mixing; without one, it is the weight xi of each round.
    gamma: Option<f64>,
    steps: Steps,
}

impl Mile {
    /// The paper's method, gamma = xi. Convergence is proven for `xi < 2/(tau + 3)`; the crate `mile-theory` computes
    /// which larger values are stable.
    pub fn new(local_steps: u64, xi: f64) -> Result<Self, InvalidParameter> {
        Self::with_weights(local_steps, xi.into(), None)
    }

    /// Decoupled MILE: `gamma` is the weight of the mixing, `xi` that of the correction.
    pub fn decoupled(local_steps: u64, xi: f64, gamma: f64) -> Result<Self, InvalidParameter> {
        Self::with_weights(local_steps, xi.into(), Some(gamma))
    }

    /// MILE with a weight xi that may change from round to round or be determined by the edges, and with gamma = xi unless given;
    /// if the edges determine xi, the default gamma is 1.
    pub fn with_weights(local_steps: u64, xi: Weight, gamma: Option<f64>) -> Result<Self, InvalidParameter> {
        let check = Checker("mile");
        let bound = 2.0 / (local_steps as f64 + 3.0);
        let expected =
            format!("a number in (0, 1]; convergence is proven in (0, 2/(tau + 3)) = (0, {bound:.4})");
        let is_weight = |weight: f64| weight > 0.0 && weight <= 1.0;
        let pace = Pace::new(check, local_steps)?.after_an_exchange();
        for end in xi.ends() {
            check.number("xi", end, is_weight(end), &expected)?;
        }
        if let Weight::Geometric { rounds, .. } = xi {
            check.at_least_one("xi.rounds", rounds)?;
        }
        if let Some(gamma) = gamma {
            check.number("gamma", gamma, is_weight(gamma), "a number in (0, 1]")?;
        }
        let (exchange, gamma) = match xi {
            Weight::Adaptive(_) => (Exchange::Adaptive { every: pace.most() }, gamma.or(Some(1.0))),
            Weight::Constant(_) | Weight::Geometric { .. } => (Exchange::Whole, gamma),
        };
        Ok(Self { pace, xi, gamma, steps: Steps { exchange, ..PLAIN } })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("mile"), own)?;
        Ok(Self { pace, ..self })
    }

    /// With momentum in the local steps.
    pub fn with_momentum(self, momentum: Option<Momentum>) -> Self {
        Self { steps: Steps { local: momentum.into(), ..self.steps }, ..self }
    }

    /// With these local steps, and a momentum unless they have an optimiser.
    pub fn with_local(
        self,
        momentum: Option<Momentum>,
        local: &LocalSteps,
    ) -> Result<Self, InvalidParameter> {
        let local = Local::of("mile", momentum, local)?;
        Ok(Self { steps: Steps { local, ..self.steps }, ..self })
    }

    /// With outer momentum, if asked.
    pub fn with_outer(self, outer: Option<OuterMomentum>) -> Result<Self, InvalidParameter> {
        let outer = OuterMomentum::of("mile", outer)?;
        Ok(Self { steps: Steps { outer, ..self.steps }, ..self })
    }

    /// With compressed messages, if asked; not if the edges determine xi.
    pub fn with_compression(self, by: Option<Compression>) -> Result<Self, InvalidParameter> {
        let Some(by) = by else { return Ok(self) };
        let exchange = self.steps.exchange.compressed("mile", by)?;
        Ok(Self { steps: Steps { exchange, ..self.steps }, ..self })
    }

    /// With an exchange that limits what malicious neighbours can do, if asked; only by a rule that treats both ends of an edge alike.
    pub fn with_robust(self, by: Option<Robust>) -> Result<Self, InvalidParameter> {
        let Some(by) = by else { return Ok(self) };
        let exchange = self.steps.exchange.robust("mile", by, true)?;
        Ok(Self { steps: Steps { exchange, ..self.steps }, ..self })
    }

    /// The default gamma if the edges determine xi: 1, or less where the smallest eigenvalue of W leaves too little room for xi.
    pub fn adaptive_gamma(lambda_n: f64) -> f64 {
        f64::min(1.0, 1.5 / (1.0 - lambda_n))
    }

    /// The default xi if messages have few elements: it was stable wherever gamma is their share, from one tenth down to one percent.
    pub fn compressed_xi(local_steps: u64, gamma: f64) -> f64 {
        0.1 * gamma / local_steps.max(1) as f64
    }

    /// The default xi with AdamW or Muon: tau xi = 0.4, a good start on language models (`experiments/languages`). With the default gamma it
    /// is stable for small steps on every network.
    pub fn preconditioned_xi(local_steps: u64) -> f64 {
        0.4 / local_steps.max(1) as f64
    }

    /// The default xi: 0.9 times the paper's bound 2/(tau + 3).
    pub fn paper_xi(local_steps: u64) -> f64 {
        0.9 * 2.0 / (local_steps as f64 + 3.0)
    }
}

impl Method for Mile {
    fn layout(&self) -> Layout {
        self.steps.layout()
    }

    /// From x(-1) to x(0), with c = 0.
    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        self.steps.begin_round(s)?;
        self.steps.local_step(s, 1)
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        if self.pace.begins(s.t) {
            self.steps.begin_round(s)?;
        }
        self.pace.each(s, |s, t, _| self.steps.local_step(s, t + 2))?;
        if self.pace.exchanges(s.t) {
            let xi = self.xi.at(s.round);
            self.steps.exchange(s, self.gamma.unwrap_or(xi), xi)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.steps.check("mile", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.steps.local.muon()
    }
}
