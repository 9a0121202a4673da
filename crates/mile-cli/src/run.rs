//! `mile run`: experiments and sweeps in this process.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Args;
use indicatif::HumanBytes;
use mile::ranks::Together;
use mile_lab::Lab;
use mile_lab::error::LabError;
use mile_lab::plan::{Job, Plan};
use mile_lab::ranks::from_first;
use mile_lab::resume;
use mile_lab::session::{Results, Work};
use mile_lab::spec::parse_table;
use mile_lab::store::{JobStatus, Outcome};
use mile_lab::sweep::{Point, SweepPlan};
use mile_lab::table::{TextTable, number};
use mile_lab::time_estimate::estimate_time;
use mile_theory::advice::Severity;

use crate::device::DeviceArguments;
use crate::observers::ObserverArguments;
use crate::output::OutputArguments;
use crate::place::Place;
use crate::{FAILED, INTERRUPTED, observers, output};

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
    /// Folder to search first for image data sets [default: see mile data where]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Resume the run in --out [default: the newest runs/NAME]. Without an experiment file it keeps its own settings.
    /// Finished work is kept; rounds, seeds and algorithms may be added, e.g. --out runs/NAME --resume --set rounds=400
    #[arg(long)]
    resume: bool,
    /// Check the experiment and print the resolved file, memory, bytes to be sent and an estimate of the time, without
    /// running it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    observers: observers::ObserverArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<u8> {
    let name = match (&arguments.experiment, resumed_alone(arguments)) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(folder)) => folder.join("config.toml").display().to_string(),
        (None, None) => "the built-in experiment".into(),
    };
    let mut place = Place::find()?;
    if let Err(error) = place.take(&arguments.device) {
        return place.end(Err(error.into()));
    }
    if place.is_first() {
        arguments.output.message(place.device());
    }
    let result = run_named(arguments, &place).map_err(|error| match error.downcast::<LabError>() {
        Ok(error) => error.in_file(&name).into(),
        Err(error) => error,
    });
    place.end(result)
}

fn run_named(arguments: &RunArguments, place: &Place) -> anyhow::Result<u8> {
    let engines = place.engines();
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
    let session = Lab::default().on(engines.clone()).session(&table, &base, &folder, arguments.resume)?;
    let described = match session.work() {
        Work::Run(plan) => describe_run(arguments, plan, place)?,
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
            let RunArguments { experiment, set, data_dir, .. } = arguments;
            command_line("run", experiment.as_deref(), set, data_dir.as_deref())
        }
    };
    finish(results, stop.load(Ordering::Relaxed), &again, &arguments.output)
}

/// What is printed before a run: advice from the theory and, in a dry run, everything known about it.
fn describe_run(arguments: &RunArguments, plan: &Plan, place: &Place) -> anyhow::Result<String> {
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
    let engines = place.engines();
    plan.check_memory(Together::of(engines.ranks()))?;
    let time = time(plan, place)?;
    Ok(format!("{}{}{advice}time: {time}\n", describe(plan)?, place.describe(plan)))
}

/// An estimate of the time that a plan takes.
fn time(plan: &Plan, place: &Place) -> Result<String, LabError> {
    match place.is_shared() {
        false => Ok(estimate_time(plan)?.to_string()),
        true => Ok("not estimated with several processes".into()),
    }
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
        for assignment in overrides(&arguments.set, arguments.data_dir.as_deref())? {
            mile_lab::spec::apply(&mut settings, &assignment)?;
        }
        return Ok((settings, PathBuf::new()));
    }
    read_experiment(arguments.experiment.as_deref(), &arguments.set, arguments.data_dir.as_deref())
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
    let text = std::fs::read_to_string(path).map_err(|source| LabError::Directory {
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

/// Checks all points of a sweep; in a dry run, prints what is known about it.
fn describe_sweep(arguments: &RunArguments, sweep: &SweepPlan, place: &Place) -> anyhow::Result<String> {
    arguments.observers.refuse_for_a_sweep()?;
    let mut jobs = 0;
    for point in &sweep.points {
        jobs += sweep.plan(point)?.jobs().len();
    }
    if !arguments.dry_run {
        return Ok(String::new());
    }
    let row = |(k, point): (usize, &Point)| vec![k.to_string(), format!("  {}", point.name)];
    let rows = sweep.points.iter().enumerate().map(row).collect();
    let table = TextTable { header: vec!["point".into(), "  values".into()], rows };
    let mut text = format!("{}: {} points, {jobs} runs in all\n{table}", sweep.name(), sweep.points.len());
    if let Some(first) = sweep.points.first() {
        let plan = sweep.plan(first)?;
        let (time, across) = (time(&plan, place)?, place.describe(&plan));
        let _ = writeln!(text, "{across}time of the first of {} points: {time}", sweep.points.len());
    }
    Ok(text)
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

fn describe(plan: &Plan) -> Result<String, LabError> {
    let spec = &plan.spec;
    let mut text = format!(
        "{}: {} rounds, recorded every {} round(s), seeds {:?}, {}\n",
        spec.name,
        spec.rounds,
        spec.eval_every(),
        spec.seeds,
        spec.precision.name(),
    );
    if let Some(rule) = spec.stop {
        let every = rule.every.unwrap_or(spec.eval_every());
        let _ = writeln!(text, "stop: checked every {every} round(s), and at records");
    }
    let edges = plan.network().graph().edges().count();
    let _ = writeln!(
        text,
        "network: {} agents, {edges} edges{}",
        plan.network().agents(),
        if plan.network().varies() { format!(", {}", plan.network().variation()) } else { String::new() },
    );
    let data = spec.objectives.data_bytes(spec.seeds[0])?;
    let _ = writeln!(text, "problem: dimension {}, {} of data", plan.size.dim, HumanBytes(data));
    let _ = writeln!(
        text,
        "evaluation: {} of {} agents' own models and their average{}; about {:.0}% of the work\n",
        plan.evaluation.agents,
        plan.network().agents(),
        spec.objectives.evaluated_on().map(|on| format!(", {on}")).unwrap_or_default(),
        100.0 * plan.evaluation.share
    );
    let jobs: Vec<Job> = plan.jobs();
    let row = |(k, algorithm): (usize, &mile_lab::spec::AlgorithmSpec)| {
        let job = Job { algorithm: k, seed: spec.seeds[0] };
        let planned = &plan.methods[k];
        vec![
            algorithm.label.clone(),
            number(algorithm.schedule.step_size),
            planned.parameters.local_steps.map_or("1".into(), |steps| steps.to_string()),
            planned.vectors_stored.to_string(),
            planned.first_round.vectors_sent.to_string(),
            HumanBytes(plan.memory(job)).to_string(),
            HumanBytes(plan.bytes_to_send(job)).to_string(),
        ]
    };
    let header = ["algorithm", "step size", "local steps", "stored", "sent/round", "memory", "to be sent"];
    let rows = spec.algorithms.iter().enumerate().map(row).collect();
    let _ = writeln!(text, "{}", TextTable { header: header.map(str::to_owned).to_vec(), rows });
    let total: u64 = jobs.iter().map(|job| plan.bytes_to_send(*job)).sum();
    let _ = writeln!(
        text,
        "{} runs in all; bytes to be sent by all agents in all runs: {}\n",
        jobs.len(),
        HumanBytes(total)
    );
    let _ = writeln!(text, "# resolved experiment\n{}", spec.to_table());
    Ok(text)
}
