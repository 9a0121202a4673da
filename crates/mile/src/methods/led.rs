//! LED: local exact diffusion (Alghunaim, "Local Exact-Diffusion for Decentralized Optimization and
//! Learning", 2024).
//!
//! ```text
//! repeat tau times:  phi = phi - alpha grad f(phi) - beta y
//! send phi ;  x = W phi ;  y = y + (phi - x)
//! ```
//!
//! with y = 0 at the start and beta = 1/tau. Here x stores phi, and c = -beta y.
//! For small step sizes the mode of an eigenvalue l of W is stable iff
//! beta tau (1 - l) < 2 (1 + l): with beta = 1/tau, l_N > -1/3.
//!
//! Sent: phi. Stored: x, c.

use super::primal_dual::{LAYOUT, exchange, local_step};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};

/// Local exact diffusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Led {
    local_steps: u64,
    beta: f64,
}

impl Led {
    /// `beta` is 1/tau unless given.
    pub fn new(local_steps: u64, beta: Option<f64>) -> Result<Self, InvalidParameter> {
        let check = Checker("led");
        let local_steps = check.at_least_one("local_steps", local_steps)?;
        let beta = beta.unwrap_or(1.0 / local_steps as f64);
        let beta =
            check.number("beta", beta, beta > 0.0 && beta <= 1.0, "a number in (0, 1]; 1/tau is usual")?;
        Ok(Self { local_steps, beta })
    }
}

impl Method for Led {
    fn layout(&self) -> Layout {
        LAYOUT
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        local_step(s)?;
        if (s.t + 1).is_multiple_of(self.local_steps) {
            exchange(s, 1.0, self.beta)?;
        }
        Ok(())
    }
}
