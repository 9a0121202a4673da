//! L and noise against known ones.

use mile::agents::AgentsError;
use mile::problems::{Batch, Failure, Loss, Problem, Quadratic, Shard, Table, TableObjective};
use mile_theory::TheoryError;
use mile_theory::sample::Sample;
use mile_theory::smoothness::{Ascent, Effort, estimate, scatter};
use mile_theory::theorems::Noisy;

use crate::common::*;

#[test]
fn the_largest_curvature_of_a_quadratic_is_found_in_both_precisions() {
    let wide = Quadratic::<f64>::new(4, 20, 50.0, 1.0, 3).unwrap();
    let found = estimate(&wide, &[0.0; 20], Effort::default(), 1).unwrap();
    assert!((found.estimate - 1.0).abs() < 1e-3 && !found.negative, "{found:?}");
    assert!(found.unsettled < 1e-3 && found.spread.0 > 0.99, "{found:?}");
    let narrow = Quadratic::<f32>::new(4, 20, 50.0, 1.0, 3).unwrap();
    let found = estimate(&narrow, &[0.0; 20], Effort::default(), 1).unwrap();
    assert!((found.estimate - 1.0).abs() < 1e-2, "{found:?}");
}

#[test]
fn logistic_regression_is_below_its_known_bound_and_near_it_at_the_origin() {
    let (dim, rows) = (6, 40);
    let features = gaussian(8, rows * dim);
    let targets: Vec<f64> = gaussian(9, rows).iter().map(|v| v.signum()).collect();
    // At 0 the Hessian is 1/(4 m) A'A, which is also its largest.
    let mut bound: Vec<f64> = gaussian(10, dim);
    let mut top = 0.0;
    for _ in 0..500 {
        let mut image = vec![0.0; dim];
        for row in features.chunks(dim) {
            let along: f64 = row.iter().zip(&bound).map(|(a, v)| a * v).sum();
            image.iter_mut().zip(row).for_each(|(i, a)| *i += a * along / (4.0 * rows as f64));
        }
        top = image.iter().map(|v| v * v).sum::<f64>().sqrt();
        bound = image.iter().map(|v| v / top).collect();
    }
    let shard = Shard { features, targets, ..Shard::default() };
    let table = Table::new(dim, vec![shard], TableObjective::new(Loss::Logistic, 0.0), Batch::Full).unwrap();
    let found =
        estimate(&table, &vec![0.0; dim], Effort { iterations: 200, ..Effort::default() }, 1).unwrap();
    assert!((found.estimate / top - 1.0).abs() < 1e-3, "{found:?} {top}");
    assert!(found.spread.0 < found.spread.1, "{found:?}");
}

#[test]
fn a_saddle_is_reported_as_negative_curvature() {
    struct Saddle;
    impl Problem<f64> for Saddle {
        fn agents(&self) -> usize {
            1
        }
        fn dim(&self) -> usize {
            2
        }
        fn loss(&self, _: usize, x: &[f64]) -> Result<f64, Failure> {
            Ok(0.5 * x[0] * x[0] - 1.5 * x[1] * x[1])
        }
        fn gradient(&self, _: usize, x: &[f64], g: &mut [f64]) -> Result<(), Failure> {
            g.copy_from_slice(&[x[0], -3.0 * x[1]]);
            Ok(())
        }
    }
    let found = estimate(&Saddle, &[0.0, 0.0], Effort::default(), 1).unwrap();
    assert!(found.negative && (found.estimate - 3.0).abs() < 1e-6, "{found:?}");
}

