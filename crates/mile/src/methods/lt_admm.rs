//! LT-ADMM: local training ADMM (Ren, Bastianello, Johansson, Parisini, "Communication-Efficient Stochastic Distributed
//! Learning", 2025). Every edge has two variables, z_ij at agent i and z_ji at agent j:
//!
//! ```text
//! phi = x_i ;  repeat tau times:  phi = phi - gamma grad f_i(phi) - beta (rho sum_j w_ij x_i - sum_j z_ij) ;  x_i = phi
//! send z_ij - 2 rho w_ij x_i ;  z_ij = (z_ij - z_ji + 2 rho w_ij x_j)/2
//! ```
//!
//! with the step size gamma = alpha and, in the paper, all weights w_ij = 1: equal weights such as those of `max-degree` are the
//! paper's, with another rho.
//!
//! The edge variables need not be stored. Adding and subtracting the two updates of an edge gives
//!
//! ```text
//! z_ij + z_ji = rho w_ij (x_i + x_j)                                           after every exchange
//! z_ij - z_ji = (z_ij - z_ji before it) + rho w_ij (x_j - x_i)
//! ```
//!
//! so with d_i = sum_j w_ij (x_j - x_i) and A_i = sum_j (z_ij - z_ji), half of each sum gives `sum_j z_ij = rho sum_j w_ij x_i +
//! (A_i + rho d_i)/2`, where `A_i = A_i + rho d_i` in every exchange. Only the product beta rho matters, which is the parameter `rho`
//! here. With c = beta A/2:
//!
//! ```text
//! repeat tau times:  x = x - alpha grad f(x) + c + (rho/2) d
//! send x ;  d = W x - x ;  c = c + (rho/2) d
//! ```
//!
//! A fixed point has d = 0, sum c = 0 and c_i = alpha grad f_i: exact. The mean of all x descends along the mean gradient in every step.
//! For small step sizes the mode of an eigenvalue l of W is stable iff rho tau (1 - l) < 8/3. The default, 1/(tau w) with
//! the largest sum w of an agent's weights, makes the left side at most 2, and a round of local steps as strong as an exact
//! minimisation in ADMM.
//!
//! With tau = 1 it is FSPDA with gamma = rho and beta = rho/2 from an unmixed first step (`fspda.rs`), so with rho = 1 it is EXTRA.
//!
//! *The penalty* is taken at the model x_i of the last exchange, as in the implementation of decent-bench. With phi in its place, `rho sum_j w_ij phi`, which is
//! the gradient of ADMM's penalty where the local steps are, they are pulled back to where they began: the mean moves less in a round, and
//! rho may be as large as 1/w for any tau. That is [DiNNO](super::Dinno) with half of the rho (`tests/suite/literal_rivals.rs`). Both are exact.
//!
//! *The start* is c = d = 0: the local steps of the first round are plain, as with z_ij = rho w_ij x_i, and the differences z_ij - z_ji begin at
//! zero, as if the agents began at the same point. (decent-bench begins with z_ij = x_i. For its default rho = 1 that is the same, unless the agents
//! begin at different points: then its differences do not begin at zero. z_ij = 0 would pull all models towards the origin in the first round.)
//!
//! *Edges that are down* in a round are left out of d, and c keeps what they have contributed.
//!
//! Sent: x, one vector. Stored: x, c, d.

use super::parts::Pace;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const D: Vector = Vector(2);
const G: Vector = Vector(3);

/// ADMM with local gradient steps.
#[derive(Clone, Debug, PartialEq)]
pub struct LtAdmm {
    pace: Pace,
    rho: f64,
}

impl LtAdmm {
    /// `rho` is the paper's beta rho, by default [`usual_rho`](Self::usual_rho).
    pub fn new(local_steps: u64, rho: f64) -> Result<Self, InvalidParameter> {
        let check = Checker("lt-admm");
        let pace = Pace::new(check, local_steps)?;
        Ok(Self { pace, rho: check.number("rho", rho, rho > 0.0, "a positive number")? })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("lt-admm"), own)?;
        Ok(Self { pace, ..self })
    }

    /// The default rho: 1/(tau w) with the largest sum w of an agent's weights.
    pub fn usual_rho(local_steps: u64, network: &Network) -> f64 {
        1.0 / (local_steps.max(1) as f64 * network.mixing().degree())
    }
}

impl Method for LtAdmm {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("c", Unit::StepSize), ("d", Unit::Fixed)], ["g"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        self.pace.each(s, |s, _, _| {
            s.gradient(X, G)?;
            s.combine(X, 1.0, &[(-s.step_size, G), (1.0, C), (0.5 * self.rho, D)])
        })?;
        if self.pace.exchanges(s.t) {
            s.pull(&[(X, D)])?;
            s.combine(C, 1.0, &[(0.5 * self.rho, D)])?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }
}
