//! Edges that are down: both ends skip them, so exact methods stay exact.

use mile::block;
use mile::methods::catalogue::Parameters;
use mile::mixing::Rule;
use mile::problems::Batch;

use crate::common::*;

/// The larger of disagreement and gradient norm at the worst agent after many rounds.
fn worst(rule: Rule, name: &str, parameters: &Parameters, drop_rate: f64, rounds: usize) -> f64 {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let network = ring(rule).with_drop_rate(drop_rate).unwrap();
    let method = build(name, parameters, &network);
    let path = trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.05, rounds);
    let last = &path[rounds - 1];
    let apart = block::consensus_error(last, DIM).sqrt();
    let norms = last.chunks_exact(DIM).map(|x| gradient_norm(&problem, x));
    norms.chain([apart]).fold(0.0, |worst, g| if g.is_finite() { worst.max(g) } else { f64::INFINITY })
}

#[test]
fn exact_methods_stay_exact_when_a_third_of_the_edges_is_down() {
    let decoupled = Parameters { gamma: Some(0.8), ..xi(5, 0.05) };
    let rows = [
        ("mile", xi(5, 0.1)),
        ("mile", decoupled),
        ("led", tau(5)),
        ("k-gt", tau(5)),
        ("diging", tau(5)),
        ("periodical-gt", tau(5)),
        ("gta-2", tau(5)),
        ("gta-3", tau(5)),
        ("ed", Parameters::default()),
        ("nids", Parameters::default()),
        ("gradient-tracking", Parameters::default()),
        ("proxskip", tau(5)),
    ];
    for (name, parameters) in rows {
        let gradient = worst(Rule::LazyMetropolis, name, &parameters, 0.3, 12_000);
        assert!(gradient < 1e-9, "{name} {parameters:?}: {gradient:e}");
    }
}

#[test]
fn a_weight_that_is_stable_without_drops_can_be_too_large_with_them() {
    assert!(worst(Rule::Metropolis, "mile", &xi(5, 0.24), 0.0, 4_000) < 1e-9);
    assert!(worst(Rule::Metropolis, "mile", &xi(5, 0.24), 0.75, 4_000) > 1.0);
    assert!(worst(Rule::Metropolis, "mile", &xi(5, 0.03), 0.75, 12_000) < 1e-9);
}
