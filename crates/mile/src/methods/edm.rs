//! EDM: exact diffusion with momentum (Hu, Chen, Liu, Mao, "A Bias-Correction Decentralized Stochastic Gradient Algorithm
//! with Momentum Acceleration", 2025).
//!
//! ```text
//! m = mu m + (1 - mu) grad f(x)
//! psi' = x - alpha m ;  phi = psi' + x - psi ;  send phi ;  x = (I + W)/2 phi ;  psi = psi'
//! ```
//!
//! from psi = x. In correction form v = x - alpha m + c, and the exchange is that of ED. Here the gradient passes through the
//! momentum and the correction does not; in MILE with momentum both do, which is a different method. This is our reading: the paper's
//! text was not available, and the matrix (I + W)/2 is the one ED uses here.
//!
//! Sent: one vector. Stored: x, c, m.

use super::Momentum;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method, Unit};

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const M: Vector = Vector(2);
const G: Vector = Vector(3);

/// Exact diffusion with momentum.
#[derive(Clone, Debug, PartialEq)]
pub struct Edm {
    mu: f64,
}

impl Edm {
    /// With this momentum; without one it is ED.
    pub fn new(momentum: Option<Momentum>) -> Self {
        Self { mu: momentum.map_or(0.0, |momentum| momentum.mu) }
    }
}

impl Method for Edm {
    fn layout(&self) -> Layout {
        let state = [("x", Unit::Fixed), ("c", Unit::StepSize), ("m", Unit::Fixed)];
        Layout::new(state, ["g"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (v, d) = (X, G);
        s.gradient(X, G)?;
        s.combine(M, self.mu, &[(1.0 - self.mu, G)])?;
        s.combine(X, 1.0, &[(-s.step_size, M), (1.0, C)])?;
        s.pull(&[(v, d)])?;
        s.combine(C, 1.0, &[(0.5, d)])?;
        s.combine(X, 1.0, &[(0.5, d)])
    }
}
