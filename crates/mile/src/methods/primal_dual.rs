//! The common step of the methods with one correction vector c (primal-dual methods).
//!
//! ```text
//! v = x - alpha grad f(x) + c
//! no exchange:  x = v
//! exchange:     m = W v ;  x = (1 - gamma) v + gamma m ;  c = c - xi (v - m)
//! ```
//!
//! At a fixed point v = W v, so all agents agree, and the c_i sum to zero, so the mean gradient is zero.
//!
//! | method | gamma | xi | exchanges |
//! |---|---|---|---|
//! | MILE | xi | xi | t mod tau = 0 |
//! | MILE, decoupled | gamma | xi | t mod tau = 0 |
//! | LED | 1 | beta | every tau-th step |
//! | ProxSkip | 1/(2 chi) | beta/(2 chi) | shared coin |
//! | ED | 1/2 | 1/2 | always |
//! | D2 | 1 | 1 | always |
//! | NIDS | 1/2 | 1/2 | always, after an unmixed first step |

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Unit};

pub(super) const X: Vector = Vector(0);
const C: Vector = Vector(1);
const G: Vector = Vector(2);

/// State x and c. The scratch vector g holds the gradient, and after it W v - v.
pub(super) const LAYOUT: Layout =
    Layout { state: &[("x", Unit::Fixed), ("c", Unit::StepSize)], scratch: &["g"] };

/// `x = x - alpha grad f(x)`, the unmixed first step of MILE and NIDS.
pub(super) fn gradient_step(s: &mut Step) -> Result<(), AgentsError> {
    s.gradient(X, G)?;
    s.combine(X, 1.0, &[(-s.step_size, G)])?;
    Ok(())
}

/// `x = v = x - alpha grad f(x) + c`.
pub(super) fn local_step(s: &mut Step) -> Result<(), AgentsError> {
    s.gradient(X, G)?;
    s.combine(X, 1.0, &[(-s.step_size, G), (1.0, C)])?;
    Ok(())
}

/// The exchange above with d = m - v: `d = W v - v ; c = c + xi d ; x = v + gamma d`.
pub(super) fn exchange(s: &mut Step, gamma: f64, xi: f64) -> Result<(), AgentsError> {
    let (v, d) = (X, G);
    s.pull(&[(v, d)])?;
    s.combine(C, 1.0, &[(xi, d)])?;
    s.combine(X, 1.0, &[(gamma, d)])?;
    Ok(())
}
