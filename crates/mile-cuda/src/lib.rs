//! All agents of a network on one NVIDIA GPU: an [engine](mile::engine::Engine) for [`mile`].
//!
//! The kernels are CUDA C++ sources within the program, compiled by NVRTC for the GPU at hand when they are first used and kept on disk. Nothing
//! of CUDA is needed to build this crate, and a program that has it runs on machines without a GPU.

pub mod cuda;
pub mod device;
pub mod emulated;
pub mod engine;
mod evaluation;
mod forms;
mod kernels;
mod network;
mod objective;
mod parameters;
mod quadratic;
mod queue;
mod table;
mod vectors;

pub use engine::{GpuAgents, GpuError};
pub use evaluation::evaluated;
