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

use super::parts::Pace;
use super::tracking::{Mixed, initialise, layout, paced_update};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};

/// AB/push-pull with A = B = W.
#[derive(Clone, Debug, PartialEq)]
pub struct PushPull {
    pace: Pace,
}

impl PushPull {
    /// An exchange at every t divisible by `local_steps`.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        Ok(Self { pace: Pace::new(Checker("push-pull"), local_steps)?.after_an_exchange() })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("push-pull"), own)?;
        Ok(Self { pace })
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
        paced_update(s, &self.pace, Mixed::X, 1)
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }
}
