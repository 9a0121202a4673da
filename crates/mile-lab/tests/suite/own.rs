//! User-defined problems and engines: what the lab does with them, and what happens when they fail.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use mile::agents::{Agents, AgentsError, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector};
use mile::engine::parts::Drift;
use mile::engine::{Engine, HostError};
use mile::problems::{Failure, Problem};
use mile::simulator::Simulator;
use mile_lab::engines::{EngineSetup, Engines, EnginesIn};
use mile_lab::objectives::FixedProblem;
use mile_lab::report::RunFolder;
use mile_lab::session::Results;
use mile_lab::store::{JobStatus, read_outcomes, read_records};
use mile_lab::{Lab, LabError};

/// f_i(x) = log cosh(x - c i), which fails after a given number of gradients and, if told to, panics instead.
#[derive(Default)]
struct Opinions {
    agents: usize,
    spread: f64,
    gradients: AtomicUsize,
    lasts: Option<usize>,
    panics: bool,
}

impl Opinions {
    fn new(agents: usize) -> Self {
        Self { agents, spread: 1.0, ..Self::default() }
    }
}

impl Problem<f64> for Opinions {
    fn agents(&self) -> usize {
        self.agents
    }

    fn dim(&self) -> usize {
        1
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        Ok((x[0] - self.spread * agent as f64).cosh().ln())
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        if self.lasts.is_some_and(|lasts| self.gradients.fetch_add(1, Ordering::Relaxed) >= lasts) {
            assert!(!self.panics, "nobody expected this");
            return Err("the instrument was unplugged".into());
        }
        gradient[0] = (x[0] - self.spread * agent as f64).tanh();
        Ok(())
    }
}

const EXPERIMENT: &str = r#"
seeds = [0, 1]
rounds = 30
eval_every = 5
[network]
agents = 5
[[algorithm]]
name = "mile"
step_size = 0.2
local_steps = 4
[[algorithm]]
name = "k-gt"
step_size = 0.2
local_steps = 4
"#;

fn lab(problem: Opinions) -> Lab {
    Lab::of("opinions", problem).quiet()
}

fn run(lab: &Lab, text: &str, folder: &Path) -> Results {
    lab.run(text, folder).unwrap()
}

