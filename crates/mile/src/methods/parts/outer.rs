//! The outer step: what a finished round does with its progress, from the model x before the local steps to the model after them.
//!
//! ```text
//! x - eta_s (x - u)                                    before the exchange: K-GT
//! x + eta_s (y - x)                                    after it, with the average y: SCAFFOLD
//! ```
//!
//! With eta_s = 1 the round ends where its local steps led. There is no progress at a fixed point, so eta_s does not move it.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter};

/// An outer step with the global step size eta_s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::methods) struct Outer {
    eta_s: f64,
}

impl Outer {
    pub(in crate::methods) fn new(method: &str, eta_s: f64) -> Result<Self, InvalidParameter> {
        let expected = "a positive number; 1 is usual";
        Ok(Self { eta_s: Checker(method).number("eta_s", eta_s, eta_s > 0.0, expected)? })
    }

    /// `to = x - eta_s (x - u)`, where `x - u = k alpha z/slack` is given by the mean direction z of k local steps.
    pub(in crate::methods) fn along(
        self,
        s: &mut Step,
        (x, to): (Vector, Vector),
        z: Vector,
        (k, slack): (f64, f64),
    ) -> Result<(), AgentsError> {
        s.combine(to, 0.0, &[(1.0, x), (-self.eta_s * k * s.step_size / slack, z)])
    }

    /// `x = x + eta_s (y - x)`.
    pub(in crate::methods) fn toward(self, s: &mut Step, x: Vector, y: Vector) -> Result<(), AgentsError> {
        s.combine(x, 1.0 - self.eta_s, &[(self.eta_s, y)])
    }
}
