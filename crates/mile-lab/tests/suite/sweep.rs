//! Sweeps: their points, their results, and resuming them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use mile::engine::{Engine, HostError};
use mile::methods::catalogue::Catalogue;
use mile::real::Real;
use mile_lab::engines::{EngineSetup, Engines, EnginesIn, InProcess, Jobs};
use mile_lab::error::LabError;
use mile_lab::objectives::Kinds;
use mile_lab::observer::{Observer, Silent};
use mile_lab::plan::{Job, Plan};
use mile_lab::quantity::Quantity;
use mile_lab::report::draw_sweep;
use mile_lab::spec::parse_table;
use mile_lab::store::{JobStatus, Outcome};
use mile_lab::sweep::{ObserverFactory, Point, SweepFolder, SweepPlan, Trial, best_of, best_remarks};

const BASE: &str = r#"
name = "small"
seeds = [0, 1]
rounds = 20
eval_every = 10
[network]
agents = 5
mixing = "lazy-metropolis"
[problem]
kind = "quadratic"
dim = 4
[[algorithm]]
name = "mile"
step_size = 0.1
local_steps = 5
[[algorithm]]
name = "led"
label = "LED, v1.0"
step_size = 0.1
local_steps = 5
"#;

fn plan(sweep: &str) -> Result<SweepPlan, LabError> {
    let table = parse_table(&format!("{BASE}\n[sweep]\n{sweep}"), &[])?;
    Ok(SweepPlan::read(&table, Path::new(""))?.expect("it has a sweep"))
}

fn refused(sweep: &str) -> String {
    plan(sweep).map(|_| ()).unwrap_err().to_string()
}

fn algorithms(point: &Point) -> usize {
    point.table["algorithm"].as_array().unwrap().len()
}

fn silent<'x>(_: Option<(usize, &'x Point)>, _: &'x Plan) -> Box<dyn Observer + 'x> {
    Box::new(Silent)
}

fn execute(plan: &SweepPlan, folder: &Path, resume: bool) -> SweepFolder {
    let found = plan.execute(folder, resume, &silent, &AtomicBool::new(false)).unwrap();
    draw_sweep(&found).unwrap();
    found
}