#[test]
fn a_problem_of_ones_own_gets_records_figures_a_table_a_report_and_a_resume() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("run");
    let results = run(&lab(Opinions::new(5)), EXPERIMENT, &folder);
    assert!(results.is_complete && results.outcomes.len() == 4);
    assert!(results.outcomes.iter().all(|outcome| outcome.status.is_done()));
    assert!(results.to_string().contains("mile") && results.to_string().contains("k-gt"));
    for file in ["config.toml", "metrics.jsonl", "summary.json", "report.html", "table.txt", "table.tex"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    for file in ["figures/overview.png", "figures/loss-round.svg", "final/k-gt-seed1.safetensors"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    // The records can be read without the problem.
    let read = RunFolder::read(&folder).unwrap();
    assert_eq!(read.spec.objectives.title(), "opinions");
    assert!(std::fs::read_to_string(folder.join("report.html")).unwrap().contains("opinions"));
    // More rounds and one more seed: what is finished is kept.
    let records = read_records(&folder).unwrap().len();
    let more = EXPERIMENT.replace("rounds = 30", "rounds = 40").replace("[0, 1]", "[0, 1, 2]");
    let results = run(&lab(Opinions::new(5)), &more, &folder);
    assert!(results.is_complete && results.outcomes.len() == 6);
    assert_eq!(read_records(&folder).unwrap().len(), 3 * records / 2 + 6 * 2);
}

#[test]
fn a_thread_that_is_its_own_pool_calls_all_objectives() {
    /// f_i(x) = x^2 / 2 for a long x, which notes the threads that call it.
    struct Watching(Arc<Mutex<HashSet<ThreadId>>>);

    impl Problem<f64> for Watching {
        fn agents(&self) -> usize {
            5
        }

        fn dim(&self) -> usize {
            20_000
        }

        fn loss(&self, _: usize, x: &[f64]) -> Result<f64, Failure> {
            self.0.lock().unwrap().insert(std::thread::current().id());
            Ok(x[0])
        }

        fn gradient(&self, _: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
            self.0.lock().unwrap().insert(std::thread::current().id());
            gradient.copy_from_slice(x);
            Ok(())
        }
    }

    let home = tempfile::tempdir().unwrap();
    let threads = Arc::<Mutex<HashSet<ThreadId>>>::default();
    let lab = Lab::of("watching", Watching(threads.clone())).quiet();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let thread = pool.install(|| {
        assert!(run(&lab, EXPERIMENT, &home.path().join("run")).is_complete);
        std::thread::current().id()
    });
    assert_eq!(*threads.lock().unwrap(), HashSet::from([thread]));
}

#[test]
fn a_kind_of_ones_own_has_parameters_that_can_be_swept() {
    let home = tempfile::tempdir().unwrap();
    let lab = || {
        Lab::default().quiet().with_kind("opinions", |section, setting| {
            let spread = section.number_or("spread", "a number", 1.0)?;
            let problem: Arc<dyn Problem<f64>> =
                Arc::new(Opinions { spread, ..Opinions::new(setting.agents) });
            Ok(Arc::new(FixedProblem::new(format!("opinions {spread} apart"), problem)))
        })
    };
    let sweep = format!(
        "{EXPERIMENT}[problem]\nkind = \"opinions\"\n[sweep]\ncriterion = \"local_loss\"\n\"problem.spread\" = [0.5, 2.0]\n"
    );
    let results = run(&lab(), &sweep, &home.path().join("sweep"));
    assert!(results.is_complete && results.table.contains("problem.spread=0.5"), "{}", results.table);
    for file in [
        "report.html",
        "table.txt",
        "trials.txt",
        "figures/overview.png",
        "points/problem.spread=2.0/metrics.jsonl",
    ] {
        assert!(home.path().join("sweep").join(file).exists(), "{file}");
    }
    let refusal = |text: &str| lab().run(text, home.path().join("refused")).unwrap_err().to_string();
    let unknown = format!("{EXPERIMENT}[problem]\nkind = \"opinions\"\nspred = 2.0\n");
    assert!(refusal(&unknown).contains("problem.spred"));
    let unknown = format!("{EXPERIMENT}[problem]\nkind = \"opinion\"\n");
    assert!(refusal(&unknown).contains("problem.kind"), "{}", refusal(&unknown));
    let text = format!("{EXPERIMENT}[problem]\nkind = \"opinions\"\n");
    assert!(refusal(&text.replace("agents = 5", "agents = 5\np = 0.5")).contains("network.p"));
}

#[test]
fn what_does_not_fit_is_refused_by_its_key() {
    let home = tempfile::tempdir().unwrap();
    let refusal = |lab: Lab, text: &str| lab.run(text, home.path()).unwrap_err();
    let error = refusal(lab(Opinions::new(7)), EXPERIMENT);
    assert!(error.is_usage() && error.to_string().contains("network.agents"), "{error}");
    let error = refusal(lab(Opinions::new(5)), &format!("precision = \"f32\"\n{EXPERIMENT}"));
    assert!(error.to_string().contains("precision"), "{error}");
    let error = refusal(lab(Opinions::new(5)), &EXPERIMENT.replace("step_size = 0.2", "step_size = -1.0"));
    assert!(error.to_string().contains("algorithm[0].step_size"), "{error}");
    assert!(!home.path().join("config.toml").exists(), "nothing is begun");
}

#[test]
fn an_objective_that_fails_ends_its_job_with_its_records_kept_and_can_be_tried_again() {
    for panics in [false, true] {
        let home = tempfile::tempdir().unwrap();
        // Enough for the advice-free start of all jobs and some rounds of each.
        let failing = Opinions { lasts: Some(900), panics, ..Opinions::new(5) };
        let error = lab(failing).run(EXPERIMENT, home.path()).unwrap_err();
        assert!(!error.is_usage(), "{error}");
        let words = if panics { "nobody expected this" } else { "the instrument was unplugged" };
        assert!(error.to_string().contains(words), "{error}");
        let outcomes = read_outcomes(home.path()).unwrap();
        let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.status == JobStatus::Failed).collect();
        assert!(!failed.is_empty());
        assert!(failed.iter().all(|outcome| outcome.error.as_ref().unwrap().contains(words)));
        let page = std::fs::read_to_string(home.path().join("report.html")).unwrap();
        assert!(page.contains(words), "the report says so");
        assert!(!read_records(home.path()).unwrap().is_empty());
        // Once fixed, the same folder continues, and ends with the bits of a run that never failed.
        let results = run(&lab(Opinions::new(5)), EXPERIMENT, home.path());
        assert!(results.is_complete);
        let whole = tempfile::tempdir().unwrap();
        run(&lab(Opinions::new(5)), EXPERIMENT, whole.path());
        for name in ["mile-seed0", "mile-seed1", "k-gt-seed0", "k-gt-seed1"] {
            let state =
                |folder: &Path| std::fs::read(folder.join(format!("final/{name}.safetensors"))).unwrap();
            assert_eq!(state(home.path()), state(whole.path()), "{name}");
        }
    }
}

