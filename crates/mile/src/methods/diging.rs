//! DIGing with multiple local updates (Nedic, Olshevsky, Shi, "Achieving Geometric Convergence for
//! Distributed Optimization over Time-Varying Graphs", 2017, on the graphs W, I, ..., I, W, ...):
//!
//! ```text
//! y(0) = grad f(x(0)) ;  W_t = W if t mod tau = 0, else I
//! x(t+1) = W_t x(t) - alpha y(t) ;  y(t+1) = W_t y(t) + grad f(x(t+1)) - grad f(x(t))
//! ```
//!
//! With c = y - grad f(x) two vectors suffice:
//! `y = grad f(x) + c`, and at an exchange `c = W y - grad f(x)`.
//!
//! Sent: x, y. Stored: x, c.

use super::parts::Pace;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const G: Vector = Vector(2);
const M: Vector = Vector(3);
const N: Vector = Vector(4);

/// DIGing with local updates.
#[derive(Clone, Debug, PartialEq)]
pub struct Diging {
    pace: Pace,
}

impl Diging {
    /// An exchange at every t divisible by `local_steps`.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        Ok(Self { pace: Pace::new(Checker("diging"), local_steps)?.after_an_exchange() })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("diging"), own)?;
        Ok(Self { pace })
    }
}

impl Method for Diging {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("c", Unit::Fixed)], ["g", "pull_x", "pull_y"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (alpha, exchanges) = (s.step_size, self.pace.exchanges(s.t));
        self.pace.each(s, |s, _, _| {
            s.gradient(X, G)?;
            if exchanges { Ok(()) } else { s.combine(X, 1.0, &[(-alpha, G), (-alpha, C)]) }
        })?;
        if exchanges {
            let (y, pull_x, pull_y) = (C, M, N);
            s.combine(y, 1.0, &[(1.0, G)])?;
            s.pull(&[(X, pull_x), (y, pull_y)])?;
            s.combine(X, 1.0, &[(1.0, pull_x), (-alpha, y)])?;
            s.combine(C, 1.0, &[(1.0, pull_y), (-1.0, G)])?; // c = W y - g
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }
}
