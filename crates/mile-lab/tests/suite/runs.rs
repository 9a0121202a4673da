//! Run directories: stopped, resumed, extended, diverged, foreign.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mile_lab::error::LabError;
use mile_lab::execute::execute;
use mile_lab::observer::{Observer, Silent};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::spec::Spec;
use mile_lab::store::{JobStatus, Outcome, read_outcomes, read_records};

const EXPERIMENT: &str = r#"
seeds = [0, 1]
rounds = 30
eval_every = 4
[network]
agents = 6
mixing = "lazy-metropolis"
drop_rate = 0.1
[problem]
kind = "quadratic"
dim = 7
[start]
value = "random"
[[algorithm]]
name = "mile"
step_size = 0.1
local_steps = 4
schedule = { kind = "cosine", warmup = 3, rounds = 60 }
[[algorithm]]
name = "k-gt"
step_size = 0.1
local_steps = 4
[[algorithm]]
name = "proxskip"
step_size = 0.1
local_steps = 4
"#;

fn plan(set: &[&str]) -> Plan {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    Plan::new(Spec::parse(EXPERIMENT, Path::new(""), &set).unwrap()).unwrap()
}

fn go(plan: &Plan, folder: &Path, resume: bool) -> Result<Vec<Outcome>, LabError> {
    execute(plan, folder, resume, &Silent, &AtomicBool::new(false))
}

/// Raises the flag when any job reaches a round.
struct StopAt<'a>(u64, &'a AtomicBool);

impl Observer for StopAt<'_> {
    fn advanced(&self, _: Job, round: u64) {
        if round >= self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

fn stop_at(plan: &Plan, folder: &Path, round: u64, resume: bool) -> Vec<Outcome> {
    let stop = AtomicBool::new(false);
    execute(plan, folder, resume, &StopAt(round, &stop), &stop).unwrap()
}

/// The tensors of every final state, as bytes without their header of times.
fn finals(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder.join("final")).unwrap();
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        (path.file_name().unwrap().to_string_lossy().into_owned(), bytes[8 + header..].to_vec())
    };
    entries.map(read).collect()
}

fn timeless(mut records: Vec<Record>) -> Vec<Record> {
    records.iter_mut().for_each(|record| record.wall_s = 0.0);
    records
}

#[test]
fn a_run_directory_has_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(&[]);
    let outcomes = go(&plan, folder.path(), false).unwrap();
    assert_eq!(outcomes.len(), 6);
    assert!(outcomes.iter().all(|outcome| outcome.status.is_done() && outcome.round == 30));
    let records = read_records(folder.path()).unwrap();
    let rounds: Vec<u64> =
        records.iter().filter(|r| r.label == "k-gt" && r.seed == 1).map(|r| r.round).collect();
    assert_eq!(rounds, [0, 4, 8, 12, 16, 20, 24, 28, 30]);
    let first = &records[0];
    assert_eq!((first.algorithm.as_str(), first.step, first.consensus_error_before), ("mile", 0, None));
    let last = records.iter().rfind(|r| r.label == "mile").unwrap();
    assert_eq!(last.step, 29 * 4 + 1);
    assert!(last.consensus_error_before.unwrap() > last.consensus_error);
    assert!(last.loss < first.loss && last.worst_loss >= last.local_loss && last.local_loss >= last.loss);
    assert_eq!(read_outcomes(folder.path()).unwrap(), outcomes);
    assert_eq!(finals(folder.path()).len(), 6);
    assert_eq!(std::fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 0);
}

#[test]
fn a_run_stopped_and_resumed_twice_ends_with_the_same_bits() {
    let (whole, pieces) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let plan = plan(&[]);
    go(&plan, whole.path(), false).unwrap();
    let stopped = stop_at(&plan, pieces.path(), 7, false);
    assert!(stopped.iter().any(|outcome| outcome.status == JobStatus::Stopped));
    stop_at(&plan, pieces.path(), 19, true);
    let outcomes = go(&plan, pieces.path(), true).unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.status.is_done()));
    assert_eq!(finals(whole.path()), finals(pieces.path()));
    let records = |folder: &Path| timeless(read_records(folder).unwrap());
    assert_eq!(records(whole.path()), records(pieces.path()));
}