#[test]
fn no_algorithm_is_run_twice_with_the_same_values() {
    let plan = plan("step_size = [0.05, 0.1]\n\"algorithm.mile.xi\" = [0.05, 0.1, 0.15]").unwrap();
    let names: Vec<&str> = plan.points.iter().map(|point| point.name.as_str()).collect();
    assert_eq!(plan.points.len(), 8, "{names:?}");
    assert_eq!(plan.points.iter().map(algorithms).sum::<usize>(), 8);
    assert!(names.contains(&"step_size=0.05+mile.xi=0.15") && names.contains(&"step_size=0.1"));
    let both = self::plan("\"network.agents\" = [4, 6]").unwrap();
    assert_eq!(both.points.iter().map(algorithms).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(both.points[1].table["network"]["agents"].as_integer(), Some(6));
}

#[test]
fn keys_may_be_quoted_paths_or_tables_and_labels_may_hold_dots() {
    let plan = plan("network.agents = [4, 6]\n\"algorithm.LED, v1.0.beta\" = [0.1, 0.2]").unwrap();
    assert_eq!(plan.points.len(), 2 + 4);
    let led = plan.points.iter().find(|point| point.settings.len() == 2).unwrap();
    assert_eq!(led.table["algorithm"][0]["beta"].as_float(), Some(0.1));
}

#[test]
fn zip_takes_the_values_together() {
    let plan = plan("mode = \"zip\"\nstep_size = [0.05, 0.1]\n\"algorithm.mile.xi\" = [0.1, 0.05]").unwrap();
    assert_eq!(plan.points.len(), 4);
    let mile = |point: &&Point| point.name.contains("xi");
    let settings: Vec<String> = plan.points.iter().filter(mile).map(|p| p.name.clone()).collect();
    assert_eq!(settings, ["step_size=0.05+mile.xi=0.1", "step_size=0.1+mile.xi=0.05"]);
}

#[test]
fn mistakes_are_named_by_their_key() {
    for (sweep, key) in [
        ("step_size = 0.1", "sweep.step_size"),
        ("step_size = []", "sweep.step_size"),
        ("step_size = [1, 1]", "sweep.step_size"),
        ("mode = \"random\"\nstep_size = [1]", "sweep.mode"),
        ("criterion = \"local_los\"\nstep_size = [1]", "sweep.criterion"),
        ("mode = \"zip\"\nstep_size = [1, 2]\nrounds = [1]", "sweep.rounds"),
        ("inertia = [1]", "sweep.inertia"),
        ("\"algorithm.k-gt.step_size\" = [1]", "sweep.algorithm.k-gt.step_size"),
        ("mode = \"zip\"", "sweep"),
    ] {
        let message = refused(sweep);
        assert!(message.starts_with(&format!("{key}: ")), "{sweep}: {message}");
    }
    let inner = plan("step_size = [-1.0]").unwrap();
    let error = inner.plan(&inner.points[0]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("step_size"), "{error}");
}

#[test]
fn a_sweep_finds_the_best_says_what_diverged_and_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan("step_size = [0.001, 0.05, 10.0]").unwrap();
    let found = execute(&plan, folder.path(), false);
    assert_eq!(found.trials.len(), 6);
    let best = best_of(&found.trials, Quantity::LocalLoss);
    assert_eq!(best.len(), 2);
    for best in &best {
        assert_eq!(best.trial.unwrap().description(), "step_size=0.05", "{}", best.label);
        assert_eq!(best.counts, (3, 1));
        assert!(best.edges.is_empty());
    }
    let again = SweepFolder::read(folder.path()).unwrap();
    assert_eq!(again.trials.len(), found.trials.len());
    assert!(again.summary().contains("step_size=0.05"));
    for file in [
        "table.txt",
        "table.tex",
        "trials.txt",
        "sweep.toml",
        "figures/overview.png",
        "figures/sensitivity-step_size.svg",
    ] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
    let trials = std::fs::read_to_string(folder.path().join("trials.txt")).unwrap();
    assert_eq!(trials.lines().filter(|line| line.contains("diverged")).count(), 2);
    let svg = std::fs::read_to_string(folder.path().join("figures/sensitivity-step_size.svg")).unwrap();
    assert_eq!(svg.matches(": diverged</title>").count(), 2, "a cross for each");
}

#[test]
fn an_algorithm_has_one_colour_in_all_figures() {
    let folder = tempfile::tempdir().unwrap();
    let plan =
        plan("\"algorithm.mile.xi\" = [0.05, 0.1]\n\"algorithm.LED, v1.0.beta\" = [0.1, 0.2]").unwrap();
    execute(&plan, folder.path(), false);
    for (figure, shown, other) in [("sensitivity-xi", 0, 1), ("sensitivity-beta", 1, 0)] {
        let path = folder.path().join("figures").join(figure).with_extension("svg");
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(svg.contains(&format!("\"legend\" data-series=\"{shown}\"")), "{figure}");
        assert!(!svg.contains(&format!("data-series=\"{other}\"")), "{figure}");
    }
}

#[test]
fn what_was_found_stays_found_when_a_resumed_sweep_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan("step_size = [0.05, 0.1]").unwrap();
    let at_once = AtomicBool::new(true);
    let nothing = plan.execute(folder.path(), false, &silent, &at_once).unwrap();
    assert!(nothing.summary().contains("0 of 2 points"), "{}", nothing.summary());
    assert!(SweepFolder::is_at(folder.path()), "it is known as a sweep from the start");
    let found = execute(&plan, folder.path(), true);
    let again = plan.execute(folder.path(), true, &silent, &at_once).unwrap();
    assert_eq!(again.trials, found.trials);
    assert_eq!(SweepFolder::read(folder.path()).unwrap().trials, found.trials);
    let other = self::plan("step_size = [0.2]").unwrap();
    let other = other.execute(folder.path(), true, &silent, &at_once).unwrap();
    assert!(other.trials.is_empty(), "what another sweep found is not taken over");
}

