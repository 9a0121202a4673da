//! The outer step: what a finished round does with its progress, from the model before the local steps to the model after them.
//!
//! ```text
//! x - eta_s (x - u)                                    before the exchange: K-GT
//! x + eta_s (y - x)                                    after it, with the average y: SCAFFOLD
//! u = mu u + (a - x) ;  x = a - eta (mu u + a - x)     before the exchange: outer momentum, from the model a to the model x
//! ```
//!
//! The last is Nesterov's momentum on the progress of rounds, as in DiLoCo (Douillard et al. 2023), without a server: it is formed before the
//! exchange, so that what is sent is still one vector. In the long run a constant progress is multiplied by eta/(1 - mu).
//!
//! There is no progress at a fixed point, so no outer step moves it.

use super::Needs;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Unit};

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

/// Momentum on the progress of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OuterMomentum {
    /// The coefficient mu, in [0, 1).
    pub momentum: f64,
    /// The step size eta, a positive number.
    pub step_size: f64,
}

impl OuterMomentum {
    /// The outer momentum of a method's parameters, checked; none if it changes nothing.
    pub(in crate::methods) fn of(
        method: &str,
        given: Option<Self>,
    ) -> Result<Option<Self>, InvalidParameter> {
        let Some(outer) = given else { return Ok(None) };
        let outer = outer.checked(method)?;
        Ok((outer != Self { momentum: 0.0, step_size: 1.0 }).then_some(outer))
    }

    /// An error unless its numbers are in their ranges.
    pub(in crate::methods) fn checked(self, method: &str) -> Result<Self, InvalidParameter> {
        let (check, Self { momentum, step_size }) = (Checker(method), self);
        check.number("outer.momentum", momentum, (0.0..1.0).contains(&momentum), "a number in [0, 1)")?;
        check.number("outer.step_size", step_size, step_size > 0.0, "a positive number")?;
        Ok(self)
    }

    /// By how much a constant progress is multiplied in the long run.
    pub fn gain(self) -> f64 {
        self.step_size / (1.0 - self.momentum)
    }

    /// The model a at the start of the round, and u, in units of x. As in DiLoCo, u is not rescaled with the step size.
    pub(in crate::methods) const NEEDS: Needs =
        Needs { state: &[("a", Unit::Fixed), ("u", Unit::Fixed)], scratch: &[] };

    /// `a = x`, before the first local step of a round.
    pub(in crate::methods) fn begin(s: &mut Step, x: Vector, a: Vector) -> Result<(), AgentsError> {
        s.combine(a, 0.0, &[(1.0, x)])
    }

    /// `u = mu u + (a - x) ; x = a - eta (mu u + a - x)`, before the exchange.
    pub(in crate::methods) fn step(
        self,
        s: &mut Step,
        x: Vector,
        (a, u): (Vector, Vector),
    ) -> Result<(), AgentsError> {
        let Self { momentum: mu, step_size: eta } = self;
        s.combine(u, mu, &[(1.0, a), (-1.0, x)])?;
        s.combine(x, eta, &[(1.0 - eta, a), (-eta * mu, u)])
    }
}

impl std::fmt::Display for OuterMomentum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "momentum {}, step_size {}", self.momentum, self.step_size)
    }
}
