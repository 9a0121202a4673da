//! A run directory made from what the agents of a network leave in their folders.
//!
//! Agents write their models at the rounds that are recorded, and their last states ([`rows`](crate::rows)). When those of all
//! agents are there they are measured, put together, and kept as if one process had done the run.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use mile::agents::Costs;
use mile::block;
use mile::run::Progress;
use mile_nn::Scalar;

use crate::checkpoint::{self, Header};
use crate::error::LabError;
use crate::execute::Observer;
use crate::export;
use crate::facts;
use crate::job::{DIVERGED, rms};
use crate::plan::{Job, Plan};
use crate::problem::AnyProblem;
use crate::record::{Record, Sight, Subject, measure};
use crate::report::Context;
use crate::rows::Rows;
use crate::store::{Outcome, Status, Store};

/// Gathers one run.
pub struct Gatherer<'a, T> {
    plan: &'a Plan,
    observer: &'a dyn Observer,
    store: Store,
    jobs: Vec<Job>,
    rows: Vec<Rows>,
    /// The last record of each job.
    records: HashMap<Job, Record>,
    /// What is known about the end of jobs.
    outcomes: HashMap<Job, Outcome>,
    /// Jobs whose final state is in the run directory.
    assembled: HashSet<Job>,
    problem: Option<Posed<T>>,
    clock: Instant,
}

/// The problem of one seed, and how large models may grow.
struct Posed<T> {
    seed: u64,
    problem: AnyProblem<T>,
    limit: f64,
}

/// The folder of an agent in a run directory.
pub fn agent_folder(folder: &Path, agent: usize) -> PathBuf {
    folder.join("agents").join(agent.to_string())
}

impl<'a, T: Scalar> Gatherer<'a, T> {
    /// Opens a run directory whose agents live in `agents/0`, `agents/1`, ...
    pub fn open(
        plan: &'a Plan,
        folder: &Path,
        resume: bool,
        observer: &'a dyn Observer,
    ) -> Result<Self, LabError> {
        let store = Store::open(folder, resume)?;
        if resume {
            refuse_another_experiment(&store, plan)?;
        }
        Context::of(plan)?.write(&store)?;
        store.write("config.toml", plan.experiment.resolved.to_string().as_bytes())?;
        let rows = (0..plan.network.agents()).map(|agent| Rows::of(&agent_folder(folder, agent)));
        let mut gatherer = Self {
            plan,
            observer,
            jobs: plan.jobs(),
            rows: rows.collect(),
            records: HashMap::new(),
            outcomes: HashMap::new(),
            assembled: HashSet::new(),
            problem: None,
            clock: Instant::now(),
            store,
        };
        gatherer.recall()?;
        Ok(gatherer)
    }

    /// What an earlier process had gathered.
    fn recall(&mut self) -> Result<(), LabError> {
        let records = self.store.records()?;
        // A line that was left unfinished is cut off.
        self.store.rewrite(&records)?;
        for record in records {
            if let Some(job) = self.plan.job_of(&record) {
                self.records.insert(job, record);
            }
        }
        for outcome in self.store.outcomes()?.into_iter().filter(|o| o.status != Status::Stopped) {
            if let Some(job) = self.plan.job_of(&outcome.last) {
                self.outcomes.insert(job, outcome);
            }
        }
        for job in &self.jobs {
            let path = self.store.path("final").join(self.plan.state_file(*job));
            let known = self.outcomes.contains_key(job);
            if let (true, Some(header)) = (known, checkpoint::header(&path)?) {
                checkpoint::check_identity(&path, &header, &self.plan.identity(*job))?;
                self.assembled.insert(*job);
            }
        }
        Ok(())
    }

    /// Whether the final states of all jobs are there.
    pub fn is_complete(&self) -> bool {
        self.assembled.len() == self.jobs.len()
    }

    /// The jobs that are not over.
    pub fn open_jobs(&self) -> Vec<Job> {
        self.jobs.iter().copied().filter(|job| !self.assembled.contains(job)).collect()
    }

