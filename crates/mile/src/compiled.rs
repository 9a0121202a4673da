//! The [`Kernels`] of both precisions.

use crate::block;
use crate::compression;
use crate::kernels::Kernels;
use crate::steady;

macro_rules! compiled {
    ($($precision:ty)*) => {$(
        impl Kernels for $precision {
            fn combine(y: &mut [Self], keep: f64, terms: &[(f64, &[Self])]) {
                block::combine_loop(y, keep, terms);
            }

            fn combine_block(y: &mut [Self], keep: f64, terms: &[(f64, &[Self])]) {
                block::combine_block_loop(y, keep, terms);
            }

            fn fold(message: (f64, &[Self]), own: &[Self], y: &mut [Self], first: bool) {
                block::fold_loop(message, own, y, first);
            }

            fn dot(a: &[Self], b: &[Self]) -> Self {
                block::dot_loop(a, b)
            }

            fn add_rows(sums: &mut [f64], rows: &[Self]) {
                block::add_rows_loop(sums, rows);
            }

            fn row_distances_sq(rows: &[Self], mean: &[f64]) -> Vec<f64> {
                block::row_distances_sq_loop(rows, mean)
            }

            fn norm_sq(block: &[Self]) -> f64 {
                block::norm_sq_loop(block)
            }

            fn add_sketch(row: &[Self], sketch: &mut [f64]) {
                steady::add_sketch_loop(row, sketch);
            }

            fn soft_threshold(x: &mut [Self], threshold: Self) {
                block::soft_threshold_loop(x, threshold);
            }

            fn round_blocks(u: &mut [Self]) {
                compression::round_blocks_loop(u);
            }

            fn encode_blocks(q: &[Self], message: &mut Vec<u8>) {
                compression::encode_blocks_loop(q, message);
            }

            fn decode_blocks(message: &[u8], q: &mut [Self]) -> Result<(), &'static str> {
                compression::decode_blocks_loop(message, q)
            }

            fn keep_largest(u: &mut [Self], kept: usize) {
                compression::keep_largest_loop(u, kept);
            }

            fn encode_largest(q: &[Self], kept: usize, message: &mut Vec<u8>) {
                compression::encode_largest_loop(q, kept, message);
            }

            fn decode_largest(message: &[u8], kept: usize, q: &mut [Self]) -> Result<(), &'static str> {
                compression::decode_largest_loop(message, kept, q)
            }
        }
    )*};
}

compiled!(f32 f64);
