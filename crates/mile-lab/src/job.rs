//! Runs one job, that is one algorithm with one seed, from its start or a checkpoint to its last round.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mile::engine::Engine;
use mile::method::Method;
use mile::problems::Problem;
use mile::run::Run;

use crate::engines::{EngineSetup, Scalar};
use crate::error::LabError;
use crate::export;
use crate::identity::{changed_key_of, difference, until};
use crate::observer::Observer;
use crate::plan::{Job, Plan};
use crate::ranks::lost;
use crate::record::{Evaluated, Record, RunId, measure, rms, total};
use crate::resume::settings;
use crate::saved;
use crate::state::{self, Header};
use crate::store::{Outcome, Status, Store};

/// A run has diverged when the root mean square of its models is not finite, or exceeds this factor times the larger of
/// 1 and its value at the start.
pub const DIVERGED: f64 = 1e8;

/// Wishes of ranks: to stop after this round, and to write a checkpoint.
const STOP: u8 = 1;
const SAVE: u8 = 2;

/// Time between two checkpoints of a job.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(20);

/// What all jobs of a run share.
pub(crate) struct JobContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) store: &'a Store,
    pub(crate) observer: &'a dyn Observer,
    /// Set by the user: stop after the current round.
    pub(crate) stop: &'a AtomicBool,
    /// Set when something went wrong that ends all jobs.
    pub(crate) halt: &'a AtomicBool,
}

impl JobContext<'_> {
    /// Whether jobs should stop after their current round.
    pub(crate) fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.halt.load(Ordering::Relaxed)
    }

    pub(crate) fn final_path(&self, job: Job) -> PathBuf {
        self.state_path("final", job)
    }

    pub(crate) fn checkpoint_path(&self, job: Job) -> PathBuf {
        self.state_path("checkpoints", job)
    }

    fn state_path(&self, folder: &str, job: Job) -> PathBuf {
        self.store.path(folder).join(self.plan.state_file(job))
    }

    /// The round of the state from which a job would resume, if there is one. A state of another experiment, or of more
    /// rounds than are asked for, is an error.
    pub(crate) fn round_of_state(&self, job: Job) -> Result<Option<u64>, LabError> {
        for path in [self.checkpoint_path(job), self.final_path(job)] {
            if let Some(state) = state::open(&path)? {
                self.check_state(&path, &state.header, job)?;
                let (round, rounds) = (state.header.round, self.plan.experiment.rounds);
                if round > rounds {
                    let name = self.plan.job_name(job);
                    let problem = format!(
                        "got {rounds}, takes at least {round}, which {name} has done in {} already; or give another folder",
                        self.store.folder().display()
                    );
                    return Err(LabError::config("rounds", problem));
                }
                return Ok(Some(round));
            }
        }
        Ok(None)
    }

    /// Checks that a state belongs to this experiment. A network that differs is named by its key.
    fn check_state(&self, path: &Path, header: &Header, job: Job) -> Result<(), LabError> {
        let round = header.round;
        let mut difference =
            difference(&until(&header.facts, round), &until(&self.plan.facts_of(job), round));
        if difference.as_ref().is_some_and(|(key, ..)| key == "network.weights") {
            let before = settings(self.store.folder()).unwrap_or_default();
            let changed = changed_key_of("network", &before, &self.plan.experiment.resolved);
            difference = changed.or(difference);
        }
        state::refuse_difference(path, difference)
    }

    /// Runs a job to its last round, or until the stop flag is set. With `resume`, it starts from its checkpoint.
    pub(crate) fn run<T: Scalar>(&self, job: Job, resume: bool) -> Result<Outcome, LabError> {
        let plan = self.plan;
        let problem = plan.problem::<T>(job.seed)?;
        let method = plan.method(job)?;
        let start = plan.start(&*problem, job.seed)?;
        let agents = EngineSetup {
            problem: &*problem,
            network: &plan.network,
            method: &*method,
            start: &start,
            seed: job.seed,
        };
        let mut engine = T::open(&*plan.engines, agents)?;
        let elsewhere = T::evaluated(&*plan.engines, &*problem)?;
        let measured = elsewhere.as_deref().unwrap_or(&*problem);
        let running = RunningJob::begin(self, job, measured, &*method, &mut *engine, resume)?;
        let outcome = running.complete()?;
        if outcome.status == Status::Done {
            export::models_of(&self.final_path(job), &*problem, &mut *engine)?;
        }
        Ok(outcome)
    }

    /// The outcome of a job that failed, from its last record; `None` if it has no record.
    pub(crate) fn failed(&self, job: Job, error: &LabError) -> Result<Option<Outcome>, LabError> {
        let Some(last) = self.last_record(job)? else { return Ok(None) };
        let sent = last.vectors_sent as f64 / last.round.max(1) as f64;
        let outcome = self.outcome(job, Status::Failed, last.round, sent, last);
        Ok(Some(Outcome { error: Some(error.to_string()), ..outcome }))
    }

    fn last_record(&self, job: Job) -> Result<Option<Record>, LabError> {
        let records = self.store.records()?;
        Ok(records.into_iter().rfind(|record| self.plan.job_of(record) == Some(job)))
    }

    fn outcome(&self, job: Job, status: Status, round: u64, sent: f64, last: Record) -> Outcome {
        let algorithm = &self.plan.experiment.algorithms[job.algorithm];
        Outcome {
            label: algorithm.label.clone(),
            algorithm: algorithm.entry.name.to_owned(),
            seed: job.seed,
            status,
            vectors_stored: self.plan.methods[job.algorithm].vectors_stored,
            vectors_sent_per_round: sent,
            round,
            converged: status == Status::Done && round < self.plan.experiment.rounds,
            last,
            error: None,
        }
    }
}

