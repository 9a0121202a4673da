//! Runs all jobs of a plan in a run directory, several at a time.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mile::ranks::Together;
use mile::with_precision;

use crate::coefficients;
use crate::context::Context;
use crate::error::LabError;
use crate::job::JobContext;
use crate::model_form;
use crate::observer::{Observer, Silent};
use crate::plan::{Job, JobClock, Plan};
use crate::ranks::{agree, from_first, is_first, lost};
use crate::record::Record;
use crate::sharing::Sharing;
use crate::spec::Spec;
use crate::store::{JobStatus, Outcome, Store};

/// Runs a plan in a run directory and returns the outcome of every job. When `stop` becomes true, the running jobs stop
/// after their current round and write checkpoints, and no other job is started.
///
/// On a thread of a pool of one thread, everything that objectives do is done by that thread.
///
/// A job whose objective fails ends with status `failed` and its records so far; the others continue. A resumed run that
/// does not match the contents of the directory is refused before anything there is changed.
///
/// # Errors
/// [`LabError::Failed`], after all other jobs have ended, if a job failed before its first record.
pub fn execute(
    plan: &Plan,
    folder: &Path,
    resume: bool,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<Vec<Outcome>, LabError> {
    let ranks = Together::of(plan.engines.ranks());
    plan.check_memory(ranks)?;
    let sharing = Sharing::of(plan)?;
    // Only the first rank has the run directory; the others know what is in it.
    let mut here = None;
    let (outcomes, records) = from_first(ranks, || {
        let (store, outcomes) = prepare(plan, folder, resume, sharing)?;
        let records = store.records()?;
        here = Some(store);
        Ok((outcomes, records))
    })?;
    let store = here.unwrap_or_else(|| Store::elsewhere(folder, records.clone()));
    let (jobs, halt) = (plan.jobs(), AtomicBool::new(false));
    let context = JobContext { plan, store: &store, observer, stop, halt: &halt };
    let kept = outcomes.into_iter().filter_map(|outcome| Some((plan.job_of(&outcome.last)?, outcome)));
    let outcomes: HashMap<Job, Outcome> = kept.collect();
    let kept: Vec<Outcome> = jobs.iter().filter_map(|job| outcomes.get(job).cloned()).collect();
    observer.opened(&records, &kept);
    let todo = plan.jobs_in_turn().into_iter().filter(|job| !outcomes.contains_key(job)).collect();
    let shared = Shared {
        queue: Mutex::new(todo),
        outcomes: Mutex::new(outcomes),
        failed: Mutex::default(),
        fatal: Mutex::new(None),
    };
    // One job after the other on the threads that are here needs no others. Over ranks it must be so: only this thread may communicate.
    if ranks.count() > 1 || sharing.is_here() {
        work(ranks, &context, &shared, &jobs, resume);
    } else {
        sharing.run(|| work(ranks, &context, &shared, &jobs, resume));
    }
    if let Some(error) = shared.fatal.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let concluded = match is_first(&*ranks) {
        true => plan.sort_records(&store),
        false => Ok(()),
    };
    agree(ranks, concluded)?;
    coefficients::write(plan, &store)?;
    let mut failed = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        failed.sort_by_key(|(job, _)| jobs.iter().position(|other| other == job));
        return Err(LabError::Failed(
            failed.into_iter().map(|(job, why)| (plan.job_name(job), why)).collect(),
        ));
    }
    let outcomes = shared.outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(jobs.iter().filter_map(|job| outcomes.get(job).cloned()).collect())
}