#[test]
fn noise_and_heterogeneity_are_measured() {
    let problem = Diagonal::new(6, &[1.0, 0.5]);
    let noisy = Noisy { problem: &problem, variance: 0.3 };
    let found = scatter(&noisy, &[0.0, 0.0], 2000, 4).unwrap();
    assert!((found.noise / 0.3 - 1.0).abs() < 0.05, "{found:?}");
    let mean = problem.minimiser();
    let apart = |b: &Vec<f64>| (b[0] - mean[0]).powi(2) + (0.5 * (b[1] - mean[1])).powi(2);
    let exact = problem.minimisers.iter().map(apart).sum::<f64>() / 6.0;
    assert!((found.heterogeneity / exact - 1.0).abs() < 0.02, "{found:?} {exact}");
    // Exact gradients have no noise at all.
    let found = scatter(&problem, &[0.0, 0.0], 3, 4).unwrap();
    assert!(found.noise == 0.0 && (found.heterogeneity / exact - 1.0).abs() < 1e-9, "{found:?} {exact}");
}

fn random_table(agents: usize, rows: usize, dim: usize) -> Vec<Shard<f64>> {
    let shard = |agent: usize| Shard {
        features: gaussian(20 + agent as u64, rows * dim),
        targets: gaussian(50 + agent as u64, rows).iter().map(|v| v.signum()).collect(),
        ..Shard::default()
    };
    (0..agents).map(shard).collect()
}

fn logistic(shards: &[Shard<f64>], dim: usize, rows: usize) -> Table<f64> {
    let first = |shard: &Shard<f64>| Shard {
        features: shard.features[..rows * dim].to_vec(),
        targets: shard.targets[..rows].to_vec(),
        ..Shard::default()
    };
    let shards = shards.iter().map(first).collect();
    Table::new(dim, shards, TableObjective::new(Loss::Logistic, 0.01), Batch::Size(8)).unwrap()
}

#[test]
fn estimates_have_the_same_bits_for_any_number_of_threads() {
    let table = logistic(&random_table(7, 60, 5), 5, 60);
    let all = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut ascent = Ascent::new(&[0.1; 5], 3, 4);
            let gradients = ascent.go_on(&table, 30).unwrap();
            (
                estimate(&table, &[0.1; 5], Effort::default(), 4).unwrap(),
                estimate(&table, &[0.1; 5], Effort { stochastic: true, ..Effort::default() }, 4).unwrap(),
                scatter(&table, &[0.1; 5], 8, 4).unwrap(),
                (gradients, ascent.found().unwrap()),
            )
        })
    };
    let one = all(1);
    assert!(one.0.estimate > 0.0 && one.2.noise > 0.0);
    for threads in [2, 5] {
        assert_eq!(one, all(threads), "{threads} threads");
    }
}

#[test]
fn a_sample_of_the_rows_is_close_to_all_of_them() {
    let (dim, rows) = (10, 20_000);
    let shards = random_table(2, rows, dim);
    let whole = logistic(&shards, dim, rows);
    let exact =
        estimate(&whole, &[0.0; 10], Effort { points: 1, iterations: 300, ..Effort::default() }, 3).unwrap();
    let mut ascent = Ascent::new(&[0.0; 10], 2, 3);
    for (size, within) in [(256, 0.5), (1024, 0.25), (4096, 0.1)] {
        ascent.go_on(&logistic(&shards, dim, size), 30).unwrap();
        let found = ascent.found().unwrap();
        println!("{size} rows: {} of {}, {} gradients", found.estimate, exact.estimate, found.gradients);
        assert!((found.estimate / exact.estimate - 1.0).abs() < within, "{size} rows: {found:?} {exact:?}");
    }
    let before = ascent.found().unwrap().gradients;
    let used = ascent.go_on(&whole, 30).unwrap();
    let found = ascent.found().unwrap();
    println!("all rows: {} of {}, {used} gradients", found.estimate, exact.estimate);
    assert_eq!(found.gradients, before + used);
    // Half of the tenth that is added to an estimate before it is used as a bound.
    assert!((found.estimate / exact.estimate - 1.0).abs() < 0.05, "{found:?} {exact:?}");
}

