//! GTA-1, GTA-2, GTA-3: the gradient tracking framework of Berahas, Bollapragada, Gupta ("Balancing
//! Communication and Computation in Gradient Tracking Algorithms for Decentralized Optimization",
//! 2024), with n_g = tau computations and n_c communications per iteration, Z = W^n_c:
//!
//! ```text
//! y = grad f(x)
//! once:            x' = W1 x - alpha W2 y ;  y = W3 y + W4 (grad f(x') - grad f(x))
//! n_g - 1 times:   x' = x - alpha y       ;  y = y + grad f(x') - grad f(x)
//!
//! (W1, W2, W3, W4):   GTA-1 (Z, I, Z, I)    GTA-2 (Z, Z, Z, I)    GTA-3 (Z, Z, Z, Z)
//! ```
//!
//! Sent: 2 n_c vectors; GTA-3 sends y after the new gradient, in a second exchange. Stored: x, y, the last
//! gradient.

use super::parts::Pace;
use super::tracking::{Mixed, initialise, layout, paced_update};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};

/// GTA-1, GTA-2 or GTA-3.
#[derive(Clone, Debug, PartialEq)]
pub struct Gta {
    name: &'static str,
    mixed: Mixed,
    pace: Pace,
    communications: u64,
}

impl Gta {
    /// GTA-1: x and y are mixed, and x moves by the y before mixing.
    pub fn one(local_steps: u64, communications: u64) -> Result<Self, InvalidParameter> {
        Self::new("gta-1", Mixed::X, local_steps, communications)
    }

    /// GTA-2: x - alpha y and y are mixed.
    pub fn two(local_steps: u64, communications: u64) -> Result<Self, InvalidParameter> {
        Self::new("gta-2", Mixed::Descent, local_steps, communications)
    }

    /// GTA-3: the difference of gradients is mixed too.
    pub fn three(local_steps: u64, communications: u64) -> Result<Self, InvalidParameter> {
        Self::new("gta-3", Mixed::Everything, local_steps, communications)
    }

    fn new(
        name: &'static str,
        mixed: Mixed,
        local_steps: u64,
        communications: u64,
    ) -> Result<Self, InvalidParameter> {
        let check = Checker(name);
        Ok(Self {
            name,
            mixed,
            pace: Pace::new(check, local_steps)?.after_an_exchange(),
            communications: check.at_least_one("communications", communications)?,
        })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker(self.name), own)?;
        Ok(Self { pace, ..self })
    }
}

impl Method for Gta {
    fn layout(&self) -> Layout {
        layout()
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        initialise(s)
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        paced_update(s, &self.pace, self.mixed, self.communications)
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }
}
