//! From an experiment to a plan: the network, the jobs, and what they will cost.

use std::sync::Arc;

use mile::agents::Costs;
use mile::method::Method;
use mile::methods::catalogue::{Entry, Parameters};
use mile::network::Network;
use mile::problems::Problem;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile_nn::Scalar;
use sha2::{Digest, Sha256};
use toml::Value;

use crate::config::{AlgorithmConfig, Experiment, Precision, ProblemConfig};
use crate::error::LabError;
use crate::problem::{self, AnyProblem, Library};
use crate::record::Record;
use crate::store::{Outcome, Status, Store};
use crate::theory;

/// An experiment that has been checked and can be run.
pub struct Plan {
    /// What was asked for.
    pub experiment: Experiment,
    /// The network of all runs.
    pub network: Network,
    /// Its methods, in the order of the experiment's algorithms.
    pub methods: Vec<Planned>,
    /// Dimension of the variable.
    pub dim: usize,
    pub(crate) library: Arc<Library>,
}

/// One algorithm of a plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its parameters, all of them numbers.
    pub parameters: Parameters,
    /// Vectors it keeps.
    pub vectors_stored: usize,
    /// Vectors it works with in all.
    pub vectors: usize,
    /// What its start-up and first round cost, measured on a problem of one dimension.
    pub first_round: Costs,
}

impl Plan {
    /// Checks everything that can be checked before the first step; reads the data.
    pub fn new(experiment: Experiment) -> Result<Self, LabError> {
        Self::sharing(experiment, Arc::default())
    }

    /// The same for one agent, which needs no data but its own.
    pub fn for_agent(mut experiment: Experiment, agent: usize) -> Result<Self, LabError> {
        if let ProblemConfig::Table(config) = &mut experiment.problem
            && config.is_per_agent()
        {
            config.only = Some(agent);
            if let Some(k) = experiment.algorithms.iter().position(theory::has_auto) {
                let problem = "\"auto\" is chosen from all agents' data, which one agent does not have: \
                               give the numbers that mile run --dry-run shows where all data are";
                return Err(LabError::config(format!("algorithm[{k}].xi"), problem));
            }
        }
        Self::new(experiment)
    }

    /// The same with data sets that may have been read already.
    pub(crate) fn sharing(mut experiment: Experiment, library: Arc<Library>) -> Result<Self, LabError> {
        let network = experiment.network.build()?;
        let dim = match experiment.precision {
            Precision::F32 => dimension::<f32>(&experiment, &library)?,
            Precision::F64 => dimension::<f64>(&experiment, &library)?,
        };
        let planned = |(k, algorithm): (usize, &AlgorithmConfig)| {
            plan_one(k, algorithm, &experiment, &network, &library)
        };
        let methods: Vec<Planned> =
            experiment.algorithms.iter().enumerate().map(planned).collect::<Result<_, _>>()?;
        write_down_weights(&mut experiment, &methods);
        Ok(Self { experiment, network, methods, dim, library })
    }

    /// Every (algorithm, seed), in the order in which they are reported.
    pub fn jobs(&self) -> Vec<Job> {
        let seeds = &self.experiment.seeds;
        let of = |algorithm: usize| seeds.iter().map(move |seed| Job { algorithm, seed: *seed });
        (0..self.experiment.algorithms.len()).flat_map(of).collect()
    }

    /// Whether these are the outcomes of all jobs, and none was interrupted.
    pub fn is_complete(&self, outcomes: &[Outcome]) -> bool {
        outcomes.len() == self.jobs().len()
            && outcomes.iter().all(|outcome| outcome.status != Status::Stopped)
    }

    /// The job that a record belongs to, if it is still planned.
    pub(crate) fn job_of(&self, record: &Record) -> Option<Job> {
        let label = |job: &Job| &self.experiment.algorithms[job.algorithm].label;
        self.jobs().into_iter().find(|job| *label(job) == record.label && job.seed == record.seed)
    }

    /// Puts the records of a run directory into the order of the jobs.
    pub(crate) fn sort_records(&self, store: &Store) -> Result<(), LabError> {
        let (mut records, jobs) = (store.records()?, self.jobs());
        let place = |record: &Record| jobs.iter().position(|job| Some(*job) == self.job_of(record));
        records.sort_by_cached_key(|record| (place(record), record.round));
        store.rewrite(&records)
    }

    /// The method of a job.
    pub fn method(&self, job: Job) -> Result<Box<dyn Method>, LabError> {
        let (entry, parameters) =
            (self.experiment.algorithms[job.algorithm].entry, &self.methods[job.algorithm].parameters);
        build(job.algorithm, entry, parameters, &self.network, job.seed)
    }

    /// The problem of a seed.
    pub fn problem<T: Scalar>(&self, seed: u64) -> Result<AnyProblem<T>, LabError> {
        problem::build(&self.experiment, seed, &self.library)
    }

    /// Where the agents start with a seed: one row for all, or one for each.
    pub fn start<T: Scalar>(&self, problem: &dyn Problem<T>, seed: u64) -> Vec<T> {
        problem::start(self.experiment.start, problem, seed)
    }

