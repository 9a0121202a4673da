//! Edges that drop: measured growth against exact rates and long runs.

use mile::methods::Mile;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::varying::TimeVarying;
use mile_theory::drops::{growth_under_drops, xi_limit_under_drops};
use mile_theory::weights;

use crate::common::*;

#[test]
fn without_drops_the_measured_growth_is_the_modulus_of_the_slowest_mode() {
    let network = ring(10, Rule::Metropolis);
    for (xi, gamma) in [(0.05, 0.05), (0.138, 0.138), (0.3, 0.3), (0.05, 1.0)] {
        let method = Mile::decoupled(10, xi, gamma).unwrap();
        let measured = growth_under_drops(&method, &network, 1).unwrap();
        let exact = weights::slowest_modulus(10, xi, gamma, network.extremes());
        assert!((measured.per_round / exact - 1.0).abs() < 0.01, "{xi} {gamma}: {measured:?} {exact}");
    }
}

#[test]
fn drops_lower_the_largest_stable_xi_and_a_large_gamma_tolerates_more_of_them() {
    let limits = |gamma: Option<f64>| {
        [0.0, 0.3, 0.5, 0.75].map(|rate| {
            let network = ring(10, Rule::Metropolis).with_drop_rate(rate).unwrap();
            xi_limit_under_drops(10, gamma, &network, 1).unwrap()
        })
    };
    let (coupled, decoupled) = (limits(None), limits(Some(1.0)));
    println!(
        "tau 10, ring of 10, drop rates 0, .3, .5, .75: gamma = xi {coupled:.4?}, gamma = 1 {decoupled:.4?}"
    );
    assert!((coupled[0] - 0.25).abs() < 0.01 && (decoupled[0] - 0.1).abs() < 0.01);
    assert!(coupled[1] < 0.1 && coupled[3] < coupled[1], "{coupled:?}");
    assert!(decoupled[1] > 0.08 && decoupled[3] > 0.02 && decoupled[3] < 0.08, "{decoupled:?}");
}

#[test]
fn a_run_with_drops_diverges_above_the_limit_and_converges_below() {
    let network = ring(10, Rule::Metropolis).with_drop_rate(0.75).unwrap();
    let limit = xi_limit_under_drops(10, Some(1.0), &network, 3).unwrap();
    let problem = Diagonal::new(10, &[1.0, 0.5]);
    for (factor, converges) in [(0.6, true), (1.7, false)] {
        let method = Mile::decoupled(10, factor * limit, 1.0).unwrap();
        let errors = errors(&problem, &network, &method, 2e-3, 2500, &problem.minimiser());
        let last = errors[errors.len() - 1];
        println!("drop rate 0.75, gamma 1, xi = {factor} of {limit:.4}: error {last:e}");
        assert_eq!(last < 1e-3 * errors[0], converges, "{factor}: {last:e}");
        assert_eq!(last > 1e3 * errors[0], !converges, "{factor}: {last:e}");
    }
}

/// ADMM has one weight for mixing and correction; FSPDA's correction can be small by itself.
#[test]
fn on_random_matchings_admm_needs_curvature_and_fspda_does_not() {
    let pairs = ring(20, Rule::Metropolis).with_time_varying(TimeVarying::RandomMatching).unwrap();
    for (name, stable) in [("lt-admm", false), ("dinno", false), ("led", false), ("fspda", true)] {
        let entry = catalogue::find(name).unwrap();
        let parameters =
            Parameters { local_steps: entry.has_local_steps().then_some(5), ..Parameters::default() };
        let method = entry.build(&parameters, &pairs, 3).unwrap();
        let growth = growth_under_drops(&*method, &pairs, 0).unwrap();
        println!("{name} on random matchings of a ring of 20: {growth:?}");
        assert_eq!(growth.is_stable(), stable, "{name}: {growth:?}");
    }
}