/// Opens the run directory, and returns it with the outcomes of jobs that need not be run again.
fn prepare(
    plan: &Plan,
    folder: &Path,
    resume: bool,
    sharing: Sharing,
) -> Result<(Store, Vec<Outcome>), LabError> {
    let store = Store::open(folder, resume)?;
    let mut outcomes = HashMap::new();
    if resume {
        let flag = AtomicBool::new(false);
        let context = JobContext { plan, store: &store, observer: &Silent, stop: &flag, halt: &flag };
        refuse_to_lose(plan, &store.outcomes()?, folder)?;
        let before = Spec::of_run(folder)?;
        let rules = before.stop.zip(plan.spec.stop);
        let same_stop = rules.is_some_and(|(before, now)| now.is_as_strict_as(&before));
        outcomes = finished(&context, same_stop)?;
        drop_repeated_records(&context, &plan.jobs(), &outcomes)?;
        if before.time != plan.spec.time {
            model_again(plan, &store, &mut outcomes)?;
        }
    }
    Context::of(plan, Some(sharing.threads)).write(&store)?;
    store.write("config.toml", plan.spec.to_table().to_string().as_bytes())?;
    store.write_all(&plan.spec.objectives.documents(&plan.spec.seeds)?)?;
    store.write_all(model_form::document(plan)?.as_slice())?;
    Ok((store, outcomes.into_values().collect()))
}

/// Gives the records of a run directory the times of another model.
fn model_again(plan: &Plan, store: &Store, outcomes: &mut HashMap<Job, Outcome>) -> Result<(), LabError> {
    let mut records = store.records()?;
    for job in plan.jobs() {
        let mut mine: Vec<&mut Record> =
            records.iter_mut().filter(|record| plan.job_of(record) == Some(job)).collect();
        mine.sort_by_key(|record| record.round);
        let mut clock = JobClock::of(plan, job)?;
        for record in mine.into_iter().chain(outcomes.get_mut(&job).map(|outcome| &mut outcome.last)) {
            record.modelled_s = clock.as_mut().map(|clock| clock.after(record.round)).transpose()?;
        }
    }
    store.rewrite(&records)?;
    store.write_summary(plan.jobs().iter().filter_map(|job| outcomes.get(job)))
}

/// Checks that a run directory could be resumed with this plan, and changes nothing in it.
pub(crate) fn check(plan: &Plan, folder: &Path) -> Result<(), LabError> {
    let store = Store::open(folder, true)?;
    refuse_to_lose(plan, &store.outcomes()?, folder)?;
    let flag = AtomicBool::new(false);
    let context = JobContext { plan, store: &store, observer: &Silent, stop: &flag, halt: &flag };
    plan.jobs().into_iter().try_for_each(|job| context.round_of_state(job).map(drop))
}

/// What the workers share.
struct Shared {
    queue: Mutex<VecDeque<Job>>,
    outcomes: Mutex<HashMap<Job, Outcome>>,
    /// Jobs that failed before their first record, and why.
    failed: Mutex<Vec<(Job, String)>>,
    /// The error that ended all jobs.
    fatal: Mutex<Option<LabError>>,
}

/// Whether no other job is started: ranks decide it together, except after an error that ends them all.
fn should_stop(ranks: Together<'_>, context: &JobContext, shared: &Shared) -> bool {
    if ranks.count() == 1 || context.halt.load(Ordering::Relaxed) {
        return context.should_stop();
    }
    ranks.any(context.should_stop().into()).unwrap_or_else(|error| {
        shared.fatal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(lost(error));
        1
    }) != 0
}

