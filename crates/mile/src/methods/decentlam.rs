//! DecentLaM (Yuan, Chen, Huang, Zhang, Pan, Xu, Yin, "DecentLaM: Decentralized Momentum SGD for Large-batch Deep
//! Training", 2021):
//!
//! ```text
//! send x - alpha grad f(x) ;  g = (x - W (x - alpha grad f(x)))/alpha
//! m = mu m + g ;  x = x - alpha m
//! ```
//!
//! Heavy ball on what DSGD minimises: momentum does not add to the bias of DSGD, and the fixed points are the same. It is not exact when
//! the f_i differ.
//!
//! Sent: one vector. Stored: x, m.

use super::Momentum;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method, Unit};

const X: Vector = Vector(0);
const M: Vector = Vector(1);
const G: Vector = Vector(2);
const V: Vector = Vector(3);
const D: Vector = Vector(4);

/// Decentralized SGD with momentum that adds no bias.
#[derive(Clone, Debug, PartialEq)]
pub struct DecentLaM {
    mu: f64,
}

impl DecentLaM {
    /// With this momentum; without one it is DSGD.
    pub fn new(momentum: Option<Momentum>) -> Self {
        Self { mu: momentum.map_or(0.0, |momentum| momentum.mu) }
    }
}

impl Method for DecentLaM {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("m", Unit::Fixed)], ["g", "v", "d"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let alpha = s.step_size;
        s.gradient(X, G)?;
        s.combine(V, 0.0, &[(1.0, X), (-alpha, G)])?;
        s.pull(&[(V, D)])?;
        s.combine(M, self.mu, &[(1.0, G), (-1.0 / alpha, D)])?; // x - W v = alpha grad f(x) - d
        s.combine(X, 1.0, &[(-alpha, M)])
    }
}
