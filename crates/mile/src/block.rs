//! Kernels over blocks: one row of `dim` numbers for each agent hosted here.
//!
//! The simulator and the network engines share them, so that the same sums are formed in the same
//! order everywhere. Products and sums are rounded separately (no fused multiply-add), hence equal
//! bits on every CPU.

mod sums;

use std::ops::Range;

use rayon::prelude::*;

pub use self::sums::{
    add_rows, consensus_error, divide, mean_row, norm_sq, row_distances_sq, row_norms_sq, sum_sq,
};

use crate::real::Real;
use crate::shared::Shared;
use crate::sparse::SparseRows;

/// Elements handled by one task: small enough to balance two cores, large enough to hide its cost. Sums over a row
/// are formed in pieces of this length, which are added in order.
pub const CHUNK: usize = 1 << 14;
/// Bytes that the rows in use may take in one column range of [`pull`], each counted as often as it is read.
const TILE_BYTES: usize = 3 << 20;
/// The narrowest column range.
const NARROW: usize = 512;

/// A block of zeros. A large one lies in huge pages where the system has them: with pages of 4 KiB, ten
/// rows read side by side spend a third of their time on page-table lookups.
pub fn zeros<T: Real>(len: usize) -> Vec<T> {
    let block = vec![T::zero(); len];
    #[cfg(target_os = "linux")]
    advise(&block, libc::MADV_HUGEPAGE);
    block
}

/// Room for `len` numbers. If it is large, they will lie in huge pages where the system has them, without being moved there.
pub fn room<T: Real>(len: usize) -> Vec<T> {
    let mut block = Vec::with_capacity(len);
    #[cfg(target_os = "linux")]
    advise(block.spare_capacity_mut(), libc::MADV_HUGEPAGE);
    block
}

/// Moves numbers that are already in memory to huge pages, where the system can (Linux from 6.1).
pub(crate) fn move_to_huge_pages<T: Real>(block: &[T]) {
    // As in Linux's headers; not every C library's bindings have it.
    #[cfg(target_os = "linux")]
    const MADV_COLLAPSE: libc::c_int = 25;
    #[cfg(target_os = "linux")]
    advise(block, MADV_COLLAPSE);
    #[cfg(not(target_os = "linux"))]
    let _ = block;
}

/// Advises the system about the whole huge pages within a block. If it ignores the advice, the block works all the same.
#[cfg(target_os = "linux")]
fn advise<T>(block: &[T], advice: libc::c_int) {
    const HUGE: usize = 2 << 20;
    let bytes = block.as_ptr_range();
    let (from, to) = ((bytes.start as usize).next_multiple_of(HUGE), bytes.end as usize / HUGE * HUGE);
    if from < to {
        // SAFETY: the range lies within the block and begins at a page; the advice changes no byte.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, advice) };
    }
}

/// `blocks` blocks of zeros; none if they cannot be allocated.
pub fn try_zeros<T: Real>(blocks: usize, len: usize) -> Option<Vec<Vec<T>>> {
    let mut room: Vec<T> = Vec::new();
    room.try_reserve_exact(blocks.checked_mul(len)?).ok()?;
    drop(room);
    Some((0..blocks).map(|_| zeros(len)).collect())
}

/// Runs a loop compiled for the widest vectors of this machine. The numbers are the same: products and
/// sums are not fused.
#[inline(always)]
pub(crate) fn widest(work: impl FnOnce()) {
    pulp::Arch::new().dispatch(work);
}

/// `y <- keep*y + sum_k a_k v_k`, summed from left to right, in one pass over memory.
///
/// With `keep = 0` the old `y` is not read at all.
pub fn combine<T: Real>(y: &mut [T], keep: f64, terms: &[(f64, &[T])]) {
    let (head, rest) = terms.split_at(terms.len().min(4));
    match head {
        [] => combine_terms(y, keep, []),
        [a] => combine_terms(y, keep, [a]),
        [a, b] => combine_terms(y, keep, [a, b]),
        [a, b, c] => combine_terms(y, keep, [a, b, c]),
        [a, b, c, d, ..] => combine_terms(y, keep, [a, b, c, d]),
    }
    if !rest.is_empty() {
        combine(y, 1.0, rest);
    }
}

/// Terms are passed by reference: copying one whose parts have just been written costs as much as a short row.
fn combine_terms<T: Real, const K: usize>(y: &mut [T], keep: f64, terms: [&(f64, &[T]); K]) {
    widest(
        #[inline(always)]
        || combine_terms_body(y, keep, terms),
    );
}

