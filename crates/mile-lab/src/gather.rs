//! Gathers the files of a swarm's agents into one run directory.
//!
//! Agents write snapshots of their models at the recorded rounds, and their final states
//! ([`agent_files`](crate::agent_files)). Once the files of all agents exist, records and states are made from them, as
//! if the run had been done in one process.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use mile::agents::Costs;
use mile::block;
use mile::membership::{Epoch, Present};
use mile::problems::Problem;
use mile::ranks::{Alone, Together};
use mile::run::Progress;
use mile_store::facts::{Difference, until};

use crate::agent_files::{AgentFiles, Divergence, write_divergence};
use crate::coefficients;
use crate::context::Context;
use crate::divergence::DIVERGED;
use crate::ending::{Ending, History};
use crate::engines::{EngineSetup, EnginesIn, InProcess, Scalar};
use crate::error::LabError;
use crate::export;
use crate::identity;
use crate::model_form;
use crate::objectives::remembering::{Memories, recall};
use crate::observer::Observer;
use crate::plan::{Job, JobClock, Plan};
use crate::record::{Moment, Record, RecordedAgents, RunId, measure, rms};
use crate::spec::Spec;
use crate::state::{self, Header};
use crate::store::{JobStatus, Outcome, Store};

/// One process makes the records of all agents.
const ALONE: Together = Together::of(&Alone);

/// Gathers the files of one run.
pub struct Gatherer<'a, T> {
    plan: &'a Plan,
    observer: &'a dyn Observer,
    store: Store,
    jobs: Vec<Job>,
    files: Vec<AgentFiles>,
    /// The last record of each job.
    records: HashMap<Job, Record>,
    /// The outcomes of jobs that have ended.
    outcomes: HashMap<Job, Outcome>,
    /// Jobs whose final state is already in the run directory.
    assembled: HashSet<Job>,
    problem: Option<SeedProblem<T>>,
    /// What tells the modelled times of jobs.
    clocks: HashMap<Job, JobClock<'a>>,
    /// Whether snapshots stay where they are.
    keeps: bool,
    clock: Instant,
}

/// The problem of one seed, and the norm beyond which its models have diverged.
struct SeedProblem<T> {
    seed: u64,
    problem: Arc<dyn Problem<T>>,
    limit: f64,
}

/// The folder of an agent in a run directory.
pub fn agent_folder(folder: &Path, agent: usize) -> PathBuf {
    folder.join("agents").join(agent.to_string())
}

impl<'a, T: Scalar> Gatherer<'a, T> {
    /// Opens a run directory whose agents' folders are `agents/0`, `agents/1`, ...
    pub fn open(
        plan: &'a Plan,
        folder: &Path,
        resume: bool,
        observer: &'a dyn Observer,
    ) -> Result<Self, LabError> {
        let agents = (0..plan.membership.numbers()).map(|agent| agent_folder(folder, agent)).collect();
        Self::open_with(plan, folder, resume, observer, agents, false)
    }

    /// Opens a run directory for agents whose folders, in increasing agent, are elsewhere and may be copies; nothing in them is
    /// changed.
    pub fn open_copies(
        plan: &'a Plan,
        folder: &Path,
        agents: Vec<PathBuf>,
        observer: &'a dyn Observer,
    ) -> Result<Self, LabError> {
        Self::open_with(plan, folder, folder.join("config.toml").exists(), observer, agents, true)
    }

    fn open_with(
        plan: &'a Plan,
        folder: &Path,
        resume: bool,
        observer: &'a dyn Observer,
        agents: Vec<PathBuf>,
        keeps: bool,
    ) -> Result<Self, LabError> {
        let store = Store::open(folder, resume)?;
        let mut extended = false;
        if resume {
            extended = refuse_another_experiment(&store, plan)? < plan.spec.rounds;
        }
        Context::of(plan, None).write(&store)?;
        store.write("config.toml", plan.spec.to_table().to_string().as_bytes())?;
        store.write_all(&plan.spec.objectives.documents(&plan.spec.seeds)?)?;
        store.write_all(model_form::document(plan)?.as_slice())?;
        let files = agents.iter().map(|folder| AgentFiles::of(folder));
        let mut gatherer = Self {
            plan,
            observer,
            jobs: plan.jobs(),
            files: files.collect(),
            records: HashMap::new(),
            outcomes: HashMap::new(),
            assembled: HashSet::new(),
            problem: None,
            clocks: HashMap::new(),
            keeps,
            clock: Instant::now(),
            store,
        };
        gatherer.load_previous(extended)?;
        if extended && !keeps {
            // They are from the rounds that were asked for before.
            for job in gatherer.open_jobs() {
                gatherer.members(plan.spec.rounds).try_for_each(|files| files.remove_last(plan, job))?;
            }
        }
        Ok(gatherer)
    }

