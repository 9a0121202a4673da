//! How a refused value is reported.

use std::fmt::Display;

/// `expected X, got Y`. What follows a semicolon in X, such as a reason or a remedy, is moved to the end.
///
/// ```
/// # use mile::refusal::expected;
/// assert_eq!(expected("1; the method communicates after every update", 5), "expected 1, got 5; the method communicates after every update");
/// ```
pub fn expected(expected: &str, got: impl Display) -> String {
    match expected.split_once("; ") {
        Some((expected, remedy)) => format!("expected {expected}, got {got}; {remedy}"),
        None => format!("expected {expected}, got {got}"),
    }
}
