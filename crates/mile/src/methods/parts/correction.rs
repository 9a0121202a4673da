//! The correction c: what keeps agents on the common problem while each steps along its own gradient.
//!
//! | | c is in units of | direction p of a local step | at a fixed point |
//! |---|---|---|---|
//! | none | | alpha grad f(x) | agents stop where their own gradients and the mixing balance |
//! | dual | x | alpha grad f(x) - c | c_i = alpha grad f_i |
//! | tracking | gradients | grad f(x) + c, scaled by alpha | c_i = -grad f_i |
//!
//! With an optimiser that is not linear in the gradient (AdamW, Muon) it matters where c acts ([`CorrectionAt`]):
//!
//! ```text
//! "gradient":  x = x - alpha s(grad f(x) - (p/alpha) c)          at a fixed point c_i = (alpha/p) grad f_i
//! "step":      x = x - alpha s(grad f(x)) + c                    at a fixed point c_i = alpha s_i, the steps of the optimiser
//! ```
//!
//! The first is exact for every optimiser that does not move when its input is zero; p, the size of a typical gradient, makes c comparable with
//! gradients whatever the step size. The second takes the optimiser as a black box: the mean of its *steps* vanishes,
//! which is the mean gradient only if the agents' preconditioners agree.
//!
//! The c_i sum to zero, because what an exchange adds has opposite signs at the two ends of an edge: so the mean gradient is
//! zero at a fixed point. A correction in units of x is rescaled when the step size changes.

use super::Needs;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::Unit;

/// A correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::methods) enum Correction {
    /// None.
    None,
    /// In units of x.
    Dual,
    /// In units of gradients.
    Tracking,
}

/// Where a correction acts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CorrectionAt {
    /// On gradients, before the optimiser.
    Gradient {
        /// The size p of a typical gradient; 1 unless the optimiser divides by it.
        scale: f64,
    },
    /// On the step, after the optimiser.
    Step,
}

impl CorrectionAt {
    pub(in crate::methods) const INSIDE: Self = Self::Gradient { scale: 1.0 };
}

impl std::fmt::Display for CorrectionAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gradient { scale: 1.0 } => f.write_str("gradient"),
            Self::Gradient { scale } => write!(f, "gradient, scale {scale}"),
            Self::Step => f.write_str("step"),
        }
    }
}

/// The direction of a local step: a sum of terms, of which the first is the gradient, the factor with which x moves along it, and what is
/// added to x after the step.
#[derive(Clone, Copy, Debug)]
pub(in crate::methods) struct Direction {
    pub(super) scale: f64,
    pub(super) shift: Option<(f64, Vector)>,
    terms: [(f64, Vector); Self::MOST_TERMS],
    used: usize,
}

impl Direction {
    pub(super) const MOST_TERMS: usize = 2;

    pub(super) fn terms(&self) -> &[(f64, Vector)] {
        &self.terms[..self.used]
    }
}

impl Correction {
    pub(in crate::methods) fn needs(self) -> Needs {
        let state: &[_] = match self {
            Self::None => &[],
            Self::Dual => &[("c", Unit::StepSize)],
            Self::Tracking => &[("c", Unit::Fixed)],
        };
        Needs { state, scratch: &[] }
    }

    /// The units of the direction.
    pub(in crate::methods) fn unit(self) -> Unit {
        match self {
            Self::None | Self::Dual => Unit::StepSize,
            Self::Tracking => Unit::Fixed,
        }
    }

    /// The direction of a local step with the gradient g.
    pub(in crate::methods) fn direction(
        self,
        at: CorrectionAt,
        alpha: f64,
        g: Vector,
        c: Vector,
    ) -> Direction {
        let (scale, of_g, of_c) = match self {
            Self::None => (1.0, alpha, None),
            Self::Dual => (1.0, alpha, Some(-1.0)),
            Self::Tracking => (alpha, 1.0, Some(1.0)),
        };
        match (at, of_c) {
            (CorrectionAt::Gradient { .. }, Some(of_c)) => {
                Direction { scale, shift: None, terms: [(of_g, g), (of_c, c)], used: 2 }
            }
            (_, of_c) => {
                let shift = of_c.map(|of_c| (-scale * of_c, c));
                Direction { scale, shift, terms: [(of_g, g), (0.0, g)], used: 1 }
            }
        }
    }

    /// `c = c + xi e`, where e is what an exchange found for the differences along the edges.
    pub(in crate::methods) fn add(
        self,
        s: &mut Step,
        c: Vector,
        xi: f64,
        e: Vector,
    ) -> Result<(), AgentsError> {
        if self == Self::None { Ok(()) } else { s.combine(c, 1.0, &[(xi, e)]) }
    }
}
