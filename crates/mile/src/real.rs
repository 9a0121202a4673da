//! The two precisions a run can have.

use std::fmt;

/// The precision of states and gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Single, `f32`.
    F32,
    /// Double, `f64`.
    F64,
}

impl Precision {
    /// Its name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Evaluates an expression with a type name standing for the numbers of a [`Precision`]: the one place where a
/// precision that is known when a program runs becomes a type.
///
/// ```
/// use mile::real::{Precision, Real};
/// fn digits<T: Real>() -> f64 { -T::epsilon().wide().log10() }
/// let found = mile::with_precision!(Precision::F32, T => digits::<T>());
/// assert!(found < 7.0);
/// ```
#[macro_export]
macro_rules! with_precision {
    ($precision:expr, $T:ident => $body:expr) => {
        match $precision {
            $crate::real::Precision::F32 => {
                type $T = f32;
                $body
            }
            $crate::real::Precision::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}

/// A floating-point number that states and gradients are made of: `f32` or `f64`.
///
/// Hyperparameters, weights and metrics are always `f64`; a block of agents' vectors is of this type.
pub trait Real:
    num_traits::Float
    + num_traits::NumAssign
    + std::iter::Sum
    + bytemuck::Pod
    + fmt::Debug
    + fmt::Display
    + Default
    + Send
    + Sync
    + 'static
{
    /// Which of the two it is.
    const PRECISION: Precision;

    /// The nearest number of this precision.
    fn of(value: f64) -> Self;

    /// The same number in `f64`.
    fn wide(self) -> f64;
}

impl Real for f32 {
    const PRECISION: Precision = Precision::F32;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const PRECISION: Precision = Precision::F64;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}