#[test]
fn a_criterion_that_is_not_recorded_is_refused_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan("criterion = \"accuracy\"\nstep_size = [0.1]").unwrap();
    let error = plan.execute(folder.path(), false, &silent, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(&error, LabError::Config(error) if error.key == "sweep.criterion"), "{error}");
    assert!(!folder.path().join("sweep.toml").exists());
}

/// Whether a problem records the norm of its gradient is up to the problem: a small network does, a large one does not.
/// Losses of different quadratics are not comparable, and there is nothing to hold out: the remedy is a criterion.
#[test]
fn a_sweep_over_generated_objectives_names_a_criterion_that_they_have() {
    let refused = |text: &str| {
        let sweep = plan(text).unwrap();
        sweep.plan(&sweep.points[0]).and_then(|plan| sweep.criterion(&plan))
    };
    for values in ["'problem.dim' = [3, 5]", "'network.agents' = [3, 5]"] {
        let error = refused(values).unwrap_err();
        let LabError::Config(error) = &error else { panic!("{error}") };
        assert_eq!(error.key, "sweep.criterion");
        let named = Quantity::ALL.into_iter().find(|q| error.problem.contains(&format!("\"{}\"", q.name())));
        let named = named.unwrap();
        assert_eq!(refused(&format!("criterion = '{}'\n{values}", named.name())).unwrap(), named);
    }
}

#[test]
fn the_gradient_norm_is_a_criterion_wherever_it_is_recorded() {
    let text = |model: &str| {
        format!(
            "rounds = 2\n[network]\nagents = 3\n[problem]\nkind = \"images\"\nmodel = \"{model}\"\neval_samples = 5\n\
             test_samples = 10\n[[algorithm]]\nname = \"mile\"\nstep_size = 0.05\nlocal_steps = 2\n\
             [sweep]\ncriterion = \"grad_norm_sq\"\nstep_size = [0.01, 0.05]\n"
        )
    };
    let read = |model: &str| {
        let table = parse_table(&text(model), &[]).unwrap();
        SweepPlan::read(&table, Path::new("")).unwrap().expect("it has a sweep")
    };
    let folder = tempfile::tempdir().unwrap();
    let found = execute(&read("linear"), folder.path(), false);
    assert!(found.is_complete() && best_of(&found.trials, found.criterion)[0].trial.is_some());
    let large = read("mnist-cnn");
    let refused =
        large.execute(&folder.path().join("large"), false, &silent, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(&refused, LabError::Config(error) if error.key == "sweep.criterion"), "{refused}");
}

#[test]
fn the_edge_of_the_grid_and_ties_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan("step_size = [0.001, 0.002]\n\"network.drop_rate\" = [0.0]").unwrap();
    let found = execute(&plan, folder.path(), false);
    let remarks = best_remarks(&found.trials, Quantity::LocalLoss);
    assert!(remarks.iter().all(|remark| remark.contains("step_size")), "{remarks:?}");
    let mut trials = found.trials.clone();
    trials.retain(|trial| trial.label == "mile");
    let mut twin = trials[1].clone();
    twin.settings[0].1 = toml::Value::Float(0.003);
    trials.push(twin);
    let remark = &best_remarks(&trials, Quantity::LocalLoss)[0];
    assert!(remark.contains("step_size=0.003"), "{remark}");
    trials.iter_mut().flat_map(|trial| &mut trial.outcomes).for_each(|o| o.status = JobStatus::Diverged);
    assert!(best_remarks(&trials, Quantity::LocalLoss)[0].contains("diverged"));
}

