//! The agents of an experiment spread over several ranks: processes of a cluster that communicate by MPI.
//!
//! Every rank hosts some agents, a block of rows of every vector, and sends only what crosses ranks. States and records have
//! the same bits as in one process, because every sum over agents runs in increasing agent, wherever they are.
//!
//! - [`placement`]: which agents are on which rank, and what crosses;
//! - [`transport`]: what ranks need to communicate; [`threads`] is one in a single process, for tests, and `mpi` (feature `mpi`) the
//!   real one;
//! - [`exchange`]: which rows go where in an exchange;
//! - [`steady`]: an exchange whose weights depend on what crosses ranks first;
//! - [`together`]: what ranks find out together: numbers and sums of all agents, in increasing agent;
//! - [`engine`]: the agents of one rank; `engines` (feature `lab`) opens it for the jobs of an experiment.

#[cfg(any(test, feature = "mpi"))]
mod device_memory;
pub mod engine;
#[cfg(feature = "lab")]
pub mod engines;
pub mod exchange;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod placement;
pub mod steady;
pub mod threads;
pub mod together;
pub mod transport;
mod work;

#[cfg(feature = "lab")]
pub use engines::RankEngines;
pub use placement::Placement;
