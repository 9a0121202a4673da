//! One algorithm with one seed, from its start or its checkpoint to its last round.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mile::agents::Vector;
use mile::block;
use mile::method::Method;
use mile::problems::Problem;
use mile::run::Run;
use mile::simulator::Simulator;
use mile_nn::Scalar;

use crate::checkpoint::{self, Header};
use crate::error::LabError;
use crate::execute::Observer;
use crate::export;
use crate::plan::{Job, Plan};
use crate::problem::AnyProblem;
use crate::record::{Record, Sight, Subject, measure};
use crate::store::{Outcome, Status, Store};

/// A run has diverged when the root mean square of its models is this many times what it was at the
/// start, or this, whichever is more; or is not finite.
pub const DIVERGED: f64 = 1e8;

/// Time between two checkpoints of a run.
const CHECKPOINT: Duration = Duration::from_secs(20);

/// What a job works with.
pub(crate) struct Bench<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) store: &'a Store,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) stop: &'a AtomicBool,
}

impl Bench<'_> {
    pub(crate) fn final_path(&self, job: Job) -> PathBuf {
        self.state_path("final", job)
    }

    pub(crate) fn checkpoint_path(&self, job: Job) -> PathBuf {
        self.state_path("checkpoints", job)
    }

    fn state_path(&self, folder: &str, job: Job) -> PathBuf {
        self.store.path(folder).join(self.plan.state_file(job))
    }

    /// The round of the state a job would go on from.
    pub(crate) fn round_of_state(&self, job: Job) -> Result<Option<u64>, LabError> {
        for path in [self.checkpoint_path(job), self.final_path(job)] {
            if let Some(header) = checkpoint::header(&path)? {
                return Ok(Some(header.round));
            }
        }
        Ok(None)
    }

    /// Refuses the final state of another experiment.
    pub(crate) fn check_final(&self, job: Job) -> Result<(), LabError> {
        let path = self.final_path(job);
        match checkpoint::header(&path)? {
            Some(header) => checkpoint::check_identity(&path, &header, &self.plan.identity(job)),
            None => Ok(()),
        }
    }

    /// Runs a job to its end, or until it is told to stop. `resume` takes up its checkpoint.
    pub(crate) fn run<T: Scalar>(&self, job: Job, resume: bool) -> Result<Outcome, LabError> {
        let plan = self.plan;
        let problem = plan.problem::<T>(job.seed)?;
        let method = plan.method(job)?;
        let start = plan.start(problem.as_dyn(), job.seed);
        let mut agents = Simulator::new(problem.as_dyn(), &plan.network, &*method, &start, job.seed);
        drop(start);
        let running = Running::begin(self, job, problem.as_dyn(), &*method, &mut agents, resume)?;
        let outcome = running.complete()?;
        if let (AnyProblem::Images(images), Status::Done) = (&problem, outcome.status) {
            export::models(&self.final_path(job), images.model(), agents.models())?;
        }
        Ok(outcome)
    }
}

/// A job at work.
struct Running<'a, 'p, T> {
    bench: &'a Bench<'a>,
    job: Job,
    problem: &'p dyn Problem<T>,
    method: &'a dyn Method,
    agents: &'a mut Simulator<'p, T>,
    run: Run<'a>,
    limit: f64,
    wall: Duration,
    last: Option<Record>,
    saved: Instant,
}

impl<'a, 'p, T: Scalar> Running<'a, 'p, T> {
    fn begin(
        bench: &'a Bench<'a>,
        job: Job,
        problem: &'p dyn Problem<T>,
        method: &'a dyn Method,
        agents: &'a mut Simulator<'p, T>,
        resume: bool,
    ) -> Result<Self, LabError> {
        let schedule = bench.plan.experiment.algorithms[job.algorithm].schedule.clone();
        let limit = DIVERGED * rms(agents.models()).max(1.0);
        let shape = [problem.agents(), problem.dim()];
        let mut saved = None;
        if resume {
            let identity = bench.plan.identity(job);
            let names: Vec<&str> = method.layout().state.iter().map(|(name, _)| *name).collect();
            let mut take = |k: usize, block: &[T]| agents.vector_mut(Vector(k)).copy_from_slice(block);
            for path in [bench.checkpoint_path(job), bench.final_path(job)] {
                if saved.is_none() {
                    saved = checkpoint::load(&path, &identity, &names, shape, &mut take)?;
                }
            }
        }
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let (run, wall) = match &saved {
            Some(header) => {
                let wall = seconds(header.wall_s.unwrap_or_default());
                (Run::resume(method, schedule, header.progress()), wall)
            }
            None => {
                let begun = Instant::now();
                (Run::start(method, schedule, agents)?, begun.elapsed())
            }
        };
        let mut running =
            Self { bench, job, problem, method, agents, run, limit, wall, last: None, saved: Instant::now() };
        match saved {
            None => running.record()?,
            Some(Header { wall_s: None, .. }) => running.wall = seconds(running.last_on_disk()?.wall_s),
            Some(_) => {}
        }
        Ok(running)
    }

