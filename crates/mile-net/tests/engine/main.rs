//! Engines on loopback: the simulator's bits, restarts, strangers, and what users see.

mod deploy;
mod disk;
mod lab;
mod notices;
mod refusals;
mod runs;
mod seeing;
mod strangers;
mod strangers_tcp;