#[test]
fn what_has_not_begun_when_a_run_is_stopped_is_left_for_later() {
    struct NobodyBegins;
    impl Observer for NobodyBegins {
        fn began(&self, job: Job) {
            panic!("{job:?} has begun");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(&[]);
    let outcomes = execute(&plan, folder.path(), false, &NobodyBegins, &AtomicBool::new(true)).unwrap();
    assert!(outcomes.is_empty() && !plan.is_complete(&outcomes));
    let outcomes = go(&plan, folder.path(), true).unwrap();
    assert!(plan.is_complete(&outcomes));
    assert!(!plan.is_complete(&outcomes[..5]));
}

#[test]
fn records_after_the_last_checkpoint_of_a_killed_process_are_written_once() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let plan = plan(&[]);
    go(&plan, whole.path(), false).unwrap();
    stop_at(&plan, killed.path(), 7, false);
    // A killed process leaves records beyond its checkpoint, and a torn last line.
    let metrics = killed.path().join("metrics.jsonl");
    let later: Vec<Record> = read_records(whole.path())
        .unwrap()
        .into_iter()
        .filter(|r| r.round == 28 && r.label == "mile")
        .collect();
    let mut text = std::fs::read_to_string(&metrics).unwrap();
    later.iter().for_each(|record| text.push_str(&(serde_json::to_string(record).unwrap() + "\n")));
    text.push_str("{\"algorithm\":\"mi");
    std::fs::write(&metrics, text).unwrap();
    go(&plan, killed.path(), true).unwrap();
    assert_eq!(timeless(read_records(whole.path()).unwrap()), timeless(read_records(killed.path()).unwrap()));
    assert_eq!(finals(whole.path()), finals(killed.path()));
}

#[test]
fn an_observer_receives_every_kept_record_once() {
    use std::sync::Mutex;
    #[derive(Default)]
    struct Events(Mutex<Vec<(Vec<Record>, Vec<Outcome>)>>, Mutex<Vec<Record>>);
    impl Observer for Events {
        fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
            self.0.lock().unwrap().push((records.to_vec(), outcomes.to_vec()));
        }
        fn recorded(&self, _: Job, record: &Record) {
            self.1.lock().unwrap().push(record.clone());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(&[]);
    stop_at(&plan, folder.path(), 19, false);
    let again = &read_records(folder.path()).unwrap()[0];
    let beyond = Record { round: 29, ..again.clone() };
    let metrics = folder.path().join("metrics.jsonl");
    let text = std::fs::read_to_string(&metrics).unwrap() + &serde_json::to_string(&beyond).unwrap() + "\n";
    std::fs::write(&metrics, text).unwrap();
    let events = Events::default();
    execute(&plan, folder.path(), true, &events, &AtomicBool::new(false)).unwrap();
    let opened = events.0.into_inner().unwrap();
    let [(kept, outcomes)] = &opened[..] else { panic!("{opened:?}") };
    assert!(outcomes.iter().all(|outcome| outcome.status.is_done()) && outcomes.len() < 6);
    let mut all = [kept.clone(), events.1.into_inner().unwrap()].concat();
    let place = |r: &Record| (r.label != "mile", r.label.clone(), r.seed, r.round);
    all.sort_by_key(place);
    let mut written = read_records(folder.path()).unwrap();
    written.sort_by_key(place);
    assert_eq!(all, written, "every record is reported once");
}

#[test]
fn a_finished_run_can_be_extended_by_rounds_and_seeds() {
    let (whole, grown) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    go(&plan(&["rounds=44", "seeds=[0,1,2]"]), whole.path(), false).unwrap();
    go(&plan(&[]), grown.path(), false).unwrap();
    let outcomes = go(&plan(&["rounds=44", "seeds=[0,1,2]"]), grown.path(), true).unwrap();
    assert_eq!(outcomes.len(), 9);
    assert_eq!(finals(whole.path()), finals(grown.path()));
}

#[test]
fn a_diverged_algorithm_is_a_result_and_does_not_disturb_the_others() {
    let (both, alone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let outcomes = go(&plan(&["algorithm.mile.step_size=300", "rounds=200"]), both.path(), false).unwrap();
    go(&plan(&["rounds=200"]), alone.path(), false).unwrap();
    for outcome in &outcomes {
        let diverged = outcome.label == "mile";
        assert_eq!(outcome.status == JobStatus::Diverged, diverged, "{}", outcome.label);
        assert_eq!(outcome.status.is_done(), !diverged, "{}", outcome.label);
    }
    let (both, alone) = (finals(both.path()), finals(alone.path()));
    assert_eq!(both["k-gt-seed0.safetensors"], alone["k-gt-seed0.safetensors"]);
    assert_ne!(both["mile-seed0.safetensors"], alone["mile-seed0.safetensors"]);
}

#[test]
fn what_is_not_this_run_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |result: Result<Vec<Outcome>, LabError>| match result.unwrap_err() {
        LabError::Directory { path, .. } => path,
        other => panic!("{other}"),
    };
    assert_eq!(refused(go(&plan(&[]), folder.path(), true)), folder.path());
    stop_at(&plan(&[]), folder.path(), 5, false);
    assert_eq!(refused(go(&plan(&[]), folder.path(), false)), folder.path());
    for change in
        ["network.topology=path", "problem.dim=8", "algorithm.mile.step_size=0.2", "start.value=zeros"]
    {
        assert!(refused(go(&plan(&[change]), folder.path(), true)).starts_with(folder.path()), "{change}");
    }
    let done = tempfile::tempdir().unwrap();
    go(&plan(&[]), done.path(), false).unwrap();
    let changed = plan(&["algorithm.k-gt.step_size=0.2", "rounds=40"]);
    assert!(refused(go(&changed, done.path(), true)).starts_with(done.path()));
    let torn = folder.path().join("checkpoints/mile-seed0.safetensors");
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() - 9]).unwrap();
    assert_eq!(refused(go(&plan(&[]), folder.path(), true)), torn);
}

