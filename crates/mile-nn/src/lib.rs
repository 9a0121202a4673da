//! Image data sets, partitions, and CNN gradients.

pub mod data;
pub mod partition;
