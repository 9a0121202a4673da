//! L and noise against known ones.

use mile::problems::{Batch, Failure, Loss, Problem, Quadratic, Shard, Table};
use mile::theory::smoothness::{Effort, estimate, scatter};
use mile::theory::theorems::Noisy;

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
    let shard = Shard { features, targets };
    let table = Table::new(dim, vec![shard], Loss::Logistic, 0.0, Batch::Full).unwrap();
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
