//! Runs one job, that is one algorithm with one seed, from its start or a checkpoint to its last round.

mod running;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mile::membership::{Epoch, Present};
use mile::problems::Problem;
use mile::ranks::Together;
use mile_store::facts::until;

use self::running::{Completed, JobSetup, Part, RunningJob};
use crate::ending::Ending;
use crate::engines::{EngineSetup, Scalar};
use crate::error::LabError;
use crate::export;
use crate::identity::{changed_network, difference};
use crate::observer::Observer;
use crate::plan::{Job, Plan};
use crate::record::Record;
use crate::spec::Spec;
use crate::state::{self, Header};
use crate::store::{JobStatus, Outcome, Store};

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

    pub(crate) fn pairings_path(&self, job: Job) -> PathBuf {
        self.store.path("pairings").join(self.plan.pairings_file(job))
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
                let (round, rounds) = (state.header.round, self.plan.spec.rounds);
                if round > rounds {
                    let name = self.plan.job_name(job);
                    let problem = format!(
                        "expected at least {round}, which {name} has already done in {}, got {rounds}; or give another folder",
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
        if difference.as_ref().is_some_and(|difference| difference.key == "network.weights")
            && let Ok(before) = Spec::of_run(self.store.folder())
        {
            difference = changed_network(&before, &self.plan.spec).or(difference);
        }
        state::refuse_difference(path, difference)
    }

    /// Runs a job to its last round, or until the stop flag is set. With `resume`, it starts from its checkpoint. Each epoch of the
    /// membership has an engine for its members.
    pub(crate) fn run<T: Scalar>(
        &self,
        together: Together<'_>,
        job: Job,
        resume: bool,
    ) -> Result<Outcome, LabError> {
        let plan = self.plan;
        let membership = &plan.membership;
        let problem = plan.problem::<T>(job.seed)?;
        let attack = plan.attack()?;
        let all = membership.is_lasting() && attack.is_none();
        let is_gap = |epoch: &Epoch| epoch.members.last().is_some_and(|last| last + 1 != epoch.members.len());
        if !plan.engines.evaluates_the_problem() && membership.epochs().iter().any(is_gap) {
            let problem = "agents cannot leave on an engine that identifies objectives by agent numbers";
            return Err(LabError::config("event", problem));
        }
        let round = if resume && !all { self.round_of_state(job)? } else { None };
        let (mut index, mut before) = (membership.at(round.unwrap_or(0)), None);
        loop {
            let epoch = &membership.epochs()[index];
            let members = plan.members(index);
            let present = Present::new(&*problem, members);
            let objectives: &dyn Problem<T> = if all { &*problem } else { &present };
            let method = plan.method_in(job, index)?;
            let start = match &before {
                Some(Part { models, .. }) => models.clone(),
                None if index == 0 => plan.start(&*problem, job.seed)?,
                None => vec![T::zero(); problem.dim()],
            };
            let agents = EngineSetup {
                // Malicious agents have objectives as well, which nobody looks at.
                problem: if attack.is_some() { &*problem } else { objectives },
                network: &epoch.network,
                method: &*method,
                start: &start,
                seed: job.seed,
                attack,
            };
            let mut engine = T::engines(&*plan.engines).open(agents)?;
            let setup = JobSetup { job, epoch: index, problem: objectives, method: &*method };
            let running = match before.take() {
                Some(part) => RunningJob::enter(together, self, setup, &mut *engine, part)?,
                None => RunningJob::begin(together, self, setup, &mut *engine, resume)?,
            };
            let outcome = match running.complete()? {
                Completed::Job(outcome) => *outcome,
                Completed::Epoch(next, part) => {
                    (index, before) = (next, Some(*part));
                    continue;
                }
            };
            if outcome.status.is_done() {
                export::models_of(together, &self.final_path(job), objectives, members, &mut *engine)?;
            }
            return Ok(outcome);
        }
    }

    /// The outcome of a job that failed, from its last record; `None` if it has no record.
    pub(crate) fn failed(&self, job: Job, error: &LabError) -> Result<Option<Outcome>, LabError> {
        let Some(last) = self.records_of(job)?.pop() else { return Ok(None) };
        let sent = last.vectors_sent as f64 / last.round.max(1) as f64;
        let ended = (JobStatus::Failed, Ending::default());
        let outcome = self.outcome(job, ended, last.round, sent, last);
        Ok(Some(Outcome { error: Some(error.to_string()), ..outcome }))
    }

    /// The records of a job so far.
    fn records_of(&self, job: Job) -> Result<Vec<Record>, LabError> {
        let records = self.store.records()?;
        Ok(records.into_iter().filter(|record| self.plan.job_of(record) == Some(job)).collect())
    }

    fn outcome(
        &self,
        job: Job,
        (status, ending): (JobStatus, Ending),
        round: u64,
        sent: f64,
        last: Record,
    ) -> Outcome {
        let algorithm = &self.plan.spec.algorithms[job.algorithm];
        Outcome {
            label: algorithm.label.clone(),
            algorithm: algorithm.entry.name.to_string(),
            seed: job.seed,
            status,
            vectors_stored: self.plan.methods[job.algorithm].vectors_stored,
            vectors_sent_per_round: sent,
            round,
            ending,
            last,
            error: None,
        }
    }
}
