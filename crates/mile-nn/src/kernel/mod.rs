//! The kernels of the layers, for several SIMD instruction sets.
//!
//! Two products do almost all the work of convolutions and dense layers, forward and backward: [`Contract`] sums
//! inputs times weights over the taps of each output pixel; [`Outer`] sums inputs times deltas over pixels into
//! weight gradients. A delta is the gradient of the loss with respect to a layer's output. Images are stored in the
//! order row, column, channel with a border of zeros, so that the taps of a kernel row are contiguous and no im2col
//! is needed. Both products keep a tile of results in registers; they are generic over [`Simd`](simd::Simd) and
//! compiled once per instruction set. A call uses one thread; the caller runs several, over agents or chunks of
//! samples.

mod contract;
mod norm;
mod outer;
mod pointwise;
mod pool;
mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use mile::isa::Isa;
use mile::real::Real;

pub(crate) use contract::Contract;
pub(crate) use norm::{Moments, Norm, NormBack};
pub(crate) use outer::Outer;
pub(crate) use pointwise::{Activate, Scatter, pack_taps, panel_width, transpose, transpose_taps};
pub(crate) use pool::{Pool, Unpool};

/// A number type that has kernels: `f32` or `f64`.
pub trait KernelScalar: Real + sealed::Sealed {}
impl KernelScalar for f32 {}
impl KernelScalar for f64 {}

pub(crate) mod sealed {
    use super::{Isa, Kernels};

    /// Restricts [`KernelScalar`](super::Scalar) to the types that have kernels.
    pub trait Sealed: Sized {
        /// The kernels of an instruction set that is available.
        #[allow(private_interfaces)]
        fn kernels(isa: Isa) -> Kernels<Self>;
    }
}

/// The kernels of one instruction set. They are called through the methods below, which check that no
/// index leaves its slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels<T> {
    contract: unsafe fn(&mut Contract<'_, T>),
    outer: unsafe fn(&mut Outer<'_, T>),
    activate: unsafe fn(&mut Activate<'_, T>),
    scatter: unsafe fn(&mut Scatter<'_, T>),
    pool: unsafe fn(&mut Pool<'_, T>),
    unpool: unsafe fn(&mut Unpool<'_, T>),
    norm: unsafe fn(&mut Norm<'_, T>),
    norm_back: unsafe fn(&mut NormBack<'_, T>),
}

impl<T: KernelScalar> Kernels<T> {
    /// The kernels of `isa`, or the portable ones if the machine cannot run those.
    pub(crate) fn new(isa: Isa) -> Self {
        <T as sealed::Sealed>::kernels(if isa.is_available() { isa } else { Isa::Portable })
    }

    /// Runs [`Contract`].
    pub(crate) fn contract(&self, mut call: Contract<'_, T>) {
        call.check();
        // SAFETY: `check` has bounded every index, and `new` has asked the machine for the features.
        unsafe { (self.contract)(&mut call) }
    }

    /// Runs [`Outer`].
    pub(crate) fn outer(&self, mut call: Outer<'_, T>) {
        call.check();
        // SAFETY: `check` has bounded every index, and `new` has asked the machine for the features.
        unsafe { (self.outer)(&mut call) }
    }

    /// Runs [`Activate`].
    pub(crate) fn activate(&self, mut call: Activate<'_, T>) {
        // SAFETY: its body indexes with checks; `new` has asked the machine for the features.
        unsafe { (self.activate)(&mut call) }
    }

    /// Runs [`Scatter`].
    pub(crate) fn scatter(&self, mut call: Scatter<'_, T>) {
        // SAFETY: its body indexes with checks; `new` has asked the machine for the features.
        unsafe { (self.scatter)(&mut call) }
    }

    /// Runs [`Pool`].
    pub(crate) fn pool(&self, mut call: Pool<'_, T>) {
        // SAFETY: its body indexes with checks; `new` has asked the machine for the features.
        unsafe { (self.pool)(&mut call) }
    }

    /// Runs [`Unpool`].
    pub(crate) fn unpool(&self, mut call: Unpool<'_, T>) {
        // SAFETY: its body indexes with checks; `new` has asked the machine for the features.
        unsafe { (self.unpool)(&mut call) }
    }

    /// Runs [`Norm`].
    pub(crate) fn norm(&self, mut call: Norm<'_, T>) {
        // SAFETY: its body indexes with checks; `new` has asked the machine for the features.
        unsafe { (self.norm)(&mut call) }
    }

    /// Runs [`NormBack`].
    pub(crate) fn norm_back(&self, mut call: NormBack<'_, T>) {
        // SAFETY: its body indexes with checks; `new` has asked the machine for the features.
        unsafe { (self.norm_back)(&mut call) }
    }
}

/// Compiles the kernels for one [`Simd`](simd::Simd) under the target features it needs.
macro_rules! kernels {
    ($name:ident, $simd:ty, $($feature:meta)?) => {
        fn $name() -> Kernels<<$simd as simd::Simd>::T> {
            type T = <$simd as simd::Simd>::T;
            $(#[$feature])?
            unsafe fn contract(call: &mut Contract<'_, T>) {
                // SAFETY: the caller of the table's entry has checked indices and features.
                unsafe { contract::run::<$simd>(call) }
            }
            $(#[$feature])?
            unsafe fn outer(call: &mut Outer<'_, T>) {
                // SAFETY: as above.
                unsafe { outer::run::<$simd>(call) }
            }
            $(#[$feature])?
            unsafe fn activate(call: &mut Activate<'_, T>) {
                pointwise::activate(call)
            }
            $(#[$feature])?
            unsafe fn scatter(call: &mut Scatter<'_, T>) {
                // SAFETY: as above; its indices are checked.
                unsafe { pointwise::scatter::<$simd>(call) }
            }
            $(#[$feature])?
            unsafe fn pool(call: &mut Pool<'_, T>) {
                pool::pool(call)
            }
            $(#[$feature])?
            unsafe fn unpool(call: &mut Unpool<'_, T>) {
                pool::unpool(call)
            }
            $(#[$feature])?
            unsafe fn norm(call: &mut Norm<'_, T>) {
                norm::norm(call)
            }
            $(#[$feature])?
            unsafe fn norm_back(call: &mut NormBack<'_, T>) {
                norm::norm_back(call)
            }
            Kernels { contract, outer, activate, scatter, pool, unpool, norm, norm_back }
        }
    };
}

kernels!(portable_f32, simd::Portable<f32>,);
kernels!(portable_f64, simd::Portable<f64>,);
#[cfg(target_arch = "x86_64")]
kernels!(avx512_f32, x86::Avx512, target_feature(enable = "avx512f,avx512bw,avx512vl,fma"));
#[cfg(target_arch = "x86_64")]
kernels!(avx512_f64, x86::Avx512Double, target_feature(enable = "avx512f,avx512bw,avx512vl,fma"));
#[cfg(target_arch = "x86_64")]
kernels!(avx2_f32, x86::Avx2, target_feature(enable = "avx2,fma"));
#[cfg(target_arch = "x86_64")]
kernels!(avx2_f64, x86::Avx2Double, target_feature(enable = "avx2,fma"));

#[allow(private_interfaces)]
impl sealed::Sealed for f32 {
    fn kernels(isa: Isa) -> Kernels<f32> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512_f32(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2_f32(),
            _ => portable_f32(),
        }
    }
}

#[allow(private_interfaces)]
impl sealed::Sealed for f64 {
    fn kernels(isa: Isa) -> Kernels<f64> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512_f64(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2_f64(),
            _ => portable_f64(),
        }
    }
}