#[test]
fn results_belong_to_the_objective_they_were_made_with() {
    let home = tempfile::tempdir().unwrap();
    run(&lab(Opinions::new(5)), EXPERIMENT, home.path());
    let refusal = |lab: Lab, text: &str| {
        let error = lab.run(text, home.path()).unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string()
    };
    let edited = refusal(lab(Opinions { spread: 2.0, ..Opinions::new(5) }), EXPERIMENT);
    assert!(edited.contains("problem.values"), "{edited}");
    let fewer = refusal(lab(Opinions::new(5)), &EXPERIMENT.replace("rounds = 30", "rounds = 20"));
    assert!(fewer.contains("rounds"), "{fewer}");
    assert!(std::fs::read_to_string(home.path().join("config.toml")).unwrap().contains("rounds = 30"));
    // A version, where given, replaces the values.
    let versioned = |version: &'static str, spread: f64| {
        Lab::default().quiet().with_kind("opinions", move |section, setting| {
            section.text("data", "a text")?;
            let problem: Arc<dyn Problem<f64>> =
                Arc::new(Opinions { spread, ..Opinions::new(setting.agents) });
            Ok(Arc::new(FixedProblem::new("opinions", problem).with_version(version)))
        })
    };
    let other = home.path().join("versioned");
    let text = format!("{EXPERIMENT}[problem]\nkind = \"opinions\"\ndata = \"a\"\n");
    run(&versioned("1", 1.0), &text, &other);
    run(&versioned("1", 1.5), &text, &other);
    let refused = versioned("2", 1.0).run(&text, &other).unwrap_err().to_string();
    assert!(refused.contains("problem.version"), "{refused}");
    let refused = versioned("1", 1.0).run(&text.replace("\"a\"", "\"b\""), &other).unwrap_err().to_string();
    assert!(
        refused.contains("problem.data"),
        "a key that another kind has as a file is a parameter here: {refused}"
    );
}

#[test]
fn a_refused_sweep_keeps_what_it_had_found_and_a_failing_one_says_why() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("sweep");
    let sweep = format!("{EXPERIMENT}[sweep]\nstep_size = [0.1, 0.2]\n");
    run(&lab(Opinions::new(5)), &sweep, &folder);
    let found =
        || ["sweep.toml", "sweep.json", "table.txt"].map(|name| std::fs::read(folder.join(name)).unwrap());
    let before = found();
    let refused = lab(Opinions { spread: 2.0, ..Opinions::new(5) }).run(&sweep, &folder).unwrap_err();
    assert!(refused.to_string().contains("problem.values"), "{refused}");
    assert!(found() == before, "nothing is lost");
    let run_in_it = lab(Opinions::new(5)).run(EXPERIMENT, &folder).unwrap_err();
    assert!(matches!(&run_in_it, LabError::Directory { path, .. } if *path == folder), "{run_in_it}");
    let failing = Opinions { lasts: Some(300), ..Opinions::new(5) };
    let failed = lab(failing).run(&sweep, home.path().join("failing")).unwrap_err().to_string();
    assert!(failed.contains("step_size=0.1") && failed.contains("the instrument was unplugged"), "{failed}");
    assert!(home.path().join("failing/report.html").exists());
}

#[test]
fn sizes_that_no_memory_holds_are_refused_before_anything_is_written() {
    struct Large(usize);
    impl Problem<f64> for Large {
        fn agents(&self) -> usize {
            5
        }
        fn dim(&self) -> usize {
            self.0
        }
        fn loss(&self, _: usize, _: &[f64]) -> Result<f64, Failure> {
            Ok(0.0)
        }
        fn gradient(&self, _: usize, _: &[f64], _: &mut [f64]) -> Result<(), Failure> {
            Ok(())
        }
    }
    let home = tempfile::tempdir().unwrap();
    for dim in [1 << 62, 1 << 50, 0] {
        let error = Lab::of("large", Large(dim)).quiet().run(EXPERIMENT, home.path()).unwrap_err();
        assert!(error.is_usage(), "{error}");
        assert!(!home.path().join("config.toml").exists());
    }
}

