//! Periodical-GT (in Liu, Lin, Koloskova, Stich, 2023): gradient tracking that mixes every K-th step.
//!
//! ```text
//! repeat K times:  d = grad f(x) + c ;  x = x - alpha d
//! send d (the last direction) and x
//! c = c - d + W d ;  x = W x
//! ```
//!
//! from c = 0. No public code was found: that x is mixed after the step, and at which point the gradient in d is
//! taken, are our interpretation of "gradient tracking with W = I on local steps".
//!
//! Sent: two vectors in one exchange. Stored: x, c.

use super::parts::Pace;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const G: Vector = Vector(2);
const M: Vector = Vector(3);
const N: Vector = Vector(4);

/// Periodical gradient tracking.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodicalGt {
    pace: Pace,
}

impl PeriodicalGt {
    /// An exchange after every `local_steps` updates.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        Ok(Self { pace: Pace::new(Checker("periodical-gt"), local_steps)? })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("periodical-gt"), own)?;
        Ok(Self { pace })
    }
}

impl Method for PeriodicalGt {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("c", Unit::Fixed)], ["d", "pull_x", "pull_d"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (d, pull_x, pull_d) = (G, M, N);
        self.pace.each(s, |s, _, _| {
            s.gradient(X, d)?;
            s.combine(d, 1.0, &[(1.0, C)])?;
            s.combine(X, 1.0, &[(-s.step_size, d)])
        })?;
        if self.pace.exchanges(s.t) {
            s.pull(&[(X, pull_x), (d, pull_d)])?;
            s.combine(C, 1.0, &[(1.0, pull_d)])?;
            s.combine(X, 1.0, &[(1.0, pull_x)])?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }
}
