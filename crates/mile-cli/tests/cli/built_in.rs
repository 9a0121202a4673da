//! The built-in experiment, which a newcomer runs first: two cores finish it within two minutes.

use std::path::Path;

use mile_lab::plan::Plan;
use mile_lab::spec::{AlgorithmSpec, Spec};

#[test]
fn the_built_in_experiment_is_short_and_mostly_learning() {
    let text = include_str!("../../src/default.toml");
    let plan = Plan::new(Spec::parse(text, Path::new(""), &[]).unwrap()).unwrap();
    let steps: f64 = plan.spec.algorithms.iter().map(AlgorithmSpec::steps_per_round).sum();
    let rounds = plan.spec.rounds as f64 * plan.spec.seeds.len() as f64;
    let gradients = steps * rounds * plan.network().agents() as f64;
    // On mini-batches of 32 images, which take about 85 s of two cores of an AMD EPYC.
    assert!(gradients <= 20_000.0, "{gradients}");
    assert!(plan.evaluation.share < 0.2, "{}", plan.evaluation.share);
}
