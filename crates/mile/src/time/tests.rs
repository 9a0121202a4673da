//! Laws, lines, and clocks whose times are known in closed form.

use super::*;
use crate::graph::Topology;
use crate::membership::Membership;
use crate::methods::Led;
use crate::mixing::Rule;
use crate::network::Network;
use crate::real::Precision;

fn ring(agents: usize) -> Network {
    Network::new(Topology::Ring.build(agents, 0).unwrap(), Rule::Metropolis).unwrap()
}

fn constant(steps: &[f64], latency: f64, bandwidth: f64) -> TimeModel {
    TimeModel::new(steps.iter().map(|s| Law::Constant(*s)).collect(), Line::constant(latency, bandwidth))
        .unwrap()
}

/// Clocks after rounds in which each agent makes its number of `steps` and all exchange once.
fn after(model: &TimeModel, network: &Network, steps: &[u64], bytes: usize, rounds: u64) -> Clock {
    let mut clock = Clock::new((0..network.agents()).collect());
    for _ in 0..rounds {
        steps.iter().enumerate().for_each(|(place, steps)| clock.work(model, 0, place, *steps));
        clock.exchange(model, 0, &network.rows(), bytes);
    }
    clock
}

#[test]
fn equal_agents_take_their_steps_and_a_message_in_every_round() {
    let clock = after(&constant(&[0.25], 0.5, 1000.0), &ring(6), &[3; 6], 2000, 40);
    assert_eq!(clock.ready(), [40.0 * (3.0 * 0.25 + 2.0 + 0.5); 6]);
}

#[test]
fn one_slow_agent_sets_the_pace_of_all_in_the_end() {
    let mut steps = [1.0; 9];
    steps[4] = 8.0;
    let model = constant(&steps, 0.0, f64::INFINITY);
    // News of it crosses one edge in a round.
    assert_eq!(after(&model, &ring(9), &[1; 9], 8, 1).ready()[2..7], [1.0, 8.0, 8.0, 8.0, 1.0]);
    assert_eq!(after(&model, &ring(9), &[1; 9], 8, 30).ready()[4], 240.0);
    assert!(after(&model, &ring(9), &[1; 9], 8, 30).ready().iter().all(|t| *t >= 8.0 * 26.0));
    // Eight times fewer steps keep up.
    let own = [8, 8, 8, 8, 1, 8, 8, 8, 8];
    assert_eq!(after(&model, &ring(9), &own, 8, 30).ready(), [240.0; 9]);
}

/// The same by a method's own code.
#[test]
fn an_agent_with_own_local_steps_takes_the_time_of_those() {
    let own = [8, 8, 8, 8, 1, 8, 8, 8, 8];
    let mut steps = [1.0; 9];
    steps[4] = 8.0;
    let model = constant(&steps, 0.0, f64::INFINITY);
    let method = Led::new(8, None).unwrap().with_own_steps(Some(&own)).unwrap();
    let membership = Membership::lasting(ring(9));
    let epoch = &membership.epochs()[0];
    let mut walk = Walk::new(Costing { dim: 1, precision: Precision::F64, seed: 0, time: Some(&model) });
    walk.begin(epoch, &method).unwrap();
    walk.rounds(epoch, &method, 30).unwrap();
    assert_eq!(walk.clock().ready(), [240.0; 9]);
    assert_eq!(walk.progress().costs.gradient_evals, 30 * (8 * 8 + 1));
}

#[test]
fn a_message_waits_for_the_one_before_it_on_its_line() {
    // Agent 0 is never slowed down by what it receives, and sends faster than its line carries.
    let path = Network::new(Topology::Path.build(2, 0).unwrap(), Rule::Metropolis).unwrap();
    let model = constant(&[1.0], 0.0, f64::INFINITY).with_line(0, 1, Line::constant(0.5, 10.0)).unwrap();
    let mut clock = Clock::new(vec![0, 1]);
    clock.work(&model, 0, 0, 1);
    clock.exchange(&model, 0, &path.rows(), 100);
    assert_eq!(clock.ready(), [1.0, 11.5]);
    clock.work(&model, 0, 0, 1);
    clock.exchange(&model, 0, &path.rows(), 100);
    // Its second message is ready at 2, begins at 11 and arrives at 21.5; the other's reached it at 11.5.
    assert_eq!(clock.ready(), [11.5, 21.5]);
}