#[inline(always)]
fn combine_terms_body<T: Real, const K: usize>(y: &mut [T], keep: f64, terms: [&(f64, &[T]); K]) {
    let n = y.len();
    let a = terms.map(|(a, _)| T::of(*a));
    let v = terms.map(|(_, v)| &v[..n]);
    if keep == 0.0 && K > 0 {
        for (i, y) in y.iter_mut().enumerate() {
            *y = add_terms(a[0] * v[0][i], &a, &v, 1, i);
        }
    } else if keep == 1.0 {
        for (i, y) in y.iter_mut().enumerate() {
            *y = add_terms(*y, &a, &v, 0, i);
        }
    } else {
        let keep = T::of(keep);
        for (i, y) in y.iter_mut().enumerate() {
            *y = add_terms(keep * *y, &a, &v, 0, i);
        }
    }
}

#[inline(always)]
fn add_terms<T: Real, const K: usize>(sum: T, a: &[T; K], v: &[&[T]; K], from: usize, i: usize) -> T {
    let mut sum = sum;
    for k in from..K {
        sum += a[k] * v[k][i];
    }
    sum
}

/// [`combine`] on whole blocks, with all cores when the blocks are large.
pub fn combine_block<T: Real>(y: &mut [T], keep: f64, terms: &[(f64, &[T])]) {
    if y.len() <= 2 * CHUNK {
        return combine(y, keep, terms);
    }
    y.par_chunks_mut(CHUNK).enumerate().for_each(|(k, chunk)| {
        let at = k * CHUNK..k * CHUNK + chunk.len();
        with_terms(terms.len(), |buffer: &mut [(f64, &[T])]| {
            for (slot, (a, v)) in buffer.iter_mut().zip(terms) {
                *slot = (*a, &v[at.clone()]);
            }
            combine(chunk, keep, buffer);
        });
    });
}

/// Lends room for `len` terms on the stack: inner loops do not allocate.
fn with_terms<'v, T: Real>(len: usize, work: impl FnOnce(&mut [(f64, &'v [T])])) {
    const ROOM: usize = 8;
    if len <= ROOM {
        work(&mut [(0.0, [].as_slice()); ROOM][..len]);
    } else {
        work(&mut vec![(0.0, [].as_slice()); len]);
    }
}

/// `out_i <- sum_j w_ij (v_j - v_i)` in increasing j, for blocks of `dim` columns: (W - I) v.
///
/// Differences are formed before they are weighted. So the two ends of an edge contribute exactly
/// opposite terms, agents that agree are pulled by exactly nothing, and weights rounded to `T` need
/// not sum to one. Tasks own column ranges narrow enough that all rows of a range stay in cache: each
/// element is fetched from memory once, however many neighbours read it.
pub fn pull<T: Real>(weights: &SparseRows, v: &[T], out: &mut [T], dim: usize) {
    let rows = weights.rows();
    assert_eq!(Some(v.len()), rows.checked_mul(dim), "a block has one row for each agent");
    assert_eq!(out.len(), v.len(), "both blocks have one shape");
    let width = tile_width::<T>(weights, dim);
    let target = Shared(out.as_mut_ptr());
    let tile = |from: usize| {
        let columns = from..(from + width).min(dim);
        let at = |row: usize| row * dim + columns.start..row * dim + columns.end;
        for i in 0..rows {
            // SAFETY: i < rows and columns end at dim at the latest, so the range is inside `out`;
            // tiles have disjoint columns and `out` is borrowed mutably by this function.
            let y = unsafe { target.slice_mut(at(i)) };
            let entries = weights.row(i).iter().map(|&(j, w)| (w, &v[at(j)], j == i));
            pull_row(y, &v[at(i)], entries);
        }
    };
    let tiles = dim.div_ceil(width);
    if rows * dim <= 2 * CHUNK {
        (0..tiles).for_each(|k| tile(k * width));
    } else {
        (0..tiles).into_par_iter().for_each(|k| tile(k * width));
    }
}

/// An agent's row of [`pull_rows`].
#[derive(Clone, Copy, Debug)]
pub struct Pulled<'v, T> {
    /// Which row of `out` it is.
    pub place: usize,
    /// The agent's own vector.
    pub own: &'v [T],
    /// Weight and vector of each neighbour whose edge is up, in increasing agent.
    pub others: &'v [(f64, &'v [T])],
}

