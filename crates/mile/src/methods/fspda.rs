//! FSPDA-SA (Yau, Liu, Wai, "Fully Stochastic Primal-dual Gradient Algorithm for Non-convex Optimization on Random Graphs", 2024,
//! equation 8):
//!
//! ```text
//! send x ;  d_i = sum_j w_ij (x_j - x_i)                                       over the edges of this round
//! x = x - alpha grad f(x) - eta l + gamma d ;  l = l - beta d
//! ```
//!
//! from l = 0. The text prints `l + beta d`, which diverges: l would push agents further apart. In the letters of `mile.rs` c = -eta
//! l and xi = eta beta, and with the same exchange in every iteration
//!
//! ```text
//! x = x - alpha grad f(x) + c + gamma d ;  c = c + xi d
//! ```
//!
//! This is decoupled MILE with tau = 1, except that exchange and gradient step start from the same x, where MILE's exchange follows the
//! step: the two relate as EXTRA and exact diffusion do. For constant gradients FSPDA's x with weights (gamma + xi, xi) is the v that MILE sends
//! with weights (gamma, xi), on any edges. On a fixed graph, gamma = 1 and xi = 1/2 is EXTRA (`tests/suite/identities.rs`). Its authors prove
//! that it converges for nonconvex f on random graphs, with stochastic gradients: what is nearest to a proof for MILE there.
//!
//! It is meant for random edges: a network with `drop_rate` or `time_varying = "random-matching"`. An agent without an edge in a round makes a local step. (The
//! paper also sends random coordinates only; that is not built in.) For small step sizes it is stable on a fixed graph iff xi < gamma and
//! (2 gamma - xi)(1 - l_N) < 4.
//!
//! Sent: x, one vector. Stored: x, c.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const G: Vector = Vector(2);
const D: Vector = Vector(3);

/// FSPDA-SA.
#[derive(Clone, Debug, PartialEq)]
pub struct Fspda {
    gamma: f64,
    xi: f64,
}

impl Fspda {
    /// `gamma` is the weight of the mixing, and `beta` the product of the paper's eta and beta, the weight of the correction.
    pub fn new(gamma: f64, beta: f64) -> Result<Self, InvalidParameter> {
        let (check, expected) = (Checker("fspda"), "a number in (0, 1]");
        let number = |key, value: f64| check.number(key, value, value > 0.0 && value <= 1.0, expected);
        Ok(Self { gamma: number("gamma", gamma)?, xi: number("beta", beta)? })
    }
}

impl Method for Fspda {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("c", Unit::StepSize)], ["g", "d"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.gradient(X, G)?;
        s.pull(&[(X, D)])?;
        s.combine(X, 1.0, &[(-s.step_size, G), (1.0, C), (self.gamma, D)])?;
        s.combine(C, 1.0, &[(self.xi, D)])
    }
}
