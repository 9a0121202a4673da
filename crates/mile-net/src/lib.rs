//! One agent of a decentralized run on a real network.
//!
//! An agent is a process that holds its own data, has a connection to each of its neighbours in the graph, and runs the same
//! [`Method`](mile::method::Method)s as a simulation in one process, to the same bits. Restarts are exact: an agent that is
//! killed resumes from its checkpoint, and the run ends with the bits of an undisturbed one.
//!
//! - [`agent`]: the work of one agent, over a [`Host`](agent::Host) that exchanges messages and saves checkpoints;
//! - [`engine`]: such a host, over connections (QUIC or TCP) between public [keys];
//! - [`protocol`]: the protocol between neighbours, without sockets and without a clock; its messages are in [`frame`],
//!   [`handshake`] and [`outbox`];
//! - [`edge`]: edges that are skipped while a neighbour is away;
//! - [`checkpoint`]: an agent's folder on disk; [`farewell`]: what it notes there when it leaves;
//! - [`gossip`]: estimates of the network's loss and consensus error, and stopping on a tolerance;
//! - [`notice`], [`board`]: what agents say about themselves to the whole network;
//! - [`status`]: what an agent reports about itself.
//!
//! The feature `engine` (on by default) provides [`engine`] and [`keys`]; without it nothing here opens a network connection.

mod activity;
pub mod agent;
pub mod board;
pub mod checkpoint;
pub mod edge;
#[cfg(feature = "engine")]
pub mod engine;
pub mod farewell;
pub mod frame;
pub mod gossip;
pub mod handshake;
mod json_float;
#[cfg(feature = "engine")]
pub mod keys;
pub mod notice;
pub mod outbox;
pub mod protocol;
pub mod status;
mod words;