#[test]
fn laws_have_their_means_and_bounds_and_repeat_by_number() {
    let laws = [
        Law::Uniform { from: 1.0, to: 3.0 },
        Law::Exponential { least: 1.5, mean: 2.0 },
        Law::Trace(vec![1.0, 4.0, 1.0]),
        Law::Constant(2.0),
    ];
    // The mean of each is 2.
    for law in laws {
        let model = TimeModel::new(vec![law.clone()], Line::constant(0.0, f64::INFINITY)).unwrap();
        let draws: Vec<f64> = (0..6000).map(|k| model.step_seconds(3, 2, k)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 2.0).abs() < 0.05, "{law:?}: {mean}");
        assert!(draws.iter().all(|draw| (1.0..20.0).contains(draw)), "{law:?}");
        assert_eq!(draws[17], model.step_seconds(3, 2, 17));
    }
    let random = TimeModel::new(vec![Law::Uniform { from: 0.0, to: 1.0 }], Line::constant(0.0, 1.0)).unwrap();
    assert_ne!(random.step_seconds(3, 2, 17), random.step_seconds(3, 1, 17));
    assert_ne!(random.step_seconds(3, 2, 17), random.step_seconds(4, 2, 17));
}

#[test]
fn both_directions_of_an_edge_and_both_quantities_have_draws_of_their_own() {
    let uniform = Law::Uniform { from: 1.0, to: 2.0 };
    let line = Line { latency: uniform.clone(), bandwidth: uniform };
    let model = TimeModel::new(vec![Law::Constant(0.0)], line).unwrap();
    let there = model.transit(0, (1, 2), 5);
    assert_ne!(there, model.transit(0, (2, 1), 5));
    assert_ne!(there.latency, there.bandwidth);
    assert_eq!(there.seconds(3.0), 3.0 / there.bandwidth + there.latency);
}

#[test]
fn values_that_no_time_can_have_are_refused_by_name() {
    let name = |law: Law, line: Line| TimeModel::new(vec![law], line).unwrap_err().name;
    let line = || Line::constant(0.1, 1e6);
    for bad in [
        Law::Constant(-1.0),
        Law::Constant(f64::NAN),
        Law::Constant(f64::INFINITY),
        Law::Uniform { from: 2.0, to: 1.0 },
        Law::Exponential { least: 1.0, mean: 0.5 },
        Law::Trace(vec![]),
        Law::Trace(vec![1.0, f64::NAN, 2.0]),
        Law::Trace(vec![1.0, -1.0]),
    ] {
        assert_eq!(name(bad.clone(), line()), "step", "{bad:?}");
    }
    assert_eq!(name(Law::Constant(1.0), Line::constant(-0.1, 1.0)), "latency");
    assert_eq!(name(Law::Constant(1.0), Line::constant(0.0, 0.0)), "bandwidth");
    assert_eq!(TimeModel::new(vec![], line()).unwrap_err().name, "step");
}

#[test]
fn an_agent_that_comes_waits_for_the_others_and_the_others_keep_their_clocks() {
    let model = constant(&[1.0], 0.0, f64::INFINITY);
    let mut clock = Clock::new(vec![0, 2, 5]);
    (0..3).for_each(|place| clock.work(&model, 0, place, place as u64 + 1));
    let later = clock.with_members(vec![0, 3, 5]);
    assert_eq!((later.ready(), later.latest()), (&[1.0, 0.0, 3.0][..], 3.0));
}
