//! Single and double precision.

use std::fmt;

use crate::exp::Exp;
use crate::lanes::InLanes;
use crate::product::Product;

/// The precision of state vectors and gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Single precision, `f32`.
    F32,
    /// Double precision, `f64`.
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

    /// Bytes per number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Evaluates an expression in which a type name stands for `f32` or `f64`: turns a [`Precision`] that is known at
/// run time into a type.
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

/// The number type of state vectors and gradients: `f32` or `f64`.
///
/// Hyperparameters, weights and metrics are always `f64`.
pub trait Real:
    Exp
    + InLanes
    + Product
    + num_traits::Float
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
    /// The precision of this type.
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
