//! Losses and gradients against formulas written a second time, and against each other on all instruction sets.

mod estimates;
mod weights;

use super::*;

fn table(batch: Batch) -> Table<f64> {
    let shard = |agent: usize| Shard {
        features: (0..14).map(|k| ((k * 7 + agent * 3) % 11) as f64 / 5.0 - 1.0).collect(),
        targets: (0..7).map(|k| if (k + agent).is_multiple_of(3) { 1.0 } else { -1.0 }).collect(),
        ..Shard::default()
    };
    Table::new(2, vec![shard(0), shard(1)], TableObjective::new(Loss::Logistic, 0.1), batch).unwrap()
}

const LOSSES: [Loss; 9] = [
    Loss::LeastSquares,
    Loss::Logistic,
    Loss::NonconvexLogistic,
    Loss::Softmax { classes: 2 },
    Loss::Softmax { classes: 5 },
    Loss::Softmax { classes: 17 },
    Loss::Poisson,
    Loss::Huber { delta: 0.4 },
    Loss::Welsch { c: 0.9 },
];

/// A number between -1 and 1.
fn value<T: Real>(k: usize) -> T {
    T::of(((k * 7919) % 2003) as f64 / 1000.0 - 1.0)
}

/// A target that a loss accepts.
fn target<T: Real>(loss: Loss, k: usize) -> T {
    match loss {
        Loss::Logistic | Loss::NonconvexLogistic => value::<T>(3 * k + 1).signum(),
        Loss::Softmax { classes } => T::of((k * 7919 % 2003 % classes) as f64),
        Loss::Poisson => T::of((k * 7919 % 2003 % 6) as f64 / 2.0),
        _ => value(5 * k),
    }
}

fn shard<T: Real>(columns: usize, rows: usize, loss: Loss) -> Shard<T> {
    Shard {
        features: (0..rows * columns).map(value).collect(),
        targets: (0..rows).map(|k| target(loss, k)).collect(),
        ..Shard::default()
    }
}

/// A variable for a table.
fn point<T: Real>(columns: usize, loss: Loss) -> Vec<T> {
    (0..columns * loss.classes()).map(|k| T::of((k * 3 % 7) as f64 / 6.0 - 0.5)).collect()
}

/// A table of odd numbers, whose gradients are not formed by normal equations.
fn odd<T: Real>(columns: usize, rows: usize, objective: TableObjective, isa: Isa) -> Table<T> {
    let shard = shard(columns, rows, objective.loss);
    Table { isa, ..Table::new(columns, vec![shard], objective, Batch::Size(3)).unwrap() }
}

/// Gives the samples weights and, where they have an effect, offsets.
fn weighted<T: Real>(shard: Shard<T>, loss: Loss) -> Shard<T> {
    let rows = shard.targets.len();
    let offsets = if matches!(loss, Loss::Softmax { .. }) { 0 } else { rows };
    Shard {
        weights: (0..rows).map(|k| T::of((k * 13 % 5) as f64 / 2.0 + 0.25)).collect(),
        offsets: (0..offsets).map(|k| value(11 * k + 4)).collect(),
        ..shard
    }
}

/// The loss of a row with these products and its derivatives, as in the textbook.
fn of_row(loss: Loss, p: &[f64], b: f64) -> (f64, Vec<f64>) {
    let (own, r) = (p[0], p[0] - b);
    let (value, slope) = match loss {
        Loss::LeastSquares => (0.5 * r.powi(2), r),
        Loss::Logistic | Loss::NonconvexLogistic => ((-b * own).exp().ln_1p(), -b / (1.0 + (b * own).exp())),
        Loss::Poisson => (own.exp() - b * own, own.exp() - b),
        Loss::Huber { delta } if r.abs() <= delta => (r * r / 2.0, r),
        Loss::Huber { delta } => (delta * (r.abs() - delta / 2.0), delta * r.signum()),
        Loss::Welsch { c } => {
            let e = (-(r / c).powi(2)).exp();
            (c * c / 2.0 * (1.0 - e), r * e)
        }
        Loss::Softmax { .. } => {
            let sum: f64 = p.iter().map(|p| p.exp()).sum();
            let is_own = |c: usize| if c == b as usize { 1.0 } else { 0.0 };
            let slopes = p.iter().enumerate().map(|(c, p)| p.exp() / sum - is_own(c)).collect();
            return (sum.ln() - p[b as usize], slopes);
        }
    };
    (value, vec![slope])
}

