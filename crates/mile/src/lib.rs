//! Decentralized optimization with multiple local updates.

pub mod agents;
pub mod block;
mod fdla;
pub mod graph;
pub mod method;
pub mod methods;
pub mod mixing;
pub mod network;
pub mod problems;
pub mod random;
pub mod real;
pub mod run;
pub mod schedule;
pub mod simulator;
pub mod spectrum;
pub mod theory;
