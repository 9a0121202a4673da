//! The rule for small step sizes with momentum, against period matrices from MILE's own code.

use mile::graph::Topology;
use mile::methods::{Mile, Momentum};
use mile::mixing::Rule;
use mile::network::Network;
use mile::spectrum::Extremes;
use mile_theory::modes::Modes;
use mile_theory::momentum::{disagreement, is_stable, weights, xi_limit};
use mile_theory::{stability, weights as plain};

fn single(lambda: f64) -> Extremes {
    Extremes { lambda_2: lambda, lambda_n: lambda, ..ring().spectrum().extremes() }
}

fn ring() -> Network {
    Network::new(Topology::Ring.build(10, 0).unwrap(), Rule::Metropolis).unwrap()
}

#[test]
fn the_rule_is_that_of_the_period_matrix_on_a_grid() {
    let (mut points, mut mismatches, mut stable) = (0, Vec::new(), 0);
    for tau in [1, 2, 3, 5, 10, 30] {
        for (mu, nesterov) in
            [0.1, 0.3, 0.5, 0.8, 0.9, 0.99].into_iter().flat_map(|mu| [(mu, false), (mu, true)])
        {
            let momentum = Momentum { mu, nesterov };
            for gamma in [0.05, 0.3, 0.7, 1.0] {
                for k in 0..12 {
                    let xi = 1e-5 * 10f64.powf(5.0 * f64::from(k) / 11.0);
                    let method = Mile::decoupled(tau, xi, gamma).unwrap().with_momentum(Some(momentum));
                    let modes = Modes::of(&method).unwrap();
                    for lambda in [-0.95, -0.5, -1.0 / 3.0, 0.0, 0.4, 0.8, 0.95, 0.995] {
                        let growth = modes.growth(0.0, lambda).unwrap();
                        let says = is_stable(tau, xi, gamma, momentum, single(lambda));
                        points += 1;
                        stable += usize::from(says);
                        if says != (growth < 1.0) && (growth - 1.0).abs() > 1e-9 {
                            mismatches.push((tau, momentum, gamma, xi, lambda, growth, says));
                        }
                    }
                }
            }
        }
    }
    assert!(mismatches.is_empty(), "{} of {points}: {:?}", mismatches.len(), &mismatches[..1]);
    assert!(stable > 5_000 && points - stable > 5_000, "{stable} of {points} are stable");
}

#[test]
fn of_a_whole_graph_the_second_and_the_smallest_eigenvalue_decide() {
    for rule in [Rule::Metropolis, Rule::LazyMetropolis] {
        let network = Network::new(Topology::Ring.build(12, 0).unwrap(), rule).unwrap();
        let (spectrum, extremes) = (network.spectrum(), network.spectrum().extremes());
        for (tau, mu, nesterov, gamma) in [
            (1, 0.5, false, 0.5),
            (10, 0.9, false, 1.0),
            (10, 0.9, true, 0.8),
            (40, 0.9, true, 1.0),
            (3, 0.2, false, 1.0),
        ] {
            let momentum = Momentum { mu, nesterov };
            let limit = xi_limit(tau, gamma, momentum, extremes).min(1.0);
            let growth = |part: f64| disagreement(tau, part * limit, gamma, momentum, spectrum).unwrap();
            assert!(growth(0.99) < 1.0, "{tau} {momentum:?} {gamma}");
            assert!(limit == 1.0 || growth(1.01) > 1.0, "{tau} {momentum:?} {gamma}");
        }
    }
}

#[test]
fn small_weights_are_stable_on_every_graph() {
    for mu in [0.05, 0.5, 0.9, 0.99] {
        for nesterov in [false, true] {
            let momentum = Momentum { mu, nesterov };
            for gamma in [0.1, 0.5, 1.0] {
                let xi = 0.999 * gamma * (1.0 - mu).powi(2) / mu.powi(momentum.order());
                for lambda in [0.3, 0.9, 0.999, 0.999999] {
                    // Beyond what mixing bounds by itself.
                    let mixing = plain::xi_limit(10, gamma, lambda) * (1.0 - mu);
                    let xi = xi.min(0.5 * mixing);
                    assert!(
                        is_stable(10, xi, gamma, momentum, single(lambda)),
                        "{momentum:?} {gamma} {lambda}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_momentum_that_vanishes_leaves_the_rule_without() {
    let momentum = Momentum { mu: 1e-9, nesterov: false };
    for (tau, gamma, lambda) in [(1, 0.5, -0.3), (5, 1.0, 0.1), (10, 0.2, 0.5)] {
        let (with, without) =
            (xi_limit(tau, gamma, momentum, single(lambda)), plain::xi_limit(tau, gamma, lambda));
        assert!((with / without - 1.0).abs() < 1e-6, "{with} {without}");
    }
    assert_eq!(xi_limit(5, 1.0, momentum, single(-1.0)), 0.0);
}

#[test]
fn automatic_weights_are_stable_and_in_units_of_one_minus_mu() {
    let network = ring();
    for (tau, mu, nesterov) in
        [(1, 0.9, false), (2, 0.9, false), (10, 0.5, true), (10, 0.9, true), (10, 0.99, false)]
    {
        let momentum = Momentum { mu, nesterov };
        let (xi, gamma) = weights(tau, momentum, 0.02, None, &network).unwrap();
        assert!(xi <= (1.0 - mu) * 0.02 && gamma > 0.3, "{xi} {gamma}");
        let limit = xi_limit(tau, gamma, momentum, network.spectrum().extremes());
        assert!(xi == (1.0 - mu) * 0.02 || (xi / limit - 0.5).abs() < 1e-12, "{xi} of {limit}");
        assert!(disagreement(tau, xi, gamma, momentum, network.spectrum()).unwrap() < 1.0);
        assert_eq!(weights(tau, momentum, 0.02, Some(0.8), &network).unwrap().1, 0.8);
    }
    // The paper's gamma = xi is unstable with the usual momentum, at every small step size.
    let momentum = Momentum { mu: 0.9, nesterov: false };
    let coupled = Mile::new(10, 0.1).unwrap().with_momentum(Some(momentum));
    let growth = stability::contraction(&Modes::of(&coupled).unwrap(), network.spectrum()).unwrap();
    assert!(growth > 1.0, "{growth}");
}
