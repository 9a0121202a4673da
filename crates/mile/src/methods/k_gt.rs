//! K-GT (Liu, Lin, Koloskova, Stich, "Decentralized Gradient Tracking with Local Steps", 2023):
//!
//! ```text
//! u = x ;  repeat K times:  u = u - alpha (grad f(u) + c)
//! z = (x - u)/(K alpha)
//! send z and x - eta_s K alpha z
//! c = c - z + W z ;  x = W (x - eta_s K alpha z)
//! ```
//!
//! from c = 0. Sent: two vectors in one exchange. Stored: x, u, c.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};

const X: Vector = Vector(0);
const U: Vector = Vector(1);
const C: Vector = Vector(2);
const G: Vector = Vector(3);
const M: Vector = Vector(4);

/// K-GT.
#[derive(Clone, Debug, PartialEq)]
pub struct KGt {
    local_steps: u64,
    eta_s: f64,
}

impl KGt {
    /// `eta_s` is the global step size, applied once per communication round; 1 is usual.
    pub fn new(local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        Self::named("k-gt", local_steps, eta_s)
    }

    pub(super) fn named(name: &'static str, local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        let check = Checker(name);
        Ok(Self {
            local_steps: check.at_least_one("local_steps", local_steps)?,
            eta_s: check.number("eta_s", eta_s, eta_s > 0.0, "a positive number; 1 is usual")?,
        })
    }
}

impl Method for KGt {
    fn layout(&self) -> Layout {
        let state = &[("x", Unit::Fixed), ("u", Unit::Fixed), ("c", Unit::Fixed)];
        Layout { state, scratch: &["g", "d"] }
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (alpha, k) = (s.step_size, self.local_steps as f64);
        if s.t.is_multiple_of(self.local_steps) {
            s.combine(U, 0.0, &[(1.0, X)])?;
        }
        s.gradient(U, G)?;
        s.combine(U, 1.0, &[(-alpha, G), (-alpha, C)])?;
        if (s.t + 1).is_multiple_of(self.local_steps) {
            let (z, d, moved) = (G, M, U);
            s.combine(z, 0.0, &[(1.0 / (k * alpha), X), (-1.0 / (k * alpha), U)])?;
            s.combine(moved, 0.0, &[(1.0, X), (-self.eta_s * k * alpha, z)])?;
            s.pull(&[(moved, X), (z, d)])?;
            s.combine(X, 1.0, &[(1.0, moved)])?;
            s.combine(C, 1.0, &[(1.0, d)])?; // d = W z - z
        }
        Ok(())
    }
}