    /// What a job's state is called in a folder.
    pub(crate) fn state_file(&self, job: Job) -> String {
        let label = self.experiment.algorithms[job.algorithm].file_name();
        format!("{label}-seed{}.safetensors", job.seed)
    }

    /// Bytes of a number.
    pub fn number_bytes(&self) -> usize {
        match self.experiment.precision {
            Precision::F32 => 4,
            Precision::F64 => 8,
        }
    }

    /// Bytes of the vectors of one job.
    pub fn memory(&self, job: Job) -> u64 {
        (self.methods[job.algorithm].vectors * self.network.agents() * self.dim * self.number_bytes()) as u64
    }

    /// Bytes that all agents together will send in one job, if every edge is up when it is expected to be.
    pub fn bytes_to_send(&self, job: Job) -> u64 {
        let messages = 2.0 * self.network.graph().edges().count() as f64 * (1.0 - self.network.drop_rate());
        let vectors = self.methods[job.algorithm].first_round.vectors_sent * self.experiment.rounds;
        (vectors as f64 * messages * (self.dim * self.number_bytes()) as f64) as u64
    }

    /// What the trajectory of a job is a function of: the same identity, the same bits.
    pub(crate) fn identity(&self, job: Job) -> String {
        let resolved = &self.experiment.resolved;
        let mut hash = Sha256::new();
        for key in ["network", "problem", "start", "precision"] {
            hash.update(format!(
                "{key}:{}\n",
                resolved.get(key).map(ToString::to_string).unwrap_or_default()
            ));
        }
        let mut algorithm = self.experiment.algorithms[job.algorithm].resolved.clone();
        for spoken_for in ["label", "xi", "gamma"] {
            algorithm.remove(spoken_for); // the weights as numbers are among the parameters
        }
        hash.update(format!("{algorithm}\n{:?}\n{}", self.methods[job.algorithm].parameters, job.seed));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// One algorithm with one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Which algorithm of the experiment.
    pub algorithm: usize,
    /// Which seed.
    pub seed: u64,
}

fn dimension<T: Scalar>(experiment: &Experiment, library: &Library) -> Result<usize, LabError> {
    let mut dim = 0;
    for seed in &experiment.seeds {
        dim = problem::build::<T>(experiment, *seed, library)?.as_dyn().dim();
    }
    Ok(dim)
}

fn plan_one(
    index: usize,
    algorithm: &AlgorithmConfig,
    experiment: &Experiment,
    network: &Network,
    library: &Library,
) -> Result<Planned, LabError> {
    let mut parameters = algorithm.parameters.clone();
    let tau = parameters.local_steps.unwrap_or(1);
    parameters.xi = algorithm.xi.and_then(|weight| weight.number(tau));
    parameters.gamma = algorithm.gamma.and_then(|weight| weight.number(tau));
    if theory::has_auto(algorithm) {
        theory::choose(index, algorithm, experiment, network, library, &mut parameters)?;
    }
    let method = build(index, algorithm.entry, &parameters, network, 0)?;
    let layout = method.layout();
    Ok(Planned {
        parameters,
        vectors_stored: layout.state.len(),
        vectors: layout.vectors(),
        first_round: first_round(&*method, network)?,
    })
}

/// Puts the weights that were left to us into the resolved experiment, as numbers.
fn write_down_weights(experiment: &mut Experiment, methods: &[Planned]) {
    let Some(tables) = experiment.resolved.get_mut("algorithm").and_then(Value::as_array_mut) else { return };
    for ((table, algorithm), planned) in tables.iter_mut().zip(&experiment.algorithms).zip(methods) {
        if let (true, Some(table)) = (theory::has_auto(algorithm), table.as_table_mut()) {
            let chosen = [("xi", planned.parameters.xi), ("gamma", planned.parameters.gamma)];
            for (key, number) in chosen.into_iter().filter_map(|(key, n)| n.map(|n| (key, n))) {
                table.insert(key.to_owned(), Value::Float(number));
            }
        }
    }
}

fn build(
    index: usize,
    entry: &Entry,
    parameters: &Parameters,
    network: &Network,
    seed: u64,
) -> Result<Box<dyn Method>, LabError> {
    entry.build(parameters, network, seed).map_err(|error| {
        LabError::config(
            format!("algorithm[{index}].{}", error.parameter),
            format!("got {}, takes {}", error.got, error.takes),
        )
    })
}

/// What a method spends until its first exchange is over, found by doing it on a problem of no content.
pub fn first_round(method: &dyn Method, network: &Network) -> Result<Costs, LabError> {
    struct Nothing(usize);
    impl Problem<f32> for Nothing {
        fn agents(&self) -> usize {
            self.0
        }
        fn dim(&self) -> usize {
            1
        }
        fn loss(&self, _: usize, _: &[f32]) -> f64 {
            0.0
        }
        fn gradient(&self, _: usize, _: &[f32], gradient: &mut [f32]) {
            gradient.fill(0.0);
        }
    }
    let nothing = Nothing(network.agents());
    let mut agents = Simulator::new(&nothing, network, method, &[0.0], 0);
    let mut run = Run::start(method, Schedule::constant(1.0), &mut agents)?;
    run.round(&mut agents)?;
    Ok(run.progress().costs)
}
