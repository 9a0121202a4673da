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

use super::primal_dual::{PLAIN, X};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Method};

const G: Vector = Vector(2);

/// NIDS for smooth objectives.
#[derive(Clone, Debug, PartialEq)]
pub struct Nids;

impl Method for Nids {
    fn layout(&self) -> Layout {
        PLAIN.layout()
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.gradient(X, G)?;
        s.combine(X, 1.0, &[(-s.step_size, G)])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        PLAIN.local_step(s, s.t + 1)?;
        PLAIN.exchange(s, 0.5, 0.5)
    }
}