/// Loss and gradient over some rows of the first agent by the formula, in `f64`.
fn by_formula<T: Real>(table: &Table<T>, rows: &[usize], x: &[T]) -> (f64, Vec<f64>) {
    let TableObjective { loss, l2, intercept, .. } = table.objective;
    let x: Vec<f64> = x.iter().map(|x| x.wide()).collect();
    let (columns, classes) = (table.columns, loss.classes());
    let (mut value, mut gradient) = (0.0, vec![0.0; x.len()]);
    for class in 0..classes {
        let mut penalty = 0.0;
        for k in (0..columns).filter(|k| !intercept || k + 1 < columns) {
            let (at, w) = (class * columns + k, x[class * columns + k]);
            if loss == Loss::NonconvexLogistic {
                penalty += l2 * w * w / (1.0 + w * w);
                gradient[at] = 2.0 * l2 * w / (1.0 + w * w).powi(2);
            } else {
                penalty += l2 / 2.0 * w * w;
                gradient[at] = l2 * w;
            }
        }
        value += penalty;
    }
    let shard = &table.shards[0];
    for row in rows {
        let a: Vec<f64> = (0..columns).map(|k| shard.features[row * columns + k].wide()).collect();
        let offset = shard.offsets.get(*row).map_or(0.0, |offset| offset.wide());
        let product =
            |class: usize| (0..columns).map(|k| a[k] * x[class * columns + k]).sum::<f64>() + offset;
        let products: Vec<f64> = (0..classes).map(product).collect();
        let (own, slopes) = of_row(loss, &products, shard.targets[*row].wide());
        let share = shard.weights.get(*row).map_or(1.0, |weight| weight.wide()) / rows.len() as f64;
        value += share * own;
        for (at, g) in gradient.iter_mut().enumerate() {
            *g += slopes[at / columns] * a[at % columns] * share;
        }
    }
    let factor = table.factors[0];
    (factor * value, gradient.iter().map(|g| factor * g).collect())
}

/// Asserts that numbers agree up to a fraction of the largest.
fn agree<T: Real>(found: &[T], expected: &[f64], tolerance: f64, what: &str) {
    let largest = expected.iter().fold(1.0, |m: f64, g| m.max(g.abs()));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let error = (found.wide() - expected).abs();
        assert!(error <= tolerance * largest, "{what}: {error:e} of {largest}");
    }
}

fn passes_over_odd_shapes<T: Real>(tolerance: f64) {
    let shapes = [
        (0, 3),
        (1, 1),
        (1, 70),
        (3, 2),
        (7, 9),
        (8, 64),
        (15, 65),
        (16, 5),
        (17, 131),
        (30, 200),
        (515, 23),
    ];
    let with_intercept = |loss| {
        let weights = AgentWeights::Factors(vec![1.75]);
        TableObjective { intercept: true, weights, ..TableObjective::new(loss, 0.1) }
    };
    for (columns, rows) in shapes {
        for objective in LOSSES.into_iter().flat_map(|l| [TableObjective::new(l, 0.1), with_intercept(l)]) {
            let what = format!("{rows} x {columns}, {objective:?}");
            let x: Vec<T> = point(columns, objective.loss);
            let draw = Draw { seed: 3, step: 5 };
            let at = |isa: Isa| {
                let table = odd::<T>(columns, rows, objective.clone(), isa);
                let mut g = vec![vec![T::nan(); x.len()]; 2];
                table.gradient(0, &x, &mut g[0]).unwrap();
                table.sample_gradient(0, &x, draw, &mut g[1]).unwrap();
                (table.loss(0, &x).unwrap(), g)
            };
            let found = at(Isa::Portable);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                assert_eq!(at(isa), found, "{isa:?}, {what}: the same bits");
            }
            let table = odd::<T>(columns, rows, objective, Isa::Portable);
            let (value, gradient) = by_formula(&table, &(0..rows).collect::<Vec<_>>(), &x);
            assert!((found.0 - value).abs() <= 1e-13 * (1.0 + value.abs()), "{what}: {} {value}", found.0);
            agree(&found.1[0], &gradient, tolerance, &what);
            let drawn: Vec<usize> = table.batch.samples(rows, 0, draw).collect();
            agree(&found.1[1], &by_formula(&table, &drawn, &x).1, tolerance, &what);
        }
    }
}

