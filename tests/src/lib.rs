//! Tests of the workspace as a whole; the examples of its README are among them.

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
