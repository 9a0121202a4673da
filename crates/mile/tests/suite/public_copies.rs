//! The recursions of methods that send compressed messages, written a second time so that every agent knows its neighbours' copies.

use mile::compression::Compression::{Bf16, EightBit, Fp16, TopK};
use mile::methods::catalogue::Parameters;
use mile::schedule::Weight;

use crate::common::*;
use crate::literal::{Dense, Mat, ROUNDS, agree, flat};

/// The recursion of CHOCO-SGD and LEAD with local steps: every agent knows the copies of its neighbours.
fn with_public_copies(
    d: &Dense,
    x0: &Mat,
    (tau, xi, gamma): (usize, Option<f64>, f64),
    compress: impl Fn(&mut [f64]),
    whole_every: usize,
) -> Vec<Vec<f64>> {
    let (n, dim) = (x0.nrows(), x0.ncols());
    let corrected = xi.is_some();
    let (mut c, mut y, mut out) = (Mat::zeros(n, dim), Mat::zeros(n, dim), Vec::new());
    let mut x = if corrected { x0 - d.ag(x0) } else { x0.clone() };
    while out.len() < ROUNDS {
        let before = if corrected { 1 } else { tau };
        (0..before).for_each(|_| x = &x - d.ag(&x) + &c);
        for i in 0..n {
            let mut told: Vec<f64> = (0..dim).map(|k| x[(i, k)] - y[(i, k)]).collect();
            if out.len() % whole_every != 0 {
                compress(&mut told);
            }
            (0..dim).for_each(|k| y[(i, k)] += told[k]);
        }
        let s = &d.w * &y - &y;
        x = &x + gamma * &s;
        c = &c + (xi.unwrap_or(0.0)) * &s;
        out.push(flat(&x));
        (before..tau).for_each(|_| x = &x - d.ag(&x) + &c);
    }
    out
}

/// A vector of less than a block, rounded to multiples of a power of two.
pub fn eight_bits(u: &mut [f64]) {
    let largest = u.iter().fold(0.0, |most: f64, u| most.max(u.abs()));
    let mut step = 2f64.powi(-300);
    while 127.0 * step < largest {
        step *= 2.0;
    }
    u.iter_mut().for_each(|u| *u = (*u / step).round_ties_even() * step);
}

/// Rounded to this many significant bits, through single precision.
fn significant(bits: i32) -> impl Fn(&mut [f64]) {
    move |u| {
        for u in u.iter_mut().filter(|u| **u != 0.0) {
            let single = f64::from(*u as f32);
            let step = 2f64.powi(single.abs().log2().floor() as i32 + 1 - bits);
            *u = (single / step).round_ties_even() * step;
        }
    }
}

/// Only the two largest elements.
pub fn two_largest(u: &mut [f64]) {
    let mut order: Vec<usize> = (0..u.len()).collect();
    order.sort_by(|a, b| u[*b].abs().total_cmp(&u[*a].abs()));
    order[2..].iter().for_each(|k| u[*k] = 0.0);
}

#[test]
fn compressed_methods_are_their_forms_with_copies_of_the_neighbours() {
    let compressed = |by, xi: Option<f64>, gamma, steps| Parameters {
        compression: Some(by),
        gamma: Some(gamma),
        xi: xi.map(Weight::from),
        ..tau(steps)
    };
    for (name, steps, xi, gamma) in [
        ("mile", 1, Some(0.2), 0.7),
        ("mile", 5, Some(0.02), 0.5),
        ("local-dsgd", 1, None, 1.0),
        ("local-dsgd", 4, None, 0.5),
    ] {
        let weights = (steps as usize, xi, gamma);
        agree(name, compressed(EightBit, xi, gamma, steps), |d, x| {
            with_public_copies(d, x, weights, eight_bits, 100)
        });
        agree(name, compressed(Bf16, xi, gamma, steps), |d, x| {
            with_public_copies(d, x, weights, significant(8), 100)
        });
        // No element is so small beside the largest that it loses bits.
        agree(name, compressed(Fp16, xi, gamma, steps), |d, x| {
            with_public_copies(d, x, weights, significant(11), 100)
        });
        agree(name, compressed(TopK(0.4), xi, gamma, steps), |d, x| {
            with_public_copies(d, x, weights, two_largest, 100)
        });
        // A share of one tenth of the elements is one element, and one message in a hundred is whole.
        let one = |u: &mut [f64]| {
            let largest = u.iter().fold(0.0, |most: f64, u| most.max(u.abs()));
            u.iter_mut().for_each(|u| *u = if u.abs() == largest { *u } else { 0.0 });
        };
        agree(name, compressed(TopK(0.1), xi, gamma / 4.0, steps), |d, x| {
            with_public_copies(d, x, (steps as usize, xi, gamma / 4.0), one, 100)
        });
    }
}
