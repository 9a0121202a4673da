//! Exchanges in pairs: what they need and exclude, and the pairings of a job, by the model of time or from the log of an earlier run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::membership::Membership;
use mile::method::Method;
use mile::methods::MileInPairs;
use mile::methods::catalogue::Parameters;
use mile::network::Network;
use mile::pairing::{Pairing, Pairings, pairings_in, read_log};
use mile::readiness::{Readiness, Speeds};
use mile::schedule::Decay;
use mile::time::{Law, Line, TimeModel};
use mile_problems::digest;
use mile_theory::weights::WeightChoice;

use super::{Job, Plan};
use crate::engines::Engines;
use crate::error::{DataFileError, FilePlace, LabError};
use crate::identity;
use crate::objectives::Facts;
use crate::refused::of_time;
use crate::spec::{AlgorithmSpec, Spec};

/// The log that a job repeats.
pub(super) struct Replay {
    job: Job,
    pairings: Arc<[Pairing]>,
    digest: String,
}

/// Refuses what exchanges in pairs cannot be combined with.
pub(super) fn check(spec: &Spec, membership: &Membership) -> Result<(), LabError> {
    let mut in_pairs =
        spec.algorithms.iter().enumerate().filter(|(_, algorithm)| algorithm.parameters.pairs).peekable();
    if in_pairs.peek().is_none()
        && let Some(path) = &spec.replay
    {
        let expected = "none, or an algorithm with exchange = \"pairs\" whose exchanges are repeated";
        return Err(LabError::expected("replay", expected, path.display()));
    }
    for (k, AlgorithmSpec { schedule, auto_step_size, .. }) in in_pairs {
        let with_pairs = |key: &str, expected: &str, got: &str| {
            let expected = format!("{expected} with exchange = \"pairs\"");
            Err(LabError::expected(format!("algorithm[{k}].{key}"), expected, got))
        };
        if membership.epochs().len() > 1 {
            let expected = "\"rounds\" with events, which have a round; agents in pairs have none in common";
            return Err(LabError::expected(format!("algorithm[{k}].exchange"), expected, "\"pairs\""));
        }
        if spec.attack.is_some() {
            let expected = "\"rounds\" with a section [attack], whose agents take part in rounds; leave one of the two out";
            return Err(LabError::expected(format!("algorithm[{k}].exchange"), expected, "\"pairs\""));
        }
        if *auto_step_size {
            return with_pairs("step_size", "a positive number", "\"auto\"");
        }
        if schedule.warmup > 0 || schedule.decay != Decay::None {
            return with_pairs("schedule", "a constant step size", "one that changes with the round");
        }
        if !schedule.changes.is_empty() {
            return with_pairs("change", "none", "changes of the step size");
        }
        if spec.time.is_none() && spec.replay.is_none() {
            let expected = format!(
                "a section [time] for algorithm[{k}].exchange = \"pairs\"; it decides who is ready with whom"
            );
            return Err(LabError::expected(
                "time",
                expected,
                "none; add one, such as step = [0.05, 0.05, 0.5] by agent",
            ));
        }
    }
    Ok(())
}

/// Refuses engines that cannot carry out exchanges in pairs.
pub(super) fn check_engines(spec: &Spec, engines: &dyn Engines) -> Result<(), LabError> {
    match spec.algorithms.iter().position(|algorithm| algorithm.parameters.pairs) {
        Some(k) if engines.ranks().count() > 1 || !engines.exchanges_in_pairs() => {
            let expected = "\"rounds\" on a GPU, in PyTorch, on ranks and on engines of your own; exchanges in pairs are computed on the CPU, in one process";
            Err(LabError::expected(format!("algorithm[{k}].exchange"), expected, "\"pairs\""))
        }
        _ => Ok(()),
    }
}

/// The weights of an algorithm in pairs, where they are not given.
pub(super) fn choose_weights(
    index: usize,
    algorithm: &AlgorithmSpec,
    parameters: &mut Parameters,
) -> Result<(), LabError> {
    let word = |weight| match weight {
        Some(WeightChoice::Paper) => Some("\"paper\""),
        Some(WeightChoice::Auto) => Some("\"auto\""),
        Some(WeightChoice::Adaptive) => Some("\"adaptive\""),
        _ => None,
    };
    for (key, given) in [("xi", algorithm.xi), ("gamma", algorithm.gamma)] {
        if let Some(word) = word(given) {
            let expected =
                "a number in (0, 1], or none, with exchange = \"pairs\"; words apply to rounds only";
            return Err(LabError::expected(format!("algorithm[{index}].{key}"), expected, word));
        }
    }
    let tau = parameters.local_steps.unwrap_or(1);
    parameters.xi.get_or_insert(MileInPairs::usual_xi(tau).into());
    parameters.gamma.get_or_insert(1.0);
    Ok(())
}

