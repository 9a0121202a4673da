//! Vectors of 64 bytes, one number in each lane, for several instruction sets.
//!
//! A vector has the same lanes on every machine, in one register, two or none, and sums and products are rounded
//! separately: a kernel written in these operations gives the same bits everywhere.

use num_traits::{AsPrimitive, Float};

use crate::isa::Isa;

/// Eight `f64` or sixteen `f32`.
///
/// # Safety
///
/// Every function may be called only where the machine has the instruction set. Pointers must be good for the lanes
/// that are named: `COUNT` numbers, or the first `n` of them, which must be at least one.
pub trait Lanes: Copy {
    /// The number in a lane.
    type T: Float;
    const COUNT: usize;

    unsafe fn splat(x: Self::T) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn store(self, to: *mut Self::T);
    unsafe fn store_first(self, to: *mut Self::T, n: usize);
    /// The sum of all lanes, in halves: lane i and lane i + COUNT/2, and so on.
    unsafe fn sum(self) -> Self::T;
}

/// Lanes that can be filled from numbers of type `U`.
///
/// # Safety
///
/// As for [`Lanes`].
pub trait LoadLanes<U>: Lanes {
    unsafe fn load(from: *const U) -> Self;
    /// The first `n` numbers; zeros in the other lanes.
    unsafe fn load_first(from: *const U, n: usize) -> Self;
}

/// A kernel on numbers of type `T`, for any instruction set.
pub trait Kernel<T> {
    /// What it returns.
    type Output;

    /// Runs it with lanes of `T` and with lanes of `f64`.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `V` and `W`.
    unsafe fn run<V: LoadLanes<T, T = T>, W: LoadLanes<T, T = f64> + LoadLanes<f64>>(self) -> Self::Output;
}

/// Numbers that lanes hold.
pub trait InLanes: Sized {
    /// Runs a kernel compiled for an instruction set that is available.
    fn run_on<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output;
}

macro_rules! in_lanes {
    ($t:ty, portable $count:literal, avx512 $wide:ident, avx2 $pair:ident) => {
        impl InLanes for $t {
            #[inline]
            fn run_on<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,fma")]
                unsafe fn avx512<K: Kernel<$t>>(kernel: K) -> K::Output {
                    // SAFETY: promised by the caller.
                    unsafe { kernel.run::<x86::$wide, x86::Wide64>() }
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2<K: Kernel<$t>>(kernel: K) -> K::Output {
                    // SAFETY: promised by the caller.
                    unsafe { kernel.run::<x86::$pair, x86::Pair64>() }
                }
                assert!(isa.is_available(), "{isa:?} is not available");
                match isa {
                    // SAFETY: it is available.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => unsafe { avx512(kernel) },
                    // SAFETY: it is available.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => unsafe { avx2(kernel) },
                    // SAFETY: arrays need no instructions.
                    _ => unsafe { kernel.run::<Portable<$t, $count>, Portable<f64, 8>>() },
                }
            }
        }
    };
}

in_lanes!(f64, portable 8, avx512 Wide64, avx2 Pair64);
in_lanes!(f32, portable 16, avx512 Wide32, avx2 Pair32);

/// Lanes in an array, which the compiler turns into whatever the machine has.
#[derive(Clone, Copy)]
struct Portable<T, const N: usize>([T; N]);

impl<T: Float, const N: usize> Lanes for Portable<T, N> {
    type T = T;
    const COUNT: usize = N;

    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Self([x; N])
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * other.0[i]))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller vouches for N numbers; an array has the alignment of its elements.
        unsafe { to.cast::<[T; N]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut T, n: usize) {
        for (i, x) in self.0.into_iter().enumerate().take(n) {
            // SAFETY: the caller vouches for n numbers.
            unsafe { to.add(i).write(x) }
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> T {
        let mut lanes = self.0;
        let mut half = N / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = lanes[i] + lanes[i + half];
            }
            half /= 2;
        }
        lanes[0]
    }
}

