//! When a run has diverged.

/// A run has diverged when the root mean square of its models is not finite, or exceeds this factor times the larger of
/// 1 and its value at the start.
pub const DIVERGED: f64 = 1e8;
