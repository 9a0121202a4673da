//! Experiments: from a file to a plan, runs, records on disk, and tables.
//!
//! Data flows one way: [`config`] reads what a user wrote, [`plan`] checks it against the network and
//! the data, [`execute`] runs every (algorithm, seed) of it into a run directory ([`store`]), and
//! [`table`] shows what came out.

mod checkpoint;
pub mod config;
pub mod error;
pub mod execute;
mod export;
pub mod facts;
pub mod gather;
mod job;
pub mod plan;
pub mod plot;
pub mod problem;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod rows;
pub mod serve;
pub mod store;
pub mod sweep;
pub mod table;
mod tables;
pub mod tensorboard;
pub mod theory;

pub use job::DIVERGED;
