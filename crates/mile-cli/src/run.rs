//! `mile run`: experiments and sweeps in this process.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use mile::ranks::Together;
use mile_lab::Lab;
use mile_lab::error::LabError;
use mile_lab::plan::Plan;
use mile_lab::ranks::from_first;
use mile_lab::resume;
use mile_lab::session::{Results, Work};
use mile_lab::spec::parse_table;
use mile_lab::store::{JobStatus, Outcome};
use mile_lab::sweep::SweepPlan;
use mile_lab::table::number;
use mile_theory::advice::Severity;

use crate::device::DeviceArguments;
use crate::observers::ObserverArguments;
use crate::output::OutputArguments;
use crate::place::Place;
use crate::{CommandLine, FAILED, INTERRUPTED, dry_run, observers, output};

const DEFAULT: &str = include_str!("default.toml");

/// Message at the first Ctrl-C.
pub(crate) const STOP_MESSAGE: &str = "stopping after this round";

/// Runs an experiment in this process.
#[derive(Args)]
pub(crate) struct RunArguments {
    /// Experiment file [default: a built-in example that needs no data]. A section [sweep] in it gives lists of
    /// values, e.g. step_size = [0.05, 0.1] for all algorithms or "algorithm.mile.xi" = [0.05, 0.1] for one: every
    /// combination is run, and the best values for each algorithm are reported
    #[arg(value_name = "EXPERIMENT.toml")]
    experiment: Option<PathBuf>,
    /// Run directory [default: runs/NAME for the experiment's name, or the next free runs/NAME-K]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace a value of the experiment file, e.g. rounds=50, network.topology=torus, algorithm.mile.xi=0.05 for the
    /// algorithm with this label or name, 'algorithm.*.step_size=0.1' for all; may be given several times
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    set: Vec<String>,
    /// Repeat exactly the exchanges in pairs of an earlier run, from its log pairings/LABEL-seedK.csv or from all logs of its
    /// run directory, whatever [time] says
    #[arg(long, value_name = "LOG")]
    replay: Option<PathBuf>,
    /// Folder to search first for image data sets [default: see mile data where]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Resume the run in --out [default: the newest runs/NAME]. Without an experiment file it keeps its own settings.
    /// Finished work is kept; rounds, seeds and algorithms may be added, e.g. --out runs/NAME --resume --set rounds=400
    #[arg(long)]
    resume: bool,
    /// Check the experiment and print the resolved file, the bytes to be sent, and memory and time, for which its jobs
    /// are begun for a second or two; writes nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    observers: observers::ObserverArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) fn run(arguments: &RunArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let name = match (&arguments.experiment, resumed_alone(arguments)) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(folder)) => folder.join("config.toml").display().to_string(),
        (None, None) => "the built-in experiment".into(),
    };
    let mut place = Place::find(line.engines())?;
    if let Err(error) = place.take(&arguments.device) {
        return place.end(Err(error.into()));
    }
    if place.is_first() {
        arguments.output.message(place.device());
    }
    let result = run_named(arguments, line, &place).map_err(|error| match error.downcast::<LabError>() {
        Ok(error) => error.in_file(&name).into(),
        Err(error) => error,
    });
    place.end(result)
}

fn run_named(arguments: &RunArguments, line: &CommandLine, place: &Place) -> anyhow::Result<u8> {
    let (begun, engines) = (Instant::now(), place.engines());
    let ranks = Together::of(engines.ranks());
    // What the first rank reads and chooses is the same for all.
    let (text, base, folder) = from_first(ranks, || {
        let (table, base) = read(arguments)?;
        let name = table.get("name").and_then(toml::Value::as_str).unwrap_or("experiment");
        let folder = arguments.out.clone().or_else(|| resumed_alone(arguments));
        let folder = folder.unwrap_or_else(|| choose_folder(name, arguments.resume));
        Ok((table.to_string(), base, folder))
    })?;
    let table = parse_table(&text, &[])?;
    let lab = Lab::new(line.kinds(), line.catalogue().clone(), engines.clone());
    let session = lab.session(&table, &base, &folder, arguments.resume)?;
    let described = match session.work() {
        Work::Run(plan) => describe_run(arguments, plan, place, begun)?,
        Work::Sweep(sweep) => describe_sweep(arguments, sweep, place)?,
    };
    if arguments.dry_run {
        if place.is_first() {
            output::print(&described)?;
        }
        return Ok(0);
    }
    let silent = (&ObserverArguments::default(), &OutputArguments::silent());
    let shown = if place.is_first() { (&arguments.observers, &arguments.output) } else { silent };
    shown.1.message(&described);
    let stop = stop_on_interrupt(place.is_first().then_some(STOP_MESSAGE))?;
    let results = observers::execute_observed(&session, &folder, shown, &stop)?.report(true)?;
    if !place.is_first() {
        return Ok(if results.is_complete { 0 } else { INTERRUPTED });
    }
    let again = match session.work() {
        Work::Run(_) => "mile run".to_owned(),
        Work::Sweep(_) => {
            let RunArguments { experiment, data_dir, .. } = arguments;
            command_line("run", experiment.as_deref(), &assignments(arguments)?, data_dir.as_deref())
        }
    };
    finish(results, stop.load(Ordering::Relaxed), &again, &arguments.output)
}