    /// Gathers whatever all agents have left since the last time.
    pub fn gather(&mut self) -> Result<(), LabError> {
        // Agents write a round's snapshot before a job's last state: who has the latter has no more of the former.
        let over: Vec<(usize, Job)> = (self.jobs.iter().copied().enumerate())
            .filter(|(_, job)| !self.assembled.contains(job))
            .filter(|(_, job)| self.rows.iter().all(|rows| rows.last(self.plan, *job).exists()))
            .collect();
        let mut there: HashMap<(usize, u64), usize> = HashMap::new();
        for rows in &self.rows {
            rows.snapshots()?.into_iter().for_each(|at| *there.entry(at).or_default() += 1);
        }
        let mut all: Vec<((usize, u64), usize)> = there.into_iter().collect();
        all.sort_unstable();
        for ((index, round), count) in all {
            let Some(job) = self.jobs.get(index).copied() else { continue };
            let recorded = self.records.get(&job).is_some_and(|record| record.round >= round);
            if !recorded && !self.outcomes.contains_key(&job) {
                if count < self.rows.len() {
                    continue;
                }
                self.record(index, round)?;
            }
            self.rows.iter().try_for_each(|rows| rows.remove_snapshot(index, round))?;
        }
        over.into_iter().try_for_each(|(_, job)| self.assemble(job))
    }

    /// Measures the models of all agents after a round.
    fn record(&mut self, index: usize, round: u64) -> Result<(), LabError> {
        let job = self.jobs[index];
        let path = |rows: &Rows| rows.snapshot(index, round);
        let names: &[&str] = if round == 0 { &["x"] } else { &["x", "sent"] };
        let (mut blocks, progress) = self.blocks(job, names, &path)?;
        let models = blocks.swap_remove(0);
        let drift = blocks.first().map(|sent| block::consensus_error(sent, self.plan.dim));
        let before = self.records.get(&job).map_or(0.0, |record| record.wall_s);
        let wall_s = if round == 0 { 0.0 } else { before + self.clock.elapsed().as_secs_f64() };
        self.clock = Instant::now();
        let algorithm = &self.plan.experiment.algorithms[job.algorithm];
        let subject = Subject { algorithm: algorithm.entry.name, label: &algorithm.label, seed: job.seed };
        let posed = self.posed(job.seed)?;
        let sight = Sight { models: &models, drift };
        let record = measure(subject, posed.problem.as_dyn(), sight, &progress, wall_s);
        let size = rms(&models);
        let lost = !size.is_finite() || size > posed.limit || !record.loss.is_finite();
        self.store.append(&record)?;
        self.observer.recorded(job, &record);
        self.records.insert(job, record.clone());
        if lost && round > 0 {
            let outcome = self.outcome(job, Status::Diverged, record)?;
            self.observer.ended(job, &outcome);
            self.outcomes.insert(job, outcome);
            self.write_summary()?;
        }
        Ok(())
    }

    /// Puts the last states of all agents together.
    fn assemble(&mut self, job: Job) -> Result<(), LabError> {
        let layout = self.plan.method(job)?.layout();
        let names: Vec<&str> = layout.state.iter().map(|(name, _)| *name).collect();
        let (blocks, progress) = self.blocks(job, &names, &|rows| rows.last(self.plan, job))?;
        let last = self.records.get(&job).cloned();
        let last = last.ok_or_else(|| LabError::Directory {
            path: self.store.path("metrics.jsonl"),
            problem: "has no record of a job that is over: its agents were run without snapshots = true"
                .into(),
        })?;
        let header = Header::new(self.plan.identity(job), &progress, None);
        let vectors: Vec<(&str, &[T])> = names.iter().copied().zip(blocks.iter().map(|b| &b[..])).collect();
        let path = self.store.path("final").join(self.plan.state_file(job));
        if !self.outcomes.contains_key(&job) {
            if let AnyProblem::Images(images) = &self.posed(job.seed)?.problem {
                export::models(&path, images.model(), &blocks[0])?;
            }
            let outcome = self.outcome(job, Status::Done, last)?;
            self.observer.ended(job, &outcome);
            self.outcomes.insert(job, outcome);
        }
        let shape = [self.rows.len(), self.plan.dim];
        self.write_summary()?;
        checkpoint::save(&path, &header, &vectors, shape)?;
        self.assembled.insert(job);
        Ok(())
    }

