//! Decentralized optimization with multiple local updates.
//!
//! N agents on an undirected graph, each with its own objective `f_i`, minimise
//! `f = (1/N) sum f_i` together, communicating only with their neighbours and only every tau steps.
//!
//! ```
//! use mile::{Mile, Quadratic, Simulation, Topology};
//!
//! let problem = Quadratic::<f64>::new(10, 20, 10.0, 1.0, 0)?;
//! let method = Mile::new(5, Mile::paper_xi(5))?;
//! let mut simulation = Simulation::builder(&problem).topology(Topology::Ring).method(method).step_size(0.2).build()?;
//! simulation.run(1500)?;
//! assert!(simulation.consensus_error() < 1e-18);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - a [`Problem`] is N objectives: implement it for your own;
//! - a [`Simulation`] runs a method on all agents in this process, after checking that problem, network and method fit;
//! - a [`Network`] is a graph with a mixing matrix;
//! - a [`Method`] is written in three verbs, `gradient`, `combine` and `pull`; the built-in ones are in
//!   [`methods`], with a [catalogue](methods::catalogue) by name;
//! - a [`Run`] executes a method on [`Agents`](agents::Agents): in one process, on a network or on a GPU; an
//!   [`Engine`](engine::Engine) hosts agents, and the [`Simulator`] is the engine for one process.
//!
//! The crate `mile-theory` computes stable step sizes, admissible weights and convergence rates, from the network and
//! from the methods' own code.

pub mod agents;
pub mod attack;
pub mod block;
pub mod compression;
pub mod digits;
pub mod engine;
mod exp;
mod fdla;
pub mod graph;
pub mod isa;
mod lanes;
pub mod membership;
pub mod method;
pub mod methods;
pub mod mixing;
pub mod network;
pub mod optimiser;
pub mod outages;
pub mod pairing;
pub mod problems;
mod product;
pub mod random;
pub mod ranks;
pub mod readiness;
pub mod real;
pub mod refusal;
pub mod robust;
pub mod run;
pub mod schedule;
mod shared;
pub mod simulation;
pub mod simulator;
pub mod sparse;
pub mod spectrum;
mod stages;
pub mod steady;
pub mod time;
pub mod varying;
pub mod verbs;

pub use graph::{Graph, Topology};
pub use method::Method;
pub use methods::Mile;
pub use mixing::{MixingMatrix, Rule};
pub use network::Network;
pub use problems::{Failure, Problem, Quadratic};
pub use real::{Precision, Real};
pub use run::Run;
pub use schedule::Schedule;
pub use simulation::{Simulation, SimulationError};
pub use simulator::Simulator;
