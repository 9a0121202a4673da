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
        $name:ident, $t:ty, $vector:ty, $mask:ty, lanes $lanes:literal, tile $tile:literal, |$n:ident| $mask_of:expr,
        $splat:ident, $load:ident, |$from:ident, $m:ident| $load_masked:expr, $store:ident,
        |$to:ident, $x:ident, $k:ident| $store_masked:expr, $fma:ident,
        |$v:ident, $bytes:ident, $byte:ident| $select:expr
    ) => {
        impl Simd for $name {
            type T = $t;
            type V = $vector;
            type Mask = $mask;
            const LANES: usize = $lanes;
            const TILE: usize = $tile;

            #[inline(always)]
            unsafe fn mask($n: usize) -> $mask {
                // SAFETY: the caller vouches for the instructions.
                unsafe { $mask_of }
            }

            #[inline(always)]
            unsafe fn splat(x: $t) -> $vector {
                // SAFETY: the caller vouches for the instructions.
                unsafe { $splat(x) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $t) -> $vector {
                // SAFETY: the caller vouches for LANES numbers from `from` on, and for the instructions.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn load_masked($from: *const $t, $m: $mask) -> $vector {
                // SAFETY: the caller vouches for the lanes of the mask, and others are not read.
                unsafe { $load_masked }
            }

            #[inline(always)]
            unsafe fn store(to: *mut $t, v: $vector) {
                // SAFETY: the caller vouches for LANES numbers from `to` on, and for the instructions.
                unsafe { $store(to, v) }
            }

            #[inline(always)]
            unsafe fn store_masked($to: *mut $t, $x: $vector, $k: $mask) {
                // SAFETY: the caller vouches for the lanes of the mask, and others are not written.
                unsafe { $store_masked }
            }

            #[inline(always)]
            unsafe fn fma(a: $vector, b: $vector, c: $vector) -> $vector {
                // SAFETY: the caller vouches for the instructions.
                unsafe { $fma(a, b, c) }
            }

            #[inline(always)]
            fn prefetch(from: *const $t) {
                // SAFETY: a prefetch reads nothing, and every x86-64 has it.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
            }

            #[inline(always)]
            unsafe fn select($v: $vector, $bytes: *const u8, $byte: u8) -> $vector {
                // SAFETY: the caller vouches for LANES bytes from `bytes` on, and for the instructions.
                unsafe { $select }
            }
        }
    };
}

// 32 registers: 14 rows of two vectors, two of weights, one broadcast.
simd!(
    Avx512, f32, __m512, __mmask16, lanes 16, tile 14, |n| _cvtu32_mask16(u32::MAX >> (32 - n)),
    _mm512_set1_ps, _mm512_loadu_ps, |from, mask| _mm512_maskz_loadu_ps(mask, from),
    _mm512_storeu_ps, |to, v, mask| _mm512_mask_storeu_ps(to, mask, v), _mm512_fmadd_ps,
    |v, bytes, k| {
        let chosen = _mm_cmpeq_epi8_mask(_mm_loadu_si128(bytes.cast()), _mm_set1_epi8(k as i8));
        _mm512_maskz_mov_ps(chosen, v)
    }
);
simd!(
    Avx512Double, f64, __m512d, __mmask8, lanes 8, tile 14, |n| _cvtu32_mask16(u32::MAX >> (32 - n)) as u8,
    _mm512_set1_pd, _mm512_loadu_pd, |from, mask| _mm512_maskz_loadu_pd(mask, from),
    _mm512_storeu_pd, |to, v, mask| _mm512_mask_storeu_pd(to, mask, v), _mm512_fmadd_pd,
    |v, bytes, k| {
        let chosen = _mm_cmpeq_epi8_mask(_mm_loadl_epi64(bytes.cast()), _mm_set1_epi8(k as i8));
        _mm512_maskz_mov_pd(chosen as u8, v)
    }
);
// 16 registers: 6 rows of two vectors, two of weights, one broadcast.
simd!(
    Avx2, f32, __m256, __m256i, lanes 8, tile 6, |n| {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    },
    _mm256_set1_ps, _mm256_loadu_ps, |from, mask| _mm256_maskload_ps(from, mask),
    _mm256_storeu_ps, |to, v, mask| _mm256_maskstore_ps(to, mask, v), _mm256_fmadd_ps,
    |v, bytes, k| {
        let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.cast()));
        let chosen = _mm256_cmpeq_epi32(bytes, _mm256_set1_epi32(i32::from(k)));
        _mm256_and_ps(v, _mm256_castsi256_ps(chosen))
    }
);
simd!(
    Avx2Double, f64, __m256d, __m256i, lanes 4, tile 6,
    |n| _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3)),
    _mm256_set1_pd, _mm256_loadu_pd, |from, mask| _mm256_maskload_pd(from, mask),
    _mm256_storeu_pd, |to, v, mask| _mm256_maskstore_pd(to, mask, v), _mm256_fmadd_pd,
    |v, bytes, k| {
        let bytes = _mm_cvtsi32_si128(bytes.cast::<i32>().read_unaligned());
        let chosen = _mm256_cmpeq_epi64(_mm256_cvtepu8_epi64(bytes), _mm256_set1_epi64x(i64::from(k)));
        _mm256_and_pd(v, _mm256_castsi256_pd(chosen))
    }
);