/// What is printed before a run: advice from the theory and, in a dry run, everything known about it.
fn describe_run(
    arguments: &RunArguments,
    plan: &Plan,
    place: &Place,
    begun: Instant,
) -> anyhow::Result<String> {
    let advice = match place.is_shared() {
        false => advice(plan)?,
        true => {
            "note: advice from the theory needs the data of all agents in one process: mile run --dry-run\n"
                .into()
        }
    };
    if !arguments.dry_run {
        return Ok(advice);
    }
    Ok(dry_run::of_run(plan, place, &advice, begun.elapsed())?)
}

/// What is printed before a sweep, all points of which are checked: in a dry run, everything known about it.
fn describe_sweep(arguments: &RunArguments, sweep: &SweepPlan, place: &Place) -> anyhow::Result<String> {
    arguments.observers.refuse_for_a_sweep()?;
    if arguments.dry_run {
        return Ok(dry_run::of_sweep(sweep, place)?);
    }
    sweep.points.iter().try_for_each(|point| sweep.plan(point).map(drop))?;
    Ok(String::new())
}

/// Advice from the theory before step 0, one line each.
pub(crate) fn advice(plan: &Plan) -> anyhow::Result<String> {
    let mut text = String::new();
    let advice = mile_lab::advice::advise(plan)?;
    for note in &advice.notes {
        let _ = writeln!(text, "note: {note}");
    }
    if let Some((smoothness, sample)) = advice.sampled() {
        let _ = writeln!(text, "note: L = {}, estimated from {sample}", number(smoothness));
    }
    for (label, advice) in advice.of_algorithms {
        let word = match advice.severity {
            Severity::Note => "note",
            Severity::Caution => "caution",
            Severity::Warning => "warning",
        };
        let _ = writeln!(text, "{word}: {label}: {}", advice.message);
    }
    Ok(text)
}

/// The folder of a run that is resumed without an experiment file: it keeps its own settings.
fn resumed_alone(arguments: &RunArguments) -> Option<PathBuf> {
    let newest = || {
        let table: toml::Table = DEFAULT.parse().unwrap_or_default();
        choose_folder(table.get("name").and_then(toml::Value::as_str).unwrap_or("experiment"), true)
    };
    let is_alone = arguments.resume && arguments.experiment.is_none();
    is_alone.then(|| arguments.out.clone().unwrap_or_else(newest))
}

/// The experiment's table, and the folder that relative paths in it refer to.
fn read(arguments: &RunArguments) -> Result<(toml::Table, PathBuf), LabError> {
    if let Some(folder) = &resumed_alone(arguments) {
        if folder.join("sweep.toml").exists() {
            return Err(LabError::Directory {
                path: folder.clone(),
                problem: "holds a sweep; to resume it, give its experiment file too".into(),
            });
        }
        let mut settings = resume::settings(folder)?;
        for assignment in overrides(&assignments(arguments)?, arguments.data_dir.as_deref())? {
            mile_lab::spec::apply(&mut settings, &assignment)?;
        }
        return Ok((settings, PathBuf::new()));
    }
    read_experiment(arguments.experiment.as_deref(), &assignments(arguments)?, arguments.data_dir.as_deref())
}