/// Pairings of agents that are all equally fast; none if the method has rounds.
pub(super) fn at_one_speed(method: &dyn Method, network: &Network) -> Result<Option<Pairings>, LabError> {
    let model =
        TimeModel::new(vec![Law::Constant(1.0)], Line::constant(0.0, f64::INFINITY)).map_err(of_time)?;
    Ok(by_speed(method, network, (model, 0, 0)))
}

/// Pairings by a model of time, the seed of a run and the length of its messages.
fn by_speed(
    method: &dyn Method,
    network: &Network,
    (model, seed, bytes): (TimeModel, u64, usize),
) -> Option<Pairings> {
    let pairwise = method.pairwise()?;
    let local_steps = (0..network.agents()).map(|agent| pairwise.local_steps(agent)).collect();
    let readiness = Readiness::new(network.graph(), Speeds { model, seed, local_steps, bytes });
    Some(Pairings::new(network.agents(), readiness))
}

/// The logs of all jobs that repeat one. A file is the log of the only job; in the folder of a run each job has its own.
pub(super) fn read_logs(plan: &Plan) -> Result<Vec<Replay>, LabError> {
    let Some(given) = &plan.spec.replay else { return Ok(Vec::new()) };
    let is_in_pairs = |job: &Job| plan.spec.algorithms[job.algorithm].parameters.pairs;
    let jobs: Vec<Job> = plan.jobs().into_iter().filter(is_in_pairs).collect();
    if given.is_file() && jobs.len() != 1 {
        let expected = format!("a run directory, for {} jobs with exchange = \"pairs\"", jobs.len());
        return Err(LabError::expected("replay", expected, format!("the file {}", given.display())));
    }
    let path = |job: Job| -> PathBuf {
        let logs = if given.join("pairings").is_dir() { given.join("pairings") } else { given.clone() };
        if given.is_file() { given.clone() } else { logs.join(plan.pairings_file(job)) }
    };
    jobs.into_iter().map(|job| read(plan, job, &path(job))).collect()
}

fn read(plan: &Plan, job: Job, path: &Path) -> Result<Replay, LabError> {
    let bad = |place, problem| DataFileError { file: path.to_owned(), place, column: None, problem };
    let text =
        std::fs::read_to_string(path).map_err(|error| bad(None, format!("cannot read it: {error}")))?;
    let (graph, agents) = (plan.network().graph(), plan.network().agents());
    let joins = |i: usize, j: usize| j < agents && graph.has_edge(i, j);
    let pairings = read_log(&text, joins).map_err(|error| {
        bad(
            Some(FilePlace::Line(error.line as u64)),
            format!("expected {}, got \"{}\"", error.expected, error.got),
        )
    })?;
    let (needed, rounds) = (pairings_in(plan.spec.rounds, agents), plan.spec.rounds);
    if (pairings.len() as u64) < needed {
        let most = 2 * pairings.len() / agents;
        let expected = format!("at most {most}, for which {} has pairings", path.display());
        return Err(LabError::expected("rounds", expected, rounds));
    }
    Ok(Replay { job, pairings: pairings.into(), digest: digest::of_bytes(text.as_bytes()) })
}

impl Plan {
    fn replay(&self, job: Job) -> Option<&Replay> {
        self.replays.iter().find(|replay| replay.job == job)
    }

    /// The pairings of a job whose agents exchange in pairs, from the first round on.
    pub(crate) fn pairings(&self, job: Job) -> Result<Option<Pairings>, LabError> {
        if !self.spec.algorithms[job.algorithm].parameters.pairs {
            return Ok(None);
        }
        let network = self.network();
        if let Some(Replay { pairings, .. }) = self.replay(job) {
            let pairings = pairings.clone();
            let all = (0..pairings.len()).map(move |k| pairings[k]);
            return Ok(Some(Pairings::new(network.agents(), all)));
        }
        let Some(model) = self.time.clone() else { return Ok(None) };
        let bytes = self.message_bytes(job.algorithm);
        Ok(by_speed(&*self.method(job)?, network, (model, job.seed, bytes)))
    }

    /// What decides the pairings of a job: the contents of a log, or the model of time.
    pub(super) fn facts_of_pairings(&self, job: Job) -> Facts {
        match (self.replay(job), &self.spec.time) {
            (Some(replay), _) => Facts::from([("replay".into(), replay.digest.as_str().into())]),
            (None, Some(time)) if self.spec.algorithms[job.algorithm].parameters.pairs => {
                identity::of_time(time)
            }
            _ => Facts::new(),
        }
    }
}
