//! NIDS (Li, Shi, Yan, "A Decentralized Proximal-Gradient Method With Network Independent Step-Sizes
//! and Separated Convergence Rates", 2019, Algorithm 1) for objectives with a penalty g, with its standard c = 1/(2 alpha)
//! and `Wb = (I + W)/2`:
//!
//! ```text
//! z(1) = x(0) - alpha grad f(x(0)) ;  x(1) = prox_{alpha g}(z(1))                                             (unmixed)
//! z(k+1) = z(k) - x(k) + Wb (2x(k) - x(k-1) - alpha grad f(x(k)) + alpha grad f(x(k-1))) ;  x(k+1) = prox_{alpha g}(z(k+1))
//! ```
//!
//! In correction form, with e = x - z, which is zero without g:
//!
//! ```text
//! v = x - alpha grad f(x) + c ;  y = v + e
//! send y ;  d = W y - y ;  c = c + d/2 ;  z = v + d/2 ;  x = prox_{alpha g}(z) ;  e = x - z
//! ```
//!
//! It is exact for convex f_i and alpha < 2/L. Agents agree on x and not on z: where an agent's z lies exactly on the threshold,
//! rounding may leave its x slightly off zero.
//!
//! Sent: y. Stored: x, c, e.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method, Unit};

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const E: Vector = Vector(2);
const G: Vector = Vector(3);

/// NIDS for objectives with a [`Penalty`](crate::problems::Penalty).
#[derive(Clone, Debug, PartialEq)]
pub struct ProxNids;

impl Method for ProxNids {
    fn layout(&self) -> Layout {
        let state = [("x", Unit::Fixed), ("c", Unit::StepSize), ("e", Unit::StepSize)];
        Layout::new(state, ["g"])
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.gradient(X, G)?;
        s.combine(X, 1.0, &[(-s.step_size, G)])?;
        threshold(s)
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (y, d) = (E, G);
        s.gradient(X, G)?;
        s.combine(X, 1.0, &[(-s.step_size, G), (1.0, C)])?; // v = x - alpha g + c
        s.combine(y, 1.0, &[(1.0, X)])?; // y = e + v
        s.pull(&[(y, d)])?;
        s.combine(C, 1.0, &[(0.5, d)])?;
        s.combine(X, 1.0, &[(0.5, d)])?; // z = v + d/2
        threshold(s)
    }

    fn takes_penalty(&self) -> bool {
        true
    }
}

/// `x = prox_{alpha g}(z) ; e = x - z`, with z in the memory of x.
fn threshold(s: &mut Step) -> Result<(), AgentsError> {
    s.combine(E, 0.0, &[(-1.0, X)])?;
    s.prox(X, s.step_size)?;
    s.combine(E, 1.0, &[(1.0, X)])
}
