//! What happens in a run, for whoever waits for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use mile_lab::error::LabError;
use mile_lab::observer::{Observer, outcome_line};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::store::Outcome;
use pyo3::prelude::*;

/// One thing that happened: its kind, the job or point it belongs to, a round and a text.
pub(crate) struct Event {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) round: u64,
    pub(crate) value: f64,
    pub(crate) text: String,
}

/// Rounds done by each job, which change too often to be told one by one.
pub(crate) type Rounds = Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>;

/// Tells what happens in the jobs of a plan.
pub(crate) struct Teller<'p> {
    plan: &'p Plan,
    events: Sender<Event>,
    jobs: HashMap<Job, Arc<AtomicU64>>,
}

impl<'p> Teller<'p> {
    pub(crate) fn new(plan: &'p Plan, events: Sender<Event>, rounds: &Rounds) -> Self {
        let mut known = rounds.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        let mut jobs = HashMap::new();
        for job in plan.jobs() {
            let counter = Arc::new(AtomicU64::new(0));
            known.insert(plan.job_name(job), counter.clone());
            jobs.insert(job, counter);
        }
        let count = jobs.len() as f64;
        let told = Self { plan, events, jobs };
        told.tell("planned", "", plan.experiment.rounds, count, String::new());
        told
    }

    fn tell(&self, kind: &'static str, name: &str, round: u64, value: f64, text: String) {
        // Nobody listens any more when the caller has gone; the run goes on to its end.
        let _ = self.events.send(Event { kind, name: name.to_owned(), round, value, text });
    }
}

impl Observer for Teller<'_> {
    fn opened(&self, _: &[Record], outcomes: &[Outcome]) {
        for outcome in outcomes {
            let job = self.plan.jobs().into_iter().find(|job| {
                let label = &self.plan.experiment.algorithms[job.algorithm].label;
                *label == outcome.label && job.seed == outcome.seed
            });
            if let Some(job) = job {
                self.tell("kept", &self.plan.job_name(job), outcome.round, outcome.last.loss, String::new());
            }
        }
    }

    fn began(&self, job: Job) {
        self.tell("began", &self.plan.job_name(job), 0, f64::NAN, String::new());
    }

    fn advanced(&self, job: Job, round: u64) {
        if let Some(counter) = self.jobs.get(&job) {
            counter.store(round, Ordering::Relaxed);
        }
    }

    fn recorded(&self, job: Job, record: &Record) {
        self.tell("recorded", &self.plan.job_name(job), record.round, record.loss, String::new());
    }

    fn ended(&self, job: Job, outcome: &Outcome) {
        let name = self.plan.job_name(job);
        let text = outcome_line(&name, outcome);
        self.tell("ended", &name, outcome.round, outcome.last.loss, text);
    }

    fn failed(&self, job: Job, error: &LabError) {
        let name = self.plan.job_name(job);
        self.tell("ended", &name, 0, f64::NAN, format!("{name}: failed: {error}"));
    }
}

/// Calls Python with an event.
pub(crate) fn show(callback: &Bound<'_, PyAny>, event: Event) -> PyResult<()> {
    let Event { kind, name, round, value, text } = event;
    callback.call1((kind, name, round, value, text)).map(drop)
}
