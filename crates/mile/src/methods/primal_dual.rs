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
//!
//! With [`Momentum`] the correction goes through it, `m = mu m + (alpha grad f(x) - c)` and `v = x - m`: at a fixed point
//! m = 0, and the rest is as above. m is in units of x, as c is, so it is rescaled with the step size.

use super::momentum::Momentum;
use super::public_copy::PublicCopy;
use crate::agents::{AgentsError, SteadyPull, Step, Vector};
use crate::compression::Compression;
use crate::method::{Layout, Unit};

pub(super) const X: Vector = Vector(0);
const C: Vector = Vector(1);
const M: Vector = Vector(2);
const G: Vector = Vector(2);

/// State x and c. The scratch vector g holds the gradient, and after it W v - v.
pub(super) const LAYOUT: Layout =
    Layout { state: &[("x", Unit::Fixed), ("c", Unit::StepSize)], scratch: &["g"] };

/// State x, c and m.
const WITH_MOMENTUM: Layout =
    Layout { state: &[("x", Unit::Fixed), ("c", Unit::StepSize), ("m", Unit::StepSize)], scratch: &["g"] };

/// The same with the memory p of exchanges that weigh differences, and with e for their weighted sum.
const STEADY: Layout =
    Layout { state: &[("x", Unit::Fixed), ("c", Unit::StepSize), ("p", Unit::Fixed)], scratch: &["g", "e"] };
const STEADY_WITH_MOMENTUM: Layout = Layout {
    state: &[("x", Unit::Fixed), ("c", Unit::StepSize), ("m", Unit::StepSize), ("p", Unit::Fixed)],
    scratch: &["g", "e"],
};

/// The same with a public copy y of x, and s for W y - y.
const COMPRESSED: Layout = Layout {
    state: &[("x", Unit::Fixed), ("c", Unit::StepSize), ("y", Unit::Fixed), ("s", Unit::Fixed)],
    scratch: &["g", "d"],
};
const COMPRESSED_WITH_MOMENTUM: Layout = Layout {
    state: &[
        ("x", Unit::Fixed),
        ("c", Unit::StepSize),
        ("m", Unit::StepSize),
        ("y", Unit::Fixed),
        ("s", Unit::Fixed),
    ],
    scratch: &["g", "d"],
};

/// `x = x - alpha grad f(x)`, the unmixed first step of MILE and NIDS.
pub(super) fn gradient_step(s: &mut Step) -> Result<(), AgentsError> {
    s.gradient(X, G)?;
    s.combine(X, 1.0, &[(-s.step_size, G)])?;
    Ok(())
}

/// `x = v = x - alpha grad f(x) + c`.
pub(super) fn local_step(s: &mut Step) -> Result<(), AgentsError> {
    local_step_by(s, G)
}

/// The same step with the gradient in another vector than g.
fn local_step_by(s: &mut Step, g: Vector) -> Result<(), AgentsError> {
    s.gradient(X, g)?;
    s.combine(X, 1.0, &[(-s.step_size, g), (1.0, C)])?;
    Ok(())
}

/// The exchange above with d = m - v: `d = W v - v ; c = c + xi d ; x = v + gamma d`.
pub(super) fn exchange(s: &mut Step, gamma: f64, xi: f64) -> Result<(), AgentsError> {
    exchange_by(s, G, gamma, xi)
}

/// The same exchange with d in another vector than g.
pub(super) fn exchange_by(s: &mut Step, d: Vector, gamma: f64, xi: f64) -> Result<(), AgentsError> {
    let v = X;
    s.pull(&[(v, d)])?;
    s.combine(C, 1.0, &[(xi, d)])?;
    s.combine(X, 1.0, &[(gamma, d)])?;
    Ok(())
}

/// What agents send in an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Sends {
    /// v.
    #[default]
    Whole,
    /// v and a summary, by which differences are weighed by how steady they are.
    Steady,
    /// Compressed differences of v from a public copy.
    Compressed(Compression),
}

/// The same steps with momentum, if there is one, and with other exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Steps {
    pub(super) momentum: Option<Momentum>,
    pub(super) sends: Sends,
}

impl Steps {
    pub(super) fn layout(self) -> Layout {
        match (self.sends, self.momentum) {
            (Sends::Whole, None) => LAYOUT,
            (Sends::Whole, Some(_)) => WITH_MOMENTUM,
            (Sends::Steady, None) => STEADY,
            (Sends::Steady, Some(_)) => STEADY_WITH_MOMENTUM,
            (Sends::Compressed(_), None) => COMPRESSED,
            (Sends::Compressed(_), Some(_)) => COMPRESSED_WITH_MOMENTUM,
        }
    }

    fn scratch(self) -> Vector {
        Vector(self.layout().state.len())
    }

    /// `m = mu m + (alpha grad f(x) - c) ; x = v = x - m`.
    pub(super) fn local_step(self, s: &mut Step) -> Result<(), AgentsError> {
        let g = self.scratch();
        let Some(momentum) = self.momentum else { return local_step_by(s, g) };
        s.gradient(X, g)?;
        momentum.step(s, (X, M), 1.0, &[(s.step_size, g), (-1.0, C)])
    }

    /// The exchange of v, whole or compressed.
    pub(super) fn exchange(self, s: &mut Step, gamma: f64, xi: f64) -> Result<(), AgentsError> {
        match self.sends {
            Sends::Compressed(by) => self.compressed_exchange(s, gamma, xi, by),
            Sends::Whole | Sends::Steady => exchange_by(s, self.scratch(), gamma, xi),
        }
    }

    /// The same exchange in which the correction counts the difference along each edge as far as it is steady:
    /// `d_i = sum_j w_ij (v_j - v_i) ; e_i = sum_j w_ij rho_ij (v_j - v_i) ; c = c + xi e ; x = v + gamma d`.
    pub(super) fn steady_exchange(
        self,
        s: &mut Step,
        gamma: f64,
        xi: f64,
        fresh: f64,
    ) -> Result<(), AgentsError> {
        let d = self.scratch();
        let (v, p, e) = (X, Vector(d.0 - 1), Vector(d.0 + 1));
        s.pull_steady(&SteadyPull { from: v, memory: p, to: d, steady: e, fresh })?;
        s.combine(C, 1.0, &[(xi, e)])?;
        s.combine(X, 1.0, &[(gamma, d)])?;
        Ok(())
    }

    /// The same exchange with what the neighbours know of each other's v: `s = W y - y ; c = c + xi s ; x = v + gamma s`.
    fn compressed_exchange(
        self,
        step: &mut Step,
        gamma: f64,
        xi: f64,
        by: Compression,
    ) -> Result<(), AgentsError> {
        let q = self.scratch();
        let copy = PublicCopy { y: Vector(q.0 - 2), s: Vector(q.0 - 1), q, d: Vector(q.0 + 1) };
        let s = copy.exchange(step, X, by)?;
        step.combine(C, 1.0, &[(xi, s)])?;
        step.combine(X, 1.0, &[(gamma, s)])?;
        Ok(())
    }
}
