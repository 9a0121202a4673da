//! Dec-FedTrack (Ghiasvand et al., "Robust Decentralized Learning with Local Updates and Gradient
//! Tracking", 2024) is K-GT for minimax problems, with a second block for the maximising variable.
//! Where there is nothing to maximise that block is empty and the method is K-GT; this is that form.
//!
//! Sent: two vectors in one exchange. Stored: x, u, c.

use super::k_gt::KGt;
use crate::agents::{AgentsError, Step};
use crate::method::{InvalidParameter, Layout, Method};

/// Dec-FedTrack for minimisation.
#[derive(Clone, Debug, PartialEq)]
pub struct DecFedTrack(KGt);

impl DecFedTrack {
    /// `eta_s` scales the step between rounds; 1 is usual.
    pub fn new(local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        KGt::named("dec-fedtrack", local_steps, eta_s).map(Self)
    }
}

impl Method for DecFedTrack {
    fn layout(&self) -> Layout {
        self.0.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        self.0.step(s)
    }
}
