//! What happens in a run, for the thread that asked for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mile_lab::advice::recommended;
use mile_lab::error::LabError;
use mile_lab::observer::{Observer, outcome_line};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::store::Outcome;
use mile_lab::tensorboard::EventFiles;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::failure::Raised;

/// How often rounds are shown.
const SHOWN: Duration = Duration::from_millis(200);

/// One thing that happened: its kind, the job or point it belongs to, a round and a text.
pub(crate) struct Event {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) round: u64,
    pub(crate) value: f64,
    pub(crate) text: String,
}

/// Shows events by calling Python, on the thread that asked for the work.
pub(crate) struct Display {
    callback: Py<PyAny>,
    /// Rounds done by each job, which change too often to be shown one by one.
    rounds: Mutex<HashMap<String, Arc<AtomicU64>>>,
    shown: Mutex<Instant>,
    /// The exception of the callback, which is not called again after it.
    failed: Mutex<Option<PyErr>>,
    stop: Arc<AtomicBool>,
    raised: Raised,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Display {
    /// An exception of the callback sets `stop`; one that is not an error, such as that of a second Ctrl-C, ends the run at once.
    pub(crate) fn new(callback: Py<PyAny>, stop: Arc<AtomicBool>, raised: Raised) -> Self {
        let (rounds, shown, failed) = (Mutex::default(), Mutex::new(Instant::now()), Mutex::default());
        Self { callback, rounds, shown, failed, stop, raised }
    }

    /// Shows an event. No lock is held meanwhile: a signal may be handled, which shows another.
    pub(crate) fn show(&self, py: Python<'_>, event: Event) {
        if lock(&self.failed).is_some() {
            return;
        }
        let Event { kind, name, round, value, text } = event;
        if let Err(error) = self.callback.bind(py).call1((kind, name, round, value, text)) {
            self.stop.store(true, Ordering::Relaxed);
            if !error.is_instance_of::<PyException>(py) {
                self.raised.abort();
            }
            lock(&self.failed).get_or_insert(error);
        }
    }

    /// Whether it is time to show rounds again.
    pub(crate) fn is_due(&self) -> bool {
        lock(&self.shown).elapsed() > SHOWN
    }

    /// Shows the rounds of all jobs.
    pub(crate) fn show_rounds(&self, py: Python<'_>) {
        *lock(&self.shown) = Instant::now();
        let rounds: Vec<(String, u64)> = lock(&self.rounds)
            .iter()
            .map(|(name, round)| (name.clone(), round.load(Ordering::Relaxed)))
            .collect();
        for (name, round) in rounds {
            self.show(py, Event { kind: "advanced", name, round, value: f64::NAN, text: String::new() });
        }
    }

    /// The exception of the callback, if there was one.
    pub(crate) fn take_failure(&self) -> Option<PyErr> {
        lock(&self.failed).take()
    }
}

/// How the thread that asked for the work hears of it.
#[derive(Clone)]
pub(crate) enum Listener {
    /// It does the work itself.
    Here,
    /// It waits.
    Waiting(Sender<Event>),
}

/// What long work is given.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) display: Arc<Display>,
    pub(crate) listener: Listener,
    /// Set to stop after the current round.
    pub(crate) stop: Arc<AtomicBool>,
}

impl Work {
    /// Tells what happened.
    pub(crate) fn tell(&self, event: Event) {
        match &self.listener {
            Listener::Here => Python::attach(|py| self.display.show(py, event)),
            // Nobody listens when the caller is gone; the run continues to its end.
            Listener::Waiting(events) => drop(events.send(event)),
        }
    }
}

/// Tells what happens in the jobs of a plan.
pub(crate) struct Teller<'p> {
    plan: &'p Plan,
    work: Work,
    jobs: HashMap<Job, Arc<AtomicU64>>,
}

impl<'p> Teller<'p> {
    pub(crate) fn new(plan: &'p Plan, work: &Work) -> Self {
        let mut jobs = HashMap::new();
        {
            let mut known = lock(&work.display.rounds);
            known.clear();
            for job in plan.jobs() {
                let counter = Arc::new(AtomicU64::new(0));
                known.insert(plan.job_name(job), counter.clone());
                jobs.insert(job, counter);
            }
        }
        let count = jobs.len() as f64;
        let told = Self { plan, work: work.clone(), jobs };
        told.tell("planned", "", plan.spec.rounds, count, String::new());
        if let Some(text) = plan.spec.objectives.evaluated_on() {
            told.tell("note", "", 0, plan.evaluation.share, text);
        }
        for text in recommended(plan) {
            told.tell("note", "", 0, f64::NAN, text);
        }
        told
    }

    fn tell(&self, kind: &'static str, name: &str, round: u64, value: f64, text: String) {
        self.work.tell(Event { kind, name: name.to_owned(), round, value, text });
    }
}

impl Observer for Teller<'_> {
    fn opened(&self, _: &[Record], outcomes: &[Outcome]) {
        for outcome in outcomes {
            let job = self.plan.jobs().into_iter().find(|job| {
                let label = &self.plan.spec.algorithms[job.algorithm].label;
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
        if matches!(self.work.listener, Listener::Here) && self.work.display.is_due() {
            Python::attach(|py| self.work.display.show_rounds(py));
        }
    }

    fn is_interrupted(&self) -> bool {
        self.work.display.raised.is_aborted()
    }

    /// The text is the record, as its line in `metrics.jsonl`.
    fn recorded(&self, job: Job, record: &Record) {
        let text = serde_json::to_string(record).unwrap_or_default();
        self.tell("recorded", &self.plan.job_name(job), record.round, record.loss, text);
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

/// Tells what happens, and writes records as event files of TensorBoard if asked.
pub(crate) struct Recording<'p> {
    teller: Teller<'p>,
    events: Option<Arc<EventFiles>>,
}

impl<'p> Recording<'p> {
    pub(crate) fn new(teller: Teller<'p>, events: Option<Arc<EventFiles>>) -> Self {
        Self { teller, events }
    }
}

impl Observer for Recording<'_> {
    fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
        self.teller.opened(records, outcomes);
        self.events.iter().for_each(|events| events.opened(records, outcomes));
    }

    fn began(&self, job: Job) {
        self.teller.began(job);
    }

    fn advanced(&self, job: Job, round: u64) {
        self.teller.advanced(job, round);
    }

    fn is_interrupted(&self) -> bool {
        self.teller.is_interrupted()
    }

    fn recorded(&self, job: Job, record: &Record) {
        self.events.iter().for_each(|events| events.recorded(job, record));
        self.teller.recorded(job, record);
    }

    fn ended(&self, job: Job, outcome: &Outcome) {
        self.teller.ended(job, outcome);
    }

    fn failed(&self, job: Job, error: &LabError) {
        self.teller.failed(job, error);
    }
}
