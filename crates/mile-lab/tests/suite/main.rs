//! Tests of the experiment layer, in one binary.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod config; // mistakes in experiment files, named by their key
mod held_out; // tables with held-out rows
mod own; // user-defined problems and engines
mod runs; // run directories: stopped, resumed, extended, diverged, foreign
mod tables; // the user's CSV files