/// Every file below a folder, with its bytes.
fn contents(folder: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_refused_resume_names_what_differs_and_changes_nothing_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    stop_at(&plan(&[]), folder.path(), 5, false);
    let before = contents(folder.path());
    for (change, named) in [
        ("problem.dim=8", "problem.dim"),
        ("algorithm.mile.step_size=0.2", "algorithm.step_size"),
        // MILE is the first job, so that it has a state wherever the run was stopped.
        ("algorithm.mile.gamma=0.5", "algorithm.gamma"),
        ("network.drop_rate=0.2", "network.drop_rate"),
        ("start.value=zeros", "start.value"),
        ("precision=f32", "precision"),
        ("network.topology=path", "network.topology"),
    ] {
        let error = go(&plan(&[change]), folder.path(), true).unwrap_err().to_string();
        assert!(error.contains(named), "{change}: {error}");
        assert_eq!(contents(folder.path()), before, "{change}");
    }
}

#[test]
fn a_resume_that_would_lose_results_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    go(&plan(&["rounds=4"]), folder.path(), false).unwrap();
    let before = contents(folder.path());
    for (change, named) in [("seeds=[1, 2]", "seeds"), ("algorithm.k-gt.label=other", "k-gt")] {
        let error = go(&plan(&["rounds=4", change]), folder.path(), true).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(named), "{change}: {error}");
        assert_eq!(contents(folder.path()), before, "{change}");
    }
}

const TABLE: &str = r#"
rounds = 20
[network]
agents = 3
topology = "file"
edges = "edges.txt"
[problem]
kind = "table"
data = "agent-{agent}.csv"
target = "y"
loss = "least-squares"
[[algorithm]]
name = "mile"
step_size = 0.05
"#;

/// A folder with an experiment's data, and its plan.
fn table(folder: &Path) -> Plan {
    Plan::new(Spec::parse(TABLE, folder, &[]).unwrap()).unwrap()
}

#[test]
fn a_state_belongs_to_the_contents_of_files_and_not_to_their_names() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("edges.txt"), "0 1\n1 2\n").unwrap();
    for agent in 0..3 {
        std::fs::write(old.join(format!("agent-{agent}.csv")), format!("a,y\n{agent},1\n1,2\n")).unwrap();
    }
    let whole = tempfile::tempdir().unwrap();
    go(&table(&old), whole.path(), false).unwrap();
    stop_at(&table(&old), &old.join("run"), 5, false);
    // Moved, with everything that belongs to it: the same run.
    std::fs::rename(&old, &new).unwrap();
    stop_at(&table(&new), &new.join("run"), 10, true);
    // Edited in place: another run, until it is as it was.
    let edit = |name: &str, text: &str| {
        std::fs::write(new.join(name), text).unwrap();
        // Another time, as after any edit that a person makes.
        let file = std::fs::File::options().write(true).open(new.join(name)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    };
    edit("agent-1.csv", "a,y\n1,1\n1,3\n");
    let refusal = || go(&table(&new), &new.join("run"), true).unwrap_err().to_string();
    let expected = "problem.data[1]";
    assert!(refusal().contains(expected), "{}", refusal());
    std::fs::write(new.join("agent-1.csv"), "a,y\n1,1\n1,2\n").unwrap();
    edit("edges.txt", "0 1\n1 2\n0 2\n");
    assert!(refusal().contains("network.weights"), "{}", refusal());
    std::fs::write(new.join("edges.txt"), "# as before\n0 1\n1 2\n").unwrap();
    go(&table(&new), &new.join("run"), true).unwrap();
    assert_eq!(finals(&new.join("run")), finals(whole.path()));
}

