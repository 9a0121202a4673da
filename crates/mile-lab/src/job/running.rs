//! A job while it is run: its rounds, records and checkpoints, in one epoch of the membership after the other.

use std::path::Path;
use std::time::{Duration, Instant};

use mile::block;
use mile::engine::Engine;
use mile::method::Method;
use mile::problems::Problem;
use mile::ranks::Together;
use mile::run::{Progress, Run};

use super::JobContext;
use crate::divergence::DIVERGED;
use crate::ending::{Ending, History};
use crate::engines::Scalar;
use crate::error::LabError;
use crate::objectives::remembering::{memories, recall};
use crate::pairing_log::PairingLog;
use crate::plan::{Job, JobClock, Plan};
use crate::ranks::lost;
use crate::record::{MODELS, Moment, Record, RecordedAgents, RunId, measure, rms, total};
use crate::saved;
use crate::spec::StopRule;
use crate::state::Header;
use crate::stopping::may_hold;
use crate::store::{JobStatus, Outcome};

/// Wishes of ranks: to stop after this round, and to write a checkpoint.
const STOP: u8 = 1;
const SAVE: u8 = 2;

/// Time between two checkpoints of a job.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(20);

/// What is run, in an epoch of the membership.
pub(super) struct JobSetup<'a, T> {
    pub(super) job: Job,
    pub(super) epoch: usize,
    pub(super) problem: &'a dyn Problem<T>,
    pub(super) method: &'a dyn Method,
}

/// What an epoch hands on to the next.
pub(super) struct Part<'p, T> {
    /// The models of the next epoch's members.
    pub(super) models: Vec<T>,
    clock: Option<JobClock<'p>>,
    progress: Progress,
    limit: f64,
    wall: Duration,
    last: Option<Record>,
    history: History,
    saved: Instant,
}

/// What has ended.
pub(super) enum Completed<'p, T> {
    Job(Box<Outcome>),
    /// The agents that take part change; the next epoch.
    Epoch(usize, Box<Part<'p, T>>),
}

/// A job that is being run.
pub(super) struct RunningJob<'a, 'p, T> {
    together: Together<'a>,
    context: &'a JobContext<'p>,
    job: Job,
    epoch: usize,
    problem: &'a dyn Problem<T>,
    method: &'a dyn Method,
    engine: &'a mut dyn Engine<T>,
    run: Run<'a>,
    /// The log of exchanges in pairs.
    pairing_log: Option<PairingLog>,
    /// What tells the modelled time.
    clock: Option<JobClock<'p>>,
    limit: f64,
    wall: Duration,
    last: Option<Record>,
    history: History,
    /// Whether the experiment's rule held at the last record.
    stop_reached: bool,
    saved: Instant,
    /// Whether an event of this round has happened: a state of the round is from before it.
    entered: bool,
}

impl<'a, 'p, T: Scalar> RunningJob<'a, 'p, T> {
    pub(super) fn begin(
        together: Together<'a>,
        context: &'a JobContext<'p>,
        setup: JobSetup<'a, T>,
        engine: &'a mut dyn Engine<T>,
        resume: bool,
    ) -> Result<Self, LabError> {
        let JobSetup { job, epoch, problem, method } = setup;
        let schedule = context.plan.spec.algorithms[job.algorithm].schedule.clone();
        let size =
            if epoch == 0 { rms(together, engine)? } else { size_at_start::<T>(context.plan, job.seed)? };
        let limit = DIVERGED * size.max(1.0);
        let saved = if resume { restore(together, context, job, epoch, method, engine)? } else { None };
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let (run, wall) = match &saved {
            Some(header) => {
                let wall = seconds(header.wall_s.unwrap_or_default());
                (Run::resume(method, schedule, header.progress()), wall)
            }
            None => {
                let begun = Instant::now();
                recall(&*context.plan.spec.objectives, 0..context.plan.membership.numbers(), None)?;
                (Run::start(method, schedule, engine)?, begun.elapsed())
            }
        };
        let (mut pairings, rounds) = (context.plan.pairings(job)?, run.progress().round);
        let log = |pairings| PairingLog::begin(&context.pairings_path(job), pairings, rounds);
        let pairing_log = pairings.as_mut().map(log).transpose()?;
        let run = run.with_pairings(pairings);
        let (last, saved_at, entered) = (None, Instant::now(), false);
        let clock = JobClock::of(context.plan, job)?;
        let mut running = Self {
            together,
            context,
            job,
            epoch,
            problem,
            method,
            engine,
            run,
            pairing_log,
            clock,
            limit,
            wall,
            last,
            history: History::default(),
            stop_reached: false,
            saved: saved_at,
            entered,
        };
        match saved {
            None => running.record(None)?,
            Some(header) => {
                // The change of the loss, and the time of a final state, continue from the last record.
                let mut records = context.records_of(job)?;
                running.history = History::of(&records);
                if let ([.., before, last], Some(rule)) = (&records[..], context.plan.spec.stop) {
                    running.stop_reached = last.round == header.round && rule.holds(Some(before), last);
                }
                running.last = records.pop();
                if header.wall_s.is_none() {
                    running.wall = seconds(running.last_on_disk()?.wall_s);
                }
            }
        }
        Ok(running)
    }