/// [`pull`] for some rows of a block and some of its columns, with neighbours' vectors that may lie anywhere.
///
/// # Panics
/// If a vector is shorter than `dim`, the columns or a place are outside the block, or places do not increase.
pub fn pull_rows<T: Real>(out: &mut [T], dim: usize, columns: Range<usize>, rows: &[Pulled<'_, T>]) {
    assert!(columns.end <= dim, "columns of the block");
    assert!(rows.is_sorted_by(|a, b| a.place < b.place), "each row once");
    let last = rows.last().map_or(0, |row| row.place + 1);
    assert!(last.checked_mul(dim).is_some_and(|end| end <= out.len()), "rows of the block");
    let target = Shared(out.as_mut_ptr());
    let part = |rows: &[Pulled<'_, T>], columns: Range<usize>| {
        for row in rows {
            let at = row.place * dim;
            // SAFETY: the place is one of the block's rows and the columns end at `dim` at the latest, so the range is inside
            // `out`, which is borrowed mutably; a place occurs once, and the other parts have other rows or other columns.
            let y = unsafe { target.slice_mut(at + columns.start..at + columns.end) };
            let others = row.others.iter().map(|(w, v)| (*w, &v[columns.clone()], false));
            pull_row(y, &row.own[columns.clone()], others);
        }
    };
    let width = columns.len().max(1);
    if rows.len() * width <= 2 * CHUNK {
        part(rows, columns);
    } else if width <= CHUNK {
        rows.par_chunks((CHUNK / width).max(1)).for_each(|rows| part(rows, columns.clone()));
    } else {
        let tiles = width.div_ceil(CHUNK);
        let tile = |k: usize| columns.start + k * CHUNK..(columns.start + (k + 1) * CHUNK).min(columns.end);
        (0..tiles).into_par_iter().for_each(|k| part(rows, tile(k)));
    }
}

/// Columns of one task of [`pull`].
///
/// Wide, because memory is slow at the beginning of each stretch of a row: on a ring of ten, reading 64 KiB of
/// a row at a time reaches two thirds of the speed of 256 KiB. But the more rows lie between neighbours,
/// and the more often a row is read again, the nearer to the core it should stay in the meantime.
fn tile_width<T>(weights: &SparseRows, dim: usize) -> usize {
    if dim <= NARROW {
        return NARROW;
    }
    let reads = weights.entries.len().div_ceil(weights.rows().max(1)).max(1);
    let width = TILE_BYTES / (weights.in_use() * reads * size_of::<T>());
    width.min(dim / (4 * rayon::current_num_threads())).max(NARROW)
}

/// One row of [`pull`] from (weight, vector, whether it is the agent's own).
pub(crate) fn pull_row<'v, T: Real>(
    y: &mut [T],
    own: &[T],
    entries: impl Iterator<Item = (f64, &'v [T], bool)>,
) {
    let mut others = entries.filter(|(w, _, is_own)| !is_own && *w != 0.0).map(|(w, v, _)| (w, v));
    let mut first = true;
    while let Some(one) = others.next() {
        match others.next() {
            Some(other) => fold_two(one, other, own, y, first),
            None => fold(one, own, y, first),
        }
        first = false;
    }
    if first {
        y.fill(T::zero());
    }
}

/// `y <- [y +] w (v - own)`: how a neighbour's message is folded in.
///
/// # Panics
/// If the three have different lengths.
pub fn fold<T: Real>((w, v): (f64, &[T]), own: &[T], y: &mut [T], first: bool) {
    assert!(v.len() == y.len() && own.len() == y.len(), "messages of one length");
    let w = T::of(w);
    widest(
        #[inline(always)]
        || {
            let terms = y.iter_mut().zip(own).zip(v);
            if first {
                terms.for_each(|((y, own), v)| *y = w * (*v - *own));
            } else {
                terms.for_each(|((y, own), v)| *y += w * (*v - *own));
            }
        },
    );
}

/// [`fold`] twice, in one pass.
fn fold_two<T: Real>((w, v): (f64, &[T]), (w2, v2): (f64, &[T]), own: &[T], y: &mut [T], first: bool) {
    let (w, w2) = (T::of(w), T::of(w2));
    widest(
        #[inline(always)]
        || {
            let terms = y.iter_mut().zip(own).zip(v).zip(v2);
            if first {
                terms.for_each(|(((y, own), v), v2)| *y = w * (*v - *own) + w2 * (*v2 - *own));
            } else {
                terms.for_each(|(((y, own), v), v2)| *y = (*y + w * (*v - *own)) + w2 * (*v2 - *own));
            }
        },
    );
}

/// The inner product, in sixteen sums formed side by side: always the same sixteen.
pub fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::zero(); LANES];
    widest(
        #[inline(always)]
        || {
            let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
            let rest = a.remainder().iter().zip(b.remainder());
            for (a, b) in a.zip(b) {
                for k in 0..LANES {
                    sums[k] += a[k] * b[k];
                }
            }
            for (sum, (a, b)) in sums.iter_mut().zip(rest) {
                *sum += *a * *b;
            }
        },
    );
    sums.into_iter().sum()
}

