//! Weights chosen for the user, against the paper's on quadratics.

use mile::graph::Topology;
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Problem, Quadratic};
use mile_theory::auto::{self, Question};
use mile_theory::smoothness::Scatter;
use mile_theory::weights;

use crate::common::*;

fn question(network: &Network, local_steps: u64, step_size: f64) -> Question<'_> {
    Question { network, local_steps, step_size, smoothness: Some(1.0), scatter: None, seed: 0 }
}

#[test]
fn changing_curvature_separates_the_xi_that_trained_a_network_from_the_one_that_diverged() {
    let lambda_n = -1.0 / 3.0;
    let growth = |xi: f64| auto::switching_growth(10, xi, xi, lambda_n, 1.0);
    println!("xi .138 .15 .175 .2: {:?}", [0.138, 0.15, 0.175, 0.2].map(growth));
    assert!(growth(0.15) < 1.0 && growth(0.2) > 1.05);
    // Constant curvature does not tell them apart: both are far inside the limit 0.25.
    assert!(weights::mode_modulus(10, 0.2, 0.2, lambda_n) < 0.9);
}

#[test]
fn auto_on_the_ring_that_diverged_is_on_the_safe_side_and_not_below_the_paper() {
    let network = ring(10, Rule::Metropolis);
    let unknown = Question { smoothness: None, ..question(&network, 10, 0.12) };
    let choice = auto::xi(unknown).unwrap();
    println!("ring of 10, tau 10, L unknown: {choice:?}");
    assert!(choice.xi <= 0.155 && choice.xi >= 0.9 * weights::paper_xi(10).unwrap(), "{choice:?}");
    assert_eq!(choice.xi, choice.gamma);
}

#[test]
fn small_steps_allow_a_larger_xi() {
    let network = ring(10, Rule::Metropolis);
    let at = |step_size: f64| auto::xi(question(&network, 10, step_size)).unwrap().xi;
    let (small, large) = (at(0.001), at(1.0));
    println!("alpha L = .001: {small:.4}, 1: {large:.4}");
    assert!(small > 1.2 * large && small < 0.25, "{small} {large}");
}

/// Rounds until every agent is within 1e-6 of the minimiser, relative to the start.
fn rounds(problem: &dyn Problem<f64>, network: &Network, xi: f64, gamma: f64, tau: u64, step: f64) -> usize {
    let target = minimiser(problem);
    let method = Mile::decoupled(tau, xi, gamma).unwrap();
    let errors = errors(problem, network, &method, step, 6000, &target);
    let goal = 1e-6 * gaussian(9, 4).iter().map(|v| v * v).sum::<f64>().sqrt();
    errors.iter().position(|e| *e < goal).map_or(usize::MAX, |r| r + 1)
}

fn minimiser(problem: &dyn Problem<f64>) -> Vec<f64> {
    let (n, dim) = (problem.agents(), problem.dim());
    let (mut x, mut g) = (vec![0.0; dim], vec![0.0; dim]);
    for _ in 0..4000 {
        let mut sum = vec![0.0; dim];
        for i in 0..n {
            problem.gradient(i, &x, &mut g).unwrap();
            sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g / n as f64);
        }
        x.iter_mut().zip(&sum).for_each(|(x, s)| *x -= s);
    }
    x
}

#[test]
fn auto_is_never_worse_than_the_paper_on_quadratics() {
    let networks = [
        (Topology::Ring, 10, Rule::Metropolis),
        (Topology::Ring, 8, Rule::LazyMetropolis),
        (Topology::Path, 6, Rule::Metropolis),
        (Topology::Exponential, 12, Rule::Metropolis),
        (Topology::Star, 7, Rule::Metropolis),
    ];
    let mut gains = Vec::new();
    for (topology, agents, rule) in networks {
        let network = network(topology, agents, rule);
        let problem = Quadratic::new(agents, 4, 10.0, 1.0, 5).unwrap();
        for (tau, step) in [(2, 0.2), (5, 0.1), (10, 0.1), (10, 0.03)] {
            let paper = weights::paper_xi(tau).unwrap();
            let (one, both) = (
                auto::xi(question(&network, tau, step)).unwrap(),
                auto::decoupled(question(&network, tau, step)).unwrap(),
            );
            let paper_rounds = rounds(&problem, &network, paper, paper, tau, step);
            let xi_rounds = rounds(&problem, &network, one.xi, one.xi, tau, step);
            let both_rounds = rounds(&problem, &network, both.xi, both.gamma, tau, step);
            println!(
                "{topology:?} {agents} tau {tau} step {step}: paper {paper:.3} {paper_rounds}, xi {:.3} {xi_rounds}, gamma {:.3} xi {:.3} {both_rounds}",
                one.xi, both.gamma, both.xi
            );
            assert!(paper_rounds < usize::MAX);
            assert!(xi_rounds as f64 <= 1.05 * paper_rounds as f64 + 1.0);
            assert!(both_rounds as f64 <= 1.05 * paper_rounds as f64 + 1.0);
            gains.push((paper_rounds as f64 / both_rounds as f64).ln());
        }
    }
    println!(
        "geometric mean gain of gamma = auto: {:.2}",
        (gains.iter().sum::<f64>() / gains.len() as f64).exp()
    );
}

#[test]
fn noise_calls_for_strong_mixing_and_a_small_correction() {
    let network = ring(10, Rule::Metropolis);
    for ratio in [0.1, 1.0, 10.0, 100.0] {
        let scatter = Some(Scatter { noise: ratio, heterogeneity: 1.0 });
        let noisy = auto::decoupled(Question { scatter, ..question(&network, 10, 0.12) }).unwrap();
        println!("noise/heterogeneity {ratio}: {noisy:?}");
        assert!(noisy.gamma >= 0.5 && noisy.xi < 0.06, "{noisy:?}");
        assert!(weights::is_stable(10, noisy.xi, noisy.gamma, -1.0 / 3.0));
    }
    let found = auto::noisy(question(&network, 10, 0.12)).unwrap();
    assert_eq!((found.xi, found.gamma), (0.03, 1.0));
    let limit = auto::adaptive(question(&network, 200, 0.12), None, None).unwrap();
    assert!(auto::noisy(question(&network, 200, 0.12)).unwrap().xi <= limit.xi);
}

#[test]
fn drops_lower_what_auto_chooses() {
    let network = ring(10, Rule::Metropolis);
    let dropping = network.clone().with_drop_rate(0.5).unwrap();
    let (without, with) = (question(&network, 5, 0.05), question(&dropping, 5, 0.05));
    let (before, after) = (auto::xi(without).unwrap(), auto::xi(with).unwrap());
    println!("{before:?} {after:?}");
    assert!(after.xi < before.xi && after.xi <= 0.7 * after.drop_limit.unwrap());
    let both = auto::decoupled(with).unwrap();
    assert!(both.xi <= 0.7 * both.drop_limit.unwrap() + 1e-12, "{both:?}");
}

#[test]
fn one_agent_needs_no_weights_and_gets_some() {
    let network = network(Topology::Path, 1, Rule::Metropolis);
    let choice = auto::decoupled(question(&network, 5, 0.1)).unwrap();
    assert!(choice.xi > 0.0 && choice.gamma > 0.0);
}
