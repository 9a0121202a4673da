//! AB / push-pull over time-varying graphs (Nedic, Nguyen, Nguyen, 2022), our interpretation of what
//! MILE's paper calls PPADCO:
//!
//! ```text
//! y = grad f(x)
//! x' = A_t x - alpha y ;  y = B_t y + grad f(x') - grad f(x)      A_t = B_t = I between exchanges
//! ```
//!
//! A is row-stochastic and B column-stochastic; on an undirected network both are W, and the method
//! is DIGing written with three vectors.
//!
//! Sent: x, y. Stored: x, y, the last gradient.

use super::tracking::{Mixed, initialise, layout, update};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};

/// AB/push-pull with A = B = W.
#[derive(Clone, Debug, PartialEq)]
pub struct PushPull {
    local_steps: u64,
}

impl PushPull {
    /// An exchange at every t divisible by `local_steps`.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        Ok(Self { local_steps: Checker("push-pull").at_least_one("local_steps", local_steps)? })
    }
}

impl Method for PushPull {
    fn layout(&self) -> Layout {
        layout()
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        initialise(s)
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let exchange = s.t.is_multiple_of(self.local_steps);
        update(s, if exchange { Mixed::X } else { Mixed::Nothing }, 1)
    }
}
