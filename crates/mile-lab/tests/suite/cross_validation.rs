//! Sweeps over the objective: what may be compared, and cross-validation.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mile_lab::error::LabError;
use mile_lab::observer::Silent;
use mile_lab::report::write_sweep_outputs;
use mile_lab::spec::parse_table;
use mile_lab::sweep::{ObserverFactory, SweepFolder, SweepPlan, best_of};

const EXPERIMENT: &str = r#"
rounds = 2000
stop = { grad_norm = 1e-11 }
[network]
agents = 1
[problem]
kind = "table"
data = "all.csv"
target = "y"
loss = "least-squares"
[[algorithm]]
name = "dsgd"
step_size = "auto"
"#;

const FEATURES: usize = 5;

/// Few rows with much noise: a penalty helps.
fn rows(count: usize) -> Vec<(Vec<f64>, f64)> {
    let value = |k: usize| ((k * k * 7919 + k * 104_729) % 10_007) as f64 / 5_003.0 - 1.0;
    let row = |r: usize| {
        let a: Vec<f64> = (0..FEATURES).map(|k| value(17 * r + 101 * k + 3)).collect();
        let y = 0.5 * a[0] + 2.0 * value(31 * r + 7);
        (a, y)
    };
    (0..count).map(row).collect()
}

fn folder(count: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut text = (0..FEATURES).map(|k| format!("a{k},")).collect::<String>() + "y\n";
    for (a, y) in rows(count) {
        a.iter().for_each(|a| write!(text, "{a},").unwrap());
        writeln!(text, "{y}").unwrap();
    }
    std::fs::write(folder.path().join("all.csv"), text).unwrap();
    folder
}

fn plan(folder: &Path, sweep: &str, set: &[&str]) -> Result<SweepPlan, LabError> {
    let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
    let table = parse_table(&format!("{EXPERIMENT}\n[sweep]\n{sweep}"), &set)?;
    Ok(SweepPlan::read(&table, folder)?.expect("it has a sweep"))
}

fn execute(folder: &Path, sweep: &str, set: &[&str]) -> Result<SweepFolder, LabError> {
    let (plan, out) = (plan(folder, sweep, set)?, folder.join("sweep"));
    let resume = out.exists();
    plan.execute(&out, resume, &|_, _| Box::new(Silent), &AtomicBool::new(false))
}

#[track_caller]
fn refuses(found: Result<SweepFolder, LabError>, key: &str) {
    match found {
        Err(LabError::Config(error)) => assert_eq!(error.key, key, "{error}"),
        other => panic!("{other:?}"),
    }
}

const L2: &str = "'problem.l2' = [0.0, 0.03, 0.3, 3.0]";

#[test]
fn a_sweep_over_the_objective_chooses_by_held_out_rows_or_is_refused() {
    let home = folder(30);
    refuses(execute(home.path(), L2, &[]), "sweep.criterion");
    assert!(!home.path().join("sweep").exists());
    let held_out = &["problem.test=0.5"];
    let found = execute(home.path(), L2, held_out).unwrap();
    assert_eq!(found.criterion.name(), "local_test_loss");
    let best = |found: &SweepFolder| best_of(&found.trials, found.criterion)[0].trial.unwrap().description();
    assert_ne!(best(&found), "problem.l2=0.0");
    let given = folder(30);
    let found = execute(given.path(), &format!("criterion = 'local_loss'\n{L2}"), held_out).unwrap();
    assert_eq!(best(&found), "problem.l2=0.0", "the smallest loss is that without a penalty");
    // Nothing else in [problem] changes what is minimised.
    let batch = plan(home.path(), "'problem.batch' = [2, 'full']", &[]).unwrap();
    let criterion = |plan: &SweepPlan| plan.criterion(&plan.plan(&plan.points[0]).unwrap()).unwrap().name();
    assert_eq!(criterion(&batch), "local_loss");
    let delta =
        plan(home.path(), "'problem.delta' = [0.5, 1.0]", &["problem.loss=huber", "problem.test=0.5"]);
    assert_eq!(criterion(&delta.unwrap()), "local_rmse", "losses with different deltas are not comparable");
}

/// The solution of a symmetric positive definite system, by elimination.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        for i in k + 1..n {
            let factor = a[i][k] / a[k][k];
            let row = a[k].clone();
            a[i].iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
            b[i] -= factor * b[k];
        }
    }
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| a[k][j] * b[j]).sum();
        b[k] = (b[k] - known) / a[k][k];
    }
    b
}

/// Half the squared error of each row under the ridge regression on all other rows.
fn left_out(rows: &[(Vec<f64>, f64)], l2: f64) -> Vec<f64> {
    let one = |left: usize| {
        let others = || rows.iter().enumerate().filter(|(k, _)| *k != left).map(|(_, row)| row);
        let m = rows.len() as f64 - 1.0;
        let entry = |i: usize, j: usize| {
            others().map(|(a, _)| a[i] * a[j]).sum::<f64>() / m + if i == j { l2 } else { 0.0 }
        };
        let matrix = (0..FEATURES).map(|i| (0..FEATURES).map(|j| entry(i, j)).collect()).collect();
        let right = (0..FEATURES).map(|i| others().map(|(a, y)| a[i] * y).sum::<f64>() / m).collect();
        let (x, (a, y)) = (solve(matrix, right), &rows[left]);
        (a.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>() - y).powi(2) / 2.0
    };
    (0..rows.len()).map(one).collect()
}