#[test]
fn an_ascent_stops_when_it_has_settled_and_continues_after_rows_without_curvature() {
    // All rows are multiples of one: the first step finds the curvature, the second one sees that it stays the same.
    let row = |k: usize| [k as f64, -2.0 * k as f64];
    let one = Shard { features: (1..9).flat_map(row).collect(), targets: vec![1.0; 8], ..Shard::default() };
    let table = Table::new(2, vec![one], TableObjective::new(Loss::LeastSquares, 0.0), Batch::Full).unwrap();
    let flat = Shard { features: vec![0.0; 4], targets: vec![1.0; 2], ..Shard::default() };
    let flat = Table::new(2, vec![flat], TableObjective::new(Loss::LeastSquares, 0.0), Batch::Full).unwrap();
    let mut ascent = Ascent::new(&[0.0, 0.0], 1, 1);
    assert_eq!((ascent.go_on(&flat, 30).unwrap(), ascent.found().unwrap().estimate), (2, 0.0));
    assert_eq!(ascent.go_on(&table, 30).unwrap(), 6);
    let found = ascent.found().unwrap();
    assert!((found.estimate / (5.0 * 204.0 / 8.0) - 1.0).abs() < 1e-6 && found.gradients == 8, "{found:?}");
}

#[test]
fn an_estimate_names_the_agents_it_was_made_from_and_the_effort_bounds_its_gradients() {
    let problem = Diagonal::new(40, &[1.0, 0.5]);
    let effort = Effort::default();
    let found = estimate(&problem, &[0.0, 0.0], effort, 1).unwrap();
    assert_eq!(found.sample.unwrap().to_string(), "16 of 40 agents");
    assert_eq!(found.gradients, effort.gradients(40));
    let alone = estimate(&Diagonal::new(1, &[1.0, 0.5]), &[0.0, 0.0], effort, 1).unwrap();
    assert_eq!((alone.sample, alone.gradients), (None, effort.gradients(1)));
}

#[test]
fn a_sample_is_described_in_words() {
    let sample = |agents, rows, one_point| Sample { agents, rows, one_point }.to_string();
    assert_eq!(
        sample((4, 4), Some((2000, 50_000)), true),
        "up to 2,000 of 50,000 rows of each agent, at the starting point only"
    );
    assert_eq!(
        sample((16, 1200), Some((256, 1_000_000)), false),
        "up to 256 of 1,000,000 rows of 16 of 1,200 agents"
    );
    assert_eq!(sample((3, 3), None, true), "all agents, at the starting point only");
}

#[test]
fn a_gradient_that_fails_or_is_not_finite_is_an_error_of_the_first_such_agent() {
    struct Broken;
    impl Problem<f64> for Broken {
        fn agents(&self) -> usize {
            8
        }
        fn dim(&self) -> usize {
            1
        }
        fn loss(&self, _: usize, _: &[f64]) -> Result<f64, Failure> {
            Ok(0.0)
        }
        fn gradient(&self, agent: usize, x: &[f64], g: &mut [f64]) -> Result<(), Failure> {
            g[0] = if agent == 1 && x[0] > 100.0 { f64::NAN } else { x[0] };
            if agent >= 3 && x[0] < 50.0 { Err("unplugged".into()) } else { Ok(()) }
        }
    }
    let failed = estimate(&Broken, &[0.0], Effort::default(), 1).unwrap_err();
    assert!(matches!(failed, TheoryError::Agents(AgentsError::Objective { agent: 3, .. })), "{failed}");
    let failed = scatter(&Broken, &[0.0], 8, 1).unwrap_err();
    assert!(matches!(failed, AgentsError::Objective { agent: 3, .. }), "{failed}");
    let failed = estimate(&Broken, &[200.0], Effort { points: 1, ..Effort::default() }, 1).unwrap_err();
    assert!(matches!(failed, TheoryError::Parameter { parameter: "gradient", .. }), "{failed}");
}
