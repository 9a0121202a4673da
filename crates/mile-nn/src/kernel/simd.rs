//! The SIMD operations the kernels are written in, and their portable implementation.

use std::marker::PhantomData;

use mile::real::Real;
use num_traits::Zero;

/// Most pixels (or taps) a register tile can have.
pub(crate) const MAX_TILE: usize = 14;
/// How far `unroll!` counts.
pub(crate) const MAX_UNROLL: usize = 20;

/// Vectors of one instruction set.
///
/// # Safety
///
/// Every function may be called only where the machine has the instruction set, and reads or writes
/// exactly the lanes it names: `LANES` numbers from the pointer, or the first `n` of a `mask(n)`.
pub(crate) trait Simd {
    type T: Real;
    type V: Copy;
    type Mask: Copy;
    const LANES: usize;
    /// Rows of a tile that is two vectors wide; a tile of one vector has twice as many, up to [`MAX_TILE`].
    const TILE: usize;

    unsafe fn mask(n: usize) -> Self::Mask;
    unsafe fn splat(x: Self::T) -> Self::V;
    unsafe fn load(from: *const Self::T) -> Self::V;
    unsafe fn load_masked(from: *const Self::T, mask: Self::Mask) -> Self::V;
    unsafe fn store(to: *mut Self::T, v: Self::V);
    unsafe fn store_masked(to: *mut Self::T, v: Self::V, mask: Self::Mask);
    /// `a * b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Fetches the cache line of an address that will be read soon; any address is allowed.
    fn prefetch(from: *const Self::T);
    /// The lanes of `v` whose byte, of the `LANES` at `bytes`, is `k`; zeros elsewhere.
    unsafe fn select(v: Self::V, bytes: *const u8, k: u8) -> Self::V;
}

/// Arrays of four numbers, which the compiler turns into the machine's vectors.
pub(crate) struct Portable<T>(PhantomData<T>);

impl<T: Real> Simd for Portable<T> {
    type T = T;
    type V = [T; 4];
    type Mask = usize;
    const LANES: usize = 4;
    const TILE: usize = 4;

    #[inline(always)]
    unsafe fn mask(n: usize) -> usize {
        n
    }

