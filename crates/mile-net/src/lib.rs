//! One agent of a decentralized run on a real network.
//!
//! The same [`Method`](mile::method::Method)s as in one process, with a block of one row. Restarts are exact: an agent
//! that is killed comes back from its checkpoint, and the run ends with the bits of an undisturbed one.

pub mod agent;
pub mod checkpoint;
pub mod edge;
pub mod engine;
pub mod frame;
pub mod gossip;
pub mod hello;
pub mod keys;
mod numbers;
pub mod outbox;
pub mod session;
pub mod status;
