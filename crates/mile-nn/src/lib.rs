//! Image data sets, partitions, and CNN gradients.

pub mod data;
pub mod model;
pub mod partition;