/// A job that is being run.
struct RunningJob<'a, T> {
    context: &'a JobContext<'a>,
    job: Job,
    problem: &'a dyn Problem<T>,
    method: &'a dyn Method,
    engine: &'a mut dyn Engine<T>,
    run: Run<'a>,
    limit: f64,
    wall: Duration,
    last: Option<Record>,
    saved: Instant,
}

impl<'a, T: Scalar> RunningJob<'a, T> {
    fn begin(
        context: &'a JobContext<'a>,
        job: Job,
        problem: &'a dyn Problem<T>,
        method: &'a dyn Method,
        engine: &'a mut dyn Engine<T>,
        resume: bool,
    ) -> Result<Self, LabError> {
        let schedule = context.plan.experiment.algorithms[job.algorithm].schedule.clone();
        let limit = DIVERGED * rms(engine)?.max(1.0);
        let saved = if resume { restore(context, job, method, engine)? } else { None };
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let (run, wall) = match &saved {
            Some(header) => {
                let wall = seconds(header.wall_s.unwrap_or_default());
                (Run::resume(method, schedule, header.progress()), wall)
            }
            None => {
                let begun = Instant::now();
                (Run::start(method, schedule, engine)?, begun.elapsed())
            }
        };
        let saved_at = Instant::now();
        let mut running =
            Self { context, job, problem, method, engine, run, limit, wall, last: None, saved: saved_at };
        match saved {
            None => running.record(None)?,
            Some(header) => {
                // The change of the loss, and the time of a final state, go on from the last record.
                running.last = context.last_record(job)?;
                if header.wall_s.is_none() {
                    running.wall = seconds(running.last_on_disk()?.wall_s);
                }
            }
        }
        Ok(running)
    }

