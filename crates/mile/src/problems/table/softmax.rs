//! Multinomial logistic regression: losses and slopes of rows from their products with the coefficients of each class.
//!
//! Every loop is over rows, class after class, so that the compiler can turn it into vector instructions.

use super::products::{MOST_ROWS, Products};
use crate::exp::{Exp, log_one_plus};
use crate::real::Real;

/// Replaces the products by `scale (softmax(p)_c - [b = c])`.
#[inline(always)]
pub(super) fn slopes<T: Real>(scale: T, products: &mut [Products<T>], targets: &[T]) {
    let (largest, _) = largest(products);
    let mut sums = [T::zero(); MOST_ROWS];
    for products in products.iter_mut() {
        for ((p, largest), sum) in products.iter_mut().zip(&largest).zip(&mut sums).take(targets.len()) {
            *p = (*p - *largest).exp_in_plain_arithmetic();
            *sum += *p;
        }
    }
    sums.iter_mut().zip(targets).for_each(|(sum, _)| *sum = T::one() / *sum);
    for (class, products) in products.iter_mut().enumerate() {
        let class = T::of(class as f64);
        for ((p, inverse), target) in products.iter_mut().zip(&sums).zip(targets) {
            *p = scale * (*p * *inverse - if *target == class { T::one() } else { T::zero() });
        }
    }
}

/// Writes `log sum_c exp(p_c) - p_b` into the first products: with the largest product p_l it is
/// `(p_l - p_b) + log(1 + sum_{c != l} exp(p_c - p_l))`, which neither overflows nor loses a small loss.
#[inline(always)]
pub(super) fn values<T: Real>(products: &mut [Products<f64>], targets: &[T]) {
    let (largest, at) = largest(products);
    let (mut sums, mut own) = ([0.0; MOST_ROWS], [0.0; MOST_ROWS]);
    for (class, products) in products.iter().enumerate() {
        let class = class as f64;
        let places = largest.iter().zip(&at).zip(&mut sums);
        for ((p, ((largest, at), sum)), _) in products.iter().zip(places).zip(targets) {
            let other = (p - largest).exp_in_plain_arithmetic();
            *sum += if *at == class { 0.0 } else { other };
        }
        for ((p, own), target) in products.iter().zip(&mut own).zip(targets) {
            *own = if target.wide() == class { *p } else { *own };
        }
    }
    let places = largest.iter().zip(&own).zip(&sums);
    for ((value, ((largest, own), sum)), _) in products[0].iter_mut().zip(places).zip(targets) {
        *value = (largest - own) + log_one_plus(*sum);
    }
}

/// The first class of each row with its largest product; NaN if a product of the row is.
#[inline(always)]
pub(super) fn classes(products: &[Products<f64>]) -> Products<f64> {
    let (_, mut at) = largest(products);
    for products in products {
        at.iter_mut().zip(products).for_each(|(at, p)| *at = if p.is_nan() { f64::NAN } else { *at });
    }
    at
}

/// The largest product of each row, and the first class that has it.
#[inline(always)]
fn largest<T: Real>(products: &[Products<T>]) -> (Products<T>, Products<T>) {
    let (mut largest, mut at) = (products[0], [T::zero(); MOST_ROWS]);
    for (class, products) in products.iter().enumerate().skip(1) {
        let class = T::of(class as f64);
        for ((p, largest), at) in products.iter().zip(&mut largest).zip(&mut at) {
            let larger = *p > *largest;
            *at = if larger { class } else { *at };
            *largest = if larger { *p } else { *largest };
        }
    }
    (largest, at)
}
