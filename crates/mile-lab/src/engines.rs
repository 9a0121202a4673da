//! Engines for the agents of a job, and the two precisions they compute in.

use std::sync::Arc;

use mile::engine::Engine;
use mile::method::Method;
use mile::network::Network;
use mile::problems::Problem;
use mile::ranks::{Alone, Ranks};
use mile::real::Real;
use mile::simulator;

use crate::error::LabError;
use crate::objectives::Objectives;

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
}

/// Creates engines: in this process, on a GPU, on a cluster.
pub trait Engines: Send + Sync {
    /// The processes that run the experiment together.
    fn ranks(&self) -> &dyn Ranks {
        &Alone
    }

    /// The agents that this process hosts, in the order of their rows.
    fn hosted(&self, network: &Network) -> Vec<usize> {
        (0..network.agents()).collect()
    }

    /// Creates an engine in single precision.
    fn single<'a>(&self, agents: EngineSetup<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError>;

    /// Creates an engine in double precision.
    fn double<'a>(&self, agents: EngineSetup<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError>;

    /// Whether engines evaluate the problem that they are given, which may be that of some agents only. One that knows objectives by
    /// the numbers of the agents says no: agents can join then, but not leave.
    fn evaluates_the_problem(&self) -> bool {
        true
    }

    /// Whether jobs that run at the same time compute together, so that more of them than there are threads are worth it.
    fn computes_together(&self) -> bool {
        false
    }

    /// Whether the engines of a rank have memory of their own, into which a job may not fit: then [`fitting_single`](Self::fitting_single)
    /// refuses it.
    fn has_memory_of_its_own(&self) -> bool {
        false
    }

    /// How many of these jobs fit where the engines are, in single precision; asked if they
    /// [compute together](Self::computes_together) or have [memory of their own](Self::has_memory_of_its_own).
    fn fitting_single(&self, jobs: Jobs<'_, f32>) -> Result<usize, LabError> {
        Ok(jobs.count)
    }

    /// As [`fitting_single`](Self::fitting_single), in double precision.
    fn fitting_double(&self, jobs: Jobs<'_, f64>) -> Result<usize, LabError> {
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

/// All agents in this process: the [`Simulator`](simulator::Simulator).
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Engines for InProcess {
    fn single<'a>(&self, agents: EngineSetup<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError> {
        let EngineSetup { problem, network, method, start, seed } = agents;
        Ok(simulator::single(problem, network, method, start, seed)?)
    }

    fn double<'a>(&self, agents: EngineSetup<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError> {
        let EngineSetup { problem, network, method, start, seed } = agents;
        Ok(simulator::double(problem, network, method, start, seed)?)
    }
}

/// The scalar type of a precision: `f32` or `f64`.
pub trait Scalar: Real {
    /// Builds the problem of a seed in this precision.
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError>;

    /// Creates an engine in this precision.
    fn open<'a>(
        engines: &dyn Engines,
        agents: EngineSetup<'a, Self>,
    ) -> Result<Box<dyn Engine<Self> + 'a>, LabError>;

    /// How many of these jobs fit where the engines are.
    fn fitting(engines: &dyn Engines, jobs: Jobs<'_, Self>) -> Result<usize, LabError>;
}

impl Scalar for f32 {
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError> {
        objectives.single(seed)
    }

    fn open<'a>(
        engines: &dyn Engines,
        agents: EngineSetup<'a, Self>,
    ) -> Result<Box<dyn Engine<Self> + 'a>, LabError> {
        engines.single(agents)
    }

    fn fitting(engines: &dyn Engines, jobs: Jobs<'_, Self>) -> Result<usize, LabError> {
        engines.fitting_single(jobs)
    }
}

impl Scalar for f64 {
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError> {
        objectives.double(seed)
    }

    fn open<'a>(
        engines: &dyn Engines,
        agents: EngineSetup<'a, Self>,
    ) -> Result<Box<dyn Engine<Self> + 'a>, LabError> {
        engines.double(agents)
    }

    fn fitting(engines: &dyn Engines, jobs: Jobs<'_, Self>) -> Result<usize, LabError> {
        engines.fitting_double(jobs)
    }
}