#[test]
fn a_stopped_sweep_continues_where_it_was() {
    struct StopAt(&'static AtomicBool);
    impl Observer for StopAt {
        fn advanced(&self, _: Job, round: u64) {
            self.0.fetch_or(round >= 7, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let plan = plan("step_size = [0.05, 0.1]").unwrap();
    let expected = execute(&plan, whole.path(), false);
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let observers: Box<ObserverFactory> =
        Box::new(
            move |point, _| {
                if point.is_some_and(|(k, _)| k == 1) { Box::new(StopAt(stop)) } else { Box::new(Silent) }
            },
        );
    let half = plan.execute(parts.path(), false, &observers, stop).unwrap();
    let losses = |sweep: &SweepFolder| -> Vec<f64> {
        sweep.trials.iter().flat_map(|trial| &trial.outcomes).map(|outcome| outcome.last.local_loss).collect()
    };
    assert_eq!(losses(&half), losses(&expected)[..expected.trials[0].outcomes.len() * half.trials.len()]);
    assert_eq!(2 * half.trials.len(), expected.trials.len(), "a point that was interrupted does not count");
    assert!(half.summary().contains("1 of 2 points"), "{}", half.summary());
    let refused = plan.execute(parts.path(), false, &silent, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(refused, LabError::Directory { .. }), "{refused}");
    let found = execute(&plan, parts.path(), true);
    assert_eq!(losses(&found), losses(&expected));
}

/// Engines that compute together, as those on a device do, with room for a given number of jobs.
struct Together {
    room: usize,
    asked: Mutex<Vec<usize>>,
}

impl Engines for Together {
    fn computes_together(&self) -> bool {
        true
    }
}

impl<T: Real> EnginesIn<T> for Together {
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError> {
        InProcess.open(setup)
    }

    fn fitting(&self, jobs: Jobs<'_, T>) -> Result<usize, HostError> {
        assert_eq!((jobs.problem.agents(), jobs.problem.dim()), (5, 4));
        self.asked.lock().unwrap().push(jobs.count);
        Ok(self.room.min(jobs.count))
    }
}

#[test]
fn points_whose_jobs_compute_together_run_at_the_same_time_as_far_as_they_fit() {
    let sweep = "step_size = [0.02, 0.04, 0.06, 0.08, 0.1]";
    let folder = || tempfile::tempdir().unwrap();
    let (alone, first) = (plan(sweep).unwrap(), folder());
    let expected = execute(&alone, first.path(), false);
    assert_eq!(alone.at_once().unwrap(), 1);
    let table = parse_table(&format!("precision = \"f64\"\n{BASE}\n[sweep]\n{sweep}"), &[]).unwrap();
    // A point has four jobs.
    for (room, at_once) in [(1, 1), (9, 2), (100, 5)] {
        let engines = Arc::new(Together { room, asked: Mutex::default() });
        let plan = SweepPlan::read_with(
            &table,
            Path::new(""),
            &Kinds::default(),
            &Catalogue::default(),
            engines.clone(),
        );
        let plan = plan.unwrap().unwrap();
        assert_eq!(plan.at_once().unwrap(), at_once);
        assert_eq!(*engines.asked.lock().unwrap(), [20]);
        let out = folder();
        let found = execute(&plan, out.path(), false);
        let numbers = |sweep: &SweepFolder| -> Vec<(String, String, f64)> {
            let of = |trial: &Trial| {
                let one = |o: &Outcome| (trial.point.clone(), o.label.clone(), o.last.local_loss);
                trial.outcomes.iter().map(one).collect::<Vec<_>>()
            };
            sweep.trials.iter().flat_map(of).collect()
        };
        assert_eq!(numbers(&found), numbers(&expected));
        assert!(found.is_complete());
    }
}

#[test]
fn an_end_of_a_growing_weight_and_momentum_can_be_swept() {
    let sweep = "\"algorithm.mile.xi.to\" = [0.05, 0.1]\n\"algorithm.mile.momentum\" = [0, 0.3]";
    let set = ["algorithm.mile.xi={ from = 0.01, to = 0.1, rounds = 5 }".to_owned()];
    let table = parse_table(&format!("{BASE}\n[sweep]\n{sweep}"), &set).unwrap();
    let plan = SweepPlan::read(&table, Path::new("")).unwrap().unwrap();
    let names: Vec<_> = plan.points.iter().map(|point| point.name.as_str()).collect();
    assert!(names.contains(&"mile.xi.to=0.05+mile.momentum=0.3"), "{names:?}");
    let point = plan.points.iter().find(|point| point.name == "mile.xi.to=0.05+mile.momentum=0.3").unwrap();
    assert_eq!(point.table["algorithm"][0]["xi"]["to"].as_float(), Some(0.05));
}
