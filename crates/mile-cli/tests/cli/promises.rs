//! What `--dry-run` promises, against what a run takes: time and memory here, bytes in the lab's tests, large runs in `bench/promises`.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How far the promised memory may be from the peak in these small runs, of a build without optimisation.
const MEMORY: f64 = 1.5;
/// The same for the time, on a machine that may be busy with one of the two and not with the other. Less than a second counts as one.
const TIME: f64 = 8.0;

/// What a run takes, promised or measured.
#[derive(Debug)]
struct Needs {
    bytes: f64,
    seconds: f64,
}

fn mile(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mile"));
    command.env("MILE_HOME", folder.join("home")).env_remove("MILE_DATA").current_dir(folder).args(arguments);
    command
}

/// What a dry run promises.
fn promised(folder: &Path) -> Needs {
    let output = mile(folder, &["run", "experiment.toml", "--dry-run"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = |key: &str| -> (String, String) {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
        let mut words = line.split(' ').map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    };
    let (number, unit) = said("memory: about ");
    let bytes = number.parse::<f64>().unwrap() * if unit == "GB" { 1e9 } else { 1e6 };
    let seconds = match text.contains("\ntime: less than 1 s") {
        true => 1.0,
        false => {
            let most =
                if text.contains("\ntime: at most ") { "time: at most about " } else { "time: about " };
            let (number, unit) = said(most);
            number.parse::<f64>().unwrap() * if unit == "min" { 60.0 } else { 1.0 }
        }
    };
    Needs { bytes, seconds }
}

/// What a run takes. The system counts the most memory that it has had until it ends.
fn taken(folder: &Path) -> Needs {
    let clock = Instant::now();
    let mut run =
        mile(folder, &["run", "experiment.toml", "--quiet"]).stderr(Stdio::inherit()).spawn().unwrap();
    let status = format!("/proc/{}/status", run.id());
    let mut bytes = 0.0_f64;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
        bytes = bytes.max(1024.0 * kilobytes.unwrap_or_default());
        if let Some(ended) = run.try_wait().unwrap() {
            assert!(ended.success());
            return Needs { bytes, seconds: clock.elapsed().as_secs_f64() };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn keeps(experiment: &str, table: Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("experiment.toml"), experiment).unwrap();
    table.into_iter().for_each(|table| std::fs::write(folder.path().join("all.csv"), table).unwrap());
    let (promised, taken) = (promised(folder.path()), taken(folder.path()));
    println!("{promised:?} promised, {taken:?} taken");
    let is_kept = |ratio: f64, margin: f64| ratio < margin && ratio > 1.0 / margin;
    let memory = promised.bytes / taken.bytes;
    let time = promised.seconds.max(1.0) / taken.seconds.max(1.0);
    assert!(
        is_kept(memory, MEMORY) && is_kept(time, TIME),
        "{promised:?} promised, {taken:?} taken\n{experiment}"
    );
}

const TWO: &str =
    "[[algorithm]]\nname = 'mile'\nstep_size = 0.05\n[[algorithm]]\nname = 'k-gt'\nstep_size = 0.05\n";

fn table(rows: usize) -> String {
    let mut text = "a,b,c,d,e,f,g,h,y\n".to_owned();
    for k in 0..rows {
        let number = |j: usize| (k * (7919 + 13 * j) % 2003) as f64 / 1000.0 - 1.0;
        (0..8).for_each(|j| write!(text, "{},", number(j)).unwrap());
        writeln!(text, "{}", if number(3) > 0.1 { "yes" } else { "no" }).unwrap();
    }
    text
}

#[test]
#[cfg(target_os = "linux")]
fn the_memory_and_the_time_of_a_dry_run_are_those_of_the_run() {
    let top = |rounds: u32| format!("rounds = {rounds}\n");
    let network = "[network]\nagents = 8\n";
    let quadratic =
        |rounds, dim| format!("{}{network}[problem]\nkind = 'quadratic'\ndim = {dim}\n{TWO}", top(rounds));
    keeps(&quadratic(20_000, 10), None);
    keeps(&quadratic(4, 500_000), None);
    let problem =
        "[problem]\nkind = 'table'\ndata = 'all.csv'\ntarget = 'y'\nloss = 'logistic'\ntest = 0.2\n";
    keeps(&format!("{}{network}{problem}{TWO}", top(20)), Some(table(100_000)));
    keeps(
        &format!("{}seeds = [0, 1, 2]\n{network}{problem}batch = 32\nstandardise = true\n{TWO}", top(500)),
        Some(table(30_000)),
    );
    keeps(&format!("{}{network}[problem]\nkind = 'images'\nmodel = 'linear'\n{TWO}", top(10)), None);
}

/// All rounds would take hours, and what checks cost is most of the time.
#[test]
#[cfg(target_os = "linux")]
fn the_time_of_a_dry_run_respects_stop() {
    let network = "[network]\nagents = 8\n";
    let exact = "[problem]\nkind = 'quadratic'\ndim = 10\n[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n";
    keeps(&format!("rounds = 10000000\nstop = {{ grad_norm = 1e-4 }}\n{network}{exact}"), None);
    let problem = "[problem]\nkind = 'table'\ndata = 'all.csv'\ntarget = 'y'\nloss = 'logistic'\nbatch = 8\n";
    let stop = "eval_every = 100\nstop = { grad_norm = 1e-9, every = 1 }";
    keeps(&format!("rounds = 100\n{stop}\n{network}{problem}{TWO}"), Some(table(30_000)));
}
