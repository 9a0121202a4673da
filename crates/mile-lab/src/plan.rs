//! The plan of an experiment: the network, the jobs and their costs, all checked before the first step.

mod clock;
mod costs;
mod methods;
mod pairs;
mod problems;
mod tally;

use std::collections::HashMap;
use std::sync::Arc;

use mile::agents::Costs;
use mile::attack::Attack;
use mile::membership::{Membership, Present};
use mile::method::Method;
use mile::methods::catalogue::Parameters;
use mile::network::Network;
use mile::problems::Problem;
use mile::ranks::Together;
use mile::real::Precision;
use mile::time::TimeModel;
use mile::with_precision;
use mile_store::facts::Difference;

use crate::auto;
use crate::ending::{Ending, History};
use crate::engines::{Engines, InProcess, Scalar};
use crate::error::LabError;
use crate::evaluation_budget::{self, EvaluationBudget, Samples};
use crate::identity;
use crate::objectives::{Fact, Facts};
use crate::quantity::Quantity;
use crate::ranks::{agree, lost};
use crate::record::Record;
use crate::refused::invalid;
use crate::spec::{Spec, StopRule, refuse_pairs_on_a_network};
use crate::start;
use crate::store::{JobStatus, Outcome, Store};

use methods::{build_in, check_later_networks, plan_algorithm};

pub(crate) use clock::JobClock;
pub(crate) use methods::first_auto;
pub use methods::{Choices, first_round_costs};
pub use problems::ProblemSize;
use problems::Problems;
pub use tally::Tally;

/// An experiment that has been checked and can be run.
pub struct Plan {
    /// The experiment, with all weights resolved to numbers.
    pub spec: Spec,
    /// Who takes part in which rounds, and their networks.
    pub membership: Membership,
    /// The methods, in the order of the experiment's algorithms.
    pub methods: Vec<PlannedMethod>,
    /// Properties of the problems.
    pub size: ProblemSize,
    /// How the runs are evaluated.
    pub evaluation: EvaluationBudget,
    /// Creates the engines of the jobs.
    pub(crate) engines: Arc<dyn Engines>,
    /// The agents that this process hosts, in the order of their rows.
    hosted: Vec<usize>,
    facts: Facts,
    problems: Problems,
    /// How long it would take on other computers and lines.
    pub(crate) time: Option<TimeModel>,
    /// The logs of the jobs that repeat the exchanges in pairs of an earlier run.
    replays: Vec<pairs::Replay>,
}

/// The method of one algorithm of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedMethod {
    /// Its parameters, with all weights resolved to numbers.
    pub parameters: Parameters,
    /// Which of them the plan has chosen.
    pub chosen: Choices,
    /// Vectors that an agent stores between updates.
    pub vectors_stored: usize,
    /// All vectors of an agent, including gradients and messages.
    pub vectors: usize,
    /// Costs of its start-up and first round, measured on a problem of dimension 1.
    pub first_round: Costs,
    /// The facts of the file that defines it, if one does.
    facts: Facts,
}

impl Plan {
    /// Reads the data, and checks everything that can be checked before the first step.
    pub fn new(spec: Spec) -> Result<Self, LabError> {
        Self::whole(spec, Samples::Chosen)
    }

    fn whole(spec: Spec, samples: Samples) -> Result<Self, LabError> {
        let membership = spec.membership()?;
        let hosted = spec.honest(&(0..spec.network.agents).collect::<Vec<_>>());
        Self::hosting(spec, membership, hosted, samples)
    }

    /// The plan of a rank, which needs only the data of the agents it hosts. Weights and step sizes must be numbers
    /// ([`choose_once`](crate::choices::choose_once)).
    pub fn spread(mut spec: Spec, engines: Arc<dyn Engines>) -> Result<Self, LabError> {
        let ranks = Together::of(engines.ranks());
        pairs::check_engines(&spec, &*engines)?;
        if ranks.count() == 1 {
            return Ok(Self::new(spec)?.on(engines));
        }
        let membership = agree(ranks, spec.membership())?;
        if !membership.is_lasting() {
            let expected = "the same agents in all rounds on several ranks";
            let got = "events that change them; use one process, or mile swarm";
            return agree(ranks, Err(LabError::expected("event", expected, got)));
        }
        let network = &membership.epochs()[0].network;
        if ranks.count() > network.agents() {
            let problem = format!(
                "expected at least {}, the number of ranks, got {}; start fewer ranks, or use more agents",
                ranks.count(),
                network.agents()
            );
            return agree(ranks, Err(LabError::config("network.agents", problem)));
        }
        let hosted = engines.hosted(network);
        if let Some(own) = spec.objectives.for_ranks(&hosted, ranks)? {
            spec.objectives = own;
        }
        let mut plan = agree(ranks, Self::hosting(spec, membership, hosted, Samples::Chosen))?;
        plan.facts = all_facts(ranks, &plan.facts)?;
        Ok(plan.on(engines.clone()))
    }

