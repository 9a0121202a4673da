//! Image data sets, partitions, and CNN gradients: what turns MNIST and CIFAR-10 into N local objectives.
//!
//! - [`data`]: data sets, found, fetched, read and checked; `glyphs` is generated and needs no files
//! - [`partition`]: how samples are divided among agents
//! - [`model`]: networks as lists of layers, parameters in one vector, export to PyTorch's names
//! - [`network`]: gradients and scores of a model, on kernels chosen for the machine
//! - [`problem`]: all of it as a [`Problem`](mile::problems::Problem)

pub mod data;
mod kernel;
pub mod model;
pub mod network;
pub mod partition;
pub mod problem;

pub use kernel::{Isa, Scalar};
pub use mile::problems::Batch;
pub use problem::ImageProblem;