#[test]
fn a_directory_in_use_is_refused() {
    struct Second<'a>(&'a Path);
    impl Observer for Second<'_> {
        fn began(&self, _: Job) {
            let error = go(&plan(&[]), self.0, true).unwrap_err();
            assert!(matches!(&error, LabError::Directory { path, .. } if path == self.0), "{error}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    execute(&plan(&["rounds=2"]), folder.path(), false, &Second(folder.path()), &AtomicBool::new(false))
        .unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = go(&plan(&[]), &file.join("run"), false).unwrap_err();
    assert!(!error.is_usage() && error.to_string().contains("file/run"), "{error}");
}

#[test]
fn one_agent_and_single_precision_run_too() {
    let folder = tempfile::tempdir().unwrap();
    let outcomes = go(&plan(&["network.agents=1", "precision=f32"]), folder.path(), false).unwrap();
    assert!(outcomes.iter().all(|o| o.status.is_done() && o.last.bytes_sent == 0));
    assert!(outcomes.iter().all(|o| o.last.consensus_error == 0.0));
}

#[test]
fn no_rounds_leave_the_starting_point() {
    let folder = tempfile::tempdir().unwrap();
    let outcomes = go(&plan(&["rounds=0"]), folder.path(), false).unwrap();
    assert!(outcomes.iter().all(|o| o.status.is_done() && o.round == 0 && o.last.round == 0));
}

/// A weight that the edges determine, and what they remember.
#[test]
fn an_adaptive_weight_is_kept_when_a_run_is_stopped_and_extended() {
    let settings = ["algorithm.mile.xi=\"adaptive\"", "algorithm.mile.momentum=0.5"];
    let with = |more: &[&str]| plan(&[&settings, more].concat());
    let [whole, pieces] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    go(&with(&[]), whole.path(), false).unwrap();
    go(&with(&["rounds=9"]), pieces.path(), false).unwrap();
    stop_at(&with(&[]), pieces.path(), 17, true);
    go(&with(&[]), pieces.path(), true).unwrap();
    assert!(finals(whole.path()) == finals(pieces.path()));
    let refused = go(&with(&["algorithm.mile.xi={ adaptive = 0.01 }", "rounds=40"]), whole.path(), true);
    assert!(refused.unwrap_err().to_string().contains("algorithm.xi"));
}

/// A weight that grows and momentum: states, extended and resumed runs have the bits of one run.
#[test]
fn a_growing_weight_and_momentum_are_kept_when_a_run_is_stopped_and_extended() {
    let settings = [
        "algorithm.mile.xi={ from = 0.001, to = 0.05, rounds = 20 }",
        "algorithm.mile.gamma=0.9",
        "algorithm.mile.momentum=0.8",
        "algorithm.k-gt.momentum=0.5",
        "algorithm.k-gt.nesterov=true",
    ];
    let with = |more: &[&str]| plan(&[&settings, more].concat());
    let [whole, pieces] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    go(&with(&[]), whole.path(), false).unwrap();
    go(&with(&["rounds=9"]), pieces.path(), false).unwrap();
    stop_at(&with(&[]), pieces.path(), 17, true);
    go(&with(&[]), pieces.path(), true).unwrap();
    assert!(finals(whole.path()) == finals(pieces.path()));
    let written = std::fs::read_to_string(whole.path().join("config.toml")).unwrap();
    assert!(written.contains("to = 0.05") && written.contains("momentum = 0.8"), "{written}");
    for (other, says) in [
        ("algorithm.mile.xi.to=0.06", "algorithm.xi"),
        ("algorithm.mile.xi=0.05", "algorithm.xi"),
        ("algorithm.mile.momentum=0.7", "algorithm.momentum"),
        ("algorithm.k-gt.nesterov=false", "algorithm.nesterov"),
    ] {
        let refused = go(&with(&[other, "rounds=40"]), whole.path(), true).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
}
