//! Edges that are down, or not used in a round: both ends skip them, so exact methods stay exact.

use mile::block;
use mile::graph::Topology;
use mile::methods::catalogue::Parameters;
use mile::mixing::Rule;
use mile::network::Network;
use mile::outages::{Bursts, Outages};
use mile::problems::Batch;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile::varying::TimeVarying;
use mile::varying::finite::{base_k, one_peer_hypercube};

use crate::common::*;

/// The larger of disagreement and gradient norm at the worst agent after many rounds.
fn worst(network: &Network, name: &str, parameters: &Parameters, rounds: usize) -> f64 {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let method = build(name, parameters, network);
    let path = trajectory(&problem, network, &*method, &scattered(AGENTS, DIM), 0.05, rounds);
    let last = &path[rounds - 1];
    let apart = block::consensus_error(last, DIM).sqrt();
    let norms = last.chunks_exact(DIM).map(|x| gradient_norm(&problem, x));
    norms.chain([apart]).fold(0.0, |worst, g| if g.is_finite() { worst.max(g) } else { f64::INFINITY })
}

fn dropping(rule: Rule, drop_rate: f64) -> Network {
    ring(rule).with_drop_rate(drop_rate).unwrap()
}

#[test]
fn exact_methods_stay_exact_when_a_third_of_the_edges_are_down() {
    let decoupled = Parameters { gamma: Some(0.8), ..xi(5, 0.05) };
    let rows = [
        ("mile", xi(5, 0.1)),
        ("mile", decoupled),
        ("mile", adaptive(5, 0.1, 0.8)),
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
        ("lt-admm", tau(5)),
        ("dinno", tau(5)),
        ("fspda", Parameters::default()),
        ("motef", Parameters::default()),
    ];
    for (name, parameters) in rows {
        let gradient = worst(&dropping(Rule::LazyMetropolis, 0.3), name, &parameters, 12_000);
        assert!(gradient < 1e-9, "{name} {parameters:?}: {gradient:e}");
    }
}

#[test]
fn exact_methods_stay_exact_with_bursts_of_loss_and_agents_that_come_and_go() {
    let decoupled = Parameters { gamma: Some(0.8), ..xi(5, 0.05) };
    let rows = [("mile", decoupled), ("led", tau(5)), ("k-gt", tau(5)), ("gta-2", tau(5)), ("dinno", tau(5))];
    let bursts = Bursts::new(Outages::new(0.05, 0.2).unwrap(), 0.9).unwrap();
    let network = ring(Rule::LazyMetropolis).with_bursts(bursts);
    let network = network.with_absence(Outages::new(0.02, 0.2).unwrap());
    for (name, parameters) in rows {
        let gradient = worst(&network, name, &parameters, 16_000);
        assert!(gradient < 1e-9, "{name} {parameters:?}: {gradient:e}");
    }
    assert!(worst(&network, "local-dsgd", &tau(5), 16_000) > 1e-4, "a method with a bias keeps it");
}

#[test]
fn exact_methods_stay_exact_when_each_round_has_another_matching() {
    let decoupled = Parameters { gamma: Some(1.0), ..xi(5, 0.05) };
    let rows = [
        ("mile", xi(5, 0.05)),
        ("mile", decoupled),
        ("mile", adaptive(5, 0.05, 1.0)),
        ("led", tau(5)),
        ("k-gt", tau(5)),
        ("diging", tau(5)),
        ("ed", Parameters::default()),
        ("gradient-tracking", Parameters::default()),
        ("lt-admm", tau(5)),
        ("dinno", tau(5)),
        ("fspda", Parameters::default()),
        ("motef", Parameters::default()),
    ];
    let plain = ring(Rule::Metropolis);
    for varying in [TimeVarying::RandomMatching, TimeVarying::matchings(plain.graph())] {
        let network = plain.clone().with_time_varying(varying.clone()).unwrap();
        for (name, parameters) in &rows {
            let gradient = worst(&network, name, parameters, 20_000);
            assert!(gradient < 1e-9, "{name} {parameters:?}, {varying}: {gradient:e}");
        }
        for name in ["local-dsgd", "noloco", "gasloc"] {
            let biased = worst(&network, name, &tau(5), 4_000);
            assert!((1e-3..10.0).contains(&biased), "{name}, {varying}: {biased:e}");
        }
    }
}

