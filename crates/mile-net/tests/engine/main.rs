//! Engines on loopback: the simulator's bits, restarts, strangers, and what people get to see.

mod lab;
mod runs;
