//! Losses and gradients against formulas written a second time, and against each other on all instruction sets.

use super::*;

fn table(batch: Batch) -> Table<f64> {
    let shard = |agent: usize| Shard {
        features: (0..14).map(|k| ((k * 7 + agent * 3) % 11) as f64 / 5.0 - 1.0).collect(),
        targets: (0..7).map(|k| if (k + agent).is_multiple_of(3) { 1.0 } else { -1.0 }).collect(),
    };
    Table::new(2, vec![shard(0), shard(1)], TableObjective::new(Loss::Logistic, 0.1), batch).unwrap()
}

/// A table of odd numbers, whose gradients are not formed by normal equations.
fn odd<T: Real>(dim: usize, rows: usize, loss: Loss, isa: Isa) -> Table<T> {
    let value = |k: usize| T::of(((k * 7919) % 2003) as f64 / 1000.0 - 1.0);
    let target = |k: usize| if loss == Loss::LeastSquares { value(5 * k) } else { value(3 * k + 1).signum() };
    let shard =
        Shard { features: (0..rows * dim).map(value).collect(), targets: (0..rows).map(target).collect() };
    let batch = Batch::Size(1);
    Table { isa, ..Table::new(dim, vec![shard], TableObjective::new(loss, 0.1), batch).unwrap() }
}

/// Loss and gradient by the formula, in `f64`.
fn by_formula<T: Real>(table: &Table<T>, x: &[T]) -> (f64, Vec<f64>) {
    let (x, l2) = (x.iter().map(|x| x.wide()).collect::<Vec<_>>(), table.objective.l2);
    let nonconvex = table.objective.loss == Loss::NonconvexLogistic;
    let penalty = |x: &f64| if nonconvex { l2 * x * x / (1.0 + x * x) } else { l2 / 2.0 * x * x };
    let slope = |x: &f64| if nonconvex { 2.0 * l2 * x / (1.0 + x * x).powi(2) } else { l2 * x };
    let mut loss = x.iter().map(penalty).sum::<f64>();
    let mut gradient: Vec<f64> = x.iter().map(slope).collect();
    let shard = &table.shards[0];
    let rows = shard.targets.len();
    for (j, b) in shard.targets.iter().map(|b| b.wide()).enumerate() {
        let a = |k: usize| shard.features[j * table.columns + k].wide();
        let p: f64 = (0..table.columns).map(|k| a(k) * x[k]).sum();
        let (value, slope) = match table.objective.loss {
            Loss::LeastSquares => (0.5 * (p - b).powi(2), p - b),
            _ => ((-b * p).exp().ln_1p(), -b / (1.0 + (b * p).exp())),
        };
        loss += value / rows as f64;
        (0..table.columns).for_each(|k| gradient[k] += slope * a(k) / rows as f64);
    }
    (loss, gradient)
}

fn passes_over_odd_shapes<T: Real>(tolerance: f64) {
    for (dim, rows) in
        [(0, 3), (1, 1), (3, 2), (7, 9), (8, 64), (15, 65), (16, 5), (17, 131), (30, 200), (515, 23)]
    {
        let x: Vec<T> = (0..dim).map(|k| T::of((k % 5) as f64 / 4.0 - 0.5)).collect();
        for loss in [Loss::LeastSquares, Loss::Logistic, Loss::NonconvexLogistic] {
            let at = |isa: Isa| {
                let table = odd::<T>(dim, rows, loss, isa);
                let mut g = vec![T::nan(); dim];
                table.gradient(0, &x, &mut g).unwrap();
                (table.loss(0, &x).unwrap(), g)
            };
            let found = at(Isa::Portable);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                assert_eq!(at(isa), found, "{isa:?}, {rows} x {dim}, {loss:?}: the same bits");
            }
            let (value, gradient) = by_formula(&odd::<T>(dim, rows, loss, Isa::Portable), &x);
            assert!((found.0 - value).abs() <= 1e-13 * (1.0 + value.abs()), "{rows} x {dim}, {loss:?}");
            let largest = gradient.iter().fold(1.0, |m: f64, g| m.max(g.abs()));
            for (found, expected) in found.1.iter().zip(&gradient) {
                let error = (found.wide() - expected).abs();
                assert!(error <= tolerance * largest, "{rows} x {dim}, {loss:?}: {error:e}");
            }
        }
    }
}

