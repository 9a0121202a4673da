//! Experiments over ranks: the same run directory as one process, byte for byte except for times.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mile::methods::catalogue::Catalogue;
use mile::problems::{Draw, Failure, Problem};
use mile_lab::engines::Engines;
use mile_lab::execute::execute;
use mile_lab::objectives::{AnyProblem, FixedProblem, Kinds, Objectives};
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::record::Record;
use mile_lab::spec::{Spec, parse_table};
use mile_lab::store::{JobStatus, Outcome, read_outcomes, read_records};
use mile_lab::sweep::SweepPlan;
use mile_lab::{Lab, LabError};
use mile_ranks::RankEngines;
use mile_ranks::threads::Threads;

/// Runs an experiment on the given number of ranks; returns what each of them returns.
fn run(
    ranks: usize,
    text: &str,
    base: &Path,
    out: &Path,
    resume: bool,
) -> Vec<Result<Vec<Outcome>, LabError>> {
    Threads::run(ranks, |rank| {
        let lab = Lab::default().on(Arc::new(RankEngines::new(Arc::new(rank))));
        let plan = lab.plan(&parse_table(text, &[])?, base, None)?;
        execute(&plan, out, resume, &Silent, &AtomicBool::new(false))
    })
}

fn done(ranks: usize, text: &str, base: &Path, out: &Path, resume: bool) {
    for outcomes in run(ranks, text, base, out, resume) {
        assert!(outcomes.unwrap().iter().all(|outcome| outcome.error.is_none()));
    }
}

/// The records without times.
fn records(folder: &Path) -> Vec<Record> {
    let mut records = read_records(folder).unwrap();
    records.iter_mut().for_each(|record| record.wall_s = 0.0);
    records
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut list: Vec<PathBuf> = list.collect();
    list.sort();
    list
}

/// Compares run directories: records, final states and exported models, settings and documents.
fn assert_same(one: &Path, other: &Path, what: &str) {
    assert_eq!(records(one), records(other), "{what}");
    assert!(!records(one).is_empty());
    let names = |folder: &Path| -> Vec<_> {
        files(&folder.join("final")).iter().map(|path| path.file_name().unwrap().to_owned()).collect()
    };
    assert_eq!(names(one), names(other), "{what}");
    for name in names(one) {
        let read = |folder: &Path| std::fs::read(folder.join("final").join(&name)).unwrap();
        assert!(read(one) == read(other), "{what}: final/{} differs", name.display());
    }
    for name in ["config.toml", "statistics.json", "agents.csv", "coefficients.csv"] {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(name)).ok();
        assert_eq!(read(one), read(other), "{what}: {name}");
    }
}

fn same_on(ranks: &[usize], text: &str, base: &Path) {
    let home = tempfile::tempdir().unwrap();
    let alone = home.path().join("alone");
    let experiment = Spec::parse(text, base, &[]).unwrap();
    execute(&Plan::new(experiment).unwrap(), &alone, false, &Silent, &AtomicBool::new(false)).unwrap();
    for ranks in ranks {
        let out = home.path().join(ranks.to_string());
        done(*ranks, text, base, &out, false);
        assert_same(&alone, &out, &format!("{ranks} ranks"));
    }
}

const ALGORITHMS: &str = "[[algorithm]]\nname = 'mile'\nstep_size = 0.05\nlocal_steps = 3\n\
                          [[algorithm]]\nname = 'k-gt'\nstep_size = 0.03\nlocal_steps = 2\n";

#[test]
fn quadratics_with_random_starts_dropped_edges_and_auto() {
    for precision in ["f32", "f64"] {
        let text = format!(
            "rounds = 12\nseeds = [0, 4]\nprecision = '{precision}'\nagent_metrics = true\nstart = {{ value = 'random' }}\n\
             [network]\nagents = 7\ntopology = 'ring'\ndrop_rate = 0.2\n[problem]\nkind = 'quadratic'\ndim = 9\n\
             [[algorithm]]\nname = 'mile'\nstep_size = 'auto'\nxi = 'auto'\nlocal_steps = 3\n{ALGORITHMS}"
        )
        .replace("name = 'mile'\nstep_size = 0.05", "name = 'mile'\nlabel = 'given'\nstep_size = 0.05");
        same_on(&[1, 2, 3, 7], &text, Path::new(""));
    }
}