    /// The named vectors of all agents, one block each, and how far they have come together.
    fn blocks(
        &self,
        job: Job,
        names: &[&str],
        path: &dyn Fn(&Rows) -> PathBuf,
    ) -> Result<(Vec<Vec<T>>, Progress), LabError> {
        let (dim, identity) = (self.plan.dim, self.plan.identity(job));
        let mut blocks = vec![vec![T::zero(); self.rows.len() * dim]; names.len()];
        let mut together: Option<Progress> = None;
        for (agent, rows) in self.rows.iter().enumerate() {
            let path = path(rows);
            let mut take = |k: usize, row: &[T]| {
                blocks[k][agent * dim..(agent + 1) * dim].copy_from_slice(row);
            };
            let header = checkpoint::load(&path, &identity, names, [1, dim], &mut take)?;
            let missing = || LabError::Directory { path: path.clone(), problem: "is gone".into() };
            let own = header.ok_or_else(missing)?.progress();
            together = Some(match together {
                None => own,
                Some(sum) => {
                    let bytes_sent = sum.costs.bytes_sent + own.costs.bytes_sent;
                    let gradient_evals = sum.costs.gradient_evals + own.costs.gradient_evals;
                    Progress { costs: Costs { bytes_sent, gradient_evals, ..sum.costs }, ..sum }
                }
            });
        }
        Ok((blocks, together.unwrap_or_default()))
    }

    fn posed(&mut self, seed: u64) -> Result<&Posed<T>, LabError> {
        let kept = self.problem.take().filter(|posed| posed.seed == seed);
        let posed = match kept {
            Some(posed) => posed,
            None => {
                let problem = self.plan.problem::<T>(seed)?;
                let start = self.plan.start(problem.as_dyn(), seed);
                Posed { seed, problem, limit: DIVERGED * rms(&start).max(1.0) }
            }
        };
        Ok(self.problem.insert(posed))
    }

    fn outcome(&self, job: Job, status: Status, last: Record) -> Result<Outcome, LabError> {
        let algorithm = &self.plan.experiment.algorithms[job.algorithm];
        Ok(Outcome {
            label: algorithm.label.clone(),
            algorithm: algorithm.entry.name.to_owned(),
            seed: job.seed,
            status,
            vectors_stored: self.plan.methods[job.algorithm].vectors_stored,
            vectors_sent_per_round: last.vectors_sent as f64 / last.round.max(1) as f64,
            round: last.round,
            last,
        })
    }

    fn write_summary(&self) -> Result<(), LabError> {
        self.store.write_summary(self.jobs.iter().filter_map(|job| self.outcomes.get(job)))
    }

    /// Closes the run directory; jobs that are not over count as stopped.
    pub fn finish(mut self) -> Result<Vec<Outcome>, LabError> {
        for job in self.open_jobs() {
            if let Some(record) = self.records.get(&job).cloned()
                && !self.outcomes.contains_key(&job)
            {
                self.outcomes.insert(job, self.outcome(job, Status::Stopped, record)?);
            }
        }
        self.write_summary()?;
        self.plan.sort_records(&self.store)?;
        Ok(self.jobs.iter().filter_map(|job| self.outcomes.get(job).cloned()).collect())
    }
}

/// Agents cannot change what they have agreed on.
fn refuse_another_experiment(store: &Store, plan: &Plan) -> Result<(), LabError> {
    let path = store.path("config.toml");
    let text = std::fs::read_to_string(&path).map_err(LabError::io(&path, "read"))?;
    let old: toml::Table = text.parse().map_err(|error| LabError::Directory {
        path: path.clone(),
        problem: format!("cannot be read: {error}"),
    })?;
    match facts::difference(&old, &plan.experiment.resolved) {
        None => Ok(()),
        Some((key, old, new)) => Err(LabError::Directory {
            path,
            problem: format!(
                "{key} was {old} and is {new} now, and agents go on only with what they began: give another --out"
            ),
        }),
    }
}
