//! Gradient tracking, adapt-then-combine (Xu, Zhu, Soh, Xie, "Augmented Distributed Gradient Methods
//! for Multi-Agent Optimization Under Uncoordinated Constant Stepsizes", 2015):
//!
//! ```text
//! y = grad f(x)
//! x' = W (x - alpha y) ;  y = W y + grad f(x') - grad f(x)
//! ```
//!
//! Sent: x - alpha y, y. Stored: x, y, the last gradient.

use super::tracking::{Mixed, initialise, layout, track, update};
use crate::agents::{AgentsError, Step};
use crate::method::{Layout, Method};

/// Gradient tracking in ATC form.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientTracking;

impl Method for GradientTracking {
    fn layout(&self) -> Layout {
        layout()
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        initialise(s)
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        update(s, Mixed::Descent, 1, track)
    }
}
