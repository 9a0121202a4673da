//! Swarms give the same bits as one process, even if agents are killed.

mod common;
mod crashes;
mod diverged;
mod joining;
mod manual;
mod same_bits;
mod skips;
mod steering;
mod watching;
