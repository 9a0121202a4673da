//! Exchanges in pairs, from the file to the log: what is recorded and counted, resuming and replaying to the bit, and refusals by key.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mile_lab::LabError;
use mile_lab::execute::execute;
use mile_lab::observer::{Observer, Silent};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::spec::Spec;
use mile_lab::store::read_records;
use safetensors::SafeTensors;

const EXPERIMENT: &str = "rounds = 12\neval_every = 3\nseeds = [0, 1]\n[network]\nagents = 5\n[problem]\nkind = 'quadratic'\ndim = 7\n\
                          [[algorithm]]\nname = 'mile'\nlabel = 'pairs'\nstep_size = 0.01\nlocal_steps = [3, 1, 2, 3, 3]\nexchange = 'pairs'\n\
                          [[algorithm]]\nname = 'mile'\nlabel = 'rounds'\nstep_size = 0.01\nlocal_steps = 3\n";

const TIME: &str = "[time]\nstep = [0.1, 1.0, { from = 0.1, to = 0.4 }, 0.2, { least = 0.1, mean = 0.3 }]\nlatency = 0.02\nbandwidth = 1000\n";

fn plan(text: &str) -> Result<Plan, LabError> {
    Plan::new(Spec::parse(text, Path::new(""), &[])?)
}

/// The experiment with one key changed.
fn with(change: (&str, &str)) -> String {
    assert!(EXPERIMENT.contains(change.0), "{change:?}");
    EXPERIMENT.replacen(change.0, change.1, 1) + TIME
}

struct StopAt<'a>(u64, &'a AtomicBool);

impl Observer for StopAt<'_> {
    fn advanced(&self, _: Job, round: u64) {
        if round >= self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

fn go(plan: &Plan, folder: &Path) {
    execute(plan, folder, false, &Silent, &AtomicBool::new(false)).unwrap();
}

/// The vectors of the final states, by file and name.
fn vectors(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("final")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Ok(bytes) = std::fs::read(&path) {
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            tensors.iter().for_each(|(name, tensor)| {
                found.insert(format!("{file} {name}"), tensor.data().to_vec());
            });
        }
    }
    found
}

/// All records without the times that they took.
fn records(folder: &Path) -> Vec<Record> {
    let mut records = read_records(folder).unwrap();
    records.iter_mut().for_each(|record| record.wall_s = 0.0);
    records
}

fn logs(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder.join("pairings")).unwrap();
    let file = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
    };
    entries.map(|entry| file(entry.unwrap().path())).collect()
}

#[test]
fn records_and_logs_say_what_was_exchanged_and_when() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(&(EXPERIMENT.to_owned() + TIME)).unwrap();
    go(&plan, folder.path());
    let logs = logs(folder.path());
    assert_eq!(logs.keys().collect::<Vec<_>>(), ["pairs-seed0.csv", "pairs-seed1.csv"]);
    for (seed, log) in logs.values().enumerate() {
        let lines: Vec<Vec<f64>> = log
            .lines()
            .skip(1)
            .map(|line| line.split(',').map(|number| number.parse().unwrap()).collect())
            .collect();
        let records = records(folder.path());
        let mine = records.iter().filter(|record| record.label == "pairs" && record.seed == seed as u64);
        for record in mine {
            // A round is half as many exchanges as there are agents.
            let done = &lines[..(5 * record.round / 2) as usize];
            let steps: f64 = done.iter().map(|line| line[4] + line[5]).sum();
            let latest = done.iter().map(|line| line[1]).fold(0.0, f64::max);
            assert_eq!((record.gradient_evals as f64, record.modelled_s), (steps, Some(latest)));
            assert_eq!(
                (record.bytes_sent, record.vectors_sent),
                (2 * done.len() as u64 * 7 * 8, record.round)
            );
            assert_eq!(record.consensus_error_before, None);
        }
        assert_eq!(lines.len(), 30);
    }
    let last = |job: Job| {
        let label = &plan.spec.algorithms[job.algorithm].label;
        let found = records(folder.path()).into_iter().rev();
        found.into_iter().find(|record| record.label == *label && record.seed == job.seed).unwrap()
    };
    for job in plan.jobs() {
        let (tally, last) = (plan.tally(job).unwrap(), last(job));
        assert_eq!((tally.bytes, tally.modelled_s), (last.bytes_sent, last.modelled_s));
    }
}

#[test]
fn a_stopped_run_resumes_to_the_bit_with_the_same_log() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let plan = plan(&(EXPERIMENT.to_owned() + TIME)).unwrap();
    go(&plan, &whole);
    for until in [4, 7, 100] {
        let stop = AtomicBool::new(false);
        execute(&plan, &parts, parts.exists(), &StopAt(until, &stop), &stop).unwrap();
        // What a killed process leaves of a log is written again.
        let log = parts.join("pairings/pairs-seed0.csv");
        if until < 100 && log.exists() {
            std::fs::write(log, "half a li").unwrap();
        }
    }
    assert_eq!(vectors(&whole), vectors(&parts));
    assert_eq!(logs(&whole), logs(&parts));
    assert_eq!(records(&whole), records(&parts));
}