#[test]
fn passes_over_odd_shapes_are_the_formula_with_the_same_bits_everywhere() {
    passes_over_odd_shapes::<f64>(1e-14);
    passes_over_odd_shapes::<f32>(1e-5);
}

#[test]
fn normal_equations_give_the_gradient_to_rounding() {
    for (dim, rows) in [(1, 2), (5, 11), (31, 63), (33, 67), (65, 131), (97, 400)] {
        let rows_only = odd::<f64>(dim, rows, Loss::LeastSquares, Isa::best());
        let exact = Table::new(
            dim,
            rows_only.shards.clone(),
            TableObjective::new(Loss::LeastSquares, 0.1),
            Batch::Full,
        )
        .unwrap();
        assert!(exact.grams[0].is_some() && rows_only.grams[0].is_none());
        let x: Vec<f64> = (0..dim).map(|k| (k % 5) as f64 / 4.0 - 0.5).collect();
        let (mut by_rows, mut by_gram) = (vec![0.0; dim], vec![0.0; dim]);
        rows_only.gradient(0, &x, &mut by_rows).unwrap();
        exact.sample_gradient(0, &x, Draw { seed: 1, step: 2 }, &mut by_gram).unwrap();
        for (a, b) in by_rows.iter().zip(&by_gram) {
            assert!((a - b).abs() < 1e-14 * dim as f64, "{rows} x {dim}: {a} {b}");
        }
    }
    let pays = |dim, samples| has_normal_equations(Loss::LeastSquares, Batch::Full, dim, samples);
    assert!(pays(9, 18) && !pays(9, 17) && !pays(5_000, 50_000));
}

#[test]
fn normal_equations_in_single_precision_lose_no_digits_to_large_features() {
    let (dim, rows) = (7, 400);
    let value = |k: usize| ((k * 7919) % 2003) as f32 / 1000.0 + 30.0;
    let shard = Shard {
        features: (0..rows * dim).map(value).collect(),
        targets: (0..rows).map(|k| value(5 * k)).collect(),
    };
    let table =
        Table::new(dim, vec![shard], TableObjective::new(Loss::LeastSquares, 0.1), Batch::Full).unwrap();
    let x: Vec<f32> = (0..dim).map(|k| 1.0 / dim as f32 + k as f32 / 1000.0 - 0.003).collect();
    let (mut found, expected) = (vec![0.0f32; dim], by_formula(&table, &x).1);
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
fn what_makes_no_objective_is_refused() {
    let shard = |targets: &[f64]| Shard { features: vec![1.0; targets.len()], targets: targets.to_vec() };
    let new =
        |shards, loss, l2, batch| Table::new(1, shards, TableObjective::new(loss, l2), batch).unwrap_err();
    let both = vec![shard(&[1.0]), shard(&[])];
    assert_eq!(new(both, Loss::LeastSquares, 0.0, Batch::Full), InvalidTable::Empty { agent: 1 });
    let classes = vec![shard(&[1.0, 0.0])];
    assert!(matches!(new(classes, Loss::Logistic, 0.0, Batch::Full), InvalidTable::Target { row: 1, .. }));
    let good = || vec![shard(&[1.0])];
    assert!(matches!(
        new(good(), Loss::Logistic, f64::NAN, Batch::Full),
        InvalidTable::Parameter { key: "l2", .. }
    ));
    assert_eq!(new(good(), Loss::Logistic, 0.0, Batch::Size(0)), InvalidTable::Batch);
}
