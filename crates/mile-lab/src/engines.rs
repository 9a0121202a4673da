//! Engines for the agents of a job, and the two precisions they compute in.

use std::sync::Arc;

use mile::engine::Engine;
use mile::method::Method;
use mile::network::Network;
use mile::problems::Problem;
use mile::ranks::{Alone, Ranks};
use mile::real::Real;
use mile::simulator::Simulator;

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

    /// The same problem with losses and metrics computed where the engines are, for records; none by default.
    fn evaluated_single<'a>(&self, problem: &'a dyn Problem<f32>) -> Result<Evaluated<'a, f32>, LabError> {
        let _ = problem;
        Ok(None)
    }

    /// As [`evaluated_single`](Self::evaluated_single), in double precision.
    fn evaluated_double<'a>(&self, problem: &'a dyn Problem<f64>) -> Result<Evaluated<'a, f64>, LabError> {
        let _ = problem;
        Ok(None)
    }
}

/// A problem that stands for another when it is evaluated, or none.
pub type Evaluated<'a, T> = Option<Box<dyn Problem<T> + 'a>>;

/// All agents in this process: the [`Simulator`].
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl InProcess {
    fn open<'a, T: Real>(agents: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, LabError> {
        let EngineSetup { problem, network, method, start, seed } = agents;
        Ok(Box::new(Simulator::new(problem, network, method, start, seed)?))
    }
}

impl Engines for InProcess {
    fn single<'a>(&self, agents: EngineSetup<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError> {
        Self::open(agents)
    }

    fn double<'a>(&self, agents: EngineSetup<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError> {
        Self::open(agents)
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

    /// The problem that is evaluated for records, if it is another.
    fn evaluated<'a>(
        engines: &dyn Engines,
        problem: &'a dyn Problem<Self>,
    ) -> Result<Evaluated<'a, Self>, LabError>;
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

    fn evaluated<'a>(
        engines: &dyn Engines,
        problem: &'a dyn Problem<Self>,
    ) -> Result<Evaluated<'a, Self>, LabError> {
        engines.evaluated_single(problem)
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

    fn evaluated<'a>(
        engines: &dyn Engines,
        problem: &'a dyn Problem<Self>,
    ) -> Result<Evaluated<'a, Self>, LabError> {
        engines.evaluated_double(problem)
    }
}