/// A table with a class, a category, a number and a missing value.
fn rows(from: usize, count: usize, by: Option<usize>) -> String {
    let owner = |k: usize| by.map_or(String::new(), |owners| format!(",o{}", k * 7 % owners));
    let mut text = format!("a,b,c,y{}\n", if by.is_some() { ",owner" } else { "" });
    for k in from..from + count {
        let (a, b) = (
            (k * 7919 % 2003) as f64 / 100.0,
            if k % 11 == 3 { String::new() } else { (k % 13).to_string() },
        );
        let class = if (k * 31 + k / 5) % 3 == 0 { "yes" } else { "no" };
        writeln!(text, "{a},{b},{},{class}{}", ["red", "green", "blue"][k % 3], owner(k)).unwrap();
    }
    text
}

const TABLE: &str = "target = 'y'\nloss = 'logistic'\nl2 = 0.01\nintercept = true\nbatch = 4\nstandardise = true\n\
                     categorical = ['c']\nmissing = 'mean'\nweights = 'rows'\n";

#[test]
fn a_rank_reads_only_its_agents_files_of_a_table() {
    let base = tempfile::tempdir().unwrap();
    for agent in 0..5 {
        std::fs::write(
            base.path().join(format!("agent-{agent}.csv")),
            rows(100 * agent, 20 + 9 * agent, None),
        )
        .unwrap();
    }
    std::fs::write(base.path().join("test.csv"), rows(1000, 33, None)).unwrap();
    let weighted = TABLE.replace("'rows'", "'a'");
    for (test, table) in [("0.3", TABLE), ("'test.csv'", TABLE), ("{ fold = 1, of = 3 }", &weighted)] {
        let text = format!(
            "rounds = 8\n[network]\nagents = 5\ntopology = 'complete'\n[problem]\nkind = 'table'\ndata = 'agent-{{agent}}.csv'\n\
             test = {test}\n{table}{ALGORITHMS}"
        );
        same_on(&[2, 5], &text, base.path());
    }
    // Only the rank that hosts agent 4 reads its file, and it alone finds the error in it.
    std::fs::write(base.path().join("agent-4.csv"), "a,b,c,y\n1,2,red,perhaps,5\n").unwrap();
    let text = format!(
        "rounds = 8\n[network]\nagents = 5\n[problem]\nkind = 'table'\ndata = 'agent-{{agent}}.csv'\n{TABLE}{ALGORITHMS}"
    );
    let out = base.path().join("out");
    let errors: Vec<String> = run(5, &text, base.path(), &out, false)
        .into_iter()
        .map(|result| result.unwrap_err().to_string())
        .collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert!(
        errors[0].starts_with("rank 4 in this process: ") && errors[0].contains("agent-4.csv, line 2"),
        "{}",
        errors[0]
    );
    assert!(!out.join("metrics.jsonl").exists());
}

#[test]
fn tables_in_one_file_divided_by_owner_by_class_or_at_random() {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("all.csv"), rows(0, 160, Some(6))).unwrap();
    std::fs::write(base.path().join("test.csv"), rows(500, 40, Some(6))).unwrap();
    let dropped = TABLE.replace("'mean'", "'drop'");
    let weighted =
        TABLE.replace("'rows'", "'a'").replace("batch = 4", "offset = 'b'").replace("'mean'", "'drop'");
    let by_class = "exclude = ['owner']\npartition = { kind = 'dirichlet', alpha = 1.0 }\n";
    for (division, test, table) in [
        ("by = 'owner'\n", "0.25", TABLE),
        ("exclude = ['owner']\n", "0.25", TABLE),
        ("by = 'owner'\n", "'test.csv'", &dropped),
        (by_class, "'test.csv'", &dropped),
        ("by = 'owner'\n", "{ fold = 2, of = 3 }", &weighted),
        (by_class, "0.25", &weighted),
    ] {
        let text = format!(
            "rounds = 6\nseeds = [1, 2]\neval_agents = 3\n[network]\nagents = 6\n[problem]\nkind = 'table'\ndata = 'all.csv'\n\
             test = {test}\n{division}{table}{ALGORITHMS}"
        );
        same_on(&[3, 6], &text, base.path());
    }
}

#[test]
fn a_rank_reads_only_its_samples_of_arrays_in_one_file() {
    let base = tempfile::tempdir().unwrap();
    let npy = |name: &str, descr: &str, shape: &str, numbers: Vec<u8>| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &numbers].concat();
        std::fs::write(base.path().join(name), bytes).unwrap();
    };
    let inputs = (0..90 * 4).flat_map(|k| ((k * 7919 % 2003) as f32 / 1000.0).to_le_bytes()).collect();
    npy("x.npy", "<f4", "(90, 4)", inputs);
    npy("y.npy", "|u1", "(90,)", (0..90).map(|k| (k * 31 % 7 % 3) as u8).collect());
    let text = format!(
        "rounds = 4\nseeds = [0, 1]\n[network]\nagents = 5\n[problem]\nkind = 'arrays'\ninputs = 'x.npy'\ntargets = 'y.npy'\n\
         test = 0.2\nbatch = 4\npartition = {{ kind = 'dirichlet', alpha = 1.0 }}\n{ALGORITHMS}"
    );
    same_on(&[2, 5], &text, base.path());
}

