//! Covariances of coefficients against dense inverses of sums over all rows.

use nalgebra::{DMatrix, DVector};

use super::*;
use crate::problems::Covariance;

const COLUMNS: usize = 3;
const COUNTS: [usize; 3] = [17, 40, 23];

/// The rows of all agents together, and of each.
fn rows(loss: Loss, has_weights: bool) -> (Shard<f64>, Vec<Shard<f64>>) {
    let total = COUNTS.iter().sum();
    let mut all = shard(COLUMNS, total, loss);
    all.features.chunks_mut(COLUMNS).for_each(|row| row[COLUMNS - 1] = 1.0);
    let all = if has_weights { weighted(all, loss) } else { all };
    let mut first = 0;
    let cut = |rows: usize| {
        first += rows;
        all.some(COLUMNS, first - rows..first)
    };
    let shards = COUNTS.map(cut).to_vec();
    (all, shards)
}

fn covariance(shards: &[Shard<f64>], objective: TableObjective, x: &[f64]) -> Option<Covariance> {
    let table = Table::new(COLUMNS, shards.to_vec(), objective, Batch::Full).unwrap();
    let information = table.information()?;
    let sums: Vec<Vec<f64>> = (0..shards.len()).map(|agent| information.sums(agent, x).unwrap()).collect();
    information.covariance(&sums)
}

/// The features of a row, its product with x, its target and its weight.
fn row(all: &Shard<f64>, k: usize, x: &[f64]) -> (DVector<f64>, f64, f64, f64) {
    let a = DVector::from_column_slice(&all.features[k * COLUMNS..(k + 1) * COLUMNS]);
    let p = a.dot(&DVector::from_column_slice(x)) + all.offsets.get(k).copied().unwrap_or(0.0);
    (a, p, all.targets[k], all.weights.get(k).copied().unwrap_or(1.0))
}

/// The second derivative of a row's loss.
fn curvature(loss: Loss, p: f64) -> f64 {
    match loss {
        Loss::Logistic => 1.0 / (1.0 + p.exp()) / (1.0 + (-p).exp()),
        Loss::Poisson => p.exp(),
        _ => 1.0,
    }
}

#[track_caller]
fn same(found: &Covariance, expected: &DMatrix<f64>, what: &str) {
    let largest = expected.amax();
    for (k, found) in found.matrix.iter().enumerate() {
        let expected = expected[(k / expected.ncols(), k % expected.ncols())];
        assert!((found - expected).abs() < 1e-12 * largest, "{what}, {k}: {found} {expected}");
    }
}

const LIKELIHOODS: [Loss; 3] = [Loss::LeastSquares, Loss::Logistic, Loss::Poisson];

#[test]
fn rows_that_count_by_their_weights_have_the_inverse_of_the_pooled_information() {
    for (loss, has_weights) in LIKELIHOODS.into_iter().flat_map(|loss| [(loss, false), (loss, true)]) {
        let (all, shards) = rows(loss, has_weights);
        let weights = AgentWeights::Rows { total: None };
        let objective = TableObjective { weights, ..TableObjective::new(loss, 0.0) };
        let x: Vec<f64> = point(COLUMNS, loss);
        let (mut information, mut squares) = (DMatrix::zeros(COLUMNS, COLUMNS), 0.0);
        let count = all.targets.len();
        for k in 0..count {
            let (a, p, b, weight) = row(&all, k, &x);
            information += weight * curvature(loss, p) * &a * a.transpose();
            squares += weight * (p - b).powi(2);
        }
        let degrees = (count - COLUMNS) as f64;
        let phi = if loss == Loss::LeastSquares { squares / degrees } else { 1.0 };
        let found = covariance(&shards, objective, &x).unwrap();
        assert_eq!(found.degrees, (loss == Loss::LeastSquares).then_some(degrees));
        same(&found, &(phi * information.try_inverse().unwrap()), &format!("{loss:?}, {has_weights}"));
    }
}

