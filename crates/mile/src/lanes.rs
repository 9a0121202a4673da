//! Vectors of 64 bytes, one number in each lane, for several instruction sets.
//!
//! A vector has the same lanes on every machine, in one register, two or none, and sums and products are rounded
//! separately: a kernel written in these operations gives the same bits everywhere.

#[cfg(target_arch = "x86_64")]
mod x86;

use num_traits::{AsPrimitive, Float};

use crate::isa::Isa;

/// Eight `f64` or sixteen `f32`.
///
/// # Safety
///
/// Every function may be called only where the machine has the instruction set. Pointers must be valid for the lanes
/// named: `COUNT` numbers, or the first `n` of them, which must be at least one.
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
                    // SAFETY: arrays need no special instructions.
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
