//! NIDS (Li, Shi, Yan, "A Decentralized Proximal-Gradient Method With Network Independent Step-Sizes
//! and Separated Convergence Rates", 2019) for smooth objectives, with its standard c = 1/(2 alpha):
//!
//! ```text
//! x(1) = x(0) - alpha grad f(x(0))                                                       (unmixed)
//! x(k+1) = (I + W)/2 (2x(k) - x(k-1) - alpha grad f(x(k)) + alpha grad f(x(k-1)))
//! ```
//!
//! in the correction form of `primal_dual.rs`. Sent: v, one vector. Stored: x, c. For objectives with a penalty:
//! [`ProxNids`](super::ProxNids).

use super::primal_dual::{LAYOUT, exchange, gradient_step, local_step};
use crate::agents::{AgentsError, Step};
use crate::method::{Layout, Method};

/// NIDS for smooth objectives.
#[derive(Clone, Debug, PartialEq)]
pub struct Nids;

impl Method for Nids {
    fn layout(&self) -> Layout {
        LAYOUT
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        gradient_step(s)
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        local_step(s)?;
        exchange(s, 0.5, 0.5)
    }
}
