//! Decentralized optimization with multiple local updates.
//!
//! N agents on an undirected graph, each with its own objective `f_i`, minimise
//! `f = (1/N) sum f_i` together, talking only to their neighbours and only every tau steps.
//!
//! - a [`Network`](network::Network) is a graph with a mixing matrix;
//! - a [`Problem`](problems::Problem) is N objectives: implement it for your own;
//! - a [`Method`](method::Method) is straight-line code in three verbs, `gradient`, `combine`, `pull`; the built-in ones
//!   are in [`methods`], with a [catalogue](methods::catalogue) by name;
//! - a [`Run`](run::Run) drives a method over [`Agents`](agents::Agents), wherever they live: the
//!   [`Simulator`](simulator::Simulator) hosts all of them in this process;
//! - [`theory`] tells which parameters are admissible, from the graph and from the methods' own code.
//!
//! ```
//! use mile::{graph::Topology, methods::Mile, mixing::Rule, network::Network, problems::Quadratic};
//! use mile::{run::Run, schedule::Schedule, simulator::Simulator};
//!
//! let network = Network::new(Topology::Ring.build(10, 0)?, Rule::Metropolis)?;
//! let problem = Quadratic::<f64>::new(10, 20, 10.0, 1.0, 0)?;
//! let method = Mile::new(5, Mile::paper_xi(5))?;
//! let mut agents = Simulator::new(&problem, &network, &method, &[0.0; 20], 0);
//! let mut run = Run::start(&method, Schedule::constant(0.2), &mut agents)?;
//! for _ in 0..1500 {
//!     run.round(&mut agents)?;
//! }
//! assert!(mile::block::consensus_error(agents.models(), 20) < 1e-18);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Why it is built this way: [`design`].

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
mod stages;
pub mod theory;

#[doc = include_str!("../../../DESIGN.md")]
pub mod design {}

/// The README's examples, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