#[test]
fn a_weight_that_is_stable_without_drops_can_be_too_large_with_them() {
    assert!(worst(&dropping(Rule::Metropolis, 0.0), "mile", &xi(5, 0.24), 4_000) < 1e-9);
    assert!(worst(&dropping(Rule::Metropolis, 0.75), "mile", &xi(5, 0.24), 4_000) > 1.0);
    assert!(worst(&dropping(Rule::Metropolis, 0.75), "mile", &xi(5, 0.03), 12_000) < 1e-9);
}

#[test]
fn adaptive_corrections_sum_to_zero_whatever_edges_are_used() {
    let networks = [
        dropping(Rule::Metropolis, 0.5),
        ring(Rule::Metropolis).with_time_varying(TimeVarying::RandomMatching).unwrap(),
    ];
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Size(3));
    for network in networks {
        let method = build("mile", &adaptive(3, 0.1, 1.0), &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).unwrap();
        let mut run = Run::start(&*method, Schedule::constant(0.05), &mut agents).unwrap();
        for round in 0..200 {
            run.round(&mut agents).unwrap();
            let corrections = agents.vector(vector(&*method, "c"));
            let mean = block::mean_row(corrections, DIM);
            assert!(mean.iter().all(|c| c.abs() < 1e-14), "round {round}: {mean:?}");
            assert!(round < 3 || block::norm_sq(corrections) > 1e-6, "there are corrections");
        }
    }
}

#[test]
fn exact_methods_stay_exact_on_finite_time_graphs() {
    let rows = [
        ("mile", xi(5, 0.05)),
        ("mile", Parameters { gamma: Some(1.0), ..xi(5, 0.05) }),
        ("mile", adaptive(5, 0.05, 1.0)),
        ("k-gt", tau(5)),
        ("diging", tau(5)),
        ("gta-3", tau(5)),
        ("gradient-tracking", Parameters::default()),
        ("fspda", Parameters::default()),
    ];
    for turns in [one_peer_hypercube(AGENTS).unwrap(), base_k(AGENTS, 2)] {
        let network = Network::in_turn(turns).unwrap();
        for (name, parameters) in &rows {
            let gradient = worst(&network, name, parameters, 6_000);
            assert!(gradient < 1e-9, "{name} {parameters:?}: {gradient:e}");
        }
    }
}

/// On 25 agents, a Base-2 graph sends less than half of a ring's messages.
#[test]
fn finite_time_graphs_do_better_than_a_ring_with_half_of_its_messages() {
    let agents = 25;
    let ring = Network::new(Topology::Ring.build(agents, 0).unwrap(), Rule::Metropolis).unwrap();
    let in_turn = Network::in_turn(base_k(agents, 1)).unwrap();
    assert!(in_turn.mean_messages() < 0.5 * ring.mean_messages());
    let problem = nonconvex::<f64>(agents, DIM, Batch::Full);
    let path = |network: &Network, name: &str, parameters: &Parameters, rounds: usize| {
        let method = build(name, parameters, network);
        trajectory(&problem, network, &*method, &scattered(agents, DIM), 0.05, rounds)
    };
    let worst = |x: &Vec<f64>| x.chunks_exact(DIM).map(|x| gradient_norm(&problem, x)).fold(0.0, f64::max);
    for (name, parameters) in [("k-gt", tau(5)), ("mile", Parameters { gamma: Some(1.0), ..xi(5, 0.05) })] {
        let rounds = |network: &Network| {
            path(network, name, &parameters, 1_000).iter().position(|x| worst(x) < 1e-6).unwrap_or(1_000)
        };
        let (on_ring, in_turn) = (rounds(&ring), rounds(&in_turn));
        assert!(in_turn < 600 && (in_turn as f64) < 0.6 * on_ring as f64, "{name}: {in_turn} and {on_ring}");
    }
    // What is left of the gradient at the average, over more than a period.
    let bias = |network: &Network| {
        let path = path(network, "local-dsgd", &tau(1), 1_200);
        let norms = path[1_000..].iter().map(|x| gradient_norm(&problem, &block::mean_row(x, DIM)));
        norms.sum::<f64>() / 200.0
    };
    let (on_ring, in_turn) = (bias(&ring), bias(&in_turn));
    assert!(in_turn < 0.5 * on_ring, "{in_turn} and {on_ring}");
}