#[test]
fn a_convolutional_network_on_images() {
    let text = "rounds = 2\nseeds = [0]\neval_every = 1\n[network]\nagents = 4\n[problem]\nkind = 'images'\ndataset = 'glyphs'\n\
                batch = 8\neval_samples = 40\ntest_samples = 150\npartition = { kind = 'dirichlet', alpha = 0.5 }\n\
                model = [{ kind = 'conv', out = 4, kernel = 3, padding = 1 }, { kind = 'relu' }, { kind = 'max-pool' }, \
                { kind = 'flatten' }, { kind = 'dense', out = 10 }]\n\
                [[algorithm]]\nname = 'mile'\nstep_size = 0.05\nlocal_steps = 2\n";
    same_on(&[2, 3], text, Path::new(""));
}

#[test]
fn a_run_is_resumed_with_any_number_of_ranks() {
    let home = tempfile::tempdir().unwrap();
    let text = |rounds: u64| {
        format!(
            "rounds = {rounds}\neval_every = 3\nstart = {{ value = 'random' }}\n[network]\nagents = 7\ntopology = 'ring'\ndrop_rate = 0.1\n\
             [problem]\nkind = 'quadratic'\ndim = 9\n{ALGORITHMS}"
        )
    };
    let (base, whole) = (Path::new(""), home.path().join("whole"));
    done(1, &text(12), base, &whole, false);
    for (before, after) in [(1, 3), (3, 1), (7, 2), (2, 7)] {
        let out = home.path().join(format!("{before}-{after}"));
        done(before, &text(6), base, &out, false);
        done(after, &text(12), base, &out, true);
        assert_same(&whole, &out, &format!("{before} ranks and then {after}"));
    }
    // Another experiment is refused by all ranks alike, with nothing changed.
    let before = records(&whole);
    let other = text(12).replace("dim = 9", "dim = 8");
    for result in run(3, &other, base, &whole, true) {
        let error = result.unwrap_err();
        assert!(matches!(error, LabError::Agreed(_)) && error.to_string().contains("problem.dim"), "{error}");
    }
    assert_eq!(records(&whole), before);
}

#[test]
fn a_damaged_state_too_many_ranks_and_agents_that_leave_are_refused_on_all_ranks() {
    let home = tempfile::tempdir().unwrap();
    let text = |rounds: u64| {
        format!(
            "rounds = {rounds}\n[network]\nagents = 4\n[problem]\nkind = 'quadratic'\ndim = 50\n\
                 [[algorithm]]\nname = 'mile'\nstep_size = 0.05\n"
        )
    };
    let (base, out) = (Path::new(""), home.path().join("out"));
    for result in run(5, &text(2), base, &out, false) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("network.agents"), "{error}");
    }
    for result in run(2, &format!("{}[[event]]\nround = 1\nleave = 3\n", text(2)), base, &out, false) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("event"), "{error}");
    }
    done(2, &text(2), base, &out, false);
    let state = files(&out.join("final")).remove(0);
    let mut bytes = std::fs::read(&state).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&state, bytes).unwrap();
    for result in run(3, &text(4), base, &out, true) {
        let error = result.unwrap_err();
        let name = state.file_name().unwrap().to_string_lossy();
        assert!(matches!(error, LabError::Agreed(_)) && error.to_string().contains(&*name), "{error}");
    }
}

#[test]
fn stopping_any_rank_stops_all_and_the_run_is_resumed() {
    let home = tempfile::tempdir().unwrap();
    let text =
        format!("rounds = 9\n[network]\nagents = 4\n[problem]\nkind = 'quadratic'\ndim = 3\n{ALGORITHMS}");
    let (base, out, whole) = (Path::new(""), home.path().join("out"), home.path().join("whole"));
    let stopped = Threads::run(3, |rank| {
        let engines = Arc::new(RankEngines::new(Arc::new(rank)));
        let is_second = engines.ranks().rank() == 1;
        let plan = Plan::spread(Spec::parse(&text, base, &[]).unwrap(), engines).unwrap();
        execute(&plan, &out, false, &Silent, &AtomicBool::new(is_second)).unwrap().len()
    });
    assert_eq!(stopped, [0; 3]);
    done(2, &text, base, &out, true);
    done(1, &text, base, &whole, false);
    assert_same(&whole, &out, "stopped");
}

