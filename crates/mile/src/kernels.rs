//! Loops over vectors that are compiled in this crate, once for each precision.
//!
//! Generic code is compiled where it is used, with the optimisation of the crate that uses it. Crates that run experiments are not
//! optimised, or hardly, since that took a quarter of the first build; the loops over vectors that they need are therefore functions of
//! the two precisions, which [`compiled`](crate::compiled) makes of the generic ones.

/// What is compiled here for a precision. The functions are described where they are made public.
pub trait Kernels: Sized {
    fn combine(y: &mut [Self], keep: f64, terms: &[(f64, &[Self])]);
    fn combine_block(y: &mut [Self], keep: f64, terms: &[(f64, &[Self])]);
    fn fold(message: (f64, &[Self]), own: &[Self], y: &mut [Self], first: bool);
    fn dot(a: &[Self], b: &[Self]) -> Self;
    fn add_rows(sums: &mut [f64], rows: &[Self]);
    fn row_distances_sq(rows: &[Self], mean: &[f64]) -> Vec<f64>;
    fn norm_sq(block: &[Self]) -> f64;
    fn add_sketch(row: &[Self], sketch: &mut [f64]);
    fn soft_threshold(x: &mut [Self], threshold: Self);
    fn round_blocks(u: &mut [Self]);
    fn encode_blocks(q: &[Self], message: &mut Vec<u8>);
    fn decode_blocks(message: &[u8], q: &mut [Self]) -> Result<(), &'static str>;
    fn keep_largest(u: &mut [Self], kept: usize);
    fn encode_largest(q: &[Self], kept: usize, message: &mut Vec<u8>);
    fn decode_largest(message: &[u8], kept: usize, q: &mut [Self]) -> Result<(), &'static str>;
}
