//! Who wants to know how a run goes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::plan::{Job, Plan};
use crate::record::Record;
use crate::store::{Outcome, Status};
use crate::table::number;

/// Time between two lines about one job.
const LINE: Duration = Duration::from_secs(10);

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

/// Plain lines on standard error: how far a job has come, now and then, and how it ended.
pub struct Lines<'a> {
    plan: &'a Plan,
    jobs: Mutex<HashMap<Job, (Instant, String)>>,
}

impl<'a> Lines<'a> {
    /// Lines about the jobs of a plan.
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
        let rounds = self.plan.experiment.rounds;
        let line = self.with(job, |(said, loss)| {
            (said.elapsed() > LINE && round < rounds).then(|| {
                *said = Instant::now();
                format!("{}: round {round} of {rounds}{loss}", self.plan.job_name(job))
            })
        });
        line.into_iter().for_each(|line| eprintln!("{line}"));
    }

    fn recorded(&self, job: Job, record: &Record) {
        self.with(job, |(_, loss)| *loss = format!(", loss {}", number(record.loss)));
    }

    fn ended(&self, job: Job, outcome: &Outcome) {
        eprintln!("{}", how_it_ended(&self.plan.job_name(job), outcome));
    }
}

/// How a job ended, in a line.
pub fn how_it_ended(name: &str, outcome: &Outcome) -> String {
    let status = match outcome.status {
        Status::Done => "done",
        Status::Diverged => "diverged",
        Status::Stopped => "stopped, can be resumed",
        Status::Failed => "failed",
    };
    format!(
        "{name}: {status} after {} rounds, loss {}, consensus error {}, {} s",
        outcome.round,
        number(outcome.last.loss),
        number(outcome.last.consensus_error),
        number((outcome.last.wall_s * 100.0).round() / 100.0),
    )
}