#[test]
fn agents_that_count_equally_and_a_penalty_have_the_covariance_of_what_they_minimise() {
    for (loss, has_weights) in LIKELIHOODS.into_iter().flat_map(|loss| [(loss, false), (loss, true)]) {
        let (all, shards) = rows(loss, has_weights);
        let objective = TableObjective { intercept: true, ..TableObjective::new(loss, 0.2) };
        let x: Vec<f64> = point(COLUMNS, loss);
        let mut hessian = DMatrix::from_diagonal(&DVector::from_column_slice(&[0.2, 0.2, 0.0]));
        let (mut spread, mut squares, mut k) = (DMatrix::zeros(COLUMNS, COLUMNS), 0.0, 0);
        for shard in &shards {
            let mass = shard.mass();
            for _ in 0..shard.targets.len() {
                let (a, p, b, weight) = row(&all, k, &x);
                // How much the row counts in f, and the variance of its slope.
                let share = weight / (COUNTS.len() as f64 * mass);
                let information = curvature(loss, p) * &a * a.transpose();
                hessian += share * &information;
                spread += share * share / weight * information;
                squares += weight * (p - b).powi(2);
                k += 1;
            }
        }
        let phi = if loss == Loss::LeastSquares { squares / (k - COLUMNS) as f64 } else { 1.0 };
        let inverse = hessian.try_inverse().unwrap();
        let expected = phi * &inverse * spread * &inverse;
        let found = covariance(&shards, objective, &x).unwrap();
        same(&found, &expected, &format!("{loss:?}, {has_weights}"));
    }
}

/// The differences to the first class are the coefficients of the textbook's multinomial regression.
#[test]
fn differences_between_classes_have_the_covariance_of_multinomial_regression() {
    let loss = Loss::Softmax { classes: 3 };
    let (all, shards) = rows(loss, true);
    let x: Vec<f64> = point(COLUMNS, loss);
    let free = 2 * COLUMNS;
    let mut information = DMatrix::zeros(free, free);
    for k in 0..all.targets.len() {
        let powers: Vec<f64> = x.chunks(COLUMNS).map(|x| row(&all, k, x).1.exp()).collect();
        let shares: Vec<f64> = powers.iter().map(|power| power / powers.iter().sum::<f64>()).collect();
        let (a, _, _, weight) = row(&all, k, &x[..COLUMNS]);
        for (c, d) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let curvature = shares[c] * (f64::from(u8::from(c == d)) - shares[d]);
            let mut block = information.view_mut(((c - 1) * COLUMNS, (d - 1) * COLUMNS), (COLUMNS, COLUMNS));
            block += weight * curvature * &a * a.transpose();
        }
    }
    let weights = AgentWeights::Rows { total: None };
    let objective = TableObjective { weights, intercept: true, ..TableObjective::new(loss, 0.0) };
    let found = covariance(&shards, objective, &x).unwrap();
    assert_eq!(found.degrees, None);
    let dim = 3 * COLUMNS;
    let all = DMatrix::from_row_slice(dim, dim, &found.matrix);
    let difference = DMatrix::from_fn(free, dim, |i, j| {
        f64::from(u8::from(j == i + COLUMNS)) - f64::from(u8::from(j == i % COLUMNS))
    });
    let found = &difference * all * difference.transpose();
    let expected = information.try_inverse().unwrap();
    assert!((found - &expected).amax() < 1e-11 * expected.amax());
}

#[test]
fn nothing_is_said_where_rows_do_not_determine_the_coefficients_or_the_loss_is_no_likelihood() {
    let x = [0.1, 0.2, 0.3];
    for loss in [Loss::Huber { delta: 1.0 }, Loss::Welsch { c: 1.0 }, Loss::NonconvexLogistic] {
        assert_eq!(covariance(&rows(loss, false).1, TableObjective::new(loss, 0.0), &x), None);
    }
    let plain = TableObjective::new(Loss::LeastSquares, 0.0);
    let (all, shards) = rows(Loss::LeastSquares, false);
    assert!(covariance(&shards, plain.clone(), &x).is_some());
    assert_eq!(covariance(&shards, TableObjective { l1: 0.1, ..plain.clone() }, &x), None);
    assert_eq!(covariance(&[all.some(COLUMNS, 0..3)], plain.clone(), &x), None, "as many rows as columns");
    let mut collinear = shards.clone();
    for row in collinear.iter_mut().flat_map(|shard| shard.features.chunks_mut(COLUMNS)) {
        row[1] = 3.0 * row[0] - 2.0 * row[2];
    }
    assert_eq!(covariance(&collinear, plain.clone(), &x), None);
    assert_eq!(covariance(&shards, plain, &[f64::NAN, 0.0, 0.0]), None);
    let poisson = rows(Loss::Poisson, false).1;
    let overflow = covariance(&poisson, TableObjective::new(Loss::Poisson, 0.0), &[1e4, 0.0, 1e4]);
    assert_eq!(overflow, None);
}