#[test]
fn a_sweep_runs_each_of_its_points_over_all_ranks() {
    let home = tempfile::tempdir().unwrap();
    let text = format!(
        "rounds = 6\n[network]\nagents = 5\n[problem]\nkind = 'quadratic'\ndim = 4\n\
         [[algorithm]]\nname = 'mile'\nlabel = 'chosen'\nstep_size = 'auto'\n{ALGORITHMS}\
         [sweep]\ncriterion = 'loss'\n'algorithm.k-gt.step_size' = [0.02, 0.05]\n'algorithm.mile.local_steps' = [1, 2]\n"
    );
    let sweep = |ranks: usize, out: &Path, stop: bool, resume: bool| {
        let found = Threads::run(ranks, |rank| {
            let engines = Arc::new(RankEngines::new(Arc::new(rank)));
            let table = parse_table(&text, &[]).unwrap();
            let stop = AtomicBool::new(stop && engines.ranks().rank() + 1 == ranks);
            let sweep = SweepPlan::read_with(
                &table,
                Path::new(""),
                &Kinds::default(),
                &Catalogue::default(),
                engines,
            )
            .unwrap()
            .unwrap();
            sweep.execute(out, resume, &|_, _| Box::new(Silent), &stop).unwrap().trials.len()
        });
        assert!(found.iter().all(|trials| *trials == found[0]), "{found:?}");
        found[0]
    };
    let (alone, out) = (home.path().join("alone"), home.path().join("ranks"));
    assert_eq!(sweep(1, &alone, false, false), 5);
    // Stopped by its last rank before the first point, and resumed.
    assert_eq!(sweep(3, &out, true, false), 0);
    assert_eq!(sweep(2, &out, false, true), 5);
    for name in ["table.txt", "trials.txt", "sweep.toml"] {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read(&alone), read(&out), "{name}");
    }
    for point in files(&alone.join("points")) {
        let name = point.file_name().unwrap();
        assert_same(&point, &out.join("points").join(name), &name.to_string_lossy());
    }
}

/// f_i(x) = (x - i)^2 / 2, whose gradients fail from some step on: later on the second rank than on the first.
struct Unplugged;

impl Problem<f64> for Unplugged {
    fn agents(&self) -> usize {
        4
    }

    fn dim(&self) -> usize {
        1
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        Ok(0.5 * (x[0] - agent as f64).powi(2))
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        gradient[0] = x[0] - agent as f64;
        Ok(())
    }

    fn sample_gradient(
        &self,
        agent: usize,
        x: &[f64],
        draw: Draw,
        gradient: &mut [f64],
    ) -> Result<(), Failure> {
        if draw.step >= 6 {
            std::thread::sleep(std::time::Duration::from_millis(if agent < 2 { 0 } else { 300 }));
            return Err(format!("agent {agent} was unplugged").into());
        }
        self.gradient(agent, x, gradient)
    }
}

#[test]
fn a_rank_that_fails_leaves_the_outcome_of_its_job_in_the_run_directory() {
    let home = tempfile::tempdir().unwrap();
    let text = "rounds = 9\neval_every = 1\n[network]\nagents = 4\ntopology = 'complete'\n[[algorithm]]\nname = 'dsgd'\nstep_size = 0.1\n";
    let kinds = Kinds::none().with("own", |_, _| {
        let objectives = FixedProblem::new("own", AnyProblem::F64(Arc::new(Unplugged))).with_version("1");
        Ok(Arc::new(objectives) as Arc<dyn Objectives>)
    });
    let errors = Threads::run(2, |rank| {
        let engines = Arc::new(RankEngines::new(Arc::new(rank)));
        let experiment =
            Spec::read_with(&parse_table(text, &[]).unwrap(), Path::new(""), &kinds, &Catalogue::default())
                .unwrap();
        let plan = Plan::spread(experiment, engines).unwrap();
        execute(&plan, home.path(), false, &Silent, &AtomicBool::new(false)).unwrap_err().to_string()
    });
    assert!(errors[1].contains("was unplugged"), "{errors:?}");
    let outcome = read_outcomes(home.path()).unwrap().remove(0);
    assert_eq!((outcome.status, outcome.round), (JobStatus::Failed, 5));
    let why = outcome.error.unwrap();
    assert!(why.starts_with("rank 1 ") && why.contains("was unplugged"), "{why}");
}
