//! `mile run --dry-run`: everything known about an experiment before it is run.

use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::HumanBytes;
use mile::ranks::Together;
use mile_lab::error::LabError;
use mile_lab::plan::{Job, Plan, Tally};
use mile_lab::rehearsal::{Rehearsal, in_words, rehearse};
use mile_lab::room;
use mile_lab::spec::AlgorithmSpec;
use mile_lab::sweep::SweepPlan;
use mile_lab::table::{TextTable, number};

use crate::place::Place;

/// For how long the jobs of an experiment are tried out.
const TRIED: Duration = Duration::from_millis(1500);
/// Points of a sweep that are tried out, spread evenly if there are more.
const POINTS_TRIED: usize = 12;

/// About one run, which took this long to prepare.
pub(crate) fn of_run(
    plan: &Plan,
    place: &Place,
    advice: &str,
    prepared: Duration,
) -> Result<String, LabError> {
    check_memory(plan, place)?;
    let (text, across) = (describe(plan)?, place.describe(plan));
    if place.is_shared() {
        return Ok(format!("{text}{across}{advice}{NOT_TRIED}"));
    }
    let tried = rehearse(plan, TRIED)?.with_figures(plan);
    let needs = needs(&tried, prepared.as_secs_f64() + tried.jobs + tried.drawing);
    Ok(format!("{text}{across}{advice}{needs}"))
}

/// Before what a run takes that may reach its `stop` before its last round.
const AT_MOST: &str = "at most ";
const NOT_TRIED: &str = "memory and time: not estimated with several processes\n";

/// About all points of a sweep.
pub(crate) fn of_sweep(sweep: &SweepPlan, place: &Place) -> Result<String, LabError> {
    let count = sweep.points.len();
    let some = count.div_ceil(POINTS_TRIED);
    let (mut runs, mut bytes, mut rows, mut across) = (0, 0, Vec::new(), String::new());
    let mut at_most = "";
    let (mut preparing, mut tried) = (Duration::ZERO, Vec::new());
    for (k, point) in sweep.points.iter().enumerate() {
        let begun = Instant::now();
        let plan = sweep.plan(point)?;
        preparing += begun.elapsed();
        check_memory(&plan, place)?;
        let sent = to_be_sent(&tallies(&plan)?);
        (runs, bytes) = (runs + plan.jobs().len(), bytes + sent);
        rows.push(vec![k.to_string(), HumanBytes(sent).to_string(), format!("  {}", point.name)]);
        if k == 0 {
            across = place.describe(&plan);
        }
        if plan.spec.stop.is_some() {
            at_most = AT_MOST;
        }
        if k.is_multiple_of(some) && !place.is_shared() {
            let one = rehearse(&plan, TRIED / count.min(POINTS_TRIED) as u32)?;
            tried.push(if tried.is_empty() { one.with_figures(&plan) } else { one });
        }
    }
    let header = ["point", "to be sent", "  values"].map(str::to_owned).to_vec();
    let table = TextTable { header, rows };
    let mut text = format!("{}: {count} points, {runs} runs in all\n{table}\n", sweep.name());
    let _ = writeln!(
        text,
        "bytes to be sent by all agents in all runs: {at_most}{}\n{across}",
        HumanBytes(bytes)
    );
    match Rehearsal::mean(&tried) {
        None => text.push_str(NOT_TRIED),
        // Points are checked before the first one is run, and planned again when their turn comes.
        Some(mean) => {
            let seconds = 2.0 * preparing.as_secs_f64() + count as f64 * mean.jobs + mean.drawing;
            text.push_str(&needs(&mean, seconds));
        }
    }
    Ok(text)
}

fn check_memory(plan: &Plan, place: &Place) -> Result<(), LabError> {
    plan.check_memory(Together::of(place.engines().ranks()))
}

/// The memory and the time of a run, from what was tried out.
fn needs(tried: &Rehearsal, seconds: f64) -> String {
    let memory = match tried.memory {
        Some(bytes) => format!("about {} at the peak", room::words(bytes as f64)),
        None => "not known on this system".into(),
    };
    let (at_most, less) = match tried.is_most && seconds >= 1.0 {
        true => (AT_MOST, ", less if a job reaches its stop before its last round"),
        false => ("", ""),
    };
    format!("memory: {memory}\ntime: {at_most}{} on this machine{less} ({tried})\n", in_words(seconds))
}

/// What each job will cost.
fn tallies(plan: &Plan) -> Result<Vec<(Job, Tally)>, LabError> {
    plan.jobs().into_iter().map(|job| Ok((job, plan.tally(job)?))).collect()
}

/// Bytes that all agents send in all jobs.
fn to_be_sent(tallies: &[(Job, Tally)]) -> u64 {
    tallies.iter().map(|(_, tally)| tally.bytes).sum()
}

/// How often, in words.
fn every(rounds: u64) -> String {
    if rounds == 1 { "every round".into() } else { format!("every {rounds} rounds") }
}

fn describe(plan: &Plan) -> Result<String, LabError> {
    let spec = &plan.spec;
    let mut text = format!(
        "{}: {} rounds, recorded {}, seeds {:?}, {}\n",
        spec.name,
        spec.rounds,
        every(spec.eval_every()),
        spec.seeds,
        spec.precision.name(),
    );
    if let Some(rule) = spec.stop {
        let _ = writeln!(
            text,
            "stop: checked {}, and at records",
            every(rule.every.unwrap_or(spec.eval_every()))
        );
    }
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let _ = writeln!(
        text,
        "network: {}, {}{}",
        counted(plan.network().agents(), "agent"),
        counted(plan.network().graph().edges().count(), "edge"),
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
    let tallies = tallies(plan)?;
    let row = |(k, algorithm): (usize, &AlgorithmSpec)| {
        let job = Job { algorithm: k, seed: spec.seeds[0] };
        let tally = tallies.iter().find(|(of, _)| *of == job).map(|(_, tally)| *tally);
        let planned = &plan.methods[k];
        let mut cells = vec![
            algorithm.label.clone(),
            number(algorithm.schedule.step_size),
            planned.parameters.steps_in_words(),
            planned.vectors_stored.to_string(),
            planned.first_round.vectors_sent.to_string(),
            HumanBytes(plan.memory(job)).to_string(),
            HumanBytes(tally.map_or(0, |tally| tally.bytes)).to_string(),
        ];
        let modelled = tally.and_then(|tally| tally.modelled_s);
        cells.extend(modelled.map(|seconds| in_words(seconds).trim_start_matches("about ").to_owned()));
        cells
    };
    let columns = ["algorithm", "step size", "local steps", "stored", "sent/round", "vectors", "to be sent"];
    let modelled = spec.time.as_ref().map(|_| "modelled time");
    let header = columns.into_iter().chain(modelled).map(str::to_owned).collect();
    let rows = spec.algorithms.iter().enumerate().map(row).collect();
    let _ = writeln!(text, "{}", TextTable { header, rows });
    let (jobs, total) = (plan.jobs().len(), HumanBytes(to_be_sent(&tallies)));
    let at_most = if spec.stop.is_some() { AT_MOST } else { "" };
    let _ =
        writeln!(text, "{jobs} runs in all; bytes to be sent by all agents in all runs: {at_most}{total}\n");
    let _ = writeln!(text, "# resolved experiment\n{}", spec.to_table());
    Ok(text)
}