/// The values of `--set`, with that of `--replay`.
fn assignments(arguments: &RunArguments) -> Result<Vec<String>, LabError> {
    let mut set = arguments.set.clone();
    if let Some(log) = &arguments.replay {
        let absolute = std::path::absolute(log).map_err(LabError::io(log, "find"))?;
        set.push(format!("replay={}", absolute.display()));
    }
    Ok(set)
}

/// The table of an experiment file, or of the built-in example, and the folder that relative paths in it refer to.
pub(crate) fn read_experiment(
    path: Option<&Path>,
    set: &[String],
    data_dir: Option<&Path>,
) -> Result<(toml::Table, PathBuf), LabError> {
    let set = overrides(set, data_dir)?;
    let Some(path) = path else {
        return Ok((parse_table(DEFAULT, &set)?, PathBuf::new()));
    };
    let text = mile_lab::reading::text(path).map_err(|source| LabError::Directory {
        path: path.to_owned(),
        problem: format!("cannot read the experiment file: {source}"),
    })?;
    Ok((parse_table(&text, &set)?, path.parent().map(Path::to_owned).unwrap_or_default()))
}

/// The `--set` overrides, with that of `--data-dir`.
fn overrides(set: &[String], data_dir: Option<&Path>) -> Result<Vec<String>, LabError> {
    let mut set = set.to_vec();
    if let Some(folder) = data_dir {
        let absolute = std::path::absolute(folder).map_err(LabError::io(folder, "find"))?;
        set.push(format!("problem.data_dir={}", absolute.display()));
    }
    Ok(set)
}

/// The command that was given, to be repeated: `mile run FILE --set KEY=VALUE`.
pub(crate) fn command_line(
    command: &str,
    experiment: Option<&Path>,
    set: &[String],
    data_dir: Option<&Path>,
) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:+".contains(c);
    let quoted = |text: String| match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    };
    let mut words = vec!["mile".to_owned(), command.to_owned()];
    words.extend(experiment.map(|path| quoted(path.display().to_string())));
    words.extend(set.iter().flat_map(|set| ["--set".to_owned(), quoted(set.clone())]));
    words.extend(
        data_dir.into_iter().flat_map(|d| ["--data-dir".to_owned(), quoted(d.display().to_string())]),
    );
    words.join(" ")
}

/// Prints the results of a finished or interrupted experiment, and returns the exit code. `again` is the command that resumes it,
/// without the folder.
pub(crate) fn finish(
    results: Results,
    was_told_to_stop: bool,
    again: &str,
    output: &OutputArguments,
) -> anyhow::Result<u8> {
    let folder = results.folder.display();
    if !results.table.is_empty() {
        output.result(&format!("{}\n{folder}\n", results.table))?;
    }
    let failed: Vec<&Outcome> =
        results.outcomes.iter().filter(|outcome| outcome.status == JobStatus::Failed).collect();
    for Outcome { label, seed, round, error, .. } in &failed {
        let why = error.as_deref().unwrap_or_default();
        eprintln!("mile: {label}, seed {seed}: failed after round {round}: {why}");
    }
    if !failed.is_empty() {
        eprintln!(
            "all records are kept; retry from the last checkpoint with: {again} --out {folder} --resume"
        );
    } else if !results.is_complete && (was_told_to_stop || results.failed.is_empty()) {
        eprintln!("stopped; resume with: {again} --out {folder} --resume");
        return Ok(INTERRUPTED);
    }
    match (failed.is_empty(), results.failed.is_empty()) {
        (_, false) => Err(LabError::Failed(results.failed).into()),
        (false, true) => Ok(FAILED),
        (true, true) => Ok(0),
    }
}

/// The first Ctrl-C sets the stop flag and prints a message; the second one exits immediately.
pub(crate) fn stop_on_interrupt(message: Option<&'static str>) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        if let Some(message) = message {
            eprintln!("{message}; press Ctrl-C again to exit immediately");
        }
    })
    .context("cannot handle Ctrl-C")?;
    Ok(stop)
}

/// The first free folder of `runs/NAME`, `runs/NAME-2`, ..., or the last used one to resume.
pub(crate) fn choose_folder(name: &str, resume: bool) -> PathBuf {
    let folder = |k: u32| match k {
        1 => Path::new("runs").join(name),
        k => Path::new("runs").join(format!("{name}-{k}")),
    };
    let free = (1..).find(|k| !folder(*k).exists()).unwrap_or(1);
    folder(if resume { (free - 1).max(1) } else { free })
}
