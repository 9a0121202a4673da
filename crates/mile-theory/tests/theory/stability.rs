//! Period matrices against theory, and step limits against simulation.

use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::methods::{Mile, OuterMomentum};
use mile::mixing::Rule;
use mile::network::Network;
use mile::spectrum;
use mile::varying::TimeVarying;
use mile_theory::mixed::{StepLimits, auto_step};
use mile_theory::modes::{Modes, Timing};
use mile_theory::stability;

use crate::common::*;

#[test]
fn the_period_matrix_of_mile_is_the_one_on_paper() {
    let (tau, xi, gamma, a, lambda) = (4u64, 0.1, 0.7, 0.3, -0.2);
    let method = Mile::decoupled(tau, xi, gamma).unwrap();
    let modes = Modes::of(&method).unwrap();
    assert_eq!(*modes.timing(), Timing::Periodic { first: 1, period: 4 });
    let matrix = modes.period_matrix(a, lambda).unwrap().unwrap();
    // v = (1-a)^tau x + (1 + (1-a) + ...) c ; x = (1 - gamma d) v ; c = c - xi d v
    let (d, p) = (1.0 - lambda, (1.0f64 - a).powi(4));
    let s = (1.0 - p) / a;
    let expected = [[(1.0 - gamma * d) * p, (1.0 - gamma * d) * s], [-xi * d * p, 1.0 - xi * d * s]];
    for i in 0..2 {
        for j in 0..2 {
            assert!((matrix[(i, j)] - expected[i][j]).abs() < 1e-14);
        }
    }
}

/// x after local steps `x = x - a x - theta (x - 1)` from 1: ADMM pulls them back to where they began.
fn pulled_back(a: f64, theta: f64, steps: i32) -> f64 {
    let left = (1.0 - a - theta).powi(steps);
    (left + theta * (1.0 - left) / (a + theta)).abs()
}

#[test]
fn the_average_of_every_method_is_gradient_descent() {
    let network = network(Topology::Complete, 6, Rule::Metropolis);
    for entry in catalogue::ALL {
        let steps = if entry.has_local_steps() { 3 } else { 1 };
        // Without momentum and outer steps, if it has them.
        let outer = Some(OuterMomentum { momentum: 0.0, step_size: 1.0 });
        let parameters = Parameters { momentum: Some(0.0), outer, ..tau(steps) };
        let method = entry.build(&parameters, &network, 3).unwrap();
        let modes = Modes::of(&*method).unwrap();
        if modes.is_exact() {
            for a in [0.01, 0.4, 1.7, 2.1] {
                let growth = modes.growth(a, 1.0).unwrap();
                let expected = match &*entry.name {
                    "dinno" => pulled_back(a, 2.0 / 3.0, steps as i32),
                    _ => (1.0 - a).abs().powi(steps as i32),
                };
                assert!((growth - expected).abs() < 1e-9, "{}: {growth} {expected}", entry.name);
            }
        }
    }
}

/// The rules for small steps in the documentation of these methods, against their period matrices.
#[test]
fn admm_and_fspda_are_stable_for_small_steps_where_their_rules_say() {
    let network = network(Topology::Ring, 6, Rule::MaxDegree);
    let grows = |name: &str, parameters: &Parameters, lambda: f64| {
        let method = catalogue::find(name).unwrap().build(parameters, &network, 3).unwrap();
        Modes::of(&*method).unwrap().growth(0.0, lambda).unwrap() > 1.0 + 1e-9
    };
    for (steps, lambda) in
        [1, 2, 7, 30].into_iter().flat_map(|steps| [(steps, 0.9), (steps, 0.2), (steps, -0.8)])
    {
        for share in [0.02, 0.5, 0.98, 1.02, 2.0] {
            let rho = share * 8.0 / 3.0 / (steps as f64 * (1.0 - lambda));
            assert_eq!(
                grows("lt-admm", &tau(steps).with("rho", rho), lambda),
                share > 1.0,
                "{steps} {lambda} {share}"
            );
        }
        // Up to 1/(2w), with the eigenvalues that a ring with weights 1/3 can have.
        for rho in [0.01, 0.1, 0.4, 0.75] {
            assert!(
                !grows("dinno", &tau(steps).with("rho", rho), f64::max(lambda, -1.0 / 3.0)),
                "{steps} {rho}"
            );
        }
    }
    for (gamma, beta) in
        [0.05, 0.3, 0.7, 1.0].into_iter().flat_map(|g| [(g, 0.1), (g, 0.29), (g, 0.69), (g, 0.99)])
    {
        for lambda in [0.9, 0.2, -0.8, -2.0] {
            let stable = beta < gamma && (2.0 * gamma - beta) * (1.0 - lambda) < 4.0;
            let parameters = Parameters { gamma: Some(gamma), ..Parameters::default().with("beta", beta) };
            assert_eq!(grows("fspda", &parameters, lambda), !stable, "{gamma} {beta} {lambda}");
        }
    }
}