#[test]
fn passes_over_odd_shapes_are_the_formula_with_the_same_bits_everywhere() {
    passes_over_odd_shapes::<f64>(1e-14);
    passes_over_odd_shapes::<f32>(1e-5);
}

#[test]
fn two_classes_by_softmax_are_the_logistic_loss_of_the_difference() {
    let (columns, rows) = (6, 41);
    let logistic = odd::<f64>(columns, rows, TableObjective::new(Loss::Logistic, 0.0), Isa::best());
    let mut shards = logistic.shards.clone();
    shards[0].targets.iter_mut().for_each(|b| *b = (1.0 + *b) / 2.0);
    let softmax = TableObjective::new(Loss::Softmax { classes: 2 }, 0.0);
    let softmax = Table::new(columns, shards, softmax, Batch::Full).unwrap();
    let x: Vec<f64> = point(columns, Loss::Softmax { classes: 2 });
    let difference: Vec<f64> = (0..columns).map(|k| x[columns + k] - x[k]).collect();
    let (mut both, mut one) = (vec![0.0; 2 * columns], vec![0.0; columns]);
    softmax.gradient(0, &x, &mut both).unwrap();
    logistic.gradient(0, &difference, &mut one).unwrap();
    agree(&both[columns..], &one, 1e-14, "the second class");
    agree(&both[..columns], &one.iter().map(|g| -g).collect::<Vec<_>>(), 1e-14, "the first class");
    let (a, b) = (softmax.loss(0, &x).unwrap(), logistic.loss(0, &difference).unwrap());
    assert!((a - b).abs() < 1e-14, "{a} {b}");
}

fn far_out<T: Real>() {
    // One column; margins of 1e4.
    let new = |loss: Loss, targets: &[f64]| {
        let targets: Vec<T> = targets.iter().map(|b| T::of(*b)).collect();
        let shard = Shard { features: vec![T::one(); targets.len()], targets, ..Shard::default() };
        Table::new(1, vec![shard], TableObjective::new(loss, 0.0), Batch::Full).unwrap()
    };
    let at = |table: &Table<T>, x: &[f64]| {
        let x: Vec<T> = x.iter().map(|x| T::of(*x)).collect();
        let mut g = vec![T::nan(); x.len()];
        table.gradient(0, &x, &mut g).unwrap();
        (table.loss(0, &x).unwrap(), g.iter().map(|g| g.wide()).collect::<Vec<_>>())
    };
    let close = |(value, gradient): (f64, Vec<f64>), expected: f64, slopes: &[f64]| {
        assert!((value - expected).abs() <= 1e-12 * expected.abs().max(1e-300), "{value} {expected}");
        gradient
            .iter()
            .zip(slopes)
            .for_each(|(g, s)| assert!((g - s).abs() < 1e-6, "{gradient:?} {slopes:?}"));
    };
    close(at(&new(Loss::Logistic, &[1.0, -1.0]), &[1e4]), 5e3, &[0.5]);
    let softmax = new(Loss::Softmax { classes: 3 }, &[0.0, 2.0]);
    close(at(&softmax, &[1e4, 0.0, -1e4]), 1e4, &[0.5, 0.0, -0.5]);
    close(at(&softmax, &[-1e4, -1e4, -1e4]), 3f64.ln(), &[-1.0 / 6.0, 1.0 / 3.0, -1.0 / 6.0]);
    close(at(&new(Loss::Huber { delta: 2.0 }, &[0.0, 1e4]), &[1e4]), 1e4 - 1.0, &[1.0]);
    close(at(&new(Loss::Welsch { c: 3.0 }, &[0.0, 1e4]), &[1e4]), 2.25, &[0.0]);
    close(at(&new(Loss::Poisson, &[0.0, 2.0]), &[-1e4]), 1e4, &[-1.0]);
    let (value, gradient) = at(&new(Loss::Poisson, &[1.0]), &[1e4]);
    assert_eq!((value, gradient), (f64::INFINITY, vec![f64::INFINITY]), "not a finite number that is wrong");
    for loss in LOSSES {
        let b = target::<T>(loss, 1).wide();
        let (value, gradient) = at(&new(loss, &[b]), &vec![f64::NAN; loss.classes()]);
        assert!(value.is_nan() && gradient.iter().all(|g| g.is_nan()), "{loss:?}: {value} {gradient:?}");
    }
}

#[test]
fn large_margins_do_not_overflow_and_nan_stays_nan() {
    far_out::<f64>();
    far_out::<f32>();
}

