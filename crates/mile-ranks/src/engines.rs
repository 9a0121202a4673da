//! Opens the engine of this rank for the jobs of an experiment.

use std::sync::Arc;

use mile::engine::{Engine, HostError};
use mile::network::Network;
use mile::ranks::Ranks;
use mile::real::Real;
use mile_lab::engines::{EngineSetup, Engines, EnginesIn};

use crate::engine::RankEngine;
use crate::placement::Placement;
use crate::transport::RankTransport;

/// Engines on this rank, for [`Plan::spread`](mile_lab::plan::Plan::spread).
pub struct RankEngines<C> {
    transport: Arc<C>,
}

impl<C: RankTransport + 'static> RankEngines<C> {
    /// Engines on the ranks of this transport.
    pub fn new(transport: Arc<C>) -> Self {
        Self { transport }
    }
}

impl<C: RankTransport + 'static> Engines for RankEngines<C> {
    fn ranks(&self) -> &dyn Ranks {
        &*self.transport
    }

    fn hosted(&self, network: &Network) -> Vec<usize> {
        Placement::of(network.graph(), self.transport.count()).agents(self.transport.rank()).to_vec()
    }
}

impl<T: Real, C: RankTransport + 'static> EnginesIn<T> for RankEngines<C> {
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError> {
        let EngineSetup { problem, network, method, start, seed, .. } = setup;
        let placement = Arc::new(Placement::of(network.graph(), self.transport.count()));
        let engine =
            RankEngine::new(self.transport.clone(), placement, problem, network, method, start, seed)?;
        Ok(Box::new(engine))
    }
}
