//! Image data sets, partitions, and CNN gradients.

pub mod partition;
