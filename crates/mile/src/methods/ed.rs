//! ED: exact diffusion (Yuan, Ying, Zhao, Sayed, "Exact Diffusion for Distributed Optimization and
//! Learning", 2019), with `Wb = (I + W)/2`:
//!
//! ```text
//! psi' = x - alpha grad f(x) ;  phi = psi' + x - psi ;  x = Wb phi ;  psi = psi'          (psi = x at the start)
//! ```
//!
//! which is `v = x - alpha grad f(x) + c ; x = Wb v ; c = c - (v - x)` from c = 0.
//!
//! Sent: phi (= v). Stored: x, c.

use super::primal_dual::{LAYOUT, exchange, local_step};
use crate::agents::{AgentsError, Step};
use crate::method::{Layout, Method};

/// Exact diffusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Ed;

impl Method for Ed {
    fn layout(&self) -> Layout {
        LAYOUT
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        local_step(s)?;
        exchange(s, 0.5, 0.5)
    }
}
