//! The correction c: what keeps agents on the common problem while each steps along its own gradient.
//!
//! | | c is in units of | direction p of a local step | at a fixed point |
//! |---|---|---|---|
//! | none | | alpha grad f(x) | agents stop where their own gradients and the mixing balance |
//! | dual | x | alpha grad f(x) - c | c_i = alpha grad f_i |
//! | tracking | gradients | grad f(x) + c, scaled by alpha | c_i = -grad f_i |
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

/// The direction of a local step: a sum of terms, and the factor with which x moves along it.
#[derive(Clone, Copy, Debug)]
pub(in crate::methods) struct Direction {
    pub(super) scale: f64,
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
    pub(in crate::methods) fn direction(self, alpha: f64, g: Vector, c: Vector) -> Direction {
        match self {
            Self::None => Direction { scale: 1.0, terms: [(alpha, g), (0.0, g)], used: 1 },
            Self::Dual => Direction { scale: 1.0, terms: [(alpha, g), (-1.0, c)], used: 2 },
            Self::Tracking => Direction { scale: alpha, terms: [(1.0, g), (1.0, c)], used: 2 },
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