/// The modulus of the larger root of z^2 - p z + q.
fn larger_root(p: f64, q: f64) -> f64 {
    let under = 0.25 * p * p - q;
    if under < 0.0 { q.sqrt() } else { 0.5 * p.abs() + under.sqrt() }
}

#[test]
fn the_average_of_methods_with_momentum_is_that_of_heavy_ball_or_nesterov() {
    let network = network(Topology::Complete, 6, Rule::Metropolis);
    let (mu, steps) = (0.6, 3);
    for (name, nesterov) in
        ["mile", "led", "k-gt", "local-dsgd"].into_iter().flat_map(|name| [(name, false), (name, true)])
    {
        let parameters = Parameters {
            momentum: Some(mu),
            nesterov: Some(nesterov),
            gamma: Some(1.0),
            xi: Some(0.05.into()),
            ..tau(steps)
        };
        let method = catalogue::find(name).unwrap().build(&parameters, &network, 3).unwrap();
        let modes = Modes::of(&*method).unwrap();
        for a in [0.01, 0.4, 1.7, 3.5] {
            let one = match nesterov {
                false => larger_root(1.0 + mu - a, mu),
                true => larger_root((1.0 + mu) * (1.0 - a), mu * (1.0 - a)),
            };
            let (growth, expected) = (modes.growth(a, 1.0).unwrap(), one.powi(steps as i32));
            assert!((growth / expected - 1.0).abs() < 1e-6, "{name}, {nesterov}, {a}: {growth} {expected}");
        }
    }
}

#[test]
fn limits_of_xi_come_out_as_the_step_size_goes_to_zero() {
    for (agents, rule) in [(10, Rule::Metropolis), (8, Rule::LazyMetropolis)] {
        let network = ring(agents, rule);
        let spectrum = spectrum::spectrum(network.mixing().rows());
        for tau in [2u64, 5, 10, 20] {
            let limit = 4.0 / ((tau as f64 + 2.0) * (1.0 - network.extremes().lambda_n));
            for (factor, stable) in [(0.98, true), (1.02, false)] {
                let xi = factor * limit;
                if xi > 1.0 {
                    continue;
                }
                let method = Mile::new(tau, xi).unwrap();
                let modes = Modes::of(&method).unwrap();
                let growth = stability::growth(&modes, &spectrum, 1e-6, 1.0).unwrap();
                assert_eq!(growth < 1.0, stable, "tau {tau} xi {xi}: {growth}");
                let found = stability::step_limit(&modes, &spectrum).unwrap().step_times_smoothness;
                assert_eq!(found > 0.0, stable, "tau {tau} xi {xi}: {found}");
            }
        }
    }
}

/// Close together, so that no mode is much slower than the one that decides.
const CURVATURES: [f64; 2] = [1.0, 0.96];