#[test]
fn a_small_loss_of_a_large_margin_keeps_its_digits() {
    let shard = Shard { features: vec![1.0], targets: vec![1.0], ..Shard::default() };
    let softmax = TableObjective::new(Loss::Softmax { classes: 3 }, 0.0);
    let table = Table::new(1, vec![shard.clone()], softmax, Batch::Full).unwrap();
    let expected = ((-50f64).exp() + (-60f64).exp()).ln_1p();
    let found = table.loss(0, &[-50.0, 0.0, -60.0]).unwrap();
    assert!((found / expected - 1.0).abs() < 1e-14, "{found} {expected}");
    let welsch = TableObjective::new(Loss::Welsch { c: 1e8 }, 0.0);
    let found = Table::new(1, vec![shard], welsch, Batch::Full).unwrap().loss(0, &[1.5]).unwrap();
    assert!((found / 0.125 - 1.0).abs() < 1e-14, "least squares, for residuals far below c: {found}");
}

#[test]
fn agents_weighted_by_rows_minimise_the_mean_over_all_rows() {
    let (columns, counts) = (4, [1, 40, 9]);
    for loss in LOSSES {
        let all: Shard<f64> = shard(columns, 50, loss);
        let mut first = 0;
        let cut = |rows: usize| {
            let range = first..first + rows;
            first += rows;
            let features = all.features[range.start * columns..range.end * columns].to_vec();
            Shard { features, targets: all.targets[range].to_vec(), ..Shard::default() }
        };
        let shards: Vec<Shard<f64>> = counts.map(cut).to_vec();
        let objective =
            |weights| TableObjective { intercept: true, weights, ..TableObjective::new(loss, 0.3) };
        let by_rows = AgentWeights::Rows { total: None };
        let table = Table::new(columns, shards.clone(), objective(by_rows), Batch::Full).unwrap();
        let together = Table::new(columns, vec![all.clone()], objective(AgentWeights::Equal), Batch::Size(1));
        let x: Vec<f64> = point(columns, loss);
        let (value, gradient) = by_formula(&together.unwrap(), &(0..50).collect::<Vec<_>>(), &x);
        assert!((table.objective(&x).unwrap() - value).abs() < 1e-13, "{loss:?}");
        let mut sum = vec![0.0; x.len()];
        for agent in 0..counts.len() {
            let mut g = vec![0.0; x.len()];
            table.gradient(agent, &x, &mut g).unwrap();
            sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / counts.len() as f64);
        }
        agree(&sum, &gradient, 1e-14, "the mean of the gradients");
        // An agent that has only its own rows, with nothing known of the others, has the same objective.
        let placeholder = shard(columns, 1, loss);
        let alone = vec![placeholder.clone(), shards[1].clone(), placeholder];
        let of_total = AgentWeights::Rows { total: Some(50.0) };
        let alone = Table::new(columns, alone, objective(of_total), Batch::Full).unwrap();
        assert_eq!(alone.loss(1, &x).unwrap(), table.loss(1, &x).unwrap());
    }
}

#[test]
fn normal_equations_give_the_gradient_and_the_loss_to_rounding() {
    let plain = TableObjective::new(Loss::LeastSquares, 0.1);
    let weights = AgentWeights::Factors(vec![0.6]);
    let other = TableObjective { intercept: true, weights, ..plain.clone() };
    for (columns, rows) in [(1, 2), (5, 11), (31, 63), (33, 67), (65, 131), (97, 400)] {
        for objective in [&plain, &other] {
            let by_row = odd::<f64>(columns, rows, objective.clone(), Isa::best());
            let exact = Table::new(columns, by_row.shards.clone(), objective.clone(), Batch::Full).unwrap();
            assert!(exact.grams[0].is_some() && by_row.grams[0].is_none());
            let x: Vec<f64> = point(columns, objective.loss);
            let (mut by_rows, mut by_gram) = (vec![0.0; columns], vec![0.0; columns]);
            by_row.gradient(0, &x, &mut by_rows).unwrap();
            exact.sample_gradient(0, &x, Draw { seed: 1, step: 2 }, &mut by_gram).unwrap();
            for (a, b) in by_rows.iter().zip(&by_gram) {
                assert!((a - b).abs() < 1e-14 * columns as f64, "{rows} x {columns}: {a} {b}");
            }
            let (by_rows, by_gram) = (by_row.loss(0, &x).unwrap(), exact.loss(0, &x).unwrap());
            assert!((by_gram / by_rows - 1.0).abs() < 1e-13, "{rows} x {columns}: {by_gram} {by_rows}");
        }
    }
    let pays = |columns, samples| has_normal_equations(Loss::LeastSquares, Batch::Full, columns, samples);
    assert!(pays(9, 18) && !pays(9, 17) && !pays(5_000, 50_000));
}

