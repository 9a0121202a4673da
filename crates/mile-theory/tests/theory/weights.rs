//! Ranges of xi and gamma against eigenvalues.

use mile::methods::Mile;
use mile::mixing::Rule;
use mile::spectrum::Extremes;
use mile_theory::modes::Modes;
use mile_theory::{TheoryError, weights};

use crate::common::*;

#[test]
fn mode_moduli_are_the_radii_of_the_period_matrices_of_the_code() {
    for tau in [1, 2, 5, 10] {
        for (xi, gamma) in [(0.05, 0.05), (0.2, 0.2), (0.03, 1.0), (0.1, 0.6), (0.3, 0.9)] {
            let method = Mile::decoupled(tau, xi, gamma).unwrap();
            let modes = Modes::of(&method).unwrap();
            for lambda in [0.95, 0.4, 0.0, -1.0 / 3.0, -0.9] {
                let (formula, code) =
                    (weights::mode_modulus(tau, xi, gamma, lambda), modes.growth(0.0, lambda).unwrap());
                // Near a double eigenvalue its square root costs half the digits.
                assert!((formula - code).abs() < 1e-7, "{tau} {xi} {gamma} {lambda}: {formula} {code}");
            }
        }
    }
}

#[test]
fn the_stability_rule_of_decoupled_mixing_has_no_exception_on_a_grid() {
    let (mut points, mut stable) = (0, 0);
    for tau in [1u64, 2, 3, 5, 8, 10, 20] {
        for i in 1..=14 {
            let gamma = i as f64 / 14.0;
            for j in 1..=14 {
                let xi = j as f64 / 14.0 * 4.0 / tau as f64;
                for k in 0..15 {
                    let lambda = -0.98 + 1.95 * k as f64 / 14.0;
                    let d = 1.0 - lambda;
                    let distance = ((tau as f64 * xi + 2.0 * gamma) * d - 4.0).abs();
                    if distance < 1e-9 {
                        continue;
                    }
                    let rule = weights::is_stable(tau, xi, gamma, lambda);
                    let radius = weights::mode_modulus(tau, xi, gamma, lambda);
                    assert_eq!(rule, radius < 1.0, "{tau} {xi} {gamma} {lambda}: {radius}");
                    points += 1;
                    stable += usize::from(rule);
                }
            }
        }
    }
    println!("{points} points, {stable} stable, 0 exceptions");
    assert!(stable > 3000 && points - stable > 3000);
}

#[test]
fn f_1_is_stable_exactly_above_its_limit_on_a_grid() {
    let mut points = 0;
    for tau in [1u64, 2, 3, 4, 5, 8, 10, 15, 20] {
        let t = tau as f64;
        for k in 0..=4000 {
            let rho = -0.99 + 1.989 * k as f64 / 4000.0;
            // F_1 = [[rho (tau+1), -rho tau], [tau, 1 - tau]]
            let (half, det) = (0.5 * (rho * (t + 1.0) + 1.0 - t), rho);
            let under = half * half - det;
            let radius = if under < 0.0 { det.sqrt() } else { half.abs() + under.sqrt() };
            if (rho - (t - 2.0) / (t + 2.0)).abs() < 1e-9 {
                continue;
            }
            assert_eq!(radius < 1.0, rho > (t - 2.0) / (t + 2.0), "{tau} {rho} {radius}");
            points += 1;
        }
    }
    println!("{points} points, 0 exceptions");
    assert!(points > 36_000);
}

#[test]
fn ranges_are_those_of_the_formulas_and_nest() {
    let network = ring(10, Rule::Metropolis);
    let ranges = weights::xi_ranges(10, network.extremes()).unwrap();
    assert!((ranges.paper - 2.0 / 13.0).abs() < 1e-15);
    assert!((ranges.spectrum - 3.0 / 13.0).abs() < 1e-12);
    assert!((ranges.exact - 0.25).abs() < 1e-12);
    assert!(ranges.paper < ranges.spectrum && ranges.spectrum < ranges.exact);
    assert!((weights::paper_xi(10).unwrap() - 1.8 / 13.0).abs() < 1e-15);
}

#[test]
fn the_best_xi_is_not_beaten_on_a_grid() {
    for (tau, rule) in [(1, Rule::Metropolis), (5, Rule::LazyMetropolis), (10, Rule::Metropolis)] {
        let extremes = ring(12, rule).extremes();
        let (xi, modulus) = weights::best_xi(tau, extremes).unwrap();
        for k in 1..=2000 {
            let other = k as f64 / 2000.0;
            assert!(weights::slowest_modulus(tau, other, other, extremes) > modulus - 1e-9, "{xi} {other}");
        }
    }
}

#[test]
fn no_local_steps_are_refused() {
    let extremes = Extremes { lambda_1: 1.0, lambda_2: 0.5, lambda_n: 0.0 };
    let refusal = weights::xi_ranges(0, extremes).unwrap_err();
    assert!(matches!(refusal, TheoryError::Parameter { parameter: "local_steps", .. }), "{refusal}");
}
