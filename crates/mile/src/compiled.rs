//! The [`Kernels`] of both precisions.

use std::ops::Range;
use std::sync::Arc;

use crate::block::{self, Pulled};
use crate::compression::{Compression, InvalidMessage};
use crate::kernels::Kernels;
use crate::problems::{Batch, InvalidTable, Penalty, Problem, Quadratic, Shard, Table, TableObjective};
use crate::steady;
use crate::theory::smoothness;

macro_rules! compiled {
    ($($precision:ty)*) => {$(
        impl Kernels for $precision {
            fn combine(y: &mut [Self], keep: f64, terms: &[(f64, &[Self])]) {
                block::combine_loop(y, keep, terms);
            }

            fn combine_block(y: &mut [Self], keep: f64, terms: &[(f64, &[Self])]) {
                block::combine_block_loop(y, keep, terms);
            }

            fn pull_rows(out: &mut [Self], dim: usize, columns: Range<usize>, rows: &[Pulled<'_, Self>]) {
                block::pull_rows_loop(out, dim, columns, rows);
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

            fn shifted(at: &mut [Self], x: &[Self], by: f64, v: &[f64]) {
                smoothness::shifted_loop(at, x, by, v);
            }

            fn quotient(image: &mut [f64], plus: &[Self], minus: &[Self], by: f64) {
                smoothness::quotient_loop(image, plus, minus, by);
            }

            fn add_sample(mean: &mut [f64], sample: &[Self], draws: f64) -> f64 {
                smoothness::add_sample_loop(mean, sample, draws)
            }

            fn add_sketch(row: &[Self], sketch: &mut [f64]) {
                steady::add_sketch_loop(row, sketch);
            }

            fn compress(how: Compression, u: &mut [Self]) {
                how.compress_loop(u);
            }

            fn encode(how: Compression, q: &[Self], message: &mut Vec<u8>) {
                how.encode_loop(q, message);
            }

            fn decode(how: Compression, message: &[u8], q: &mut [Self]) -> Result<(), InvalidMessage> {
                how.decode_loop(message, q)
            }

            fn prox(penalty: &Penalty, step: f64, x: &mut [Self]) {
                penalty.prox_loop(step, x);
            }

            // Else it is compiled, with all functions of the problem, where it is called.
            #[inline(never)]
            fn quadratic_problem(problem: Quadratic<Self>) -> Arc<dyn Problem<Self>> {
                Arc::new(problem)
            }

            fn table(
                columns: usize,
                shards: Vec<Shard<Self>>,
                objective: TableObjective,
                batch: Batch,
            ) -> Result<Table<Self>, InvalidTable> {
                Table::build(columns, shards, objective, batch)
            }

            #[inline(never)]
            fn table_problem(table: Arc<Table<Self>>) -> Arc<dyn Problem<Self>> {
                table
            }
        }
    )*};
}

compiled!(f32 f64);