    /// Loads what an earlier process has gathered. If the run now has more rounds, jobs that were done no longer are.
    fn load_previous(&mut self, extended: bool) -> Result<(), LabError> {
        let records = self.store.records()?;
        // An incomplete last line is removed.
        self.store.rewrite(&records)?;
        for record in records {
            if let Some(job) = self.plan.job_of(&record) {
                self.records.insert(job, record);
            }
        }
        for outcome in self.store.outcomes()?.into_iter().filter(|outcome| outcome.status.is_over()) {
            if extended && outcome.status.is_done() && outcome.round < self.plan.spec.rounds {
                continue;
            }
            if let Some(job) = self.plan.job_of(&outcome.last) {
                self.outcomes.insert(job, outcome);
            }
        }
        for job in &self.jobs {
            let path = self.store.path("final").join(self.plan.state_file(*job));
            let known = self.outcomes.contains_key(job);
            if let (true, Some(state)) = (known, state::open(&path)?) {
                state::check(&path, &state.header, &self.plan.facts_of(*job))?;
                self.assembled.insert(*job);
            } else if known && self.divergence_path(*job).exists() {
                self.assembled.insert(*job);
            }
        }
        Ok(())
    }

    /// Whether the final states of all jobs are gathered.
    pub fn is_complete(&self) -> bool {
        self.assembled.len() == self.jobs.len()
    }

    /// The jobs whose final states are not gathered.
    pub fn open_jobs(&self) -> Vec<Job> {
        self.jobs.iter().copied().filter(|job| !self.assembled.contains(job)).collect()
    }

    /// The jobs in which an agent's model has diverged, in their order, with what the first such agent says.
    pub fn divergences(&self) -> Vec<(Job, Divergence)> {
        let first = |job: &Job| self.files.iter().find_map(|files| files.read_divergence(self.plan, *job));
        self.jobs.iter().filter_map(|job| Some((*job, first(job)?))).collect()
    }

    /// The index of the job after the last one that has diverged: with this one agents begin.
    pub fn first_job(&self) -> usize {
        let diverged = |job: &Job| self.assembled.contains(job) && self.divergence_path(*job).exists();
        self.jobs.iter().rposition(diverged).map_or(0, |last| last + 1)
    }

    fn divergence_path(&self, job: Job) -> PathBuf {
        self.store.path("final").join(self.plan.divergence_file(job))
    }

    /// Ends a job in which an agent's model has diverged, if it has a record.
    fn give_up(&mut self, job: Job, found: &Divergence) -> Result<(), LabError> {
        let Some(last) = self.records.get(&job).cloned() else { return Ok(()) };
        if !self.outcomes.contains_key(&job) {
            let outcome = self.outcome(job, (JobStatus::Diverged, Ending::default()), last);
            self.observer.ended(job, &outcome);
            self.outcomes.insert(job, outcome);
            self.write_summary()?;
        }
        write_divergence(&self.divergence_path(job), found)?;
        self.assembled.insert(job);
        Ok(())
    }