impl<T: Float + 'static, U: AsPrimitive<T>, const N: usize> LoadLanes<U> for Portable<T, N> {
    #[inline(always)]
    unsafe fn load(from: *const U) -> Self {
        // SAFETY: the caller vouches for N numbers; an array has the alignment of its elements.
        Self(unsafe { from.cast::<[U; N]>().read() }.map(U::as_))
    }

    #[inline(always)]
    unsafe fn load_first(from: *const U, n: usize) -> Self {
        // SAFETY: only the first n numbers are read.
        Self(std::array::from_fn(|i| if i < n { unsafe { from.add(i).read() }.as_() } else { T::zero() }))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, LoadLanes};

    /// Eight `f64` in a register of AVX-512.
    #[derive(Clone, Copy)]
    pub(super) struct Wide64(__m512d);
    /// Sixteen `f32` in a register of AVX-512.
    #[derive(Clone, Copy)]
    pub(super) struct Wide32(__m512);
    /// Eight `f64` in two registers of AVX2.
    #[derive(Clone, Copy)]
    pub(super) struct Pair64(__m256d, __m256d);
    /// Sixteen `f32` in two registers of AVX2.
    #[derive(Clone, Copy)]
    pub(super) struct Pair32(__m256, __m256);

    // SAFETY (of every block below): the contract of `Lanes`, that the machine has the instructions and that the
    // pointer is good for the lanes named; masked-off lanes are not touched.

    /// The sum of four `f64` in halves.
    #[inline(always)]
    unsafe fn sum_f64(v: __m256d) -> f64 {
        unsafe {
            let two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
            _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
        }
    }

    /// The sum of eight `f32` in halves.
    #[inline(always)]
    unsafe fn sum_f32(v: __m256) -> f32 {
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn mask16(n: usize) -> __mmask16 {
        (u32::MAX >> (32 - n)) as __mmask16
    }

    #[inline(always)]
    fn mask8(n: usize) -> __mmask8 {
        (u32::MAX >> (32 - n)) as __mmask8
    }

    /// All bits of the lanes below `n`, from `from` on.
    #[inline(always)]
    unsafe fn mask_f64(n: usize, from: i64) -> __m256i {
        unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64 - from), _mm256_setr_epi64x(0, 1, 2, 3)) }
    }

    #[inline(always)]
    unsafe fn mask_f32(n: usize, from: i32) -> __m256i {
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32 - from), lanes)
        }
    }

    impl Lanes for Wide64 {
        type T = f64;
        const COUNT: usize = 8;

        #[inline(always)]
        unsafe fn splat(x: f64) -> Self {
            unsafe { Self(_mm512_set1_pd(x)) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Self(_mm512_add_pd(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Self(_mm512_mul_pd(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f64) {
            unsafe { _mm512_storeu_pd(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f64, n: usize) {
            unsafe { _mm512_mask_storeu_pd(to, mask8(n), self.0) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f64 {
            unsafe {
                sum_f64(_mm256_add_pd(_mm512_castpd512_pd256(self.0), _mm512_extractf64x4_pd(self.0, 1)))
            }
        }
    }

    impl LoadLanes<f64> for Wide64 {
        #[inline(always)]
        unsafe fn load(from: *const f64) -> Self {
            unsafe { Self(_mm512_loadu_pd(from)) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f64, n: usize) -> Self {
            unsafe { Self(_mm512_maskz_loadu_pd(mask8(n), from)) }
        }
    }

    impl LoadLanes<f32> for Wide64 {
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Self(_mm512_cvtps_pd(_mm256_loadu_ps(from))) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, n: usize) -> Self {
            unsafe { Self(_mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask8(n), from))) }
        }
    }

    impl Lanes for Wide32 {
        type T = f32;
        const COUNT: usize = 16;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Self(_mm512_set1_ps(x)) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Self(_mm512_add_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Self(_mm512_mul_ps(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, n: usize) {
            unsafe { _mm512_mask_storeu_ps(to, mask16(n), self.0) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe {
                let upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(self.0), 1));
                sum_f32(_mm256_add_ps(_mm512_castps512_ps256(self.0), upper))
            }
        }
    }

    impl LoadLanes<f32> for Wide32 {
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Self(_mm512_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, n: usize) -> Self {
            unsafe { Self(_mm512_maskz_loadu_ps(mask16(n), from)) }
        }
    }

    impl Lanes for Pair64 {
        type T = f64;
        const COUNT: usize = 8;

        #[inline(always)]
        unsafe fn splat(x: f64) -> Self {
            unsafe { Self(_mm256_set1_pd(x), _mm256_set1_pd(x)) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Self(_mm256_add_pd(self.0, other.0), _mm256_add_pd(self.1, other.1)) }
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Self(_mm256_mul_pd(self.0, other.0), _mm256_mul_pd(self.1, other.1)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f64) {
            unsafe {
                _mm256_storeu_pd(to, self.0);
                _mm256_storeu_pd(to.add(4), self.1);
            }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f64, n: usize) {
            unsafe {
                _mm256_maskstore_pd(to, mask_f64(n, 0), self.0);
                _mm256_maskstore_pd(to.wrapping_add(4), mask_f64(n, 4), self.1);
            }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f64 {
            unsafe { sum_f64(_mm256_add_pd(self.0, self.1)) }
        }
    }

    impl LoadLanes<f64> for Pair64 {
        #[inline(always)]
        unsafe fn load(from: *const f64) -> Self {
            unsafe { Self(_mm256_loadu_pd(from), _mm256_loadu_pd(from.add(4))) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f64, n: usize) -> Self {
            unsafe {
                let upper = _mm256_maskload_pd(from.wrapping_add(4), mask_f64(n, 4));
                Self(_mm256_maskload_pd(from, mask_f64(n, 0)), upper)
            }
        }
    }

    impl LoadLanes<f32> for Pair64 {
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Self(_mm256_cvtps_pd(_mm_loadu_ps(from)), _mm256_cvtps_pd(_mm_loadu_ps(from.add(4)))) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, n: usize) -> Self {
            unsafe {
                let all = _mm256_maskload_ps(from, mask_f32(n, 0));
                let upper = _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1));
                Self(_mm256_cvtps_pd(_mm256_castps256_ps128(all)), upper)
            }
        }
    }

    impl Lanes for Pair32 {
        type T = f32;
        const COUNT: usize = 16;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Self(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
        }

        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Self(_mm256_add_ps(self.0, other.0), _mm256_add_ps(self.1, other.1)) }
        }

        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Self(_mm256_mul_ps(self.0, other.0), _mm256_mul_ps(self.1, other.1)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe {
                _mm256_storeu_ps(to, self.0);
                _mm256_storeu_ps(to.add(8), self.1);
            }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, n: usize) {
            unsafe {
                _mm256_maskstore_ps(to, mask_f32(n, 0), self.0);
                _mm256_maskstore_ps(to.wrapping_add(8), mask_f32(n, 8), self.1);
            }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe { sum_f32(_mm256_add_ps(self.0, self.1)) }
        }
    }

    impl LoadLanes<f32> for Pair32 {
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, n: usize) -> Self {
            unsafe {
                let upper = _mm256_maskload_ps(from.wrapping_add(8), mask_f32(n, 8));
                Self(_mm256_maskload_ps(from, mask_f32(n, 0)), upper)
            }
        }
    }
}