/// A simulated run at `factor` of the computed limit; converged, diverged, or neither (none).
fn outcome(network: &Network, name: &str, parameters: &Parameters, factor: f64) -> (f64, Option<bool>) {
    let method = build(name, parameters, network);
    let modes = Modes::of(&*method).unwrap();
    let spectrum = spectrum::spectrum(network.mixing().rows());
    let limit = stability::step_limit(&modes, &spectrum).unwrap().step_times_smoothness;
    let step_size = factor * limit;
    // Enough rounds for the slowest mode to change a millionfold.
    let mut rate = 0.0f64;
    for lambda in spectrum.lambda.iter() {
        for h in CURVATURES {
            rate = rate.max(modes.growth(h * step_size, *lambda).unwrap());
        }
    }
    let rounds = (100.0 + 1e7f64.ln() / rate.ln().abs()).ceil().min(100_000.0) as usize;
    let problem = Diagonal::new(network.agents(), &CURVATURES);
    let errors = errors(&problem, network, &*method, step_size, rounds, &problem.minimiser());
    let (first, last) = (errors[0].max(1e-3), errors[errors.len() - 1]);
    let verdict = if last > 1e3 * first { Some(false) } else { (last < 1e-3 * first).then_some(true) };
    (limit, verdict)
}

#[test]
fn runs_at_98_percent_of_the_step_limit_converge_and_at_102_percent_diverge() {
    let network = ring(8, Rule::LazyMetropolis);
    let mile = |xi: f64, gamma: Option<f64>| Parameters { xi: Some(xi.into()), gamma, ..tau(5) };
    let cases = [
        ("mile", mile(0.225, None)),
        ("mile", mile(0.6, None)),
        ("mile", mile(0.1, Some(0.9))),
        ("mile", mile(0.03, Some(1.0))),
        ("led", tau(5)),
        ("k-gt", tau(5)),
        ("diging", tau(5)),
        ("periodical-gt", tau(5)),
        ("gta-2", tau(5)),
        ("gta-3", tau(5)),
        ("push-pull", tau(5)),
        ("extra", tau(1)),
        ("ed", tau(1)),
        ("nids", tau(1)),
        ("d2", tau(1)),
        ("gradient-tracking", tau(1)),
    ];
    for (name, parameters) in cases {
        let (limit, below) = outcome(&network, name, &parameters, 0.98);
        let (_, above) = outcome(&network, name, &parameters, 1.02);
        println!("{name:18} alpha L limit {limit:.6}  0.98: {below:?}  1.02: {above:?}");
        assert_eq!((below, above), (Some(true), Some(false)), "{name} {parameters:?} limit {limit}");
    }
}

#[test]
fn runs_on_a_plain_ring_agree_with_the_limits_too() {
    let network = ring(10, Rule::Metropolis);
    for (name, parameters) in [
        ("mile", Parameters { xi: Some(0.1.into()), ..tau(10) }),
        ("mile", Parameters { xi: Some(0.03.into()), gamma: Some(1.0), ..tau(10) }),
        ("k-gt", tau(10)),
        ("diging", tau(3)),
    ] {
        let (limit, below) = outcome(&network, name, &parameters, 0.98);
        let (_, above) = outcome(&network, name, &parameters, 1.02);
        println!("{name:18} alpha L limit {limit:.6}  0.98: {below:?}  1.02: {above:?}");
        assert_eq!((below, above), (Some(true), Some(false)), "{name} {parameters:?} limit {limit}");
    }
}

#[test]
fn methods_with_a_coin_have_a_limit_between_runs_that_converge_and_diverge() {
    let network = ring(8, Rule::LazyMetropolis);
    for name in ["proxskip", "mg-skip"] {
        let (limit, below) = outcome(&network, name, &tau(5), 0.9);
        let (_, above) = outcome(&network, name, &tau(5), 1.1);
        println!("{name:18} alpha L limit {limit:.6}  0.9: {below:?}  1.1: {above:?}");
        assert_eq!((below, above), (Some(true), Some(false)), "{name} limit {limit}");
    }
}

#[test]
fn led_on_an_even_plain_ring_is_on_the_edge_and_d2_beyond_it_is_refused() {
    let network = ring(10, Rule::Metropolis);
    let method = build("led", &tau(5), &network);
    let modes = Modes::of(&*method).unwrap();
    let rate = stability::contraction(&modes, &spectrum::spectrum(network.mixing().rows())).unwrap();
    assert!((rate - 1.0).abs() < 1e-7, "{rate}");
}

