//! Observers, which receive the progress events of a run.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::plan::{Job, Plan};
use crate::record::Record;
use crate::store::{JobStatus, Outcome};
use crate::table::number;

/// Time between two progress lines of a job.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Receives the progress events of a run, from several threads.
pub trait Observer: Sync {
    /// The run directory was opened. Called once, before any job starts, with the records in the directory and the
    /// outcomes of the jobs that will not be run again.
    fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
        let _ = (records, outcomes);
    }
    /// A job starts or resumes.
    fn began(&self, job: Job) {
        let _ = job;
    }
    /// A job has completed this many rounds.
    fn advanced(&self, job: Job, round: u64) {
        let _ = (job, round);
    }
    /// Whether jobs are to end at once, in the middle of a round, which is then lost; asked before each step.
    fn is_interrupted(&self) -> bool {
        false
    }
    /// A job has written a record.
    fn recorded(&self, job: Job, record: &Record) {
        let _ = (job, record);
    }
    /// A job has ended.
    fn ended(&self, job: Job, outcome: &Outcome) {
        let _ = (job, outcome);
    }
    /// A job failed before its first record.
    fn failed(&self, job: Job, error: &LabError) {
        let _ = (job, error);
    }
}

/// An observer that ignores all events.
pub struct Silent;

impl Observer for Silent {}

/// Prints lines on standard error: the progress of each job every few seconds, and its outcome.
pub struct Lines<'a> {
    plan: &'a Plan,
    jobs: Mutex<HashMap<Job, (Instant, String)>>,
}

impl<'a> Lines<'a> {
    /// An observer for the jobs of a plan.
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, jobs: Mutex::default() }
    }

    fn with<R>(&self, job: Job, work: impl FnOnce(&mut (Instant, String)) -> R) -> R {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        work(jobs.entry(job).or_insert_with(|| (Instant::now(), String::new())))
    }
}

impl Observer for Lines<'_> {
    fn advanced(&self, job: Job, round: u64) {
        let rounds = self.plan.spec.rounds;
        let line = self.with(job, |(printed, loss)| {
            (printed.elapsed() > LINE_INTERVAL && round < rounds).then(|| {
                *printed = Instant::now();
                format!("{}: round {round} of {rounds}{loss}", self.plan.job_name(job))
            })
        });
        line.into_iter().for_each(|line| eprintln!("{line}"));
    }

    fn recorded(&self, job: Job, record: &Record) {
        self.with(job, |(_, loss)| *loss = format!(", loss {}", number(record.loss)));
    }

    fn ended(&self, job: Job, outcome: &Outcome) {
        eprintln!("{}", outcome_line(&self.plan.job_name(job), outcome));
    }

    fn failed(&self, job: Job, error: &LabError) {
        eprintln!("{}: failed: {error}", self.plan.job_name(job));
    }
}

/// The outcome of a job, in one line.
pub fn outcome_line(name: &str, outcome: &Outcome) -> String {
    let round = outcome.round;
    let status = match outcome.status {
        JobStatus::LastRound => match outcome.ending.far() {
            Some(far) => format!("stopped at the last round, {round}, {far}"),
            None => format!("stopped at the last round, {round}"),
        },
        JobStatus::Stopped => format!("stopped (can be resumed) after round {round}"),
        other => format!("{} after round {round}", other.name()),
    };
    let why = outcome.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!(
        "{name}: {status}; loss {}, consensus error {}, {:.2} s{why}",
        number(outcome.last.loss),
        number(outcome.last.consensus_error),
        outcome.last.wall_s,
    )
}
