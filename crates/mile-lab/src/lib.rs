//! Experiments: from a problem and a file to runs, records on disk, tables, figures and a report.
//!
//! [`Lab`] is the front door: it runs what `mile run` runs, and whatever else implements
//! [`Problem`](mile::problems::Problem):
//!
//! ```no_run
//! use mile_lab::Lab;
//! # let problem = mile::problems::Quadratic::<f64>::new(8, 2, 10.0, 1.0, 0)?;
//!
//! let experiment = r#"
//!     seeds = [0, 1, 2]
//!     rounds = 200
//!     [network]
//!     agents = 8
//!     [[algorithm]]
//!     name = "mile"
//!     step_size = 0.1
//!     [[algorithm]]
//!     name = "k-gt"
//!     step_size = 0.1
//! "#;
//! let results = Lab::of("sensors", problem).run(experiment, "runs/sensors")?;
//! println!("{results}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Data flows one way: [`config`] reads what a user wrote, [`objectives`] what is minimised, [`plan`] checks both against the
//! network, [`execute`] runs every (algorithm, seed) into a run directory ([`store`]) on some [`engines`], and
//! [`table`], [`plot`] and [`report`] show what came out.

pub mod advice;
pub mod agent_files;
pub mod auto;
pub mod config;
pub mod context;
mod digest;
pub mod engines;
pub mod error;
pub mod execute;
mod export;
pub mod gather;
mod identity;
mod job;
mod lab;
pub mod objectives;
pub mod observer;
pub mod plan;
pub mod plot;
pub mod quantity;
pub mod record;
pub mod report;
pub mod section;
pub mod serve;
mod start;
mod state;
pub mod store;
pub mod sweep;
pub mod table;
pub mod tensorboard;

pub use error::LabError;
pub use job::DIVERGED;
pub use lab::{Lab, Results};
