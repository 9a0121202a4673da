//! Tests of networks on images, in one binary.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod common;
mod data; // reading data sets: damaged files are refused by name and offset
mod gradient; // against a plain network, against central differences, between instruction sets
mod model; // layer lists: what they are inferred to be, and what is refused
mod partition; // laws of every partition
mod problem; // batches, weights of agents, evaluation