    /// Gathers the files that all agents have written since the last call.
    pub fn gather(&mut self) -> Result<(), LabError> {
        // Agents write the last snapshot of a job before its final state: once that exists, no snapshot will follow.
        let over: Vec<(usize, Job)> = (self.jobs.iter().copied().enumerate())
            .filter(|(_, job)| !self.assembled.contains(job))
            .filter(|(_, job)| {
                self.members(self.plan.spec.rounds).all(|files| files.last(self.plan, *job).exists())
            })
            .collect();
        let mut there: HashMap<(usize, u64), usize> = HashMap::new();
        for files in &self.files {
            files.snapshots()?.into_iter().for_each(|at| *there.entry(at).or_default() += 1);
        }
        let mut all: Vec<((usize, u64), usize)> = there.into_iter().collect();
        all.sort_unstable();
        for ((index, round), count) in all {
            let Some(job) = self.jobs.get(index).copied() else { continue };
            let recorded = self.records.get(&job).is_some_and(|record| record.round >= round);
            if !recorded && !self.outcomes.contains_key(&job) {
                if count < self.members(round).count() {
                    continue;
                }
                self.record(index, round)?;
            }
            if !self.keeps {
                self.files.iter().try_for_each(|files| files.remove_snapshot(index, round))?;
            }
        }
        over.into_iter().try_for_each(|(_, job)| self.assemble(job))?;
        let diverged = self.divergences().into_iter();
        let open: Vec<_> = diverged.filter(|(job, _)| !self.assembled.contains(job)).collect();
        open.into_iter().try_for_each(|(job, found)| self.give_up(job, &found))
    }

    /// Makes the record of a round from the snapshots of all agents.
    fn record(&mut self, index: usize, round: u64) -> Result<(), LabError> {
        let job = self.jobs[index];
        let path = |files: &AgentFiles| files.snapshot(index, round);
        let names: &[&str] = if round == 0 { &["x"] } else { &["x", "sent"] };
        let (mut blocks, memories, progress) = self.blocks(job, names, round, &path)?;
        self.recall(round, &memories)?;
        let models = blocks.swap_remove(0);
        let drift = blocks.first().map(|sent| block::consensus_error(sent, self.plan.size.dim));
        self.record_models(job, &models, drift, &progress)
    }

    /// Lets the members of a round continue with what they remembered after it, so that their models can be measured.
    fn recall(&self, round: u64, memories: &Memories) -> Result<(), LabError> {
        let members = &self.plan.membership.epochs()[self.plan.membership.at(round)].members;
        recall(&*self.plan.spec.objectives, members.iter().copied(), Some(memories))
    }

    /// Makes a record of models.
    fn record_models(
        &mut self,
        job: Job,
        models: &[T],
        drift: Option<f64>,
        progress: &Progress,
    ) -> Result<(), LabError> {
        let round = progress.round;
        let before = self.records.get(&job).map_or(0.0, |record| record.wall_s);
        let wall_s = if round == 0 { 0.0 } else { before + self.clock.elapsed().as_secs_f64() };
        self.clock = Instant::now();
        let modelled_s = self.modelled(job, round)?;
        let algorithm = &self.plan.spec.algorithms[job.algorithm];
        let subject = RunId { algorithm: &algorithm.entry.name, label: &algorithm.label, seed: job.seed };
        let index = self.plan.membership.at(round);
        let (plan, method) = (self.plan, self.plan.method_in(job, index)?);
        let Epoch { members, network, .. } = &plan.membership.epochs()[index];
        let seed_problem = self.seed_problem(job.seed)?;
        let present = Present::new(&*seed_problem.problem, members);
        let agents = EngineSetup {
            problem: &present,
            network,
            method: &*method,
            start: models,
            seed: job.seed,
            attack: None,
        };
        let mut engine = InProcess.open(agents)?;
        let chosen = plan.spec.eval_agents().choose(members.len(), job.seed);
        let evaluated = RecordedAgents { agents: &chosen, members, each: plan.spec.agent_metrics };
        let moment = Moment { progress, drift, wall_s, modelled_s };
        let record = measure(ALONE, subject, &present, &mut *engine, evaluated, moment)?;
        let size = rms(ALONE, &mut *engine)?;
        drop(engine);
        let lost = !size.is_finite() || size > seed_problem.limit || !record.loss.is_finite();
        self.store.append(&record)?;
        self.observer.recorded(job, &record);
        self.records.insert(job, record.clone());
        if lost && round > 0 {
            let outcome = self.outcome(job, (JobStatus::Diverged, Ending::default()), record);
            self.observer.ended(job, &outcome);
            self.outcomes.insert(job, outcome);
            self.write_summary()?;
        }
        Ok(())
    }

    /// The modelled time of a round, if the experiment models time.
    fn modelled(&mut self, job: Job, round: u64) -> Result<Option<f64>, LabError> {
        if !self.clocks.contains_key(&job) {
            let Some(clock) = JobClock::of(self.plan, job)? else { return Ok(None) };
            self.clocks.insert(job, clock);
        }
        self.clocks.get_mut(&job).map(|clock| clock.after(round)).transpose()
    }

