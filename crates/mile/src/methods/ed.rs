//! ED: exact diffusion (Yuan, Ying, Zhao, Sayed, "Exact Diffusion for Distributed Optimization and
//! Learning", 2019), with `Wb = (I + W)/2`:
//!
//! ```text
//! psi' = x - alpha grad f(x) ;  phi = psi' + x - psi ;  x = Wb phi ;  psi = psi'          (psi = x at the start)
//! ```
//!
//! which is `v = x - alpha grad f(x) + c ; x = Wb v ; c = c - (v - x)` from c = 0.
//!
//! With a penalty g it is Prox-ED (Alghunaim, Ryu, Yuan, Sayed, "Decentralized Proximal Gradient Algorithms With Linear
//! Convergence Rates", 2021):
//!
//! ```text
//! v = x - alpha grad f(x) - B y ;  y = y + B v ;  x = prox_{alpha g}(Wb v)             (B^2 = (I - W)/2, y = 0 at the start)
//! ```
//!
//! with c = -B y. It is exact for convex f_i if g is the same for all agents: at a fixed point v = W v, so all agents
//! threshold the same vector and have the same zeros, and the c_i sum to zero. It is not NIDS, whose agents agree on x
//! and not on v, and which keeps one more vector.
//!
//! Sent: phi (= v). Stored: x, c.

use super::primal_dual::{PLAIN, X};
use crate::agents::{AgentsError, Step};
use crate::method::{Layout, Method};

/// Exact diffusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Ed;

impl Method for Ed {
    fn layout(&self) -> Layout {
        PLAIN.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        PLAIN.local_step(s, s.t + 1)?;
        PLAIN.exchange(s, 0.5, 0.5)?;
        s.prox(X, s.step_size)
    }

    fn takes_penalty(&self) -> bool {
        true
    }
}
