//! The two precisions a run can have.

use std::fmt;

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
    /// `"f32"` or `"f64"`, as written in experiment files.
    const NAME: &'static str;

    /// The nearest number of this precision.
    fn of(value: f64) -> Self;

    /// The same number in `f64`.
    fn wide(self) -> f64;
}

impl Real for f32 {
    const NAME: &'static str = "f32";

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
    const NAME: &'static str = "f64";

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}
