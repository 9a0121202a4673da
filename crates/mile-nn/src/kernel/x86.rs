//! AVX-512 and AVX2 vectors, in both precisions.

use std::arch::x86_64::*;

use super::simd::Simd;

/// Sixteen `f32`.
pub(crate) struct Avx512;
/// Eight `f64`.
pub(crate) struct Avx512Double;
/// Eight `f32`.
pub(crate) struct Avx2;
/// Four `f64`.
pub(crate) struct Avx2Double;

/// Implements [`Simd`] by the intrinsics named.
macro_rules! simd {
    (
        $name:ident, $t:ty, $v:ty, $mask:ty, lanes $lanes:literal, tile $tile:literal, |$n:ident| $mask_of:expr,
        $splat:ident, $load:ident, |$from:ident, $m:ident| $load_masked:expr, $store:ident,
        |$to:ident, $x:ident, $k:ident| $store_masked:expr, $fma:ident
    ) => {
        // SAFETY (of every block below): the trait's contract, that the machine has the instructions and
        // that the pointer is good for the lanes named; masked-off lanes are not touched.
        impl Simd for $name {
            type T = $t;
            type V = $v;
            type Mask = $mask;
            const LANES: usize = $lanes;
            const TILE: usize = $tile;

            #[inline(always)]
            unsafe fn mask($n: usize) -> $mask {
                unsafe { $mask_of }
            }

            #[inline(always)]
            unsafe fn splat(x: $t) -> $v {
                unsafe { $splat(x) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $t) -> $v {
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn load_masked($from: *const $t, $m: $mask) -> $v {
                unsafe { $load_masked }
            }

            #[inline(always)]
            unsafe fn store(to: *mut $t, v: $v) {
                unsafe { $store(to, v) }
            }

            #[inline(always)]
            unsafe fn store_masked($to: *mut $t, $x: $v, $k: $mask) {
                unsafe { $store_masked }
            }

            #[inline(always)]
            unsafe fn fma(a: $v, b: $v, c: $v) -> $v {
                unsafe { $fma(a, b, c) }
            }
        }
    };
}

// 32 registers: 14 rows of two vectors, two of weights, one broadcast.
simd!(
    Avx512, f32, __m512, __mmask16, lanes 16, tile 14, |n| _cvtu32_mask16(u32::MAX >> (32 - n)),
    _mm512_set1_ps, _mm512_loadu_ps, |from, mask| _mm512_maskz_loadu_ps(mask, from),
    _mm512_storeu_ps, |to, v, mask| _mm512_mask_storeu_ps(to, mask, v), _mm512_fmadd_ps
);
simd!(
    Avx512Double, f64, __m512d, __mmask8, lanes 8, tile 14, |n| _cvtu32_mask16(u32::MAX >> (32 - n)) as u8,
    _mm512_set1_pd, _mm512_loadu_pd, |from, mask| _mm512_maskz_loadu_pd(mask, from),
    _mm512_storeu_pd, |to, v, mask| _mm512_mask_storeu_pd(to, mask, v), _mm512_fmadd_pd
);
// 16 registers: 6 rows of two vectors, two of weights, one broadcast.
simd!(
    Avx2, f32, __m256, __m256i, lanes 8, tile 6, |n| {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    },
    _mm256_set1_ps, _mm256_loadu_ps, |from, mask| _mm256_maskload_ps(from, mask),
    _mm256_storeu_ps, |to, v, mask| _mm256_maskstore_ps(to, mask, v), _mm256_fmadd_ps
);
simd!(
    Avx2Double, f64, __m256d, __m256i, lanes 4, tile 6,
    |n| _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3)),
    _mm256_set1_pd, _mm256_loadu_pd, |from, mask| _mm256_maskload_pd(from, mask),
    _mm256_storeu_pd, |to, v, mask| _mm256_maskstore_pd(to, mask, v), _mm256_fmadd_pd
);