    #[inline(always)]
    unsafe fn splat(x: T) -> [T; 4] {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> [T; 4] {
        // SAFETY: the caller vouches for four numbers; arrays have the alignment of their elements.
        unsafe { from.cast::<[T; 4]>().read() }
    }

    #[inline(always)]
    unsafe fn load_masked(from: *const T, mask: usize) -> [T; 4] {
        if mask == 4 {
            // SAFETY: all four lanes are named.
            return unsafe { Self::load(from) };
        }
        // SAFETY: only the lanes named by the mask are read.
        std::array::from_fn(|i| if i < mask { unsafe { from.add(i).read() } } else { T::zero() })
    }

    #[inline(always)]
    unsafe fn store(to: *mut T, v: [T; 4]) {
        // SAFETY: as for `load`.
        unsafe { to.cast::<[T; 4]>().write(v) }
    }

    #[inline(always)]
    unsafe fn store_masked(to: *mut T, v: [T; 4], mask: usize) {
        for (i, x) in v.into_iter().enumerate().take(mask) {
            // SAFETY: only the lanes named by the mask are written.
            unsafe { to.add(i).write(x) }
        }
    }

    #[inline(always)]
    unsafe fn fma(a: [T; 4], b: [T; 4], c: [T; 4]) -> [T; 4] {
        // Not `mul_add`: without an FMA instruction it is a library call.
        [a[0] * b[0] + c[0], a[1] * b[1] + c[1], a[2] * b[2] + c[2], a[3] * b[3] + c[3]]
    }

    #[inline(always)]
    fn prefetch(_: *const T) {}

    #[inline(always)]
    unsafe fn select(v: [T; 4], bytes: *const u8, k: u8) -> [T; 4] {
        // SAFETY: the caller vouches for four bytes.
        let bytes = unsafe { bytes.cast::<[u8; 4]>().read() };
        std::array::from_fn(|i| if bytes[i] == k { v[i] } else { T::zero() })
    }
}

/// Repeats a block for I = 0, 1, ... below `$n`, always unrolled: the accumulators of a tile stay in registers only
/// if every index is a constant. Blocks from `$n` on are not compiled, thanks to `if const`;
/// `few` are at most five.
macro_rules! unroll {
    (few $i:ident < $n:expr, $body:block) => {
        unroll!(@ $i $n, $body, 0 1 2 3 4)
    };
    ($i:ident < $n:expr, $body:block) => {
        unroll!(@ $i $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19)
    };
    (@ $i:ident $n:expr, $body:block, $($k:literal)*) => {
        $(if const { $k < $n } { const $i: usize = $k; $body })*
    };
}

/// Calls `$f::<S, rows, $two>` for the constant that `$rows` is equal to.
macro_rules! dispatch {
    ($rows:expr, $most:expr, $f:ident::<$s:ty, $two:literal>($($arg:expr),*)) => {
        dispatch!(@ $rows, $most, $f::<$s, $two>($($arg),*), 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    (@ $rows:expr, $most:expr, $f:ident::<$s:ty, $two:literal>$args:tt, $($k:literal)*) => {
        match $rows {
            $($k if const { $k <= $most } => dispatch!(@@ $f::<$s, $k, $two>$args),)*
            _ => unreachable!("tiles are cut to the size the instruction set holds"),
        }
    };
    (@@ $f:ident::<$s:ty, $k:literal, $two:literal>($($arg:expr),*)) => { $f::<$s, $k, $two>($($arg),*) };
}

/// Repeats a block for I = 0, 1, ... below `$n` channels, 16 at a time in local arrays. These become vector instructions
/// however few channels there are; left to itself, the compiler would process more at a time and the rest one by one.
/// The slices, with a number for each channel, that the block reads are given by name, those it writes by name and the name
/// that they have in the block.
macro_rules! channels {
    ($i:ident < $n:expr, [$($read:ident),*], [$($written:ident as $own:ident),*], $body:block) => {
        let (n, mut first) = ($n, 0);
        while first + 16 <= n {
            $(let $read = crate::kernel::simd::sixteen(&$read[first..]);)*
            $(let mut $own = crate::kernel::simd::sixteen(&$written[first..]);)*
            for $i in 0..16 $body
            $($written[first..first + 16].copy_from_slice(&$own);)*
            first += 16;
        }
        $(let $read = &$read[first..n];)*
        $(let $own = &mut $written[first..n];)*
        for $i in 0..n - first $body
    };
}

/// The first 16 numbers.
#[inline(always)]
pub(crate) fn sixteen<T: Copy>(from: &[T]) -> [T; 16] {
    let from = &from[..16];
    std::array::from_fn(|i| from[i])
}

pub(crate) use {channels, dispatch, unroll};

/// Most rows of a tile that is two vectors wide or one.
pub(crate) const fn rows_of<S: Simd>(two: bool) -> usize {
    let rows = if two { S::TILE } else { 2 * S::TILE };
    if rows < MAX_TILE { rows } else { MAX_TILE }
}

/// The first vector of a tile's row: whole if the tile is two wide, otherwise the lanes of `mask`.
///
/// # Safety
///
/// As for [`Simd::load`] and [`Simd::load_masked`].
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, const TWO: bool>(from: *const S::T, mask: S::Mask) -> S::V {
    // SAFETY: promised by the caller.
    unsafe { if TWO { S::load(from) } else { S::load_masked(from, mask) } }
}

/// The second vector of a tile's row, or zeros if there is none.
///
/// # Safety
///
/// As for [`Simd::load`].
#[inline(always)]
pub(crate) unsafe fn load_second<S: Simd, const TWO: bool>(from: *const S::T) -> S::V {
    // SAFETY: promised by the caller.
    unsafe { if TWO { S::load(from.add(S::LANES)) } else { S::splat(S::T::zero()) } }
}

/// Where the `i`-th of `parts` pieces of `0..n` begins; the sizes of the pieces differ by at most one.
#[inline(always)]
pub(crate) fn cut(n: usize, parts: usize, i: usize) -> usize {
    n * i / parts
}
