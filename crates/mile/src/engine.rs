//! A place that hosts agents, for code that runs a method and observes it.
//!
//! [`Agents`] is what a method sees. An [`Engine`] also lets its vectors be read and written, and forms sums
//! over all agents of the network in one fixed order, by agent, no matter how many places host them:
//! records and decisions are the same to the bit in one process, over many ranks, and on a device.

mod error;
pub mod parts;

use std::borrow::Cow;
use std::path::Path;

pub use self::error::HostError;
use self::parts::Drift;
use crate::agents::{Agents, AgentsError, Vector};
use crate::block;
use crate::ranks::Together;
use crate::real::Real;

/// The result of an engine's evaluation of models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluatedModels {
    /// f of each model, with the penalty if the problem has one.
    pub losses: Vec<f64>,
    /// The metrics of each model in the order of the problem's, if the engine measures them too.
    pub metrics: Option<Vec<Vec<f64>>>,
}

/// A place that hosts some or all agents of a network.
///
/// An engine that hosts all agents implements [`agents`](Self::agents), [`dim`](Self::dim),
/// [`vector`](Self::vector) and [`set_vector`](Self::set_vector), and [`watched`](Self::watched) if it can. One
/// that hosts a part also implements [`agent_at`](Self::agent_at) if it places agents in another order, and
/// what all ranks do [together](Together): [`of_all`](Self::of_all), [`sum`](Self::sum), [`sum_rows`](Self::sum_rows) and
/// [`row`](Self::row).
pub trait Engine<T: Real>: Agents {
    /// Number of agents of the whole network, hosted here or elsewhere.
    fn agents(&self) -> usize;

    /// Length of a row.
    fn dim(&self) -> usize;

    /// A vector of the hosted agents, row after row; deferred work is done first.
    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError>;

    /// Replaces a vector of the hosted agents: how a checkpoint is restored.
    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError>;

    /// Where an engine that [measures](parts::measure_drift) the consensus error just before an exchange keeps it.
    fn watched(&mut self) -> Option<&mut Drift> {
        None
    }

    /// Asks for the consensus error just before the next exchange; see [`drift`](Self::drift).
    fn watch(&mut self) {
        if let Some(drift) = self.watched() {
            drift.ask();
        }
    }

    /// The consensus error of all agents' models as they were sent in the watched exchange, if there was one.
    fn drift(&mut self) -> Option<f64> {
        self.watched().and_then(|drift| drift.found())
    }

    /// Called before the state vectors of a round are written to this file: an engine with more than vectors, such as the statistics of
    /// batch norms, keeps them in a file next to it, which has the round in its name. What belongs to the state that will be replaced stays
    /// until then, so a process that is killed at any time leaves a state with what belongs to it.
    fn saving(&mut self, _: Together<'_>, state: &Path, round: u64) -> Result<(), AgentsError> {
        let _ = (state, round);
        Ok(())
    }

    /// Called when the state vectors have been written and earlier states of the job are gone: what belonged to these can be removed.
    fn saved(&mut self, _: Together<'_>, state: &Path, round: u64) -> Result<(), AgentsError> {
        let _ = (state, round);
        Ok(())
    }

    /// Called when the state vectors of a round have been read from this file, after [`set_vector`](Self::set_vector) for each.
    fn restored(&mut self, _: Together<'_>, state: &Path, round: u64) -> Result<(), AgentsError> {
        let _ = (state, round);
        Ok(())
    }

    /// The agent in a place. [`hosted`](Agents::hosted) are places: they equal the agents' numbers unless an engine
    /// places neighbours next to each other.
    fn agent_at(&self, place: usize) -> usize {
        place
    }

    /// Numbers of all agents in increasing agent, from those of the hosted ones in the order of their rows: equally many for
    /// each agent.
    fn of_all(&mut self, _: Together<'_>, own: Vec<f64>) -> Result<Vec<f64>, AgentsError> {
        refuse_part(self)?;
        Ok(own)
    }

    /// The sum of a vector over all agents, column by column, in increasing agent.
    fn sum(&mut self, _: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        refuse_part(self)?;
        let mut sums = vec![0.0; self.dim()];
        block::add_rows(&mut sums, &self.vector(v)?);
        Ok(sums)
    }

    /// The same for rows of the hosted agents that are not a vector of the method.
    fn sum_rows(&mut self, _: Together<'_>, rows: &[T]) -> Result<Vec<f64>, AgentsError> {
        refuse_part(self)?;
        let mut sums = vec![0.0; self.dim()];
        block::add_rows(&mut sums, rows);
        Ok(sums)
    }

    /// One agent's row of a vector.
    fn row(&mut self, _: Together<'_>, v: Vector, agent: usize) -> Result<Vec<T>, AgentsError> {
        refuse_part(self)?;
        let dim = self.dim();
        Ok(self.vector(v)?[agent * dim..(agent + 1) * dim].to_vec())
    }

    /// Sum of squares of a vector over all agents; NaN if any entry is.
    fn norm_sq(&mut self, together: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        let dim = self.dim();
        let own = block::row_norms_sq(&self.vector(v)?, dim);
        Ok(in_order(&self.of_all(together, own)?))
    }

    /// The mean over all agents of a vector, in `f64`.
    fn mean(&mut self, together: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        let mut mean = self.sum(together, v)?;
        let agents = self.agents() as f64;
        mean.iter_mut().for_each(|m| *m /= agents);
        Ok(mean)
    }

    /// `(1/N) sum_i |mean - v_i|^2` over all agents.
    fn consensus_error(&mut self, together: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        let mean = self.mean(together, v)?;
        let own = block::row_distances_sq(&self.vector(v)?, &mean);
        Ok(in_order(&self.of_all(together, own)?) / self.agents() as f64)
    }

    /// Evaluates the mean of a vector and then the rows of these agents as models, if the engine can do it where they are; none
    /// by default: then the caller evaluates the problem.
    fn evaluate(
        &mut self,
        _: Together<'_>,
        v: Vector,
        agents: &[usize],
    ) -> Result<Option<EvaluatedModels>, AgentsError> {
        let _ = (v, agents);
        Ok(None)
    }

    /// The mean loss of the mini-batches of all agents' gradients since this was last asked, if the engine keeps it; none by default.
    fn batch_loss(&mut self, _: Together<'_>) -> Result<Option<f64>, AgentsError> {
        Ok(None)
    }

    /// The gradient of f, without a penalty, at the mean of a vector, if the engine can compute it where the vector is; none by default.
    fn mean_gradient(&mut self, _: Together<'_>, v: Vector) -> Result<Option<Vec<f64>>, AgentsError> {
        let _ = v;
        Ok(None)
    }
}

/// The sum of numbers from the first to the last.
pub fn in_order(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |sum, number| sum + number)
}

/// Refuses what needs all agents, for an engine that hosts only a part and cannot ask the others.
fn refuse_part<T: Real>(engine: &(impl Engine<T> + ?Sized)) -> Result<(), AgentsError> {
    if engine.hosted() == (0..engine.agents()) {
        return Ok(());
    }
    Err(AgentsError::Engine("sums over agents that live elsewhere cannot be formed here".into()))
}
