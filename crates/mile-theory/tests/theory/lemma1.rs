//! The closed form against the recursion and against MILE itself.

use mile::agents::Vector;
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::problems::Problem;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile_theory::lemma1::{self, Lemma1};

use crate::common::*;

#[test]
fn the_closed_form_is_the_recursion() {
    let (mut cases, mut worst) = (0, 0.0f64);
    for tau in [1u64, 2, 3, 4, 5, 7, 10, 16] {
        for k in 1..40 {
            let rho = k as f64 / 40.0;
            let Ok(lemma) = Lemma1::new(tau, rho) else { continue };
            let t = 6 * tau as usize + 3;
            let b = gaussian(k, t + 1);
            let recursion = lemma1::recursion(tau, rho, 0.7, -0.3, &b, t);
            let size = recursion.iter().fold(1.0f64, |s, a| s.max(a.abs()));
            for (at, a) in recursion.iter().enumerate() {
                worst = worst.max((lemma.at(at, 0.7, -0.3, &b) - a).abs() / size);
            }
            cases += 1;
        }
    }
    println!("{cases} pairs (tau, rho): largest relative error {worst:e}");
    assert!(cases > 80 && worst < 1e-11, "{cases} {worst:e}");
}

#[test]
fn a_rho_without_a_complex_pair_is_refused() {
    assert!(Lemma1::new(0, 0.9).is_err());
    assert!(Lemma1::new(10, 1.0).is_err());
    assert!(Lemma1::new(10, 0.6).is_err());
    assert!(Lemma1::new(10, 0.9).is_ok());
}

/// Modes of an actual run: y_i(t) and h_i(t), for eigenvectors of the ring.
fn modes_of_a_run(tau: u64, xi: f64, step_size: f64, t: usize) -> (Vec<f64>, Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let n = 8;
    let network = ring(n, Rule::LazyMetropolis);
    let problem = mile::problems::Quadratic::<f64>::new(n, 3, 10.0, 1.0, 4).unwrap();
    let method = Mile::new(tau, xi).unwrap();
    let mut agents = Simulator::new(&problem, &network, &method, &gaussian(2, n * 3), 0).unwrap();
    let mut run = Run::start(&method, Schedule::constant(step_size), &mut agents).unwrap();
    let wave = |k: usize, i: usize| (std::f64::consts::TAU * (k * i) as f64 / n as f64).cos();
    let project = |block: &[f64]| -> Vec<f64> {
        (1..=n / 2).map(|k| (0..n).map(|i| wave(k, i) * block[3 * i]).sum()).collect()
    };
    let (mut y, mut h) = (Vec::new(), Vec::new());
    for _ in 0..=t {
        let x = agents.vector(Vector(0)).to_vec();
        let mut g = vec![0.0; x.len()];
        for i in 0..n {
            problem.gradient(i, &x[3 * i..3 * i + 3], &mut g[3 * i..3 * i + 3]).unwrap();
        }
        y.push(project(&x));
        h.push(project(&g));
        run.step(&mut agents).unwrap();
    }
    let lambda = |k: usize| 2.0 / 3.0 + 1.0 / 3.0 * wave(k, 1);
    ((1..=n / 2).map(|k| 1.0 - xi + xi * lambda(k)).collect(), y, h)
}

#[test]
fn the_corrected_formula_gives_every_mode_of_a_run_and_the_printed_one_does_not() {
    let (tau, xi, step_size, t) = (5u64, 0.2, 0.05, 37);
    let (rho, y, h) = modes_of_a_run(tau, xi, step_size, t);
    let (mut corrected, mut printed) = (0.0f64, 0.0f64);
    for (i, rho_i) in rho.iter().enumerate() {
        let gradients: Vec<f64> = h.iter().map(|h| h[i]).collect();
        let closed = lemma1::mode(tau, *rho_i, step_size, y[0][i], y[1][i], &gradients, t).unwrap();
        corrected = corrected.max((closed - y[t][i]).abs());
        printed = printed.max(
            (as_printed(tau, *rho_i, rho[0], step_size, (y[0][i], y[1][i]), &gradients, t) - y[t][i]).abs(),
        );
    }
    println!("corrected {corrected:e}, as printed {printed:e}");
    assert!(corrected < 1e-12, "{corrected:e}");
    assert!(printed > 1e-2, "{printed:e}");
}

/// The paper's formula with its rho (= rho_2) in G_11 and F_22.
fn as_printed(tau: u64, rho_i: f64, rho: f64, step_size: f64, start: (f64, f64), h: &[f64], t: usize) -> f64 {
    let lemma = Lemma1::new(tau, rho_i).unwrap();
    let n = tau as usize;
    let (k, p) = ((t - 1) / n, (t - 1) % n + 1);
    let theta = ((rho_i * (tau as f64 + 1.0) + 1.0 - tau as f64) / (2.0 * rho_i.sqrt())).acos();
    let f22 = |s: usize| {
        ((1.0 - s as f64) * theta).sin() / theta.sin()
            - (tau as f64 - 1.0) * (s as f64 * theta).sin() / (rho.sqrt() * theta.sin())
    };
    let (y0, y1) = start;
    let power = |e: usize| rho_i.sqrt().powi(e as i32);
    let mut after = power(k) * (lemma.f11(k) * y1 + lemma.f12(k) * y0);
    let mut at = power(k) * (lemma.f21(k) * y1 + f22(k) * y0);
    for s in 0..k {
        let change = |j: usize| h[s * n + n - j] - h[s * n + n + 1 - j];
        let g11: f64 = step_size * rho * (1..=n).map(|j| j as f64 * change(j)).sum::<f64>();
        let g21: f64 = step_size * (1..=n).map(|j| (j as f64 - 1.0) * change(j)).sum::<f64>();
        let e = k - 1 - s;
        after += power(e) * (lemma.f11(e) * g11 + lemma.f12(e) * g21);
        at += power(e) * (lemma.f21(e) * g11 + f22(e) * g21);
    }
    let drift: f64 = (1..p).map(|q| h[k * n + q] - h[k * n]).sum();
    p as f64 * after - (p as f64 - 1.0) * at - step_size * drift
}
