//! All jobs of a plan, several at a time, each recorded as it goes.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::config::Precision;
use crate::error::LabError;
use crate::job::Bench;
use crate::plan::{Job, Plan};
use crate::record::Record;
use crate::report::Context;
use crate::store::{Outcome, Status, Store};

/// Jobs run side by side only while their vectors together stay below this many bytes.
const SIDE_BY_SIDE: u64 = 4 << 30;

/// Who wants to know how it goes. Calls come from several threads.
pub trait Observer: Sync {
    /// The run directory is ours. Told once, before any job begins: the records it holds, and the outcomes
    /// of the jobs that will not be run again.
    fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
        let _ = (records, outcomes);
    }
    /// A job begins, or goes on from a round.
    fn began(&self, job: Job) {
        let _ = job;
    }
    /// A job has done so many rounds.
    fn advanced(&self, job: Job, round: u64) {
        let _ = (job, round);
    }
    /// A job was measured.
    fn recorded(&self, job: Job, record: &Record) {
        let _ = (job, record);
    }
    /// A job is over.
    fn ended(&self, job: Job, outcome: &Outcome) {
        let _ = (job, outcome);
    }
}

/// Nobody does.
pub struct Silent;

impl Observer for Silent {}

/// Runs a plan in a run directory and returns the outcome of every job. When `stop` becomes true, the
/// jobs at work stop after their current round, with their states kept, and no other is begun.
pub fn execute(
    plan: &Plan,
    folder: &Path,
    resume: bool,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<Vec<Outcome>, LabError> {
    let store = Store::open(folder, resume)?;
    Context::of(plan)?.write(&store)?;
    let jobs = plan.jobs();
    let bench = Bench { plan, store: &store, observer, stop };
    let mut outcomes: HashMap<Job, Outcome> = HashMap::new();
    if resume {
        outcomes = finished(&bench)?;
        forget_what_will_be_repeated(&bench, &jobs, &outcomes)?;
    }
    store.write("config.toml", plan.experiment.resolved.to_string().as_bytes())?;
    let kept: Vec<Outcome> = jobs.iter().filter_map(|job| outcomes.get(job).cloned()).collect();
    observer.opened(&store.records()?, &kept);
    let mut todo: Vec<Job> = jobs.iter().copied().filter(|job| !outcomes.contains_key(job)).collect();
    // Seed by seed: what a run has finished when it is interrupted can be compared.
    todo.sort_by_key(|job| plan.experiment.seeds.iter().position(|seed| *seed == job.seed));
    let queue = VecDeque::from(todo);
    let done = Shared { queue: Mutex::new(queue), outcomes: Mutex::new(outcomes), failure: Mutex::new(None) };
    let largest = jobs.iter().map(|job| plan.memory(*job)).max().unwrap_or(0).max(1);
    let workers = (SIDE_BY_SIDE / largest).clamp(1, rayon::current_num_threads() as u64);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(&bench, &done, &jobs, resume));
        }
    });
    if let Some(error) = done.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let outcomes = done.outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    plan.sort_records(&store)?;
    Ok(jobs.iter().filter_map(|job| outcomes.get(job).cloned()).collect())
}

/// What the workers share.
struct Shared {
    queue: Mutex<VecDeque<Job>>,
    outcomes: Mutex<HashMap<Job, Outcome>>,
    failure: Mutex<Option<LabError>>,
}

fn work(bench: &Bench, shared: &Shared, jobs: &[Job], resume: bool) {
    let next = || shared.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while !bench.stop.load(Ordering::Relaxed)
        && let Some(job) = next()
    {
        bench.observer.began(job);
        let result = match bench.plan.experiment.precision {
            Precision::F32 => bench.run::<f32>(job, resume),
            Precision::F64 => bench.run::<f64>(job, resume),
        };
        let kept = result.and_then(|outcome| {
            bench.observer.ended(job, &outcome);
            let mut outcomes = shared.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.insert(job, outcome);
            bench.store.write_summary(jobs.iter().filter_map(|job| outcomes.get(job)))
        });
        if let Err(error) = kept {
            bench.stop.store(true, Ordering::Relaxed);
            shared.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

/// The jobs that need not be run again: done or diverged, with as many rounds as are asked for now.
fn finished(bench: &Bench) -> Result<HashMap<Job, Outcome>, LabError> {
    let rounds = bench.plan.experiment.rounds;
    let enough = |outcome: &Outcome| match outcome.status {
        Status::Done => outcome.round >= rounds,
        Status::Diverged => true,
        Status::Stopped => false,
    };
    let mut kept = HashMap::new();
    for outcome in bench.store.outcomes()?.into_iter().filter(enough) {
        if let Some(job) = bench.plan.job_of(&outcome.last) {
            bench.check_final(job)?;
            kept.insert(job, outcome);
        }
    }
    Ok(kept)
}

/// Drops records that lie after the state a job will go on from: they will be written again.
fn forget_what_will_be_repeated(
    bench: &Bench,
    jobs: &[Job],
    finished: &HashMap<Job, Outcome>,
) -> Result<(), LabError> {
    let records = bench.store.records()?;
    let mut kept = Vec::with_capacity(records.len());
    let mut from: HashMap<Job, Option<u64>> = HashMap::new();
    for job in jobs.iter().filter(|job| !finished.contains_key(job)) {
        from.insert(*job, bench.round_of_state(*job)?);
    }
    for record in records {
        let job = bench.plan.job_of(&record);
        let repeated = job.and_then(|job| from.get(&job)).is_some_and(|state| match state {
            Some(round) => record.round > *round,
            None => true,
        });
        if !repeated {
            kept.push(record);
        }
    }
    bench.store.rewrite(&kept)
}