    fn hosting(
        mut spec: Spec,
        membership: Membership,
        hosted: Vec<usize>,
        samples: Samples,
    ) -> Result<Self, LabError> {
        let first = &membership.epochs()[0];
        let (network, agents) = (&first.network, membership.numbers());
        let time = spec.time.as_ref().map(|time| time.build(&membership)).transpose()?;
        let size = with_precision!(spec.precision, T => problems::check::<T>(&spec, agents, hosted.len()))?;
        for (k, algorithm) in spec.algorithms.iter_mut().enumerate().filter(|_| size.has_penalty) {
            algorithm.entry.check_penalty().map_err(|error| invalid(k, &algorithm.entry, error))?;
            algorithm.parameters.penalty = true;
        }
        methods::check_own_steps(&spec, agents)?;
        pairs::check(&spec, &membership)?;
        methods::check_matrices(&spec, &size.tensors)?;
        let chosen: Vec<Choices> = spec.algorithms.iter().map(Choices::of).collect();
        let smoothness = auto::smoothness(&spec)?;
        auto::choose_step_sizes(&mut spec, network, smoothness)?;
        let planned = |(k, chosen)| plan_algorithm(k, &mut spec, first, chosen, smoothness);
        let methods: Vec<PlannedMethod> =
            chosen.into_iter().enumerate().map(planned).collect::<Result<_, _>>()?;
        check_later_networks(&spec, &methods, &membership)?;
        if spec.stop.is_some_and(|stop| stop.grad_norm.is_some()) && !size.records_gradient_norm {
            let problem =
                "the gradient of f is not evaluated for so large a problem; use loss_change or consensus";
            return Err(LabError::config("stop.grad_norm", problem));
        }
        let evaluation = evaluation_budget::choose(&mut spec, size.records_gradient_norm, size.dim, samples)?;
        let facts = identity::of_experiment(&spec, &membership, size.dim)?;
        let engines = Arc::new(InProcess);
        let (problems, replays) = (Problems::default(), Vec::new());
        let mut plan = Self {
            spec,
            membership,
            methods,
            size,
            evaluation,
            engines,
            hosted,
            facts,
            problems,
            time,
            replays,
        };
        plan.check_records()?;
        plan.replays = pairs::read_logs(&plan)?;
        Ok(plan)
    }

    /// The plan of one agent of a swarm, which needs only its own data.
    pub fn for_agent(mut spec: Spec, agent: usize) -> Result<Self, LabError> {
        refuse_pairs_on_a_network(&spec)?;
        if spec.attack.is_some() {
            let expected = "no such section for agents on a network";
            return Err(LabError::expected("attack", expected, "one; leave it out, or use mile run"));
        }
        let mut samples = Samples::Chosen;
        if let Some(own) = spec.objectives.for_agent(agent) {
            spec.objectives = own;
            samples = Samples::All;
            // All agents must agree on it, and each knows only its own rows.
            let every = spec.eval_every();
            spec.eval_every = Some(every);
            if let Some(rule) = spec.stop.as_mut().filter(|rule| rule.loss_change.is_none()) {
                rule.every.get_or_insert(every);
            }
            if let Some((k, key)) = first_auto(&spec.algorithms) {
                let problem = "\"auto\" needs all agents' data, and an agent has only its own: give the numbers \
                               that mile run --dry-run prints on a machine with all data";
                return Err(LabError::config(format!("algorithm[{k}].{key}"), problem));
            }
        }
        Self::whole(spec, samples)
    }

    /// Runs the jobs on engines other than the [`Simulator`](mile::simulator::Simulator).
    pub fn on(mut self, engines: Arc<dyn Engines>) -> Self {
        self.engines = engines;
        self
    }

    /// All jobs, in the order in which they are reported.
    pub fn jobs(&self) -> Vec<Job> {
        let seeds = &self.spec.seeds;
        let of = |algorithm: usize| seeds.iter().map(move |seed| Job { algorithm, seed: *seed });
        (0..self.spec.algorithms.len()).flat_map(of).collect()
    }