#[test]
fn a_map_has_a_boundary_that_falls_with_tau() {
    let network = ring(10, Rule::Metropolis);
    let spectrum = spectrum::spectrum(network.mixing().rows());
    let taus = [1.0, 2.0, 5.0, 10.0, 20.0];
    let steps = [1e-3, 0.1, 0.5, 1.0, 1.9];
    let build = |tau: f64| {
        let method = Mile::new(tau as u64, 0.2)?;
        Ok(Box::new(method) as Box<dyn mile::method::Method>)
    };
    let map = stability::map("local_steps", &taus, &steps, 1.0, &spectrum, build).unwrap();
    let stable: Vec<usize> = map.growth.iter().map(|row| row.iter().filter(|g| **g < 1.0).count()).collect();
    assert_eq!(stable[4], 0, "xi = 0.2 is beyond 4/((tau + 2) 4/3) at tau = 20: {:?}", map.growth);
    assert!(stable[1] == steps.len() && stable[3] > 0, "{:?}", map.growth);
    assert!(map.growth.iter().flatten().all(|g| g.is_finite()));
}

#[test]
fn along_a_saddle_disagreement_does_not_outgrow_the_average() {
    let network = ring(10, Rule::Metropolis);
    let spectrum = spectrum::spectrum(network.mixing().rows());
    let method = Mile::new(10, 0.138).unwrap();
    let modes = Modes::of(&method).unwrap();
    for h in [0.001, 0.01, 0.05] {
        let excess = stability::saddle_excess(&modes, &spectrum, h).unwrap();
        assert!(excess <= 1.0 + 1e-9, "{h}: {excess}");
    }
}

#[test]
fn agents_that_differ_cost_trackers_more_of_their_step_than_mile_and_led() {
    let network = ring(8, Rule::LazyMetropolis);
    let step = |name: &str, parameters: Parameters| {
        let method = build(name, &parameters, &network);
        let limit = StepLimits::of(&*method, &network, 1).unwrap().different;
        let found = auto_step(&*method, &network, 1.0, 1).unwrap();
        println!("{name:14} agents differ: alpha L limit {limit:.3}, auto {found:.3}");
        assert!(found > 0.0 && found <= 0.5 * limit * (1.0 + 1e-12));
        found
    };
    let (mile, led) = (step("mile", Parameters { xi: Some(0.225.into()), ..tau(5) }), step("led", tau(5)));
    let (kgt, diging) = (step("k-gt", tau(5)), step("diging", tau(5)));
    assert!(mile > 0.25 && led > 0.25 && kgt > 0.05, "{mile} {led} {kgt}");
    assert!(diging > 0.02 && diging < 0.5 * mile, "{diging} {mile}");
}

#[test]
fn a_large_network_has_the_limits_of_a_slightly_smaller_one() {
    for (name, parameters) in [("diging", tau(3)), ("gta-3", tau(3)), ("k-gt", tau(3)), ("extra", tau(1))] {
        for rule in [Rule::Metropolis, Rule::LazyMetropolis] {
            let [itself, stand_in] = [64, 65].map(|agents| {
                let network = ring(agents, rule);
                StepLimits::of(&*build(name, &parameters, &network), &network, 1).unwrap().different
            });
            println!("{name:14} {}: 64 agents {itself:.3}, 65 agents {stand_in:.3}", rule.name());
            assert!(stand_in < 1.5 * itself && stand_in > 0.2 * itself, "{name}: {itself} {stand_in}");
        }
    }
}

#[test]
fn auto_is_lower_where_hessians_differ_or_edges_are_used_in_turn() {
    let step = |name: &str, network: &Network, steps: u64| {
        let found = auto_step(&*build(name, &tau(steps), network), network, 1.0, 0).unwrap();
        println!("{name:14} alpha L of auto {found:.4}");
        found
    };
    // With equal Hessians the limits of both are 2.
    assert!(step("gta-3", &ring(4, Rule::Metropolis), 10) < 0.15);
    let ring = ring(5, Rule::Metropolis);
    let turns = TimeVarying::matchings(ring.graph());
    let in_turn = ring.clone().with_time_varying(turns).unwrap();
    let (changing, constant) = (step("k-gt", &in_turn, 3), step("k-gt", &ring, 3));
    assert!(changing < 0.4 && changing < 0.5 * constant, "{changing} {constant}");
}
