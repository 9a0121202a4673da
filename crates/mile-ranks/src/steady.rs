//! An exchange whose weights depend on how [steady](mile::steady) differences are, wherever a rank keeps its rows.

use mile::agents::{AgentsError, SteadyPull};
use mile::engine::Engine;
use mile::real::Real;
use mile::steady::Summaries;

use crate::exchange::Crossing;
use crate::together;
use crate::transport::RankTransport;

/// What the exchange needs of an engine that hosts the agents of a rank.
pub trait SteadyRows<T: Real>: Engine<T> {
    /// What carries messages to other ranks.
    fn transport(&self) -> &dyn RankTransport;

    /// What crosses ranks, for the edges that are up in this round.
    fn crossing(&self) -> &Crossing;

    /// The summaries of the hosted agents.
    fn summaries(&mut self, pull: &SteadyPull) -> Result<Summaries, AgentsError>;

    /// Sends the rows once and adds them up twice: with the weights of the crossing, and with these.
    fn send_and_add(&mut self, pull: &SteadyPull, weighed: &Crossing) -> Result<(), AgentsError>;

    /// Keeps the rows that were sent, with the new r of every hosted agent.
    fn remember(&mut self, pull: &SteadyPull, r: Vec<f64>) -> Result<(), AgentsError>;
}

/// First the summaries cross ranks, which determine the weights, then the rows.
pub fn exchange_steady<T: Real>(
    engine: &mut impl SteadyRows<T>,
    pull: &SteadyPull,
) -> Result<(), AgentsError> {
    let own = engine.summaries(pull)?;
    let known = together::summaries(engine.transport(), &engine.crossing().peers, own, engine.dim())
        .map_err(AgentsError::Engine)?;
    let weighed = known.shares(engine.crossing());
    engine.send_and_add(pull, &weighed)?;
    let r = known.steadiness(engine.crossing(), pull.fresh);
    engine.remember(pull, r)
}