    /// All jobs, in the order in which they are run: seed by seed, so that an interrupted run has all algorithms with the same seeds.
    pub(crate) fn jobs_in_turn(&self) -> Vec<Job> {
        let of = |seed: u64| (0..self.spec.algorithms.len()).map(move |algorithm| Job { algorithm, seed });
        self.spec.seeds.iter().flat_map(|seed| of(*seed)).collect()
    }

    /// The name of a job in messages.
    pub fn job_name(&self, job: Job) -> String {
        let label = &self.spec.algorithms[job.algorithm].label;
        if self.spec.seeds.len() > 1 { format!("{label}, seed {}", job.seed) } else { label.clone() }
    }

    /// Whether these are the outcomes of all jobs, and all are done or diverged.
    pub fn is_complete(&self, outcomes: &[Outcome]) -> bool {
        outcomes.len() == self.jobs().len() && outcomes.iter().all(|outcome| outcome.status.is_over())
    }

    /// How a job ended that was run to its end: whether it has converged, and what its history shows. The gradient of a neural
    /// network says neither that it has converged nor that it is far from it: for that there is `stop`.
    pub(crate) fn judge(&self, history: &History, round: u64, stop_reached: bool) -> (JobStatus, Ending) {
        let epochs = self.membership.epochs();
        let changed = |k: &usize| epochs[*k].round < round && epochs[*k].members != epochs[*k - 1].members;
        let since = (1..epochs.len()).rfind(changed).map_or(0, |k| epochs[k].round + 1);
        let objectives = &self.spec.objectives;
        let mut ending = history.ending(since, objectives.is_stochastic());
        if objectives.are_networks() {
            (ending.gradient_left, ending.gradient) = (None, None);
        }
        ending.stop_reached = self.spec.stop.map(|_| stop_reached);
        let vanished = match self.spec.precision {
            Precision::F32 => 1e-4,
            Precision::F64 => 1e-5,
        };
        let converged = match ending.stop_reached {
            Some(reached) => reached,
            None => ending.is_within(vanished),
        };
        (if converged { JobStatus::Converged } else { JobStatus::LastRound }, ending)
    }

    /// Whether there is a record after a round, whatever happens.
    pub(crate) fn is_recorded(&self, round: u64) -> bool {
        round.is_multiple_of(self.spec.eval_every()) || round == self.spec.rounds
    }

    /// The rule of `stop`, if it is checked after a round.
    pub(crate) fn rule_after(&self, round: u64) -> Option<StopRule> {
        self.spec.stop.filter(|rule| self.is_recorded(round) || rule.is_checked_after(round))
    }

    /// Whether a quantity is recorded for the experiment's problem.
    pub fn records(&self, quantity: Quantity) -> bool {
        match quantity {
            Quantity::Test(metric, _) => self.size.metrics.contains(&metric),
            Quantity::GradNormSq => self.size.records_gradient_norm,
            Quantity::LossGap => false,
            _ => true,
        }
    }

    /// The job that a record belongs to, if it is in the plan.
    pub(crate) fn job_of(&self, record: &Record) -> Option<Job> {
        let label = |job: &Job| &self.spec.algorithms[job.algorithm].label;
        self.jobs().into_iter().find(|job| *label(job) == record.label && job.seed == record.seed)
    }

    /// Sorts the records of a run directory by job and round.
    pub(crate) fn sort_records(&self, store: &Store) -> Result<(), LabError> {
        let (mut records, jobs) = (store.records()?, self.jobs());
        let place = |record: &Record| jobs.iter().position(|job| Some(*job) == self.job_of(record));
        records.sort_by_cached_key(|record| (place(record), record.round));
        store.rewrite(&records)
    }

    /// The network of all runs, at their beginning.
    pub fn network(&self) -> &Network {
        &self.membership.epochs()[0].network
    }

    /// The method of a job, for the first network.
    pub fn method(&self, job: Job) -> Result<Box<dyn Method>, LabError> {
        self.method_in(job, 0)
    }

    /// The method of a job, for the network of an epoch of the membership.
    pub fn method_in(&self, job: Job, epoch: usize) -> Result<Box<dyn Method>, LabError> {
        let (entry, parameters) =
            (&self.spec.algorithms[job.algorithm].entry, &self.methods[job.algorithm].parameters);
        let epochs = self.membership.epochs();
        build_in(job.algorithm, entry, parameters, epochs.get(epoch).unwrap_or(&epochs[0]), job.seed)
    }

