//! QG-DSGDm: DSGD with quasi-global momentum (Lin, Karimireddy, Stich, Jaggi, "Quasi-Global Momentum: Accelerating
//! Decentralized Deep Learning on Heterogeneous Data", 2021, Algorithm 1).
//!
//! ```text
//! p = mu m + grad f(x)        (Nesterov: p = grad f(x) + mu (mu m + grad f(x)))
//! send x - alpha p ;  x' = W (x - alpha p)
//! m = mu m + (1 - mu) (x - x')/alpha
//! ```
//!
//! The momentum is that of the mixed models, not of an agent's own gradients. A fixed point has m = 0 and is that of DSGD, so
//! it is not exact when the f_i differ.
//!
//! Sent: one vector. Stored: x, m.

use super::Momentum;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method, Unit};

const X: Vector = Vector(0);
const M: Vector = Vector(1);
const P: Vector = Vector(2);
const D: Vector = Vector(3);

/// DSGD with quasi-global momentum.
#[derive(Clone, Debug, PartialEq)]
pub struct QgDsgdm {
    momentum: Option<Momentum>,
}

impl QgDsgdm {
    /// With this momentum; without one it is DSGD.
    pub fn new(momentum: Option<Momentum>) -> Self {
        Self { momentum }
    }
}

impl Method for QgDsgdm {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("m", Unit::Fixed)], ["p", "d"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let alpha = s.step_size;
        let mu = self.momentum.map_or(0.0, |momentum| momentum.mu);
        let nesterov = self.momentum.is_some_and(|momentum| momentum.nesterov);
        s.gradient(X, P)?;
        match nesterov {
            false => s.combine(P, 1.0, &[(mu, M)])?,
            true => s.combine(P, 1.0 + mu, &[(mu * mu, M)])?,
        }
        s.combine(X, 1.0, &[(-alpha, P)])?;
        s.pull(&[(X, D)])?;
        s.combine(X, 1.0, &[(1.0, D)])?;
        let share = 1.0 - mu;
        s.combine(M, mu, &[(share, P), (-share / alpha, D)]) // (x - x')/alpha = p - d/alpha
    }
}
