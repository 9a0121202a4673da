//! Lanes in one register of AVX-512 or in two of AVX2.

use std::arch::x86_64::*;

use super::{Lanes, LoadLanes};

/// Implements [`Lanes`] in `$registers` registers of `$lanes` lanes each, by the intrinsics named. `$mask(n)` has the first n
/// lanes of a register; all of them if n is larger, none if it is not positive.
macro_rules! lanes {
    (
        $(#[$doc:meta])* $name:ident, $t:ty, $register:ty, registers $registers:literal, lanes $lanes:literal,
        |$n:ident| $mask:expr, $splat:ident, $add:ident, $mul:ident, $load:ident, $store:ident,
        |$from:ident, $m:ident| $load_first:expr, |$to:ident, $k:ident, $v:ident| $store_first:expr, |$all:ident| $sum:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name([$register; $registers]);

        impl Lanes for $name {
            type T = $t;
            const COUNT: usize = $registers * $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: the caller vouches for the instructions.
                unsafe { Self([$splat(x); $registers]) }
            }

            #[inline(always)]
            unsafe fn add(mut self, other: Self) -> Self {
                for i in 0..$registers {
                    // SAFETY: the caller vouches for the instructions.
                    self.0[i] = unsafe { $add(self.0[i], other.0[i]) };
                }
                self
            }

            #[inline(always)]
            unsafe fn mul(mut self, other: Self) -> Self {
                for i in 0..$registers {
                    // SAFETY: the caller vouches for the instructions.
                    self.0[i] = unsafe { $mul(self.0[i], other.0[i]) };
                }
                self
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                for i in 0..$registers {
                    // SAFETY: the caller vouches for COUNT numbers from `to` on, and for the instructions.
                    unsafe { $store(to.add(i * $lanes), self.0[i]) };
                }
            }

            #[inline(always)]
            unsafe fn store_first(self, to: *mut $t, n: usize) {
                for i in 0..$registers {
                    let ($to, $n, $v) = (to.wrapping_add(i * $lanes), n as i32 - i as i32 * $lanes, self.0[i]);
                    // SAFETY: the mask has the lanes of the n numbers that the caller vouches for, and others are not touched.
                    unsafe {
                        let $k = $mask;
                        $store_first
                    }
                }
            }

            #[inline(always)]
            unsafe fn sum(self) -> $t {
                let $all = self.0;
                // SAFETY: the caller vouches for the instructions.
                unsafe { $sum }
            }
        }

        impl LoadLanes<$t> for $name {
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: the caller vouches for the instructions.
                let mut all = unsafe { Self::splat(0.0) };
                for i in 0..$registers {
                    // SAFETY: the caller vouches for COUNT numbers from `from` on, and for the instructions.
                    all.0[i] = unsafe { $load(from.add(i * $lanes)) };
                }
                all
            }

            #[inline(always)]
            unsafe fn load_first(from: *const $t, n: usize) -> Self {
                // SAFETY: the caller vouches for the instructions.
                let mut all = unsafe { Self::splat(0.0) };
                for i in 0..$registers {
                    let ($from, $n) = (from.wrapping_add(i * $lanes), n as i32 - i as i32 * $lanes);
                    // SAFETY: the mask has the lanes of the n numbers that the caller vouches for, and others are not read.
                    all.0[i] = unsafe {
                        let $m = $mask;
                        $load_first
                    };
                }
                all
            }
        }
    };
}

lanes!(
    /// Eight `f64` in a register of AVX-512.
    Wide64, f64, __m512d, registers 1, lanes 8,
    |n| (u32::MAX >> (32 - n)) as __mmask8, _mm512_set1_pd, _mm512_add_pd, _mm512_mul_pd, _mm512_loadu_pd, _mm512_storeu_pd,
    |from, mask| _mm512_maskz_loadu_pd(mask, from), |to, mask, v| _mm512_mask_storeu_pd(to, mask, v),
    |all| sum_f64(_mm256_add_pd(_mm512_castpd512_pd256(all[0]), _mm512_extractf64x4_pd(all[0], 1)))
);
lanes!(
    /// Sixteen `f32` in a register of AVX-512.
    Wide32, f32, __m512, registers 1, lanes 16,
    |n| (u32::MAX >> (32 - n)) as __mmask16, _mm512_set1_ps, _mm512_add_ps, _mm512_mul_ps, _mm512_loadu_ps, _mm512_storeu_ps,
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, v| _mm512_mask_storeu_ps(to, mask, v),
    |all| {
        let upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all[0]), 1));
        sum_f32(_mm256_add_ps(_mm512_castps512_ps256(all[0]), upper))
    }
);
lanes!(
    /// Eight `f64` in two registers of AVX2.
    Pair64, f64, __m256d, registers 2, lanes 4,
    |n| _mm256_cmpgt_epi64(_mm256_set1_epi64x(i64::from(n)), _mm256_setr_epi64x(0, 1, 2, 3)),
    _mm256_set1_pd, _mm256_add_pd, _mm256_mul_pd, _mm256_loadu_pd, _mm256_storeu_pd,
    |from, mask| _mm256_maskload_pd(from, mask), |to, mask, v| _mm256_maskstore_pd(to, mask, v),
    |all| sum_f64(_mm256_add_pd(all[0], all[1]))
);
lanes!(
    /// Sixteen `f32` in two registers of AVX2.
    Pair32, f32, __m256, registers 2, lanes 8,
    |n| _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
    _mm256_set1_ps, _mm256_add_ps, _mm256_mul_ps, _mm256_loadu_ps, _mm256_storeu_ps,
    |from, mask| _mm256_maskload_ps(from, mask), |to, mask, v| _mm256_maskstore_ps(to, mask, v),
    |all| sum_f32(_mm256_add_ps(all[0], all[1]))
);

impl LoadLanes<f32> for Wide64 {
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller vouches for eight numbers from `from` on, and for the instructions.
        unsafe { Self([_mm512_cvtps_pd(_mm256_loadu_ps(from))]) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        // SAFETY: the mask has the lanes of the n numbers that the caller vouches for, and others are not read.
        unsafe { Self([_mm512_cvtps_pd(_mm256_maskz_loadu_ps((u32::MAX >> (32 - n)) as __mmask8, from))]) }
    }
}

impl LoadLanes<f32> for Pair64 {
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller vouches for eight numbers from `from` on, and for the instructions.
        unsafe { Self([_mm256_cvtps_pd(_mm_loadu_ps(from)), _mm256_cvtps_pd(_mm_loadu_ps(from.add(4)))]) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        // SAFETY: the contract of `load_first` is that of the caller, who vouches for the instructions too.
        unsafe {
            let Pair32([all, _]) = Pair32::load_first(from, n);
            let upper = _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1));
            Self([_mm256_cvtps_pd(_mm256_castps256_ps128(all)), upper])
        }
    }
}

/// The sum of four `f64` in halves.
///
/// # Safety
/// The machine has AVX.
#[inline(always)]
unsafe fn sum_f64(v: __m256d) -> f64 {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
        _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
    }
}

/// The sum of eight `f32` in halves.
///
/// # Safety
/// The machine has AVX.
#[inline(always)]
unsafe fn sum_f32(v: __m256) -> f32 {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}