/// `x_k <- sign(x_k) max(|x_k| - threshold, 0)`. NaN stays NaN.
pub(crate) fn soft_threshold<T: Real>(x: &mut [T], threshold: T) {
    widest(
        #[inline(always)]
        || {
            for x in x {
                let rest = x.abs() - threshold;
                *x = if rest <= T::zero() { T::zero() } else { rest.copysign(*x) };
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn combine_is_the_sum_from_left_to_right(
            len in prop_oneof![0usize..40, Just(CHUNK * 2 + 7), Just(CHUNK * 3 + 1)],
            keep in prop_oneof![Just(0.0), Just(1.0), -2.0..2.0f64],
            coefficients in prop::collection::vec(-2.0..2.0f64, 0..11),
        ) {
            let value = |k: usize, i: usize| ((i * 7 + k * 13) % 101) as f64 - 50.0;
            let vectors: Vec<Vec<f64>> =
                (0..coefficients.len()).map(|k| (0..len).map(|i| value(k + 1, i)).collect()).collect();
            let terms: Vec<(f64, &[f64])> =
                coefficients.iter().zip(&vectors).map(|(a, v)| (*a, v.as_slice())).collect();
            let mut y: Vec<f64> = (0..len).map(|i| value(0, i)).collect();
            let expected: Vec<f64> = (0..len).map(|i| {
                terms.iter().fold(keep * y[i], |sum, (a, v)| sum + a * v[i])
            }).collect();
            combine_block(&mut y, keep, &terms);
            prop_assert!(y.iter().zip(&expected).all(|(a, b)| a == b));
        }

        #[test]
        fn pull_is_the_sparse_product_on_odd_shapes(
            rows in 1usize..9,
            dim in prop_oneof![0usize..5, Just(511usize), Just(513), Just(CHUNK + 3), Just(2 * CHUNK + 5)],
            seed in 0u64..50,
        ) {
            let weight = |i: usize, j: usize| (((i * 31 + j * 17) as u64 + seed) % 7) as f64 - 2.0;
            let v: Vec<f64> = (0..rows * dim).map(|k| (k % 97) as f64 - 40.0).collect();
            let mut weights = SparseRows { starts: vec![0], entries: vec![] };
            for i in 0..rows {
                weights.entries.extend((0..rows).map(|j| (j, weight(i, j))));
                weights.starts.push(weights.entries.len());
            }
            let mut out = vec![f64::NAN; rows * dim];
            pull(&weights, &v, &mut out, dim);
            for i in 0..rows {
                for k in 0..dim {
                    let sum: f64 = (0..rows).map(|j| weight(i, j) * (v[j * dim + k] - v[i * dim + k])).sum();
                    prop_assert_eq!(out[i * dim + k], sum);
                }
            }
        }
    }

    #[test]
    fn rows_and_columns_of_a_pull_are_those_of_the_whole() {
        for (rows, dim) in [(7, 3), (5, 2 * CHUNK + 9), (3 * CHUNK, 5)] {
            let v: Vec<f32> = (0..rows * dim).map(|k| (k * 7919 % 2003) as f32).collect();
            let mut weights = SparseRows { starts: vec![0], entries: vec![] };
            for i in 0..rows {
                weights
                    .entries
                    .extend([(i + rows - 1) % rows, i, (i + 1) % rows].map(|j| (j, 0.3 + j as f64)));
                weights.entries[3 * i..].sort_by_key(|(j, _)| *j);
                weights.starts.push(3 * i + 3);
            }
            let mut expected = vec![0.0; rows * dim];
            pull(&weights, &v, &mut expected, dim);
            let row = |j: usize| &v[j * dim..(j + 1) * dim];
            let others: Vec<Vec<(f64, &[f32])>> = (0..rows)
                .map(|i| weights.row(i).iter().filter(|(j, _)| *j != i).map(|(j, w)| (*w, row(*j))).collect())
                .collect();
            let mut out = vec![f32::NAN; rows * dim];
            for some in [0, 1] {
                let pulled: Vec<Pulled<f32>> = (some..rows)
                    .step_by(2)
                    .map(|i| Pulled { place: i, own: row(i), others: &others[i] })
                    .collect();
                for columns in [0..dim / 2, dim / 2..dim] {
                    pull_rows(&mut out, dim, columns, &pulled);
                }
            }
            assert!(out == expected, "{rows} x {dim}");
        }
    }

    #[test]
    fn dot_sums_every_product_whatever_the_length() {
        for len in [0usize, 1, 15, 16, 17, 33, 100] {
            let a: Vec<f64> = (0..len).map(|k| k as f64 + 1.0).collect();
            let expected: f64 = a.iter().map(|a| a * a).sum();
            assert_eq!(dot(&a, &a), expected, "{len}");
        }
    }

    #[test]
    fn combine_with_keep_zero_does_not_read_the_poison() {
        let mut y = [f32::NAN; 3];
        combine(&mut y, 0.0, &[(2.0, &[1.0, 2.0, 3.0])]);
        assert_eq!(y, [2.0, 4.0, 6.0]);
    }
}