    fn complete(mut self) -> Result<Outcome, LabError> {
        let experiment = &self.context.plan.experiment;
        let status = loop {
            let round = self.run.progress().round;
            self.context.observer.advanced(self.job, round);
            if round >= experiment.rounds {
                break Status::Done;
            }
            let wishes = self.wishes()?;
            if wishes & STOP != 0 {
                break Status::Stopped;
            }
            if wishes & SAVE != 0 {
                self.checkpoint()?;
                self.saved = Instant::now();
            }
            let next = round + 1;
            let due = next.is_multiple_of(experiment.eval_every) || next == experiment.rounds;
            if due {
                self.engine.watch();
            }
            let begun = Instant::now();
            let plan = self.context.plan;
            if let Some(event) = experiment.replacements.iter().find(|event| event.round == round) {
                self.run.renew(event.agent, &plan.network, self.engine)?;
            }
            self.run.round(self.engine)?;
            self.wall += begun.elapsed();
            let size = rms(self.engine)?;
            let lost = !size.is_finite() || size > self.limit;
            let before = self.last.clone();
            if due || lost {
                let drift = self.engine.drift()?;
                self.record(drift)?;
            }
            if lost || self.last.as_ref().is_some_and(|record| !record.loss.is_finite()) {
                break Status::Diverged;
            }
            if let (true, Some(rule), Some(now)) = (due, &experiment.stop, &self.last)
                && rule.holds(before.as_ref(), now)
            {
                break Status::Done;
            }
        };
        self.conclude(status)
    }

    /// What this rank or any other wants to be done before the next round.
    fn wishes(&self) -> Result<u8, LabError> {
        let stop = if self.context.should_stop() { STOP } else { 0 };
        let save = if self.saved.elapsed() > CHECKPOINT_INTERVAL { SAVE } else { 0 };
        self.engine.ranks().any(stop | save).map_err(lost)
    }

    fn record(&mut self, drift: Option<f64>) -> Result<(), LabError> {
        let algorithm = &self.context.plan.experiment.algorithms[self.job.algorithm];
        let subject = RunId { algorithm: algorithm.entry.name, label: &algorithm.label, seed: self.job.seed };
        let wall_s = self.wall.as_secs_f64();
        let experiment = &self.context.plan.experiment;
        let chosen = experiment.eval_agents.choose(self.problem.agents(), self.job.seed);
        let evaluated = Evaluated { agents: &chosen, each: experiment.agent_metrics };
        let (problem, progress) = (self.problem, self.run.progress());
        let record = measure(subject, problem, self.engine, evaluated, drift, progress, wall_s)?;
        self.context.store.append(&record)?;
        self.context.observer.recorded(self.job, &record);
        self.last = Some(record);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), LabError> {
        self.save(&self.context.checkpoint_path(self.job), Some(self.wall.as_secs_f64()))
    }

    fn save(&mut self, path: &Path, wall_s: Option<f64>) -> Result<(), LabError> {
        let mut progress = *self.run.progress();
        progress.costs = total(self.engine, progress.costs)?;
        let header = Header::new(self.context.plan.facts_of(self.job), &progress, wall_s);
        saved::write(path, &header, self.method.layout(), self.engine)
    }

    fn conclude(mut self, status: Status) -> Result<Outcome, LabError> {
        let checkpoint = self.context.checkpoint_path(self.job);
        if status == Status::Stopped {
            self.checkpoint()?;
        } else {
            self.save(&self.context.final_path(self.job), None)?;
            self.context.store.remove(&checkpoint)?;
        }
        let progress = *self.run.progress();
        let last = match self.last.take() {
            Some(record) => record,
            None => self.last_on_disk()?,
        };
        let sent = progress.costs.vectors_sent as f64 / progress.round.max(1) as f64;
        Ok(self.context.outcome(self.job, status, progress.round, sent, last))
    }

    /// The last record of an earlier process, for a job that was resumed and stopped before its next record.
    fn last_on_disk(&self) -> Result<Record, LabError> {
        let (label, seed) =
            (&self.context.plan.experiment.algorithms[self.job.algorithm].label, self.job.seed);
        self.context.last_record(self.job)?.ok_or_else(|| LabError::Directory {
            path: self.context.store.path("metrics.jsonl"),
            problem: format!("has no record of {label} with seed {seed}, although its state exists: delete its files in checkpoints/ and final/ to restart it"),
        })
    }
}

/// Loads a job's checkpoint, or else its final state, into the engine; `None` if there is neither.
fn restore<T: Scalar>(
    context: &JobContext,
    job: Job,
    method: &dyn Method,
    engine: &mut dyn Engine<T>,
) -> Result<Option<Header>, LabError> {
    for path in [context.checkpoint_path(job), context.final_path(job)] {
        let found = saved::read(&path, &context.plan.facts_of(job), method.layout(), engine)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
