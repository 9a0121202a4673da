//! Engines for the agents of a job, and the two precisions they compute in.

use std::sync::{Arc, Weak};

use mile::attack::{Attack, Attacked};
use mile::engine::{Engine, HostError};
use mile::method::Method;
use mile::network::Network;
use mile::problems::Problem;
use mile::ranks::{Alone, Ranks};
use mile::real::Real;
use mile::simulator::Simulator;

use crate::error::LabError;
use crate::objectives::{AnyProblem, Objectives};

/// What an engine is created from.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct EngineSetup<'a, T> {
    /// The agents' objectives.
    pub problem: &'a dyn Problem<T>,
    /// The graph and its mixing matrix.
    pub network: &'a Network,
    /// The method.
    pub method: &'a dyn Method,
    /// Starting point: one row for all agents, or one row for each that is hosted here.
    pub start: &'a [T],
    /// Seed of the run.
    pub seed: u64,
    /// Malicious agents, if there are some: only the others are hosted.
    pub attack: Option<&'a Attack>,
}

/// Creates engines: in this process, on a GPU, on a cluster.
pub trait Engines: EnginesIn<f32> + EnginesIn<f64> {
    /// The processes that run the experiment together.
    fn ranks(&self) -> &dyn Ranks {
        &Alone
    }

    /// The agents that this process hosts, in the order of their rows.
    fn hosted(&self, network: &Network) -> Vec<usize> {
        (0..network.agents()).collect()
    }

    /// Whether engines evaluate the problem that they are given, which may be that of some agents only. Engines that know objectives by
    /// the numbers of the agents return false: agents can then join, but not leave.
    fn evaluates_the_problem(&self) -> bool {
        true
    }

    /// Whether engines carry out exchanges in [pairs](mile::pairing).
    fn exchanges_in_pairs(&self) -> bool {
        false
    }

    /// Whether engines make up what malicious agents send.
    fn simulates_attacks(&self) -> bool {
        false
    }

    /// Whether jobs that run at the same time compute together, so that running more of them than there are threads is worthwhile.
    fn computes_together(&self) -> bool {
        false
    }

    /// Whether the engines of a rank have their own memory, into which a job may not fit: then [`fitting`](EnginesIn::fitting)
    /// refuses it.
    fn has_memory_of_its_own(&self) -> bool {
        false
    }
}

/// Creates engines that compute in the precision `T`.
pub trait EnginesIn<T>: Send + Sync {
    /// Creates an engine.
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError>;

    /// How many of these jobs fit where the engines are; called if they [compute together](Engines::computes_together) or have
    /// [separate memory](Engines::has_memory_of_its_own).
    fn fitting(&self, jobs: Jobs<'_, T>) -> Result<usize, HostError> {
        Ok(jobs.count)
    }
}

/// Jobs that are to run at the same time.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Jobs<'a, T> {
    /// The agents' objectives in one of them.
    pub problem: &'a dyn Problem<T>,
    /// The most vectors that a method among them works with.
    pub vectors: usize,
    /// How many there are.
    pub count: usize,
}

impl<'a, T> Jobs<'a, T> {
    pub(crate) fn new(problem: &'a dyn Problem<T>, vectors: usize, count: usize) -> Self {
        Self { problem, vectors, count }
    }
}

/// All agents in this process: the [`Simulator`].
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Engines for InProcess {
    fn exchanges_in_pairs(&self) -> bool {
        true
    }

    fn simulates_attacks(&self) -> bool {
        true
    }
}

impl<T: Real> EnginesIn<T> for InProcess {
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError> {
        let EngineSetup { problem, network, method, start, seed, attack } = setup;
        Ok(match attack {
            Some(attack) => Box::new(Attacked::new(problem, network, method, start, seed, attack)?),
            None => Box::new(Simulator::new(problem, network, method, start, seed)?),
        })
    }
}

/// The scalar type of a precision: `f32` or `f64`.
pub trait Scalar: Real {
    /// Builds the problem of a seed in this precision.
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError>;

    /// The engines of this precision.
    fn engines(engines: &dyn Engines) -> &dyn EnginesIn<Self>;

    /// A problem that is used as long as something else uses it.
    fn downgrade(problem: &Arc<dyn Problem<Self>>) -> WeakProblem;

    /// The problem, if something still uses it.
    fn upgrade(problem: &WeakProblem) -> Option<Arc<dyn Problem<Self>>>;
}

/// A problem in one of the two precisions, kept as long as a job uses it.
#[derive(Clone)]
#[non_exhaustive]
pub enum WeakProblem {
    /// In single precision.
    F32(Weak<dyn Problem<f32>>),
    /// In double precision.
    F64(Weak<dyn Problem<f64>>),
}

impl Scalar for f32 {
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError> {
        match objectives.problem(seed, Self::PRECISION)? {
            AnyProblem::F32(problem) => Ok(problem),
            other => Err(in_one_precision_only::<Self>(&other)),
        }
    }

    fn engines(engines: &dyn Engines) -> &dyn EnginesIn<Self> {
        engines
    }

    fn downgrade(problem: &Arc<dyn Problem<Self>>) -> WeakProblem {
        WeakProblem::F32(Arc::downgrade(problem))
    }

    fn upgrade(problem: &WeakProblem) -> Option<Arc<dyn Problem<Self>>> {
        match problem {
            WeakProblem::F32(problem) => problem.upgrade(),
            _ => None,
        }
    }
}

impl Scalar for f64 {
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError> {
        match objectives.problem(seed, Self::PRECISION)? {
            AnyProblem::F64(problem) => Ok(problem),
            other => Err(in_one_precision_only::<Self>(&other)),
        }
    }

    fn engines(engines: &dyn Engines) -> &dyn EnginesIn<Self> {
        engines
    }

    fn downgrade(problem: &Arc<dyn Problem<Self>>) -> WeakProblem {
        WeakProblem::F64(Arc::downgrade(problem))
    }

    fn upgrade(problem: &WeakProblem) -> Option<Arc<dyn Problem<Self>>> {
        match problem {
            WeakProblem::F64(problem) => problem.upgrade(),
            _ => None,
        }
    }
}

fn in_one_precision_only<T: Real>(problem: &AnyProblem) -> LabError {
    let (got, expected) = (T::PRECISION.name(), problem.precision().name());
    LabError::expected("precision", format!("{expected}; these objectives are in {expected} only"), got)
}
