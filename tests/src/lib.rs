//! Tests of the workspace as a whole; the examples of its documentation are among them.

/// The page about the libraries.
#[cfg(doctest)]
#[doc = include_str!("../../docs/src/library.md")]
pub struct Libraries;
