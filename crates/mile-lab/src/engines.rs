//! Where the agents of a job live, and the two precisions in which they do.

use std::sync::Arc;

use mile::engine::Engine;
use mile::method::Method;
use mile::network::Network;
use mile::problems::Problem;
use mile::real::Real;
use mile::simulator::Simulator;

use crate::error::LabError;
use crate::objectives::Objectives;

/// What an engine is opened for: agents at their starting points, with the vectors a method works with.
#[derive(Clone, Copy)]
pub struct Agents<'a, T> {
    /// The objectives.
    pub problem: &'a dyn Problem<T>,
    /// Who talks to whom.
    pub network: &'a Network,
    /// The method.
    pub method: &'a dyn Method,
    /// One starting point for all agents, or one for each.
    pub start: &'a [T],
    /// Seed of the run.
    pub seed: u64,
}

/// Opens engines: in this process, on a device, on the ranks of a cluster.
pub trait Engines: Send + Sync {
    /// An engine in single precision.
    fn single<'a>(&self, agents: Agents<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError>;

    /// An engine in double precision.
    fn double<'a>(&self, agents: Agents<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError>;
}

/// All agents in this process: the [`Simulator`].
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl InProcess {
    fn open<'a, T: Real>(agents: Agents<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, LabError> {
        let Agents { problem, network, method, start, seed } = agents;
        Ok(Box::new(Simulator::new(problem, network, method, start, seed)?))
    }
}

impl Engines for InProcess {
    fn single<'a>(&self, agents: Agents<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError> {
        Self::open(agents)
    }

    fn double<'a>(&self, agents: Agents<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError> {
        Self::open(agents)
    }
}

/// A precision as a type: `f32` or `f64`.
pub trait Scalar: Real {
    /// The problem of a seed in this precision.
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError>;

    /// An engine in this precision.
    fn open<'a>(
        engines: &dyn Engines,
        agents: Agents<'a, Self>,
    ) -> Result<Box<dyn Engine<Self> + 'a>, LabError>;
}

impl Scalar for f32 {
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError> {
        objectives.single(seed)
    }

    fn open<'a>(
        engines: &dyn Engines,
        agents: Agents<'a, Self>,
    ) -> Result<Box<dyn Engine<Self> + 'a>, LabError> {
        engines.single(agents)
    }
}

impl Scalar for f64 {
    fn problem(objectives: &dyn Objectives, seed: u64) -> Result<Arc<dyn Problem<Self>>, LabError> {
        objectives.double(seed)
    }

    fn open<'a>(
        engines: &dyn Engines,
        agents: Agents<'a, Self>,
    ) -> Result<Box<dyn Engine<Self> + 'a>, LabError> {
        engines.double(agents)
    }
}
