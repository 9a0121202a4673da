//! Products of dense matrices, by [faer](https://codeberg.org/sarah-quinones/faer).

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// Numbers of which matrices are multiplied.
pub trait Product: Sized {
    /// `to = left right`, on one thread.
    fn product(to: MatMut<'_, Self>, left: MatRef<'_, Self>, right: MatRef<'_, Self>);
}

macro_rules! product {
    ($($t:ty),*) => {$(
        impl Product for $t {
            fn product(to: MatMut<'_, Self>, left: MatRef<'_, Self>, right: MatRef<'_, Self>) {
                matmul(to, Accum::Replace, left, right, 1.0, Par::Seq);
            }
        }
    )*};
}
product!(f32, f64);
