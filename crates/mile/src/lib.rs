//! Decentralized optimization with multiple local updates.

pub mod problems;
pub mod random;
pub mod real;
