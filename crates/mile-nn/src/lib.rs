//! Neural networks as a decentralized problem: data sets, partitions among agents, gradients.
//!
//! - [`data`]: data sets (MNIST, Fashion-MNIST, CIFAR-10): download, reading, checking; `glyphs` is generated and
//!   needs no files
//! - [`partition`]: partitions of the samples among agents, IID and heterogeneous
//! - [`model`]: neural networks as lists of layers, with all parameters in one vector; export to PyTorch
//! - [`network`]: loss, gradient and accuracy of a model, with SIMD kernels chosen for the machine
//! - [`problem`]: a data set, a partition and a model as a [`Problem`](mile::problems::Problem)

pub mod data;
mod kernel;
pub mod model;
pub mod network;
pub mod partition;
pub mod problem;

pub use kernel::{Isa, KernelScalar};
pub use mile::problems::Batch;
pub use problem::ImageProblem;
