//! Dec-FedTrack (Ghiasvand et al., "Robust Decentralized Learning with Local Updates and Gradient
//! Tracking", 2024) extends K-GT to minimax problems, by a second block for the maximising variable. Without that
//! variable it is K-GT, which is what is implemented here:
//!
//! ```text
//! u = x ;  repeat K times:  u = u - alpha (grad f(u) + c)
//! z = (x - u)/(K alpha)
//! send z and x - eta_s K alpha z
//! c = c - z + W z ;  x = W (x - eta_s K alpha z)
//! ```
//!
//! Sent: two vectors in one exchange. Stored: x, u, c.

use super::k_gt::KGt;
use crate::agents::{AgentsError, Step};
use crate::method::{InvalidParameter, Layout, Method};

/// Dec-FedTrack for minimisation.
#[derive(Clone, Debug, PartialEq)]
pub struct DecFedTrack(KGt);

impl DecFedTrack {
    /// `eta_s` is the global step size, applied once per communication round; 1 is usual.
    pub fn new(local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        KGt::named("dec-fedtrack", local_steps, eta_s).map(Self)
    }

    /// With a separate number of local steps for each agent, as in K-GT.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        self.0.with_own_steps(own).map(Self)
    }
}

impl Method for DecFedTrack {
    fn layout(&self) -> Layout {
        self.0.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        self.0.step(s)
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.0.own_steps()
    }
}