#[test]
fn a_run_that_fails_does_not_stop_the_next_one_of_the_same_lab() {
    let home = tempfile::tempdir().unwrap();
    let lab = lab(Opinions::new(5));
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(lab.run(EXPERIMENT, file.join("run")).is_err());
    std::fs::create_dir_all(home.path().join("broken/final/mile-seed0.safetensors/x")).unwrap();
    assert!(lab.run(EXPERIMENT, home.path().join("broken")).is_err(), "its final state cannot be written");
    assert!(run(&lab, EXPERIMENT, &home.path().join("good")).is_complete);
}

#[test]
fn a_stop_flag_stops_a_run_and_running_it_again_continues() {
    let home = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let results = run(&lab(Opinions::new(5)).stop_with(stop), EXPERIMENT, home.path());
    assert!(!results.is_complete && results.outcomes.is_empty());
    assert!(run(&lab(Opinions::new(5)), EXPERIMENT, home.path()).is_complete);
}

/// An engine that keeps its vectors elsewhere: reading returns a copy, and it may fail.
struct Remote<'a, T> {
    agents: Simulator<'a, T>,
    settled: &'a AtomicUsize,
    lost_after: usize,
}

impl Agents for Remote<'_, f64> {
    fn hosted(&self) -> Range<usize> {
        self.agents.hosted()
    }
    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.agents.gradient(x, g, draw)
    }
    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.agents.combine(y, keep, terms)
    }
    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.agents.prox(x, step)
    }
    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.agents.optimise(step)
    }
    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.agents.clip(g, most)
    }
    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.agents.pull(round, pairs)
    }
    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.agents.pull_steady(round, pull)
    }
    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.agents.pull_robust(round, pull)
    }
    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.agents.pull_compressed(round, pull)
    }
    fn settle(&mut self) -> Result<(), AgentsError> {
        if self.settled.fetch_add(1, Ordering::Relaxed) >= self.lost_after {
            return Err(AgentsError::Engine("the device is lost".into()));
        }
        self.agents.settle()
    }
}

impl Engine<f64> for Remote<'_, f64> {
    fn agents(&self) -> usize {
        Engine::agents(&self.agents)
    }
    fn dim(&self) -> usize {
        Engine::dim(&self.agents)
    }
    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [f64]>, AgentsError> {
        Ok(Cow::Owned(Engine::vector(&mut self.agents, v)?.into_owned()))
    }
    fn set_vector(&mut self, v: Vector, rows: &[f64]) -> Result<(), AgentsError> {
        self.agents.set_vector(v, rows)
    }
    fn watched(&mut self) -> Option<&mut Drift> {
        self.agents.watched()
    }
}

struct Device {
    settled: &'static AtomicUsize,
    lost_after: usize,
}

impl Engines for Device {}

impl EnginesIn<f32> for Device {
    fn open<'a>(&self, _: EngineSetup<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, HostError> {
        Err(HostError::Device("precision: expected f64 on this device, got f32".into()))
    }
}

impl EnginesIn<f64> for Device {
    fn open<'a>(&self, setup: EngineSetup<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, HostError> {
        let EngineSetup { problem, network, method, start, seed, .. } = setup;
        let agents = Simulator::new(problem, network, method, start, seed)?;
        Ok(Box::new(Remote { agents, settled: self.settled, lost_after: self.lost_after }))
    }
}

#[test]
fn another_engine_gives_the_same_run_and_may_be_lost_in_mid_run() {
    let on_device = |lost_after| {
        let settled = Box::leak(Box::new(AtomicUsize::new(0)));
        lab(Opinions::new(5)).on(Arc::new(Device { settled, lost_after }))
    };
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&lab(Opinions::new(5)), EXPERIMENT, here.path());
    let error = on_device(60).run(EXPERIMENT, there.path()).unwrap_err();
    assert!(error.to_string().contains("the device is lost"), "{error}");
    run(&on_device(usize::MAX), EXPERIMENT, there.path());
    let timeless = |folder: &Path| {
        let mut records = read_records(folder).unwrap();
        records.iter_mut().for_each(|record| record.wall_s = 0.0);
        records
    };
    assert_eq!(timeless(here.path()), timeless(there.path()));
    let error =
        on_device(usize::MAX).run(&format!("precision = \"f32\"\n{EXPERIMENT}"), there.path()).unwrap_err();
    assert!(error.is_usage(), "{error}");
}
