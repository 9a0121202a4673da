//! The parts that methods are composed of.
//!
//! | part | what it decides | choices |
//! |---|---|---|
//! | [`Local`] | what a gradient does to x | plain, heavy ball, Nesterov, AdamW, AMSGrad, Muon |
//! | [`Correction`] | what keeps agents on the common problem | none, dual (MILE, LED, ED, ...), tracking (K-GT) |
//! | [`Exchange`] | what crosses an edge, with what weight | whole, adaptive, compressed |
//! | [`Pace`] | in which steps agents step and exchange | the same number of local steps for all, or one for each agent |
//! | [`Outer`], [`OuterMomentum`] | what a finished round does | a step along its progress (K-GT, SCAFFOLD), momentum |
//!
//! A part is a choice, with its numbers; it stores no vectors. It declares the vectors it [`Needs`], and a method's layout consists of its own
//! vectors and those of its parts ([`Vectors`]). Any two choices can be combined unless the mathematics forbids it; the part that
//! knows why refuses.

mod correction;
mod exchange;
mod local;
mod outer;
mod pace;
mod pairs;
mod public_copy;

pub use correction::CorrectionAt;
pub(super) use correction::{Correction, Direction};
pub(super) use exchange::{Exchange, Place, check_compression};
pub(super) use local::Local;
pub use local::{LocalSteps, Momentum, Optimizer};
pub(super) use outer::Outer;
pub use outer::OuterMomentum;
pub(super) use pace::Pace;
pub(super) use pairs::pair_weight;
pub(super) use public_copy::PublicCopy;

use crate::agents::Vector;
use crate::method::{Layout, Unit};

/// The vectors that a part needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// State, which is kept from step to step.
    pub(super) state: &'static [(&'static str, Unit)],
    /// Scratch, which is not.
    pub(super) scratch: &'static [&'static str],
}

impl Needs {
    pub(super) const NOTHING: Self = Self { state: &[], scratch: &[] };
}

/// The vectors of a method: its own first, then those of its parts, each a number in this list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors<const N: usize>(pub(super) [Needs; N]);

impl<const N: usize> Vectors<N> {
    pub(super) fn layout(&self) -> Layout {
        let state = self.0.iter().flat_map(|needs| needs.state).copied();
        Layout::new(state, self.0.iter().flat_map(|needs| needs.scratch).copied())
    }

    /// The first state vector of a part.
    pub(super) fn state(&self, part: usize) -> Vector {
        Vector(self.0[..part].iter().map(|needs| needs.state.len()).sum())
    }

    /// The first scratch vector of a part: they come after all state.
    pub(super) fn scratch(&self, part: usize) -> Vector {
        let before: usize = self.0[..part].iter().map(|needs| needs.scratch.len()).sum();
        Vector(self.state(N).0 + before)
    }
}