/// With as many folds as rows, each row is left out once, whatever the order.
#[test]
fn cross_validation_with_a_row_in_each_fold_is_the_literal_one() {
    let count = 12;
    let (home, rows) = (folder(count), rows(count));
    let found = execute(home.path(), &format!("cv = {count}\n{L2}"), &[]).unwrap();
    assert!(found.is_complete());
    assert_eq!((found.points, found.trials.len()), (4 * count, 4));
    let mut means = Vec::new();
    for (trial, l2) in found.trials.iter().zip([0.0, 0.03, 0.3, 3.0]) {
        assert_eq!(trial.folds, (1..=count as u64).collect::<Vec<_>>());
        let expected = left_out(&rows, l2);
        let mut losses: Vec<f64> =
            trial.outcomes.iter().map(|o| found.criterion.of(&o.last).unwrap()).collect();
        let mean = expected.iter().sum::<f64>() / count as f64;
        assert!((losses.iter().sum::<f64>() / count as f64 - mean).abs() < 1e-9, "{l2}");
        let squares: f64 = expected.iter().map(|loss| (loss - mean).powi(2)).sum();
        let error = (squares / (count * (count - 1)) as f64).sqrt();
        assert!((trial.standard_error(found.criterion).unwrap() - error).abs() < 1e-9, "{l2}");
        let mut sorted = expected;
        sorted.sort_by(f64::total_cmp);
        losses.sort_by(f64::total_cmp);
        losses.iter().zip(&sorted).for_each(|(found, expected)| assert!((found - expected).abs() < 1e-8));
        means.push((mean, trial.description()));
    }
    let best = means.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
    assert_eq!(best_of(&found.trials, found.criterion)[0].trial.unwrap().description(), best);
    write_sweep_outputs(&found).unwrap();
    let trials = std::fs::read_to_string(found.path.join("trials.txt")).unwrap();
    assert!(trials.contains("standard error"), "{trials}");
    let again = SweepFolder::read(&found.path).unwrap();
    let kept = |sweep: &SweepFolder| -> Vec<_> {
        sweep
            .trials
            .iter()
            .map(|trial| (trial.folds.clone(), trial.standard_error(sweep.criterion)))
            .collect()
    };
    assert_eq!(kept(&again), kept(&found));
}

#[test]
fn an_interrupted_cross_validation_continues_fold_by_fold() {
    let home = folder(30);
    let sweep = "cv = 3\n'problem.l2' = [0.01, 0.1]\nstep_size = [0.1]";
    let plan = plan(home.path(), sweep, &[]).unwrap();
    let names: Vec<&str> = plan.points.iter().map(|point| point.name.as_str()).collect();
    assert_eq!(names[..2], ["problem.l2=0.01+step_size=0.1/fold-1", "problem.l2=0.01+step_size=0.1/fold-2"]);
    let (out, stop) = (home.path().join("sweep"), AtomicBool::new(false));
    // The observer of the third point stops the sweep before it has run.
    let observers: Box<ObserverFactory> = Box::new(|point, _| {
        stop.fetch_or(point.is_some_and(|(k, _)| k == 2), Ordering::Relaxed);
        Box::new(Silent)
    });
    let part = plan.execute(&out, false, &observers, &stop).unwrap();
    assert!(!part.is_complete());
    assert_eq!((part.trials.len(), &part.trials[0].folds[..]), (1, &[1, 2][..]));
    let whole = execute(home.path(), sweep, &[]).unwrap();
    assert!(whole.is_complete());
    assert_eq!(whole.trials[0].outcomes[..2], part.trials[0].outcomes[..]);
    assert_eq!(whole.trials[1].folds, [1, 2, 3]);
}

#[test]
fn what_cannot_be_cross_validated_is_refused_by_its_key() {
    let home = folder(30);
    refuses(execute(home.path(), "cv = 1\nstep_size = [0.1]", &[]), "sweep.cv");
    refuses(execute(home.path(), "cv = 'five'\nstep_size = [0.1]", &[]), "sweep.cv");
    refuses(execute(home.path(), &format!("cv = 1000\n{L2}"), &[]), "sweep.cv");
    refuses(execute(home.path(), &format!("cv = 5\n{L2}"), &["problem.test=0.2"]), "sweep.cv");
    refuses(
        execute(home.path(), "cv = 5\nstep_size = [0.1]", &["problem={ kind = 'quadratic' }"]),
        "sweep.cv",
    );
    refuses(execute(home.path(), &format!("cv = 5\ncriterion = 'loss'\n{L2}"), &[]), "sweep.criterion");
}
