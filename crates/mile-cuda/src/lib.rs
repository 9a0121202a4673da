//! Agents on an NVIDIA GPU: an [engine](mile::engine::Engine) for [`mile`]. One GPU hosts all agents ([`GpuAgents`]), or each rank of a
//! cluster hosts its agents on one ([`GpuRank`]).
//!
//! The kernels are CUDA C++ sources embedded in the program, compiled by NVRTC for the GPU at hand when they are first used, and kept on
//! disk. Building this crate needs nothing from CUDA, and a program that contains it runs on machines without a GPU.

pub mod cuda;
mod decay;
pub mod device;
pub mod emulated;
pub mod engine;
#[cfg(feature = "lab")]
mod engines;
mod fitting;
mod forms;
mod kernels;
mod network;
mod objective;
mod quadratic;
mod queue;
#[cfg(feature = "lab")]
mod rank_engines;
mod script;
mod stack;
mod table;
mod vectors;
mod work;

pub use engine::{GpuAgents, GpuRank};
#[cfg(feature = "lab")]
pub use engines::GpuEngines;
pub use fitting::Fitting;
#[cfg(feature = "lab")]
pub use rank_engines::GpuRankEngines;
pub use stack::Stack;
