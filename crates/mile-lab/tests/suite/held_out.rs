//! Tables with held-out rows: what their runs record, draw and say.

use mile::problems::{AgentWeights, Batch, Loss, Metric, Problem, Shard, Table, TableObjective};
use mile_lab::Lab;
use mile_lab::quantity::Quantity;
use mile_lab::recorded_metrics::Models;
use mile_lab::store::{JobStatus, read_records};

const EXPERIMENT: &str = r#"
rounds = 40
eval_every = 10
[network]
agents = 4
[[algorithm]]
name = "mile"
step_size = 0.2
local_steps = 3
[[algorithm]]
name = "dsgd"
step_size = 0.2
"#;

/// Rows of two features and a constant whose target depends on both features.
fn shard(from: usize, rows: usize, loss: Loss) -> Shard<f64> {
    let value = |k: usize| ((k * k * 7919 + k * 104_729) % 10_007) as f64 / 5_003.0 - 1.0;
    let mut shard = Shard::default();
    for row in from..from + rows {
        let (a, b) = (value(3 * row), value(11 * row + 5));
        shard.features.extend([a, b, 1.0]);
        let score = 2.0 * a - b + 0.3 * value(17 * row + 2);
        shard.targets.push(match loss {
            Loss::Logistic | Loss::NonconvexLogistic => score.signum(),
            Loss::Softmax { .. } => (if score < -0.5 { 0.0 } else { (score + 1.5).floor() }).min(2.0),
            Loss::Poisson => score.exp().round(),
            _ => score,
        });
    }
    shard
}

/// Agents of unequal size, one of which has no held-out rows.
fn table(loss: Loss) -> Table<f64> {
    let weights = AgentWeights::Rows { total: None };
    let objective = TableObjective { intercept: true, weights, ..TableObjective::new(loss, 0.01) };
    let sizes = [20, 35, 25, 60];
    let train = sizes.iter().zip(0..).map(|(rows, agent)| shard(100 * agent, *rows, loss)).collect();
    let test = [30, 0, 10, 45].iter().zip(0..).map(|(rows, agent)| shard(100 * agent + 60, *rows, loss));
    Table::new(3, train, objective, Batch::Full).unwrap().with_test(test.collect()).unwrap()
}

#[test]
fn models_learn_and_their_metrics_are_recorded_drawn_and_ranked() {
    for (loss, expected, sentence) in [
        (Loss::LeastSquares, [Metric::Rmse, Metric::R2, Metric::TestLoss].as_slice(), "test RMSE"),
        (Loss::Logistic, &[Metric::Accuracy, Metric::Auc, Metric::TestLoss], "test accuracy"),
        (Loss::Softmax { classes: 3 }, &[Metric::Accuracy, Metric::TestLoss], "test accuracy"),
        (Loss::Poisson, &[Metric::Rmse, Metric::TestLoss], "test RMSE"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        let results = Lab::of("rows", table(loss)).quiet().run(EXPERIMENT, &folder).unwrap();
        assert!(results.outcomes.iter().all(|outcome| outcome.status.is_done()), "{loss:?}");
        let records = read_records(&folder).unwrap();
        let (first, last) = (&records[0], &results.outcomes[0].last);
        assert!(last.loss < first.loss, "{loss:?}");
        for metric in Metric::ALL {
            let of =
                |models| (Quantity::Test(metric, models).of(first), Quantity::Test(metric, models).of(last));
            for models in Models::ALL {
                let (before, after) = of(models);
                assert_eq!(before.is_some(), expected.contains(&metric), "{loss:?}, {metric:?}");
                let Some((before, after)) = before.zip(after) else { continue };
                let better = if metric.larger_is_better() { after > before } else { after < before };
                assert!(better, "{loss:?}, {metric:?}, {models:?}: {before}, {after}");
            }
            if let (Some(own), Some(worst)) = (of(Models::Own).1, of(Models::Worst).1) {
                assert!(if metric.larger_is_better() { worst <= own } else { worst >= own });
            }
        }
        let name = Quantity::Test(expected[0], Models::Own).name();
        for file in [format!("figures/{name}-round.svg"), format!("figures/{name}-bytes_sent.svg")] {
            assert!(folder.join(&file).exists(), "{file}");
        }
        let shown = std::fs::read_to_string(folder.join("table.txt")).unwrap();
        assert!(shown.contains(&name.replace('_', " ")), "{shown}");
        let report = std::fs::read_to_string(folder.join("report.html")).unwrap();
        assert!(report.contains(&format!("{sentence} of the agents&#39; own models is")), "{loss:?}");
    }
}

#[test]
fn a_poisson_run_that_overflows_is_reported_as_diverged() {
    let home = tempfile::tempdir().unwrap();
    let wild = EXPERIMENT.replace("step_size = 0.2", "step_size = 30.0");
    let results = Lab::of("rows", table(Loss::Poisson)).quiet().run(&wild, home.path().join("run")).unwrap();
    assert!(results.outcomes.iter().all(|outcome| outcome.status == JobStatus::Diverged));
    assert_eq!(table(Loss::Poisson).dim(), 3);
}