    fn complete(mut self) -> Result<Outcome, LabError> {
        let experiment = &self.bench.plan.experiment;
        let status = loop {
            let round = self.run.progress().round;
            self.bench.observer.advanced(self.job, round);
            if round >= experiment.rounds {
                break Status::Done;
            }
            if self.bench.stop.load(Ordering::Relaxed) {
                break Status::Stopped;
            }
            let next = round + 1;
            let due = next.is_multiple_of(experiment.eval_every) || next == experiment.rounds;
            if due {
                self.agents.watch();
            }
            let begun = Instant::now();
            self.run.round(self.agents)?;
            self.wall += begun.elapsed();
            let size = rms(self.agents.models());
            let lost = !size.is_finite() || size > self.limit;
            if due || lost {
                self.record()?;
            }
            if lost || self.last.as_ref().is_some_and(|record| !record.loss.is_finite()) {
                break Status::Diverged;
            }
            if self.saved.elapsed() > CHECKPOINT {
                self.checkpoint()?;
                self.saved = Instant::now();
            }
        };
        self.conclude(status)
    }

    fn record(&mut self) -> Result<(), LabError> {
        let algorithm = &self.bench.plan.experiment.algorithms[self.job.algorithm];
        let subject =
            Subject { algorithm: algorithm.entry.name, label: &algorithm.label, seed: self.job.seed };
        let sight = Sight { models: self.agents.models(), drift: self.agents.drift() };
        let record = measure(subject, self.problem, sight, self.run.progress(), self.wall.as_secs_f64());
        self.bench.store.append(&record)?;
        self.bench.observer.recorded(self.job, &record);
        self.last = Some(record);
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), LabError> {
        self.save(&self.bench.checkpoint_path(self.job), Some(self.wall.as_secs_f64()))
    }

    fn save(&self, path: &std::path::Path, wall_s: Option<f64>) -> Result<(), LabError> {
        let identity = self.bench.plan.identity(self.job);
        let header = Header::new(identity, self.run.progress(), wall_s);
        let shape = [self.problem.agents(), self.problem.dim()];
        let state = self.method.layout().state.iter().enumerate();
        let tensors: Vec<(&str, &[T])> =
            state.map(|(k, (name, _))| (*name, self.agents.vector(Vector(k)))).collect();
        checkpoint::save(path, &header, &tensors, shape)
    }

    fn conclude(self, status: Status) -> Result<Outcome, LabError> {
        let checkpoint = self.bench.checkpoint_path(self.job);
        if status == Status::Stopped {
            self.checkpoint()?;
        } else {
            self.save(&self.bench.final_path(self.job), None)?;
            match std::fs::remove_file(&checkpoint) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(LabError::io(&checkpoint, "remove")(error));
                }
                _ => {}
            }
        }
        let algorithm = &self.bench.plan.experiment.algorithms[self.job.algorithm];
        let progress = *self.run.progress();
        let last = match self.last {
            Some(record) => record,
            None => self.last_on_disk()?,
        };
        Ok(Outcome {
            label: algorithm.label.clone(),
            algorithm: algorithm.entry.name.to_owned(),
            seed: self.job.seed,
            status,
            vectors_stored: self.method.layout().state.len(),
            vectors_sent_per_round: progress.costs.vectors_sent as f64 / progress.round.max(1) as f64,
            round: progress.round,
            last,
        })
    }

    /// The last record of an earlier process, for a run that was resumed and stopped before the next.
    fn last_on_disk(&self) -> Result<Record, LabError> {
        let label = &self.bench.plan.experiment.algorithms[self.job.algorithm].label;
        let mine = |record: &Record| record.label == *label && record.seed == self.job.seed;
        let records = self.bench.store.records()?;
        records.into_iter().rfind(mine).ok_or_else(|| LabError::Directory {
            path: self.bench.store.path("metrics.jsonl"),
            problem: format!("has no record of {label} with seed {}, but its state is there", self.job.seed),
        })
    }
}

/// Root mean square of all entries; NaN if any is.
pub(crate) fn rms<T: Scalar>(block: &[T]) -> f64 {
    (block::norm_sq(block) / block.len().max(1) as f64).sqrt()
}