    /// Continues in another epoch: the method is restarted from the models.
    pub(super) fn enter(
        together: Together<'a>,
        context: &'a JobContext<'p>,
        setup: JobSetup<'a, T>,
        engine: &'a mut dyn Engine<T>,
        part: Part<'p, T>,
    ) -> Result<Self, LabError> {
        let JobSetup { job, epoch, problem, method } = setup;
        let Part { clock, progress, limit, wall, last, history, saved, .. } = part;
        let schedule = context.plan.spec.algorithms[job.algorithm].schedule.clone();
        let run = Run::resume(method, schedule, progress);
        let mut running = Self {
            together,
            context,
            job,
            epoch,
            problem,
            method,
            engine,
            run,
            pairing_log: None,
            clock,
            limit,
            wall,
            last,
            history,
            stop_reached: false,
            saved,
            entered: false,
        };
        running.renew()?;
        Ok(running)
    }

    fn renew(&mut self) -> Result<(), LabError> {
        let begun = Instant::now();
        let epoch = &self.context.plan.membership.epochs()[self.epoch];
        let newcomer = epoch.newcomer_with(|_| true);
        let number = newcomer.map(|(place, _)| epoch.members[place]);
        recall(&*self.context.plan.spec.objectives, number, None)?;
        self.run.renew(newcomer, self.engine)?;
        self.wall += begun.elapsed();
        self.entered = true;
        Ok(())
    }

