//! Weights and offsets of rows.

use super::*;

fn passes_with_weights<T: Real>(tolerance: f64) {
    for (columns, rows) in [(1, 1), (1, 70), (7, 9), (8, 64), (17, 131), (515, 23)] {
        for loss in LOSSES {
            let what = format!("{rows} x {columns}, {loss:?}");
            let shard = weighted(shard::<T>(columns, rows, loss), loss);
            let objective = TableObjective { intercept: true, ..TableObjective::new(loss, 0.1) };
            let table = Table::new(columns, vec![shard], objective, Batch::Size(3)).unwrap();
            let x: Vec<T> = point(columns, loss);
            let draw = Draw { seed: 3, step: 5 };
            let at = |isa: Isa| {
                let table = Table { isa, ..table.clone() };
                let mut g = vec![vec![T::nan(); x.len()]; 2];
                table.gradient(0, &x, &mut g[0]).unwrap();
                table.sample_gradient(0, &x, draw, &mut g[1]).unwrap();
                (table.loss(0, &x).unwrap(), g)
            };
            let found = at(Isa::Portable);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                assert_eq!(at(isa), found, "{isa:?}, {what}: the same bits");
            }
            let (value, gradient) = by_formula(&table, &(0..rows).collect::<Vec<_>>(), &x);
            assert!((found.0 - value).abs() <= 1e-12 * (1.0 + value.abs()), "{what}: {} {value}", found.0);
            agree(&found.1[0], &gradient, tolerance, &what);
            let drawn: Vec<usize> = table.batch.samples(rows, 0, draw).collect();
            agree(&found.1[1], &by_formula(&table, &drawn, &x).1, tolerance, &what);
        }
    }
}

#[test]
fn passes_with_weights_and_offsets_are_the_formula_with_the_same_bits_everywhere() {
    passes_with_weights::<f64>(1e-13);
    passes_with_weights::<f32>(3e-5);
}

/// `sum_j v_j loss_j / sum_j v_j` over all rows, from the weights as they were given.
#[test]
fn rows_of_all_agents_count_by_their_weights() {
    let (columns, counts) = (4, [1, 40, 9]);
    for loss in LOSSES {
        let all = weighted(shard::<f64>(columns, 50, loss), loss);
        let mut first = 0;
        let shards: Vec<Shard<f64>> = counts
            .map(|rows| {
                first += rows;
                all.some(columns, first - rows..first)
            })
            .to_vec();
        let weights = AgentWeights::Rows { total: None };
        let objective = TableObjective { weights, ..TableObjective::new(loss, 0.3) };
        let x: Vec<f64> = point(columns, loss);
        let total: f64 = all.weights.iter().sum();
        let mut value = 0.15 * x.iter().map(|x| x * x).sum::<f64>();
        let mut gradient: Vec<f64> = x.iter().map(|x| 0.3 * x).collect();
        if loss == Loss::NonconvexLogistic {
            value = 0.3 * x.iter().map(|x| x * x / (1.0 + x * x)).sum::<f64>();
            gradient = x.iter().map(|x| 0.6 * x / (1.0 + x * x).powi(2)).collect();
        }
        for (row, a) in all.features.chunks(columns).enumerate() {
            let offset = all.offsets.get(row).copied().unwrap_or(0.0);
            let product = |x: &[f64]| a.iter().zip(x).map(|(a, x)| a * x).sum::<f64>() + offset;
            let products: Vec<f64> = x.chunks(columns).map(product).collect();
            let (own, slopes) = of_row(loss, &products, all.targets[row]);
            value += all.weights[row] * own / total;
            for (at, g) in gradient.iter_mut().enumerate() {
                *g += all.weights[row] * slopes[at / columns] * a[at % columns] / total;
            }
        }
        // By rows, and for least squares by normal equations too.
        for batch in [Batch::Size(1), Batch::Full] {
            let table = Table::new(columns, shards.clone(), objective.clone(), batch).unwrap();
            assert!((table.objective(&x).unwrap() - value).abs() < 1e-13, "{loss:?}");
            let mut sum = vec![0.0; x.len()];
            for agent in 0..counts.len() {
                let mut g = vec![0.0; x.len()];
                table.gradient(agent, &x, &mut g).unwrap();
                sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / counts.len() as f64);
            }
            agree(&sum, &gradient, 1e-13, "the mean of the gradients");
        }
    }
}

