//! The four inequalities on actual runs.

use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Problem, Quadratic};
use mile::spectrum;
use mile::theory::constants::Constants;
use mile::theory::theorems::{Noisy, Row, Setting, exact, stochastic};
use mile::theory::{TheoryError, weights};

use crate::common::*;

const AGENTS: usize = 8;
const DIM: usize = 10;

fn lazy() -> Network {
    ring(AGENTS, Rule::LazyMetropolis)
}

/// The lowest value of f, by gradient descent with step 1/L, L = 1.
fn lowest(problem: &dyn Problem<f64>) -> f64 {
    let (mut x, mut g) = (vec![0.0; DIM], vec![0.0; DIM]);
    for _ in 0..2000 {
        let mut sum = vec![0.0; DIM];
        for i in 0..AGENTS {
            problem.gradient(i, &x, &mut g);
            sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g / AGENTS as f64);
        }
        x.iter_mut().zip(&sum).for_each(|(x, s)| *x -= s);
    }
    problem.objective(&x)
}

/// Different starting points with mean zero, along the slowest mode of the ring.
fn apart() -> Vec<f64> {
    let wave = |i: usize| (std::f64::consts::TAU * i as f64 / AGENTS as f64).cos();
    (0..AGENTS).flat_map(|i| vec![wave(i); DIM]).collect()
}

fn show(row: &Row) {
    println!(
        "theorem {} tau {:2} xi {:.3}: left {:.4e} +- {:.1e}  printed {:.4e} ({:.3} x)  corrected {:.4e}  holds {} / {}",
        row.theorem,
        row.tau,
        row.xi,
        row.left,
        row.left_error,
        row.printed,
        row.factor(),
        row.corrected,
        row.printed_holds,
        row.corrected_holds
    );
}

const CASES: [(u64, f64); 3] = [(2, 0.35), (5, 0.2), (10, 0.12)];

#[test]
fn theorem_2_is_false_as_printed_for_agents_that_start_apart_and_true_as_corrected() {
    let (network, problem) = (lazy(), Quadratic::new(AGENTS, DIM, 10.0, 1.0, 5).unwrap());
    let lowest = lowest(&problem);
    let mut factors = Vec::new();
    for start in [apart(), gaussian(3, AGENTS * DIM), gaussian(3, DIM), vec![0.0; DIM]] {
        for (local_steps, xi) in CASES {
            let setting = Setting {
                problem: &problem,
                network: &network,
                local_steps,
                xi,
                smoothness: 1.0,
                lowest,
                variance: 0.0,
                start: &start,
                k: 200,
            };
            let rows = exact(&setting).unwrap();
            rows.iter().for_each(show);
            assert!(rows[0].printed_holds && rows[0].corrected_holds);
            assert!(rows[1].corrected_holds);
            factors.push(rows[1].factor());
        }
    }
    // Apart along the slowest mode; random and apart; common; zero.
    assert!(factors[0] < 1.0 && factors[1] > 10.0 && factors[2] > 150.0, "{factors:?}");
    assert!(factors[4] > 4.0 && factors[5] > 50.0, "{factors:?}");
    assert!(factors[6..].iter().all(|f| *f < 1.0), "{factors:?}");
}

#[test]
fn theorem_4_is_false_as_printed_too_and_true_as_corrected() {
    let (network, exact) = (lazy(), Quadratic::new(AGENTS, DIM, 10.0, 1.0, 5).unwrap());
    let lowest = lowest(&exact);
    let variance = 1e-4; // sigma = 0.01 at L = 1, as 0.1 at L = 10
    let problem = Noisy { problem: &exact, variance };
    let start = apart();
    let mut factors = Vec::new();
    for (local_steps, xi) in CASES {
        let setting = Setting {
            problem: &problem,
            network: &network,
            local_steps,
            xi,
            smoothness: 1.0,
            lowest,
            variance,
            start: &start,
            k: 200,
        };
        let rows = stochastic(&setting, &[0, 1, 2, 3, 4, 5]).unwrap();
        rows.iter().for_each(show);
        assert!(rows[0].printed_holds && rows[1].corrected_holds);
        factors.push(rows[1].factor());
        assert_eq!(rows[1].printed_holds, rows[1].factor() <= 1.0);
    }
    assert!(factors[0] < 1.0 && factors[2] > 3.0, "{factors:?}");
}

#[test]
fn constants_are_those_of_the_formulas_by_hand() {
    // Two agents with W = [[.5, .5], [.5, .5]]: lambda_2 = 0, so rho = 1 - xi.
    let network = network(mile::graph::Topology::Complete, 2, Rule::Metropolis);
    let found = Constants::new(1, 0.5, &spectrum::spectrum(network.mixing())).unwrap();
    // tau = 1, rho = .5: D = sqrt(2 - 1) = 1, A_1 = 2, A_3 = 2 sqrt(.5) + 2.
    let a3 = 2.0 * 0.5f64.sqrt() + 2.0;
    assert!((found.a1 - 2.0).abs() < 1e-12 && (found.a3 - a3).abs() < 1e-12, "{found:?}");
    let b2 = 3.0 + 6.0 * 0.25 * a3 * a3 / (2.0 * (1.0 - 0.5f64.sqrt()).powi(2));
    assert!((found.b2 / b2 - 1.0).abs() < 1e-12, "{found:?}");
    assert!((found.step_size_max(2.0).unwrap() * 2.0 * (5.0 * b2).sqrt() - 1.0).abs() < 1e-12);
    assert!((found.step_size_max_stochastic(2.0).unwrap() * 2.0 * (13.0 * b2).sqrt() - 1.0).abs() < 1e-12);
}

#[test]
fn admissible_steps_shrink_with_tau_as_found_before() {
    // ALGORITHMS: alpha L of about 6e-5 (tau = 2), 1e-6 (tau = 5), 4e-8 (tau = 10) on such a ring.
    let spectrum = spectrum::spectrum(lazy().mixing());
    for ((local_steps, xi), expected) in CASES.into_iter().zip([6e-5, 1e-6, 4e-8]) {
        let found = Constants::new(local_steps, xi, &spectrum).unwrap().step_size_max(1.0).unwrap();
        println!("tau {local_steps} xi {xi}: alpha L <= {found:.3e}");
        assert!((found / expected).ln().abs() < 1.6f64.ln(), "{found:e} {expected:e}");
    }
}

#[test]
fn parameters_the_theorems_do_not_cover_are_refused() {
    let spectrum = spectrum::spectrum(ring(8, Rule::Metropolis).mixing());
    let range = weights::xi_ranges(5, spectrum.extremes()).unwrap();
    assert!(Constants::new(5, 0.99 * range.spectrum, &spectrum).is_ok());
    let refusal = Constants::new(5, 0.9, &spectrum).unwrap_err();
    assert!(matches!(refusal, TheoryError::OutsideTheorems { .. }), "{refusal}");
    assert!(Constants::new(0, 0.1, &spectrum).is_err());
    assert!(Constants::new(5, 0.0, &spectrum).is_err() && Constants::new(5, 1.1, &spectrum).is_err());
    let fine = Constants::new(5, 0.1, &spectrum).unwrap();
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(fine.step_size_max(bad).is_err());
    }
}
