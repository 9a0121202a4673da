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
//! Sent: one vector. Stored: x.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method, Unit};

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
    /// Order of gradient step and mixing.
    pub variant: Variant,
}

impl Method for Dsgd {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed)], ["g", "d"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let alpha = s.step_size;
        s.gradient(X, G)?;
        match self.variant {
            Variant::Atc => {
                s.combine(X, 1.0, &[(-alpha, G)])?;
                s.pull(&[(X, D)])?;
                s.combine(X, 1.0, &[(1.0, D)])?; // W x = x + d
            }
            Variant::Cta => {
                s.pull(&[(X, D)])?;
                s.combine(X, 1.0, &[(1.0, D), (-alpha, G)])?;
            }
        }
        s.prox(X, alpha)
    }

    fn takes_penalty(&self) -> bool {
        true
    }
}
