//! The four inequalities on actual runs.

use mile::mixing::Rule;
use mile::network::Network;
use mile::spectrum;
use mile_theory::constants::Constants;
use mile_theory::demonstration::demonstration;
use mile_theory::theorems::{Row, TheoremSetting, exact, stochastic};
use mile_theory::{TheoryError, weights};

use crate::common::*;

fn lazy() -> Network {
    ring(8, Rule::LazyMetropolis)
}

fn show(row: &Row, start: &str) {
    println!(
        "theorem {} tau {:2} xi {:.2} {start:20} left {:.3e} +- {:.0e}  printed {:.3e} ({:.3} x)  corrected {:.3e}",
        row.theorem,
        row.tau,
        row.xi,
        row.left,
        row.left_error,
        row.printed,
        row.factor(),
        row.corrected
    );
}

const CASES: [(u64, f64); 3] = [(2, 0.35), (5, 0.2), (10, 0.12)];

#[test]
fn theorems_2_and_4_are_false_as_printed_for_agents_that_start_apart_and_true_as_corrected() {
    let cases = demonstration(200, 5).unwrap();
    assert_eq!(cases.len(), 4 * 4 * CASES.len());
    cases.iter().for_each(|case| show(&case.row, case.start));
    for case in &cases {
        assert!(case.row.corrected_holds, "{case:?}");
        assert!(case.row.printed_holds || case.row.theorem % 2 == 0, "{case:?}");
        assert!(case.row.printed_holds || case.start.starts_with("apart"), "{case:?}");
    }
    let factor = |theorem: u8, tau: u64, start: &str| {
        let found = cases.iter().find(|c| (c.row.theorem, c.row.tau, c.start) == (theorem, tau, start));
        found.unwrap().row.factor()
    };
    assert!(factor(2, 2, "apart, slowest mode") < 1.0);
    assert!(factor(2, 5, "apart, slowest mode") > 10.0 && factor(2, 10, "apart, slowest mode") > 150.0);
    assert!(factor(2, 5, "apart, random") > 3.0 && factor(2, 10, "apart, random") > 40.0);
    assert!(factor(4, 10, "apart, slowest mode") > 3.0 && factor(4, 5, "apart, random") < 1.0);
}

#[test]
fn a_theorem_without_rounds_or_with_drops_or_one_seed_is_refused() {
    let problem = Diagonal::new(8, &[1.0]);
    let (network, dropping) = (lazy(), lazy().with_drop_rate(0.1).unwrap());
    let good = TheoremSetting {
        problem: &problem,
        network: &network,
        local_steps: 2,
        xi: 0.3,
        smoothness: 1.0,
        lowest: 0.0,
        variance: 0.0,
        start: &[0.0],
        k: 3,
    };
    assert!(exact(&good).is_ok());
    assert!(exact(&TheoremSetting { k: 0, ..good }).is_err());
    assert!(exact(&TheoremSetting { network: &dropping, ..good }).is_err());
    assert!(stochastic(&good, &[1]).is_err());
}

#[test]
fn constants_are_those_of_the_formulas_by_hand() {
    // Two agents with W = [[.5, .5], [.5, .5]]: lambda_2 = 0, so rho = 1 - xi.
    let network = network(mile::graph::Topology::Complete, 2, Rule::Metropolis);
    let found = Constants::new(1, 0.5, &spectrum::spectrum(network.mixing().rows())).unwrap();
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
    let spectrum = spectrum::spectrum(lazy().mixing().rows());
    for ((local_steps, xi), expected) in CASES.into_iter().zip([6e-5, 1e-6, 4e-8]) {
        let found = Constants::new(local_steps, xi, &spectrum).unwrap().step_size_max(1.0).unwrap();
        println!("tau {local_steps} xi {xi}: alpha L <= {found:.3e}");
        assert!((found / expected).ln().abs() < 1.6f64.ln(), "{found:e} {expected:e}");
    }
}

#[test]
fn parameters_the_theorems_do_not_cover_are_refused() {
    let spectrum = spectrum::spectrum(ring(8, Rule::Metropolis).mixing().rows());
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