fn work(ranks: Together<'_>, context: &JobContext, shared: &Shared, jobs: &[Job], resume: bool) {
    let next = || shared.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while !should_stop(ranks, context, shared)
        && let Some(job) = next()
    {
        context.observer.began(job);
        let result = run(ranks, context, job, resume);
        if let Err(error) = record_outcome(context, shared, jobs, job, result) {
            context.halt.store(true, Ordering::Relaxed);
            shared.fatal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

/// Runs one job; a panic in it becomes an error.
fn run(ranks: Together<'_>, context: &JobContext, job: Job, resume: bool) -> Result<Outcome, LabError> {
    let precision = context.plan.spec.precision;
    let run = || with_precision!(precision, T => context.run::<T>(ranks, job, resume));
    // Unwind safe: the job's engine is dropped, and files are written atomically.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(LabError::panicked(&*panic)))
}

/// Stores the outcome of a job; an error that does not concern this job alone is returned.
fn record_outcome(
    context: &JobContext,
    shared: &Shared,
    jobs: &[Job],
    job: Job,
    result: Result<Outcome, LabError>,
) -> Result<(), LabError> {
    let outcome = match result {
        Ok(outcome) => outcome,
        // Over several ranks the others may be waiting in the middle of this job: it ends them all.
        Err(error) if error.is_of_one_job() && context.plan.engines.ranks().count() > 1 => {
            note_failure(context, shared, jobs, job, &error);
            return Err(error);
        }
        Err(error) if error.is_of_one_job() => match context.failed(job, &error)? {
            Some(outcome) => outcome,
            None => {
                context.observer.failed(job, &error);
                let mut failed = shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.push((job, error.to_string()));
                return Ok(());
            }
        },
        Err(error) => return Err(error),
    };
    context.observer.ended(job, &outcome);
    let mut outcomes = shared.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
    outcomes.insert(job, outcome);
    context.store.write_summary(jobs.iter().filter_map(|job| outcomes.get(job)))
}

/// Notes in the run directory that a job failed on this rank, which may not be the one that writes it; an error here matters less than
/// the failure itself.
fn note_failure(context: &JobContext, shared: &Shared, jobs: &[Job], job: Job, error: &LabError) {
    let rank = context.plan.engines.ranks().name();
    let on_rank = LabError::OnRank { rank, message: error.to_string(), is_usage: false };
    if let Ok(Some(outcome)) = context.failed(job, &on_rank) {
        let mut outcomes = shared.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.insert(job, outcome);
        let _ = context.store.leave_summary(jobs.iter().filter_map(|job| outcomes.get(job)));
    }
}

/// Refuses a plan without some job of the run directory, whose results would be lost.
pub(crate) fn refuse_to_lose(plan: &Plan, outcomes: &[Outcome], folder: &Path) -> Result<(), LabError> {
    let Some(lost) = outcomes.iter().find(|outcome| plan.job_of(&outcome.last).is_none()) else {
        return Ok(());
    };
    let known = plan.spec.algorithms.iter().any(|algorithm| algorithm.label == lost.label);
    let (key, what) =
        if known { ("seeds", format!("seed {}", lost.seed)) } else { ("algorithm", lost.label.clone()) };
    let problem = format!(
        "{what} is missing, but {} has results of it; algorithms and seeds can be added to a run, not removed: \
         give all of them, or another --out",
        folder.display()
    );
    Err(LabError::config(key, problem))
}

/// The outcomes of jobs that need not be run again: diverged, done with at least the planned number of rounds, or ended by
/// the same rule.
fn finished(context: &JobContext, same_stop: bool) -> Result<HashMap<Job, Outcome>, LabError> {
    let rounds = context.plan.spec.rounds;
    let enough = |outcome: &Outcome| match outcome.status {
        JobStatus::Converged | JobStatus::LastRound => {
            outcome.round >= rounds || (outcome.ending.stop_reached == Some(true) && same_stop)
        }
        JobStatus::Diverged => true,
        JobStatus::Stopped | JobStatus::Failed => false,
    };
    let mut kept = HashMap::new();
    for outcome in context.store.outcomes()?.into_iter().filter(enough) {
        if let Some(job) = context.plan.job_of(&outcome.last) {
            context.round_of_state(job)?;
            kept.insert(job, outcome);
        }
    }
    Ok(kept)
}

/// Drops the records after the state from which a job resumes: they will be written again. All states are checked
/// before any record is dropped.
fn drop_repeated_records(
    context: &JobContext,
    jobs: &[Job],
    finished: &HashMap<Job, Outcome>,
) -> Result<(), LabError> {
    let records = context.store.records()?;
    let mut kept = Vec::with_capacity(records.len());
    let mut from: HashMap<Job, Option<u64>> = HashMap::new();
    for job in jobs.iter().filter(|job| !finished.contains_key(job)) {
        from.insert(*job, context.round_of_state(*job)?);
    }
    for record in records {
        let job = context.plan.job_of(&record);
        let repeated = job.and_then(|job| from.get(&job)).is_some_and(|state| match state {
            Some(round) => record.round > *round,
            None => true,
        });
        if !repeated {
            kept.push(record);
        }
    }
    context.store.rewrite(&kept)
}
