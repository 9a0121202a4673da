//! The [`Kernels`] of both precisions.

use crate::block;
use crate::kernels::Kernels;
use crate::theory::smoothness;

macro_rules! compiled {
    ($($precision:ty)*) => {$(
        impl Kernels for $precision {
            fn add_rows(sums: &mut [f64], rows: &[Self]) {
                block::add_rows_loop(sums, rows);
            }

            fn row_distances_sq(rows: &[Self], mean: &[f64]) -> Vec<f64> {
                block::row_distances_sq_loop(rows, mean)
            }

            fn norm_sq(block: &[Self]) -> f64 {
                block::norm_sq_loop(block)
            }

            fn shifted(at: &mut [Self], x: &[Self], by: f64, v: &[f64]) {
                smoothness::shifted_loop(at, x, by, v);
            }

            fn quotient(image: &mut [f64], plus: &[Self], minus: &[Self], by: f64) {
                smoothness::quotient_loop(image, plus, minus, by);
            }

            fn add_sample(mean: &mut [f64], sample: &[Self], draws: f64) -> f64 {
                smoothness::add_sample_loop(mean, sample, draws)
            }
        }
    )*};
}

compiled!(f32 f64);
