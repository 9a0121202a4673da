//! Image data sets, partitions, and CNN gradients.
