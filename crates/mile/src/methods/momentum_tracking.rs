//! Momentum Tracking (Takezawa, Bao, Niwa, Sato, Yamada, "Momentum Tracking: Momentum Acceleration for Decentralized Deep
//! Learning on Heterogeneous Data", 2022):
//!
//! ```text
//! u = mu u + grad f(x)
//! send x and c - u ;  x = W x - alpha (u - c) ;  c = W (c - u) + u
//! ```
//!
//! from c = u = 0; the authors' code starts from `c = u = (g_i - mean g)/(1 - mu)`, which needs an average over all agents.
//! The c_i sum to zero. At a fixed point u - c is the same for all agents and has mean zero, and u = grad f/(1 - mu): exact.
//!
//! Sent: two vectors in one exchange. Stored: x, u, c.

use super::Momentum;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method, Unit};

const X: Vector = Vector(0);
const U: Vector = Vector(1);
const C: Vector = Vector(2);
const V: Vector = Vector(3);
const P: Vector = Vector(4);
const Q: Vector = Vector(5);

/// Gradient tracking of momentum.
#[derive(Clone, Debug, PartialEq)]
pub struct MomentumTracking {
    mu: f64,
}

impl MomentumTracking {
    /// With this momentum; without one it is gradient tracking in the combine-then-adapt form.
    pub fn new(momentum: Option<Momentum>) -> Self {
        Self { mu: momentum.map_or(0.0, |momentum| momentum.mu) }
    }
}

impl Method for MomentumTracking {
    fn layout(&self) -> Layout {
        let state = [("x", Unit::Fixed), ("u", Unit::Fixed), ("c", Unit::Fixed)];
        Layout::new(state, ["v", "p", "q"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (g, v) = (V, V);
        s.gradient(X, g)?;
        s.combine(U, self.mu, &[(1.0, g)])?;
        s.combine(v, 0.0, &[(1.0, C), (-1.0, U)])?;
        s.pull(&[(X, P), (v, Q)])?;
        s.combine(X, 1.0, &[(1.0, P), (s.step_size, v)])?;
        s.combine(C, 1.0, &[(1.0, Q)]) // W v + u = c + (W v - v)
    }
}
