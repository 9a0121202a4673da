//! The products of a block of rows with the coefficients of each class.

use crate::real::Real;

/// Most rows of a block: enough for a vectorised `exp`.
pub(super) const MOST_ROWS: usize = 64;

/// Rows whose losses and slopes are computed side by side, in whole vectors: a remainder row by row would cost as much as a vector for each,
/// and blocks of wide rows have only four.
pub(super) const SIDE_BY_SIDE: usize = 16;

/// The products of a block's rows with the coefficients of one class.
pub(super) type Products<S> = [S; MOST_ROWS];

/// Calls `work` with the products of each class. For up to 16 classes they are on the stack, so that nothing is allocated.
#[inline(always)]
pub(super) fn with_products<S: Real, R>(classes: usize, work: impl FnOnce(&mut [Products<S>]) -> R) -> R {
    const FEW: usize = 16;
    let zeros = [S::zero(); MOST_ROWS];
    match classes {
        1 => work(&mut [zeros]),
        ..=FEW => work(&mut [zeros; FEW][..classes]),
        _ => work(&mut vec![zeros; classes]),
    }
}
