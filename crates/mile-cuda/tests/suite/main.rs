//! The engine on an emulated device: the kernels of a GPU, run by the CPU.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod common;
mod methods; // every method against the simulator
mod networks;
mod objectives; // gradients of quadratics and tables against those of the CPU // gradients and scores of networks against those of the CPU