    /// What the next epoch begins with.
    fn hand_on(self, next: usize) -> Result<Completed<'p, T>, LabError> {
        let epochs = self.context.plan.membership.epochs();
        let models = epochs[next].rows_from(&epochs[self.epoch], &self.engine.vector(MODELS)?);
        let (progress, limit, wall) = (*self.run.progress(), self.limit, self.wall);
        let Self { clock, last, history, saved, .. } = self;
        Ok(Completed::Epoch(
            next,
            Box::new(Part { models, clock, progress, limit, wall, last, history, saved }),
        ))
    }

    pub(super) fn complete(mut self) -> Result<Completed<'p, T>, LabError> {
        let (spec, membership) = (&self.context.plan.spec, &self.context.plan.membership);
        let ended = loop {
            let round = self.run.progress().round;
            self.context.observer.advanced(self.job, round);
            if self.stop_reached || round >= spec.rounds {
                break self.context.plan.judge(&self.history, round, self.stop_reached);
            }
            if !std::mem::take(&mut self.entered) {
                let wishes = self.wishes()?;
                if wishes & STOP != 0 {
                    break (JobStatus::Stopped, Ending::default());
                }
                if wishes & SAVE != 0 {
                    self.checkpoint()?;
                    self.saved = Instant::now();
                }
            }
            let begins = membership.beginning_at(round).filter(|epoch| *epoch != self.epoch);
            if let Some(epoch) = begins {
                if membership.epochs()[epoch].members != membership.epochs()[self.epoch].members {
                    return self.hand_on(epoch);
                }
                self.epoch = epoch;
                self.renew()?;
                self.entered = false;
            }
            let next = round + 1;
            let due = self.context.plan.is_recorded(next);
            let rule = self.context.plan.rule_after(next);
            if due || rule.is_some() {
                self.engine.watch();
            }
            let begun = Instant::now();
            let observer = self.context.observer;
            self.run.round_unless(self.engine, &|| observer.is_interrupted())?;
            self.wall += begun.elapsed();
            if let (Some(log), Some(pairings)) = (&mut self.pairing_log, self.run.pairings()) {
                log.note(pairings.last_round())?;
            }
            let size = rms(self.together, self.engine)?;
            let lost = !size.is_finite() || size > self.limit;
            let before = self.last.clone();
            if due || lost || self.may_be_reached(rule)? {
                let drift = self.engine.drift();
                self.record(drift)?;
                let held = rule.zip(self.last.as_ref());
                self.stop_reached = held.is_some_and(|(rule, now)| rule.holds(before.as_ref(), now));
            }
            if lost || self.last.as_ref().is_some_and(|record| !record.loss.is_finite()) {
                break (JobStatus::Diverged, Ending::default());
            }
        };
        Ok(Completed::Job(Box::new(self.conclude(ended)?)))
    }

    /// Whether the rule may hold after this round.
    fn may_be_reached(&mut self, rule: Option<StopRule>) -> Result<bool, LabError> {
        let Some(rule) = rule else { return Ok(false) };
        Ok(may_hold(rule, self.together, self.problem, self.engine)?)
    }

    /// What this rank or any other wants to be done before the next round.
    fn wishes(&self) -> Result<u8, LabError> {
        let stop = if self.context.should_stop() { STOP } else { 0 };
        let save = if self.saved.elapsed() > CHECKPOINT_INTERVAL { SAVE } else { 0 };
        self.together.any(stop | save).map_err(lost)
    }

    fn record(&mut self, drift: Option<f64>) -> Result<(), LabError> {
        let algorithm = &self.context.plan.spec.algorithms[self.job.algorithm];
        let subject =
            RunId { algorithm: &algorithm.entry.name, label: &algorithm.label, seed: self.job.seed };
        let spec = &self.context.plan.spec;
        let chosen = spec.eval_agents().choose(self.problem.agents(), self.job.seed);
        let members = self.context.plan.members(self.epoch);
        let evaluated = RecordedAgents { agents: &chosen, members, each: spec.agent_metrics };
        let (progress, wall_s) = (self.run.progress(), self.wall.as_secs_f64());
        let modelled_s = self.clock.as_mut().map(|clock| clock.after(progress.round)).transpose()?;
        let moment = Moment { progress, drift, wall_s, modelled_s };
        self.pairing_log.as_mut().map_or(Ok(()), PairingLog::flush)?;
        let record = measure(self.together, subject, self.problem, self.engine, evaluated, moment)?;
        self.context.store.append(&record)?;
        self.context.observer.recorded(self.job, &record);
        self.history.push(&record);
        self.last = Some(record);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), LabError> {
        let path = self.context.checkpoint_path(self.job);
        self.save(&path, Some(self.wall.as_secs_f64()))?;
        Ok(self.engine.saved(self.together, &path, self.run.progress().round)?)
    }

    fn save(&mut self, path: &Path, wall_s: Option<f64>) -> Result<(), LabError> {
        self.pairing_log.as_mut().map_or(Ok(()), PairingLog::flush)?;
        let mut progress = *self.run.progress();
        progress.costs = total(self.together, progress.costs)?;
        let header = Header::new(self.context.plan.facts_of(self.job), &progress, wall_s);
        let members = &self.context.plan.membership.epochs()[self.epoch].members;
        let memories = memories(&*self.context.plan.spec.objectives, members.iter().copied())?;
        saved::write(self.together, path, &header, &self.method.layout(), self.engine, &memories)
    }

    fn conclude(mut self, ended: (JobStatus, Ending)) -> Result<Outcome, LabError> {
        let checkpoint = self.context.checkpoint_path(self.job);
        if ended.0 == JobStatus::Stopped {
            self.checkpoint()?;
        } else {
            let path = self.context.final_path(self.job);
            self.save(&path, None)?;
            self.context.store.remove(&checkpoint)?;
            self.engine.saved(self.together, &path, self.run.progress().round)?;
        }
        let progress = *self.run.progress();
        let last = match self.last.take() {
            Some(record) => record,
            None => self.last_on_disk()?,
        };
        let sent = progress.costs.vectors_sent as f64 / progress.round.max(1) as f64;
        Ok(self.context.outcome(self.job, ended, progress.round, sent, last))
    }

    /// The last record of an earlier process, for a job that was resumed and stopped before its next record.
    fn last_on_disk(&self) -> Result<Record, LabError> {
        let (label, seed) = (&self.context.plan.spec.algorithms[self.job.algorithm].label, self.job.seed);
        self.context.records_of(self.job)?.pop().ok_or_else(|| LabError::Directory {
            path: self.context.store.path("metrics.jsonl"),
            problem: format!("no record of {label} with seed {seed}, although its state exists; delete its files in checkpoints/ and final/ to restart it"),
        })
    }
}

/// The root mean square of the models with which a run starts.
fn size_at_start<T: Scalar>(plan: &Plan, seed: u64) -> Result<f64, LabError> {
    let start = plan.start(&*plan.problem::<T>(seed)?, seed)?;
    Ok((block::norm_sq(&start) / start.len().max(1) as f64).sqrt())
}

/// Loads a job's checkpoint, or else its final state, into the engine; `None` if there is neither.
fn restore<T: Scalar>(
    together: Together<'_>,
    context: &JobContext,
    job: Job,
    epoch: usize,
    method: &dyn Method,
    engine: &mut dyn Engine<T>,
) -> Result<Option<Header>, LabError> {
    for path in [context.checkpoint_path(job), context.final_path(job)] {
        let found = saved::read(together, &path, &context.plan.facts_of(job), &method.layout(), engine)?;
        let Some((header, memories)) = found else { continue };
        let members = &context.plan.membership.epochs()[epoch].members;
        recall(&*context.plan.spec.objectives, members.iter().copied(), Some(&memories))?;
        return Ok(Some(header));
    }
    Ok(None)
}