#[test]
fn a_log_is_replayed_to_the_bit_without_the_model_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, third) =
        (folder.path().join("first"), folder.path().join("second"), folder.path().join("third"));
    go(&plan(&(EXPERIMENT.to_owned() + TIME)).unwrap(), &first);
    let replay = |path: &Path, rest: &str| plan(&format!("replay = '{}'\n{rest}", path.display()));
    go(&replay(&first, EXPERIMENT).unwrap(), &second);
    assert_eq!(vectors(&first), vectors(&second));
    assert_eq!(logs(&first), logs(&second));
    let in_pairs = |folder: &Path| {
        records(folder).into_iter().filter(|record| record.label == "pairs").collect::<Vec<Record>>()
    };
    assert_eq!(in_pairs(&first), in_pairs(&second));
    // One file for one job, with another model of time beside it.
    let one = EXPERIMENT.replace("seeds = [0, 1]", "seeds = [1]") + "[time]\nstep = 5\n";
    let log = first.join("pairings/pairs-seed1.csv");
    go(&replay(&log, &one).unwrap(), &third);
    let last = |folder: &Path| vectors(folder).remove("pairs-seed1.safetensors x").unwrap();
    assert_eq!(last(&first), last(&third));
    // A log of several jobs, too short a log, one of another network, and one that is not there.
    let key = |plan: Result<Plan, LabError>| match plan.err().unwrap() {
        LabError::Config(error) => error.key,
        other => panic!("{other}"),
    };
    assert_eq!(key(replay(&log, EXPERIMENT)), "replay");
    assert_eq!(key(replay(&log, &one.replace("rounds = 12", "rounds = 13"))), "rounds");
    assert_eq!(key(replay(&log, &one.replace("exchange = 'pairs'\n", ""))), "replay");
    let path = one.replace("agents = 5", "agents = 5\ntopology = 'path'");
    let LabError::Data(error) = replay(&log, &path).err().unwrap() else { panic!("a line of the log") };
    assert_eq!(error.file, log);
    assert!(replay(&folder.path().join("none"), EXPERIMENT).is_err());
}

#[test]
fn what_decides_the_pairings_is_part_of_what_a_state_belongs_to() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    go(&plan(&(EXPERIMENT.to_owned() + TIME)).unwrap(), run);
    let slower = EXPERIMENT.to_owned() + &TIME.replace("latency = 0.02", "latency = 0.03");
    let resumed = execute(&plan(&slower).unwrap(), run, true, &Silent, &AtomicBool::new(false));
    assert!(resumed.unwrap_err().to_string().contains("time.latency"));
    // Rounds have nothing to do with it.
    let drop_pairs = |text: String| text.replace("exchange = 'pairs'\n", "");
    let plain = folder.path().join("plain");
    go(&plan(&drop_pairs(EXPERIMENT.to_owned() + TIME)).unwrap(), &plain);
    execute(&plan(&drop_pairs(slower)).unwrap(), &plain, true, &Silent, &AtomicBool::new(false)).unwrap();
}

#[test]
fn what_pairs_exclude_is_refused_by_its_key() {
    let key = |text: &str| match plan(text).err().unwrap_or_else(|| panic!("{text}")) {
        LabError::Config(error) => error.key,
        other => panic!("{other}"),
    };
    assert_eq!(key(EXPERIMENT), "time");
    for (change, expected) in [
        (("exchange = 'pairs'", "exchange = 'trios'"), "algorithm[0].exchange"),
        (("exchange = 'pairs'", "exchange = 'pairs'\nxi = 'auto'"), "algorithm[0].xi"),
        (("exchange = 'pairs'", "exchange = 'pairs'\nxi = 'paper'"), "algorithm[0].xi"),
        (("exchange = 'pairs'", "exchange = 'pairs'\nxi = { adaptive = 0.1 }"), "algorithm[0].xi"),
        (("exchange = 'pairs'", "exchange = 'pairs'\nxi = 0.1\ngamma = 'auto'"), "algorithm[0].gamma"),
        (("exchange = 'pairs'", "exchange = 'pairs'\ncompression = '8-bit'"), "algorithm[0].compression"),
        (("exchange = 'pairs'", "exchange = 'pairs'\nschedule = 'cosine'"), "algorithm[0].schedule"),
        (
            ("exchange = 'pairs'", "exchange = 'pairs'\nchange = [{ round = 3, step_size = 0.1 }]"),
            "algorithm[0].change",
        ),
        (("step_size = 0.01", "step_size = 'auto'"), "algorithm[0].step_size"),
        (("agents = 5", "agents = 5\ndrop_rate = 0.1"), "algorithm[0].exchange"),
        (("agents = 5", "agents = 5\ntime_varying = 'matchings'"), "algorithm[0].exchange"),
        (("[problem]", "[[event]]\nround = 3\nreplace = 1\n[problem]"), "algorithm[0].exchange"),
        (("[problem]", "[attack]\nagents = [1]\nkind = 'slow'\n[problem]"), "algorithm[0].exchange"),
        (("name = 'mile'\nlabel = 'pairs'", "name = 'led'\nlabel = 'pairs'"), "algorithm[0].exchange"),
        (("name = 'mile'\nlabel = 'pairs'", "name = 'local-dsgd'\nlabel = 'pairs'"), "algorithm[0].exchange"),
    ] {
        assert_eq!(key(&with(change)), expected, "{change:?}");
    }
    let alone =
        EXPERIMENT.replace("agents = 5", "agents = 1").replace("[3, 1, 2, 3, 3]", "3") + "[time]\nstep = 1\n";
    assert_eq!(key(&alone), "algorithm[0].exchange");
    let spec = Spec::parse(&(EXPERIMENT.to_owned() + TIME), Path::new(""), &[]).unwrap();
    assert!(
        matches!(Plan::for_agent(spec, 0), Err(LabError::Config(error)) if error.key == "algorithm[0].exchange")
    );
}