    /// Makes the final state of a job from those of all agents.
    fn assemble(&mut self, job: Job) -> Result<(), LabError> {
        let layout = self.plan.method(job)?.layout();
        let names: Vec<&str> = layout.state_names().collect();
        let rounds = self.plan.spec.rounds;
        let (blocks, memories, progress) =
            self.blocks(job, &names, rounds, &|files| files.last(self.plan, job))?;
        self.recall(rounds, &memories)?;
        if !self.records.contains_key(&job) && self.keeps {
            // Agents that wrote no snapshots: their final states can be measured.
            self.record_models(job, &blocks[0], None, &progress)?;
        }
        let last = self.records.get(&job).cloned();
        let last = last.ok_or_else(|| LabError::Directory {
            path: self.store.path("metrics.jsonl"),
            problem: "no record of a finished job, because its agents ran without snapshots = true; set that in [agent]"
                .into(),
        })?;
        let header = Header::new(self.plan.facts_of(job), &progress, None);
        let vectors: Vec<(&str, &[T])> = names.iter().copied().zip(blocks.iter().map(|b| &b[..])).collect();
        let path = self.store.path("final").join(self.plan.state_file(job));
        if !self.outcomes.contains_key(&job) {
            let members = &self.plan.membership.epochs()[self.plan.membership.at(rounds)].members;
            export::models(&path, &*self.seed_problem(job.seed)?.problem, members, &blocks[0])?;
            let records = self.store.records()?;
            let of_job = |record: &&Record| self.plan.job_of(record) == Some(job);
            let mine: Vec<&Record> = records.iter().filter(of_job).collect();
            let before = mine.len().checked_sub(2).map(|k| mine[k]);
            let holds = self.plan.spec.stop.is_some_and(|rule| rule.holds(before, &last));
            let stop_reached = holds || progress.round < rounds;
            let ended = self.plan.judge(&History::of(mine), progress.round, stop_reached);
            let outcome = self.outcome(job, ended, last);
            self.observer.ended(job, &outcome);
            self.outcomes.insert(job, outcome);
        }
        let shape = [self.members(rounds).count(), self.plan.size.dim];
        self.write_summary()?;
        state::save(&path, &header, &vectors, shape, &memories)?;
        self.assembled.insert(job);
        Ok(())
    }

    /// The files of the members of a round.
    fn members(&self, round: u64) -> impl Iterator<Item = &AgentFiles> {
        let epoch = &self.plan.membership.epochs()[self.plan.membership.at(round)];
        epoch.members.iter().filter_map(|agent| self.files.get(*agent))
    }

    /// What agents that had left before a round had sent and evaluated. For an agent that was lost, nothing is known.
    fn costs_of_departed(&self, job: Job, round: u64) -> Result<Costs, LabError> {
        let mut costs = Costs::default();
        for (agent, files) in self.files.iter().enumerate() {
            if self.plan.membership.leaves(agent).is_none_or(|left| left >= round) {
                continue;
            }
            if let Some(state) = state::open(&files.last(self.plan, job))? {
                let own = state.header.progress().costs;
                costs.bytes_sent += own.bytes_sent;
                costs.gradient_evals += own.gradient_evals;
            }
        }
        Ok(costs)
    }

