//! Agents as processes: the bits of one process, whatever happens to them.

mod common;
mod crashes;
mod hands;
mod same_bits;
mod skips;
