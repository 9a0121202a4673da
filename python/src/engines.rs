//! Where the agents of a run are: in Rust, with objectives in Rust or Python, or in a Python host.

use std::borrow::Cow;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use mile::agents::{
    Agents, AgentsError, BlockFunction, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector,
};
use mile::engine::parts::{self, Drift};
use mile::engine::{Engine, HostError, in_order};
use mile::network::Network;
use mile::ranks::{Ranks, Together};
use mile::real::Real;
use mile::simulator::Simulator;
use mile_lab::engines::{EngineSetup, Engines, EnginesIn};
use numpy::Element;
use pyo3::prelude::*;

use crate::failure::Raised;
use crate::host::{HostEngine, block};
use crate::memory::{Memory, Owner};
use crate::ranks::{PyRanks, or_alone};

/// Opens the engines of a run.
pub(crate) struct PyEngines {
    /// The problem, if it has a host.
    pub(crate) host: Option<Py<PyAny>>,
    /// The function of a problem without a host that returns the agents' losses of mini-batches since the last record, if it has one.
    pub(crate) batch_losses: Option<Arc<Py<PyAny>>>,
    pub(crate) memory: Memory,
    pub(crate) raised: Raised,
    pub(crate) ranks: Option<Arc<PyRanks>>,
}

impl<T: Real + Element> EnginesIn<T> for PyEngines {
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError> {
        let EngineSetup { problem, network, method, start, seed, .. } = setup;
        if let Some(host) = &self.host {
            let (raised, ranks) = (self.raised.clone(), self.ranks.clone());
            let engine = HostEngine::new(host, network, method, start, seed, raised, ranks)?;
            return Ok(Box::new(engine.with_matrices(parts::matrices(problem, method)?)));
        }
        let simulator = Simulator::new(problem, network, method, start, seed)?;
        let blocks = (0..method.layout().vectors()).map(|v| simulator.vector(Vector(v)));
        let owner = self.memory.lend(blocks).map_err(|error| HostError::Engine(Box::new(error)))?;
        let simulator = ManuallyDrop::new(simulator);
        let (memory, raised) = (self.memory.clone(), self.raised.clone());
        Ok(Box::new(Lending { simulator, memory, owner, raised, batch_losses: self.batch_losses.clone() }))
    }
}

impl Engines for PyEngines {
    fn ranks(&self) -> &dyn Ranks {
        or_alone(self.ranks.as_ref())
    }

    fn evaluates_the_problem(&self) -> bool {
        self.host.is_none()
    }

    fn exchanges_in_pairs(&self) -> bool {
        self.host.is_none()
    }

    fn hosted(&self, network: &Network) -> Vec<usize> {
        let ranks = self.ranks();
        block(network.agents(), ranks.rank(), ranks.count()).collect()
    }
}

/// A simulator whose memory Python objectives see. It outlives the simulator if Python keeps an array that points into it.
struct Lending<'a, T: Real> {
    simulator: ManuallyDrop<Simulator<'a, T>>,
    memory: Memory,
    owner: Arc<Py<Owner>>,
    raised: Raised,
    batch_losses: Option<Arc<Py<PyAny>>>,
}

impl<T: Real> Drop for Lending<'_, T> {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here, and not used afterwards.
        let simulator = unsafe { ManuallyDrop::take(&mut self.simulator) };
        self.memory.release(&self.owner, simulator.into_blocks());
    }
}

impl<T: Real> Agents for Lending<'_, T> {
    fn hosted(&self) -> Range<usize> {
        self.simulator.hosted()
    }

    fn begin(&mut self, step_size: f64) {
        self.simulator.begin(step_size);
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.simulator.gradient(x, g, draw)
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.simulator.combine(y, keep, terms)
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.simulator.prox(x, step)
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.simulator.optimise(step)
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.simulator.clip(g, most)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.simulator.pull(round, pairs)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.simulator.pull_steady(round, pull)
    }

    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.simulator.pull_robust(round, pull)
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.simulator.pull_compressed(round, pull)
    }

    fn apply(&mut self, function: &dyn BlockFunction, vectors: &[Vector]) -> Result<(), AgentsError> {
        self.simulator.apply(function, vectors)
    }

    fn only_agent(&mut self, agent: Option<usize>) -> Result<(), AgentsError> {
        self.simulator.only_agent(agent)
    }

    fn pull_in_pairs(&mut self, from: Vector, to: Vector, pairs: &[[usize; 2]]) -> Result<u64, AgentsError> {
        self.simulator.pull_in_pairs(from, to, pairs)
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.simulator.only(own)
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.simulator.forget(scratch)
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        self.simulator.settle()
    }
}

impl<T: Real> Engine<T> for Lending<'_, T> {
    fn agents(&self) -> usize {
        self.simulator.agents()
    }

    fn dim(&self) -> usize {
        self.simulator.dim()
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        Engine::vector(&mut *self.simulator, v)
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        self.simulator.set_vector(v, rows)
    }

    fn watched(&mut self) -> Option<&mut Drift> {
        self.simulator.watched()
    }

    fn batch_loss(&mut self, _: Together<'_>) -> Result<Option<f64>, AgentsError> {
        let Some(losses) = &self.batch_losses else { return Ok(None) };
        let own: Vec<f64> = self.raised.verb(|py| losses.bind(py).call0()?.extract())?;
        Ok((!own.is_empty()).then(|| in_order(&own) / own.len() as f64))
    }
}