/// Features far from zero and a small residual: `x'Gx/2 - h'x + b'b/2m` has no digit left.
#[test]
fn losses_by_normal_equations_keep_their_digits_near_an_exact_fit() {
    let (dim, rows) = (6, 200);
    let value = |k: usize| ((k * 7919) % 2003) as f64 / 1000.0 + 300.0;
    let features: Vec<f64> = (0..rows * dim).map(value).collect();
    let fit: Vec<f64> = (0..dim).map(|k| 1.0 / (k + 1) as f64).collect();
    let product = |a: &[f64], x: &[f64]| a.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
    let targets: Vec<f64> = features.chunks_exact(dim).map(|a| product(a, &fit)).collect();
    let shard = Shard { features, targets, ..Shard::default() };
    let objective = TableObjective::new(Loss::LeastSquares, 0.0);
    let table = Table::new(dim, vec![shard.clone()], objective, Batch::Full).unwrap();
    assert!(table.grams[0].is_some());
    for distance in [1.0, 1e-3, 1e-6] {
        let away: Vec<f64> = (0..dim).map(|k| distance * [1.0, -1.0][k % 2]).collect();
        let x: Vec<f64> = fit.iter().zip(&away).map(|(x, more)| x + more).collect();
        let squares = shard.features.chunks_exact(dim).map(|a| product(a, &away).powi(2));
        let expected = squares.sum::<f64>() / (2 * rows) as f64;
        let found = table.loss(0, &x).unwrap();
        assert!((found / expected - 1.0).abs() < 1e-7, "{distance}: {found} {expected}");
    }
    let left = table.loss(0, &fit).unwrap();
    assert!((0.0..1e-20).contains(&left), "{left}");
}

#[test]
fn normal_equations_in_single_precision_lose_no_digits_to_large_features() {
    let (dim, rows) = (7, 400);
    let value = |k: usize| ((k * 7919) % 2003) as f32 / 1000.0 + 30.0;
    let shard = Shard {
        features: (0..rows * dim).map(value).collect(),
        targets: (0..rows).map(|k| value(5 * k)).collect(),
        ..Shard::default()
    };
    let table =
        Table::new(dim, vec![shard], TableObjective::new(Loss::LeastSquares, 0.1), Batch::Full).unwrap();
    let x: Vec<f32> = (0..dim).map(|k| 1.0 / dim as f32 + k as f32 / 1000.0 - 0.003).collect();
    let (mut found, expected) = (vec![0.0f32; dim], by_formula(&table, &(0..rows).collect::<Vec<_>>(), &x).1);
    table.gradient(0, &x, &mut found).unwrap();
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-6 * expected.abs(), "{found} {expected}");
    }
}

#[test]
fn mini_batch_gradients_are_unbiased() {
    let (table, x) = (table(Batch::Size(2)), [0.3, -0.2]);
    let (mut exact, mut sum, mut g) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    table.gradient(0, &x, &mut exact).unwrap();
    let draws = 40_000;
    for step in 0..draws {
        table.sample_gradient(0, &x, Draw { seed: 1, step }, &mut g).unwrap();
        sum = [sum[0] + g[0], sum[1] + g[1]];
    }
    for k in 0..2 {
        assert!((sum[k] / draws as f64 - exact[k]).abs() < 0.01, "{sum:?} {exact:?}");
    }
}

