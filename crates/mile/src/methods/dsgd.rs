//! Decentralized (stochastic) gradient descent (Lian et al., "Can Decentralized Algorithms Outperform
//! Centralized Algorithms?", 2017, is the second form):
//!
//! ```text
//! adapt then combine:   x = W (x - alpha grad f(x))
//! combine then adapt:   x = W x - alpha grad f(x)
//! ```
//!
//! With a constant step size it does not reach a stationary point of f when the f_i differ.
//!
//! With a penalty g both end with its proximal step, which for the second is Prox-DGD (Zeng, Yin, "On Nonconvex
//! Decentralized Gradient Descent", 2018): `x = prox_{alpha g}(W x - alpha grad f(x))`. It is as inexact as without a penalty.
//!
//! With a [robust](crate::robust) exchange d takes the place of `W x - x`: with the rule that clips, the first form is DSGD with CS+.
//!
//! Sent: one vector. Stored: x.

use super::parts::{Exchange, Place};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{InvalidParameter, Layout, Method, Unit};
use crate::network::Network;
use crate::robust::Robust;

const X: Vector = Vector(0);
const G: Vector = Vector(1);
const D: Vector = Vector(2);

/// Order of the gradient step (adapt) and the mixing (combine).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// Adapt then combine: first the gradient step, then the mixing.
    #[default]
    Atc,
    /// Combine then adapt: first the mixing, then the gradient step.
    Cta,
}

impl Variant {
    /// Its name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Atc => "atc",
            Self::Cta => "cta",
        }
    }

    /// The variant with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Atc, Self::Cta].into_iter().find(|variant| variant.name() == name)
    }
}

/// Decentralized gradient descent.
#[derive(Clone, Debug, PartialEq)]
pub struct Dsgd {
    variant: Variant,
    exchange: Exchange,
}

impl Dsgd {
    /// With this order of gradient step and mixing.
    pub fn new(variant: Variant) -> Self {
        Self { variant, exchange: Exchange::Whole }
    }

    /// With an exchange that limits what malicious neighbours can do, if asked.
    pub fn with_robust(self, by: Option<Robust>) -> Result<Self, InvalidParameter> {
        let Some(by) = by else { return Ok(self) };
        Ok(Self { exchange: self.exchange.robust("dsgd", by, false)?, ..self })
    }
}

impl Method for Dsgd {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed)], ["g", "d"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let alpha = s.step_size;
        let place = Place { free: D, state: X, scratch: D };
        s.gradient(X, G)?;
        match self.variant {
            Variant::Atc => {
                s.combine(X, 1.0, &[(-alpha, G)])?;
                let (d, _) = self.exchange.pull(s, X, place)?;
                s.combine(X, 1.0, &[(1.0, d)])?; // W x = x + d
            }
            Variant::Cta => {
                let (d, _) = self.exchange.pull(s, X, place)?;
                s.combine(X, 1.0, &[(1.0, d), (-alpha, G)])?;
            }
        }
        s.prox(X, alpha)
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.exchange.check("dsgd", network)
    }

    fn takes_penalty(&self) -> bool {
        true
    }
}
