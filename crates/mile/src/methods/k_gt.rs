//! K-GT (Liu, Lin, Koloskova, Stich, "Decentralized Gradient Tracking with Local Steps", 2023):
//!
//! ```text
//! u = x ;  repeat K times:  u = u - alpha (grad f(u) + c)
//! z = (x - u)/(K alpha)
//! send z and x - eta_s K alpha z
//! c = c - z + W z ;  x = W (x - eta_s K alpha z)
//! ```
//!
//! from c = 0. With momentum mu (ours) the correction passes through it,
//!
//! ```text
//! m = mu m + grad f(u) + c ;  u = u - alpha m          (Nesterov: u = u - alpha (grad f(u) + c + mu m))
//! z = (1 - mu)(x - u)/(K alpha)
//! send z and x - eta_s (x - u)
//! ```
//!
//! and the rest is the same. The factor 1 - mu makes z a gradient again: a constant gradient g moves u by about
//! K alpha g/(1 - mu). Without it c would be corrected by that much more, which is unstable on most graphs. m is in units of
//! gradients, as c is; it is not sent, and an exchange leaves it unchanged.
//!
//! With AdamW or Muon (ours) as the optimiser s, local steps are `u = u - alpha (s(grad f(u)) + c)` ("step") or `u = u - alpha s(grad f(u) + p c)`
//! ("gradient"): z is the mean of their directions.
//!
//! With [`OuterMomentum`] (ours) the second vector is `x - eta (mu w + x - u)` with `w = mu w + (x - u)`; its step size eta takes the place of eta_s.
//!
//! Where agents differ in their local steps, also ours, K is the agent's own number: z is the mean of the directions of its own steps.
//!
//! Sent: two vectors in one exchange. Stored: x, u, c; with momentum also m; with outer momentum also w.

use super::parts::{Correction, Local, Needs, Outer, Pace, Vectors};
use super::{LocalSteps, Momentum, OuterMomentum};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;
use crate::optimiser::Muon;

const X: Vector = Vector(0);
const U: Vector = Vector(1);
const CORRECTION: Correction = Correction::Tracking;

/// K-GT.
#[derive(Clone, Debug, PartialEq)]
pub struct KGt {
    pace: Pace,
    outer: Outer,
    outer_momentum: Option<OuterMomentum>,
    local: Local,
}

impl KGt {
    /// `eta_s` is the global step size, applied once per communication round; 1 is usual.
    pub fn new(local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        Self::named("k-gt", local_steps, eta_s)
    }

    pub(super) fn named(name: &'static str, local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        let pace = Pace::new(Checker(name), local_steps)?;
        let outer = Outer::new(name, eta_s)?;
        Ok(Self { pace, outer, outer_momentum: None, local: Local::PLAIN })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("k-gt"), own)?;
        Ok(Self { pace, ..self })
    }

    /// With momentum in the local steps.
    pub fn with_momentum(self, momentum: Option<Momentum>) -> Self {
        Self { local: momentum.into(), ..self }
    }

    /// With these local steps, and a momentum unless they have an optimiser.
    pub fn with_local(
        self,
        momentum: Option<Momentum>,
        local: &LocalSteps,
    ) -> Result<Self, InvalidParameter> {
        Ok(Self { local: Local::of("k-gt", momentum, local)?, ..self })
    }

    /// With outer momentum, if asked, whose step size takes the place of eta_s.
    pub fn with_outer(self, outer: Option<OuterMomentum>) -> Result<Self, InvalidParameter> {
        Ok(Self { outer_momentum: OuterMomentum::of("k-gt", outer)?, ..self })
    }

    fn vectors(&self) -> Vectors<4> {
        let progress: &[_] = if self.outer_momentum.is_some() { &[("w", Unit::Fixed)] } else { &[] };
        let outer = Needs { state: progress, scratch: &[] };
        let own = Needs { state: &[("x", Unit::Fixed), ("u", Unit::Fixed)], scratch: &["g", "d"] };
        Vectors([own, CORRECTION.needs(), self.local.needs(CORRECTION.unit()), outer])
    }
}

impl Method for KGt {
    fn layout(&self) -> Layout {
        self.vectors().layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let alpha = s.step_size;
        let vectors = self.vectors();
        let (c, m, g) = (vectors.state(1), vectors.state(2), vectors.scratch(0));
        if self.pace.begins(s.t) {
            s.combine(U, 0.0, &[(1.0, X)])?;
        }
        self.pace.each(s, |s, t, _| {
            self.local.gradient(s, U, g)?;
            self.local.step(s, U, m, &CORRECTION.direction(self.local.at, alpha, g, c), t + 1)
        })?;
        if self.pace.exchanges(s.t) {
            let (z, d, moved) = (g, Vector(g.0 + 1), U);
            self.pace.each(s, |s, _, k| {
                let (k, slack) = (k as f64, self.local.slack());
                let to_gradient = slack / (k * alpha);
                s.combine(z, 0.0, &[(to_gradient, X), (-to_gradient, U)])?;
                match self.outer_momentum {
                    Some(outer) => outer.step(s, moved, (X, vectors.state(3))),
                    None => self.outer.along(s, (X, moved), z, (k, slack)),
                }
            })?;
            s.pull(&[(moved, X), (z, d)])?;
            s.combine(X, 1.0, &[(1.0, moved)])?;
            CORRECTION.add(s, c, 1.0, d)?; // d = W z - z
            self.local.share(s, m, d)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.local.check("k-gt", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.local.muon()
    }
}
