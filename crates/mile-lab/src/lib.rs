//! Experiments: several methods and seeds on one problem, run from an experiment file, with records, checkpoints, tables,
//! figures and a report on disk.
//!
//! [`Lab`] is the entry point. It runs the experiments that `mile run` runs, and those with your own
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
//! Data flows one way: [`spec`] reads an experiment file, [`objectives`] builds its problems, [`plan`] checks them against
//! the network, [`execute`] runs every (algorithm, seed) on an engine ([`engines`]) into a run directory ([`store`]), and
//! [`table`], [`plot`] and [`report`] show the results. A [`session`] takes one experiment through all of this in one folder.

pub mod advice;
pub mod agent_files;
pub mod auto;
pub mod choices;
mod coefficients;
pub mod context;
pub mod device;
mod divergence;
pub mod ending;
pub mod engines;
pub mod eval_agents;
pub mod evaluation_budget;
pub mod execute;
mod export;
pub mod gather;
pub mod gather_parts;
mod identity;
mod job;
pub mod keys;
mod lab;
mod loss_and_metrics;
mod model_form;
pub mod observer;
pub mod own_data;
mod pairing_log;
pub mod plan;
pub mod plot;
pub mod quantity;
pub mod record;
pub mod recorded_metrics;
mod refused;
pub mod rehearsal;
pub mod report;
pub mod resume;
mod saved;
pub mod serve;
pub mod session;
mod sharing;
pub mod spec;
mod start;
mod state;
mod stopping;
pub mod store;
pub mod sweep;
pub mod table;
pub mod tensorboard;
pub mod trained;
pub mod watch;

pub use divergence::DIVERGED;
pub use lab::Lab;
pub use mile_problems::{self as objectives, LabError, error, predictions, ranks, reading, room, section};