    /// The named vectors of the members of a round, one block each, what they remember, and the joint progress of all.
    fn blocks(
        &self,
        job: Job,
        names: &[&str],
        round: u64,
        path: &dyn Fn(&AgentFiles) -> PathBuf,
    ) -> Result<(Vec<Vec<T>>, Memories, Progress), LabError> {
        let (dim, facts) = (self.plan.size.dim, self.plan.facts_of(job));
        let mut blocks = vec![vec![T::zero(); self.members(round).count() * dim]; names.len()];
        let (mut together, mut memories): (Option<Progress>, _) = (None, Memories::new());
        for (place, files) in self.members(round).enumerate() {
            let path = path(files);
            let missing = || LabError::Directory { path: path.clone(), problem: "missing".into() };
            let mut found = state::open(&path)?.ok_or_else(missing)?;
            let round = found.header.round;
            let (theirs, ours) = (until(&found.header.facts, round), until(&facts, round));
            state::refuse_difference(&path, identity::difference_for_agent(&theirs, &ours))?;
            for (block, name) in blocks.iter_mut().zip(names) {
                let row: Vec<T> = state::vector(&mut found, &path, name, [1, dim])?;
                block[place * dim..(place + 1) * dim].copy_from_slice(&row);
            }
            memories.extend(state::memories::<T>(&mut found, &path)?);
            let own = found.header.progress();
            together = Some(match together {
                None => own,
                Some(sum) => {
                    let bytes_sent = sum.costs.bytes_sent + own.costs.bytes_sent;
                    let gradient_evals = sum.costs.gradient_evals + own.costs.gradient_evals;
                    // Agents that joined later have sent fewer.
                    let vectors_sent = sum.costs.vectors_sent.max(own.costs.vectors_sent);
                    let exchanges = sum.costs.exchanges.max(own.costs.exchanges);
                    Progress { costs: Costs { vectors_sent, exchanges, bytes_sent, gradient_evals }, ..sum }
                }
            });
        }
        let departed = self.costs_of_departed(job, round)?;
        let mut together = together.unwrap_or_default();
        together.costs.bytes_sent += departed.bytes_sent;
        together.costs.gradient_evals += departed.gradient_evals;
        Ok((blocks, memories, together))
    }

    /// The problem of a seed; the most recent one is cached.
    fn seed_problem(&mut self, seed: u64) -> Result<&SeedProblem<T>, LabError> {
        let kept = self.problem.take().filter(|kept| kept.seed == seed);
        let kept = match kept {
            Some(kept) => kept,
            None => {
                let problem = self.plan.problem::<T>(seed)?;
                let start = self.plan.start(&*problem, seed)?;
                let method = self.plan.method(self.jobs[0])?;
                let present = Present::new(&*problem, &self.plan.membership.epochs()[0].members);
                let network = self.plan.network();
                let agents = EngineSetup {
                    problem: &present,
                    network,
                    method: &*method,
                    start: &start,
                    seed,
                    attack: None,
                };
                let limit = DIVERGED * rms(ALONE, &mut *InProcess.open(agents)?)?.max(1.0);
                SeedProblem { seed, problem: problem.clone(), limit }
            }
        };
        Ok(self.problem.insert(kept))
    }

    fn outcome(&self, job: Job, (status, ending): (JobStatus, Ending), last: Record) -> Outcome {
        let algorithm = &self.plan.spec.algorithms[job.algorithm];
        Outcome {
            label: algorithm.label.clone(),
            algorithm: algorithm.entry.name.to_string(),
            seed: job.seed,
            status,
            vectors_stored: self.plan.methods[job.algorithm].vectors_stored,
            vectors_sent_per_round: last.vectors_sent as f64 / last.round.max(1) as f64,
            round: last.round,
            ending,
            last,
            error: None,
        }
    }

    fn write_summary(&self) -> Result<(), LabError> {
        self.store.write_summary(self.jobs.iter().filter_map(|job| self.outcomes.get(job)))
    }

    /// Writes the summary and returns the outcomes; jobs that have not ended count as stopped.
    pub fn finish(mut self) -> Result<Vec<Outcome>, LabError> {
        for job in self.open_jobs() {
            if let Some(record) = self.records.get(&job).cloned()
                && !self.outcomes.contains_key(&job)
            {
                let ended = (JobStatus::Stopped, Ending::default());
                self.outcomes.insert(job, self.outcome(job, ended, record));
            }
        }
        self.write_summary()?;
        self.plan.sort_records(&self.store)?;
        coefficients::write(self.plan, &self.store)?;
        Ok(self.jobs.iter().filter_map(|job| self.outcomes.get(job).cloned()).collect())
    }
}

/// Refuses to resume a swarm with an experiment that differs in something its agents could not agree on. Returns the rounds it had.
fn refuse_another_experiment(store: &Store, plan: &Plan) -> Result<u64, LabError> {
    let old = Spec::of_run(store.folder())?;
    match identity::changed_for_swarm(&old, &plan.spec) {
        None => Ok(old.rounds),
        Some(Difference { key, old, new }) => Err(LabError::Directory {
            path: store.path("config.toml"),
            problem: format!(
                "{key} was {old} and is {new} now, but a resumed swarm can only have more rounds, another eval_every and later changes \
                 of step sizes; undo the change, or choose another --out"
            ),
        }),
    }
}
