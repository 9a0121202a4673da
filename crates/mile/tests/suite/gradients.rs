//! Gradients against central differences.

use mile::problems::{AgentWeights, Batch, Loss, Problem, Quadratic, Shard, Table, TableObjective};
use proptest::prelude::*;

fn check(problem: &dyn Problem<f64>, x: &[f64]) -> Result<(), TestCaseError> {
    let (h, mut g) = (1e-5, vec![0.0; problem.dim()]);
    for agent in 0..problem.agents() {
        problem.gradient(agent, x, &mut g).unwrap();
        for k in 0..x.len() {
            let at = |h: f64| {
                let mut moved = x.to_vec();
                moved[k] += h;
                problem.loss(agent, &moved).unwrap()
            };
            let difference = (at(h) - at(-h)) / (2.0 * h);
            prop_assert!(
                (g[k] - difference).abs() <= 1e-7 * (1.0 + difference.abs()),
                "agent {agent}, coordinate {k}: {} against {difference}",
                g[k]
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn quadratic(dim in 1usize..8, condition in 1.0..100.0f64, spread in 0.0..5.0f64, seed in 0u64..99, x in -3.0..3.0f64) {
        let problem = Quadratic::<f64>::new(3, dim, condition, spread, seed).unwrap();
        let x: Vec<f64> = (0..dim).map(|k| x + k as f64 * 0.3).collect();
        check(&problem, &x)?;
    }

    #[test]
    fn table(
        loss in prop::sample::select(vec![
            Loss::LeastSquares,
            Loss::Logistic,
            Loss::NonconvexLogistic,
            Loss::Softmax { classes: 2 },
            Loss::Softmax { classes: 3 },
            Loss::Poisson,
            Loss::Huber { delta: 0.7 },
            Loss::Welsch { c: 1.5 },
        ]),
        intercept in any::<bool>(),
        factor in 0.1..3.0f64,
        l2 in 0.0..1.0f64,
        features in prop::collection::vec(-2.0..2.0f64, 12),
        signs in prop::collection::vec(any::<bool>(), 4),
        weights in prop::option::of(prop::collection::vec(0.1..3.0f64, 4)),
        offsets in prop::option::of(prop::collection::vec(-1.0..1.0f64, 4)),
        x in prop::collection::vec(-1.0..1.0f64, 9),
    ) {
        let target = |positive: &bool| match loss {
            Loss::Softmax { classes } => if *positive { classes as f64 - 1.0 } else { 0.0 },
            Loss::Poisson => if *positive { 3.0 } else { 0.0 },
            _ => if *positive { 1.0 } else { -1.0 },
        };
        let targets: Vec<f64> = signs.iter().map(target).collect();
        let factors = AgentWeights::Factors(vec![factor]);
        let objective = TableObjective { intercept, weights: factors, ..TableObjective::new(loss, l2) };
        let offsets = offsets.filter(|_| !matches!(loss, Loss::Softmax { .. })).unwrap_or_default();
        let x = &x[..3 * loss.classes()];
        if let Loss::Huber { delta } = loss {
            // Its second derivative jumps at delta, where a difference is no measure.
            let offset = |row: usize| offsets.get(row).copied().unwrap_or(0.0);
            let product = |a: &[f64]| a.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
            let residual = |(row, (a, b)): (usize, (&[f64], &f64))| product(a) + offset(row) - b;
            let mut residuals = features.chunks(3).zip(&targets).enumerate().map(residual);
            prop_assume!(residuals.all(|r| (r.abs() - delta).abs() > 1e-3));
        }
        let shard = Shard { features, targets, weights: weights.unwrap_or_default(), offsets };
        let problem = Table::new(3, vec![shard], objective, Batch::Full).unwrap();
        check(&problem, x)?;
    }
}

#[test]
fn the_quadratic_has_its_condition_number_and_heterogeneity() {
    let problem = Quadratic::<f64>::new(2, 4, 50.0, 0.0, 1).unwrap();
    // Without heterogeneity all agents share a minimiser: a point where every loss vanishes.
    let mut x = vec![0.0; 4];
    let mut g = vec![0.0; 4];
    for _ in 0..20_000 {
        problem.gradient(0, &x, &mut g).unwrap();
        x.iter_mut().zip(&g).for_each(|(x, g)| *x -= g);
    }
    assert!(problem.loss(0, &x).unwrap() < 1e-20 && problem.loss(1, &x).unwrap() < 1e-20);
    let spread = Quadratic::<f64>::new(2, 4, 50.0, 1.0, 1).unwrap();
    assert!(spread.objective(&x).unwrap() > 1e-3);
    for (dim, condition, heterogeneity) in [(0, 2.0, 1.0), (3, 0.5, 1.0), (3, f64::NAN, 1.0), (3, 2.0, -1.0)]
    {
        assert!(Quadratic::<f64>::new(2, dim, condition, heterogeneity, 0).is_err());
    }
}