    /// The problem of a seed, shared by all jobs of that seed.
    pub fn problem<T: Scalar>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        self.problems.get(&*self.spec.objectives, seed)
    }

    /// The agents whose models the runs have in an epoch: its members, without malicious ones.
    pub(crate) fn members(&self, epoch: usize) -> &[usize] {
        let epochs = self.membership.epochs();
        match self.spec.attack {
            Some(_) => &self.hosted,
            None => &epochs.get(epoch).unwrap_or(&epochs[0]).members,
        }
    }

    /// The malicious agents, refused on engines that cannot make up what they send.
    pub(crate) fn attack(&self) -> Result<Option<&Attack>, LabError> {
        if self.spec.attack.is_some() && !self.engines.simulates_attacks() {
            let expected = "all agents in one process on the CPU";
            let got = "a GPU or several ranks; use the CPU without ranks, or leave the section out";
            return Err(LabError::expected("attack", expected, got));
        }
        Ok(self.spec.attack.as_ref())
    }

    /// The agents that this process hosts, in the order of their rows.
    pub fn hosted(&self) -> &[usize] {
        &self.hosted
    }

    /// The hosted agents' starting points for a seed: one row for all agents, or one row for each.
    pub fn start<T: Scalar>(&self, problem: &dyn Problem<T>, seed: u64) -> Result<Vec<T>, LabError> {
        let first = Present::new(problem, &self.membership.epochs()[0].members);
        start::points(&self.spec.start, &first, &self.hosted, seed)
    }

    /// The file name of a job's state.
    pub(crate) fn state_file(&self, job: Job) -> String {
        self.file_of(job, "safetensors")
    }

    /// The file name of a job's log of pairings.
    pub(crate) fn pairings_file(&self, job: Job) -> String {
        self.file_of(job, "csv")
    }

    fn file_of(&self, job: Job, kind: &str) -> String {
        let label = self.spec.algorithms[job.algorithm].file_name();
        format!("{label}-seed{}.{kind}", job.seed)
    }

    /// The name of the file that says that an agent's model has diverged in a job.
    pub(crate) fn divergence_file(&self, job: Job) -> String {
        self.file_of(job, "diverged.json")
    }

    /// What the result of a job depends on: the same facts give the same bits.
    pub(crate) fn facts_of(&self, job: Job) -> Facts {
        let mut facts = self.facts.clone();
        let algorithm = &self.spec.algorithms[job.algorithm];
        let parameters = self.methods[job.algorithm].parameters.given();
        facts.extend(identity::of_algorithm(algorithm, &parameters));
        identity::add_own_method(&mut facts, &algorithm.entry);
        facts.extend(self.methods[job.algorithm].facts.clone());
        facts.extend(self.facts_of_pairings(job));
        facts.insert("seed".into(), job.seed.to_string().into());
        facts
    }

    /// How the experiment that an agent's state was made with differs from this one, except for what may be changed while agents
    /// are stopped: `eval_every`, more `rounds`, and changes of step sizes that lie ahead. `facts` are those of
    /// [`facts_for_agents`](Self::facts_for_agents), then and now; the state is of the given job and round.
    pub fn changed_for_agent(&self, then: &Facts, now: &Facts, round: u64) -> Option<Difference> {
        identity::changed_for_agent(then, now, round, self.spec.rounds, self.jobs().len() == 1)
    }

    /// The facts that an agent's neighbours must agree with.
    pub fn facts_for_agents(&self, agent: usize) -> Result<Facts, LabError> {
        identity::for_agents(&self.spec, &self.membership, agent)
    }
}

/// A job: one algorithm with one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Index of the algorithm in the experiment.
    pub algorithm: usize,
    /// The seed.
    pub seed: u64,
}

/// The facts of all ranks, each of which has those of its own data. They must not contradict each other.
fn all_facts(ranks: Together<'_>, own: &Facts) -> Result<Facts, LabError> {
    let told = serde_json::to_vec(&(ranks.name(), own)).unwrap_or_default();
    let mut all: HashMap<String, (String, Fact)> = HashMap::new();
    for text in ranks.all_gather(&told).map_err(lost)? {
        let (rank, facts): (String, Facts) =
            serde_json::from_slice(&text).map_err(|error| lost(error.into()))?;
        for (key, value) in facts {
            match all.get(&key) {
                Some((other, known)) if *known != value => {
                    let problem = format!(
                        "is {known} at {other} and {value} at {rank}: give all ranks the same file, data and program"
                    );
                    return agree(ranks, Err(LabError::config(key, problem)));
                }
                _ => drop(all.insert(key, (rank.clone(), value))),
            }
        }
    }
    Ok(all.into_iter().map(|(key, (_, value))| (key, value)).collect())
}
