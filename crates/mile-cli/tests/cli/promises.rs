//! What `--dry-run` promises, against what a run takes: memory here, bytes in the lab's tests, time in `bench/promises`.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How far the promised memory may be from the peak in these small runs, of a build without optimisation.
const MARGIN: f64 = 1.5;

fn mile(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mile"));
    command.env("MILE_HOME", folder.join("home")).env_remove("MILE_DATA").current_dir(folder).args(arguments);
    command
}

/// The bytes that a dry run promises.
fn promised(folder: &Path) -> f64 {
    let output = mile(folder, &["run", "experiment.toml", "--dry-run"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("memory: about "));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let mut words = line.split(' ');
    let number: f64 = words.next().unwrap().parse().unwrap();
    number
        * match words.next().unwrap() {
            "MB" => 1e6,
            "GB" => 1e9,
            unit => panic!("{unit}"),
        }
}

/// The most bytes of memory that a run has had, which the system counts until it ends.
fn peak(folder: &Path) -> f64 {
    let mut run =
        mile(folder, &["run", "experiment.toml", "--quiet"]).stderr(Stdio::inherit()).spawn().unwrap();
    let status = format!("/proc/{}/status", run.id());
    let mut most = 0.0_f64;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
        most = most.max(1024.0 * kilobytes.unwrap_or_default());
        if let Some(ended) = run.try_wait().unwrap() {
            assert!(ended.success());
            return most;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn keeps(experiment: &str, table: Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("experiment.toml"), experiment).unwrap();
    table.into_iter().for_each(|table| std::fs::write(folder.path().join("all.csv"), table).unwrap());
    let (promised, peak) = (promised(folder.path()), peak(folder.path()));
    let ratio = promised / peak;
    assert!(ratio < MARGIN && ratio > 1.0 / MARGIN, "{promised} promised, {peak} used\n{experiment}");
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
fn the_memory_of_a_dry_run_is_that_of_the_run() {
    let network = "rounds = 5\n[network]\nagents = 8\n";
    let quadratic = |dim: usize| format!("{network}[problem]\nkind = 'quadratic'\ndim = {dim}\n{TWO}");
    keeps(&quadratic(10), None);
    keeps(&quadratic(500_000), None);
    let problem =
        "[problem]\nkind = 'table'\ndata = 'all.csv'\ntarget = 'y'\nloss = 'logistic'\ntest = 0.2\n";
    keeps(&format!("{network}{problem}{TWO}"), Some(table(100_000)));
    keeps(
        &format!("seeds = [0, 1, 2]\n{network}{problem}batch = 32\nstandardise = true\n{TWO}"),
        Some(table(30_000)),
    );
    keeps(&format!("{network}[problem]\nkind = 'images'\nmodel = 'linear'\n{TWO}"), None);
}