#[test]
fn weights_of_one_and_offsets_of_zero_change_no_bit() {
    for loss in [Loss::LeastSquares, Loss::Logistic, Loss::Poisson] {
        let plain: Shard<f64> = shard(5, 31, loss);
        let ones = Shard { weights: vec![1.0; 31], offsets: vec![0.0; 31], ..plain.clone() };
        let x: Vec<f64> = point(5, loss);
        let of = |shard: &Shard<f64>| {
            let table = Table::new(5, vec![shard.clone()], TableObjective::new(loss, 0.1), Batch::Full);
            let table = table.unwrap().with_test(vec![shard.clone()]).unwrap();
            let mut g = vec![0.0; 5];
            table.gradient(0, &x, &mut g).unwrap();
            (table.loss(0, &x).unwrap(), g, table.held_out().unwrap().measure(&x).unwrap())
        };
        assert_eq!(of(&plain), of(&ones));
    }
}

#[test]
fn a_row_of_weight_two_counts_like_two_rows_in_every_metric() {
    for loss in LOSSES {
        let train = shard::<f64>(3, 9, loss);
        let test = shard::<f64>(3, 14, loss);
        let twice: Vec<usize> = (0..14).flat_map(|row| vec![row; 1 + row % 3]).collect();
        let weights = (0..14).map(|row| (1 + row % 3) as f64).collect();
        let x: Vec<f64> = point(3, loss);
        let measure = |test: Shard<f64>| {
            let table = Table::new(3, vec![train.clone()], TableObjective::new(loss, 0.1), Batch::Full);
            let table = table.unwrap().with_test(vec![test]).unwrap();
            table.held_out().unwrap().measure(&x).unwrap()
        };
        let repeated = measure(test.some(3, twice.into_iter()));
        for (a, b) in measure(Shard { weights, ..test }).iter().zip(&repeated) {
            assert!((a - b).abs() < 1e-13, "{loss:?}: {a} {b}");
        }
    }
}

#[test]
fn weights_and_offsets_out_of_range_are_named() {
    let plain: Shard<f64> = shard(2, 3, Loss::Poisson);
    let refused = |change: &dyn Fn(&mut Shard<f64>), loss: Loss| {
        let mut shards = vec![plain.clone(), plain.clone()];
        change(&mut shards[1]);
        Table::new(2, shards, TableObjective::new(loss, 0.0), Batch::Full).unwrap_err()
    };
    let found = refused(&|shard| shard.weights = vec![1.0], Loss::Poisson);
    assert!(matches!(found, InvalidTable::Incomplete { agent: 1, what: "weight", got: 1, rows: 3 }));
    let found = refused(&|shard| shard.offsets = vec![1.0; 4], Loss::Poisson);
    assert!(matches!(found, InvalidTable::Incomplete { what: "offset", .. }));
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        let found = refused(&|shard| shard.weights = vec![1.0, 1.0, bad], Loss::Poisson);
        assert!(matches!(found, InvalidTable::RowValue { agent: 1, row: 2, what: "weight", .. }), "{found}");
    }
    let found = refused(&|shard| shard.offsets = vec![0.0, f64::NEG_INFINITY, 0.0], Loss::Poisson);
    assert!(matches!(found, InvalidTable::RowValue { row: 1, what: "offset", .. }), "{found}");
    let found = refused(&|shard| shard.weights = vec![0.0; 3], Loss::Poisson);
    assert!(matches!(found, InvalidTable::Weightless { agent: 1, .. }), "{found}");
    let found = refused(&|shard| shard.weights = vec![f64::MAX; 3], Loss::Poisson);
    assert!(matches!(found, InvalidTable::Weightless { .. }), "{found}");
    let mut softmax = shard(2, 3, Loss::Softmax { classes: 3 });
    softmax.offsets = vec![0.0; 3];
    let objective = TableObjective::new(Loss::Softmax { classes: 3 }, 0.0);
    let found = Table::new(2, vec![softmax], objective, Batch::Full).unwrap_err();
    assert!(matches!(found, InvalidTable::RowValue { what: "offset", .. }), "{found}");
}