#[test]
fn invalid_objectives_are_refused() {
    let shard = |targets: &[f64]| Shard {
        features: vec![1.0; targets.len()],
        targets: targets.to_vec(),
        ..Shard::default()
    };
    let new =
        |shards, loss, l2, batch| Table::new(1, shards, TableObjective::new(loss, l2), batch).unwrap_err();
    let both = vec![shard(&[1.0]), shard(&[])];
    assert_eq!(new(both, Loss::LeastSquares, 0.0, Batch::Full), InvalidTable::Empty { agent: 1 });
    let good = || vec![shard(&[1.0])];
    let ragged = vec![Shard { features: vec![1.0; 3], targets: vec![1.0], ..Shard::default() }];
    assert!(matches!(
        new(ragged, Loss::Logistic, 0.0, Batch::Full),
        InvalidTable::Ragged { features: 3, .. }
    ));
    assert_eq!(new(good(), Loss::Logistic, 0.0, Batch::Size(0)), InvalidTable::Batch);
    let softmax = Loss::Softmax { classes: 3 };
    for (loss, target) in [
        (Loss::Logistic, 0.0),
        (Loss::NonconvexLogistic, 2.0),
        (softmax, 3.0),
        (softmax, -1.0),
        (softmax, 0.5),
        (softmax, f64::NAN),
        (Loss::Poisson, -1.0),
        (Loss::Poisson, f64::INFINITY),
    ] {
        let found = new(vec![shard(&[1.0, target])], loss, 0.0, Batch::Full);
        assert!(matches!(found, InvalidTable::Target { row: 1, .. }), "{loss:?}, {target}");
    }
    for (loss, l2, wrong) in [
        (Loss::Logistic, f64::NAN, "l2"),
        (Loss::Logistic, -1.0, "l2"),
        (Loss::Softmax { classes: 1 }, 0.0, "classes"),
        (Loss::Huber { delta: 0.0 }, 0.0, "delta"),
        (Loss::Huber { delta: f64::INFINITY }, 0.0, "delta"),
        (Loss::Welsch { c: -1.0 }, 0.0, "c"),
        (Loss::Welsch { c: f64::NAN }, 0.0, "c"),
    ] {
        let found = new(good(), loss, l2, Batch::Full);
        assert!(matches!(found, InvalidTable::Parameter { key, .. } if key == wrong), "{found}");
    }
    let weighted = |weights| {
        let objective = TableObjective { weights, ..TableObjective::new(Loss::LeastSquares, 0.0) };
        Table::new(1, vec![shard(&[1.0, 2.0])], objective, Batch::Full).unwrap_err()
    };
    let too_few = InvalidTable::TotalRows { got: 1.0, least: 2.0 };
    assert_eq!(weighted(AgentWeights::Rows { total: Some(1.0) }), too_few);
    for factors in [vec![], vec![1.0; 2], vec![-1.0], vec![f64::NAN]] {
        assert!(matches!(weighted(AgentWeights::Factors(factors)), InvalidTable::Factors { agents: 1, .. }));
    }
}

/// The second derivative of an agent's objective along v, by central differences of its gradient.
fn curvature_along(problem: &dyn Problem<f64>, x: &[f64], v: &[f64]) -> f64 {
    let step = 1e-5;
    let gradient = |by: f64| {
        let at: Vec<f64> = x.iter().zip(v).map(|(x, v)| x + by * v).collect();
        let mut gradient = vec![0.0; x.len()];
        problem.gradient(0, &at, &mut gradient).unwrap();
        gradient
    };
    let (above, below) = (gradient(step), gradient(-step));
    above.iter().zip(below).zip(v).map(|((a, b), v)| (a - b) / (2.0 * step) * v).sum()
}

#[test]
fn no_objective_curves_more_anywhere_than_its_quadratic_bound() {
    let columns = 4;
    for loss in LOSSES {
        let objective = TableObjective { intercept: true, ..TableObjective::new(loss, 0.3) };
        let table: Table<f64> = odd(columns, 11, objective, Isa::best());
        let Some(bound) = table.quadratic_bound() else {
            assert!(matches!(loss, Loss::LeastSquares | Loss::Poisson), "{loss:?}");
            continue;
        };
        let mut closest = 0.0f64;
        for k in 0..300 {
            // Ever further from the origin.
            let x: Vec<f64> = point::<f64>(columns, loss).iter().map(|x| 0.02 * k as f64 * x).collect();
            let v: Vec<f64> = (0..x.len()).map(|j| value::<f64>(31 * k + 5 * j + 1)).collect();
            let most: f64 = v.chunks(columns).map(|v| curvature_along(&*bound, &vec![0.0; columns], v)).sum();
            let here = curvature_along(&table, &x, &v).abs();
            assert!(here <= most * (1.0 + 1e-6), "{loss:?} at {k}: {here} {most}");
            closest = closest.max(here / most);
        }
        let tight = if matches!(loss, Loss::Softmax { classes: 5.. }) { 0.1 } else { 0.5 };
        assert!(closest > tight, "{loss:?}: {closest}");
    }
}
