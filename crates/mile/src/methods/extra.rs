//! EXTRA (Shi, Ling, Wu, Yin, "EXTRA: An Exact First-Order Algorithm for Decentralized Consensus
//! Optimization", 2015), with `Wb = (I + W)/2`:
//!
//! ```text
//! x(1) = W x(0) - alpha grad f(x(0))
//! x(k+2) = (I + W) x(k+1) - Wb x(k) - alpha (grad f(x(k+1)) - grad f(x(k)))
//! ```
//!
//! Summed over k: `x(k+1) = W x(k) - alpha grad f(x(k)) + c(k)`, `c(k+1) = c(k) - (x(k) - W x(k))/2`, c(0) = 0,
//! which stores neither the previous W x nor the previous gradient.
//!
//! With a penalty g it is PG-EXTRA (Shi, Ling, Wu, Yin, "A Proximal Gradient Algorithm for Decentralized Composite
//! Optimization", 2015):
//!
//! ```text
//! z(1) = W x(0) - alpha grad f(x(0)) ;  x(1) = prox_{alpha g}(z(1))
//! z(k+2) = W x(k+1) + z(k+1) - Wb x(k) - alpha (grad f(x(k+1)) - grad f(x(k))) ;  x(k+2) = prox_{alpha g}(z(k+2))
//! ```
//!
//! which is the same sum with `z(k+1)` for `x(k+1)`, and `x(k+1) = prox_{alpha g}(z(k+1))`. It is exact for convex f_i; the
//! proof requires alpha < (1 + l_N)/L. Agents agree on x and not on z: where an agent's z lies exactly on the threshold, rounding
//! may leave its x slightly off zero.
//!
//! Sent: x. Stored: x, c.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method, Unit};

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const G: Vector = Vector(2);
const D: Vector = Vector(3);

/// EXTRA.
#[derive(Clone, Debug, PartialEq)]
pub struct Extra;

impl Method for Extra {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("c", Unit::StepSize)], ["g", "d"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.gradient(X, G)?;
        s.pull(&[(X, D)])?;
        s.combine(X, 1.0, &[(1.0, D), (-s.step_size, G), (1.0, C)])?; // W x = x + d
        s.combine(C, 1.0, &[(0.5, D)])?;
        s.prox(X, s.step_size)
    }

    fn takes_penalty(&self) -> bool {
        true
    }
}
