//! A place where agents live, for those who run a method and look at what it does.
//!
//! [`Agents`] is what a method sees. An [`Engine`] also lets its vectors be read and written, and forms sums
//! over all agents of the network in one fixed order, by agent, whatever the number of places they are in:
//! records and decisions are the same to the bit in one process, over many ranks, and on a device.

use std::borrow::Cow;

use crate::agents::{Agents, AgentsError, Vector};
use crate::block;
use crate::real::Real;

/// Adds what the rows of some agents contribute to sums over all agents: the sums so far, the number of the
/// first of these agents, and their rows.
pub type Contribution<'c, T> = dyn FnMut(&mut [f64], usize, &[T]) -> Result<(), AgentsError> + 'c;

/// A place where some or all agents of a network live.
///
/// An engine that hosts all agents implements [`agents`](Self::agents), [`dim`](Self::dim),
/// [`vector`](Self::vector) and [`set_vector`](Self::set_vector), and [`watch`](Self::watch) and [`drift`](Self::drift) if it can. One
/// that hosts a part also implements [`fold`](Self::fold), [`gather`](Self::gather) and [`agree`](Self::agree).
pub trait Engine<T: Real>: Agents {
    /// Number of agents of the whole network, hosted here or elsewhere.
    fn agents(&self) -> usize;

    /// Length of a row.
    fn dim(&self) -> usize;

    /// A vector of the hosted agents, row after row; what was put off is done first.
    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError>;

    /// A vector of all agents of the network, row after row. A call of all places together; an engine that hosts a
    /// part of the agents must implement it.
    fn gather(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        if self.hosted() == (0..self.agents()) {
            return self.vector(v);
        }
        Err(AgentsError::Engine("the rows of agents that live elsewhere cannot be gathered here".into()))
    }

    /// Replaces a vector of the hosted agents: how a checkpoint is restored.
    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError>;

    /// Asks for the consensus error just before the next exchange; see [`drift`](Self::drift).
    fn watch(&mut self) {}

    /// The consensus error of all agents' models as they were sent in the exchange that was watched, if it was.
    fn drift(&mut self) -> Result<Option<f64>, AgentsError> {
        Ok(None)
    }

    /// Whether all places say yes. Decisions that lead to calls of all places together, such as to stop or to
    /// write a checkpoint, are made with it: a call of all places together.
    fn agree(&mut self, yes: bool) -> Result<bool, AgentsError> {
        Ok(yes)
    }

    /// Sums over all agents, in increasing agent. `add` is called here once, with the rows of the hosted agents;
    /// `sums` comes from those who host smaller numbers, goes on to those who host larger ones, and is the same
    /// everywhere in the end. A call of all places together.
    fn fold(&mut self, v: Vector, sums: &mut [f64], add: &mut Contribution<T>) -> Result<(), AgentsError> {
        let hosted = self.hosted();
        if hosted != (0..self.agents()) {
            return Err(AgentsError::Engine(
                "sums over agents that live elsewhere cannot be formed here".into(),
            ));
        }
        add(sums, hosted.start, &self.vector(v)?)
    }

    /// Sum of squares of a vector over all agents; NaN if any entry is.
    fn norm_sq(&mut self, v: Vector) -> Result<f64, AgentsError> {
        let (dim, mut sums) = (self.dim(), [0.0]);
        self.fold(v, &mut sums, &mut |sums, _, rows| {
            block::row_norms_sq(rows, dim).into_iter().for_each(|norm| sums[0] += norm);
            Ok(())
        })?;
        Ok(sums[0])
    }

    /// The mean over all agents of a vector, in `f64`.
    fn mean(&mut self, v: Vector) -> Result<Vec<f64>, AgentsError> {
        let mut mean = vec![0.0; self.dim()];
        self.fold(v, &mut mean, &mut |sums, _, rows| {
            block::add_rows(sums, rows);
            Ok(())
        })?;
        let agents = self.agents() as f64;
        mean.iter_mut().for_each(|m| *m /= agents);
        Ok(mean)
    }

    /// `(1/N) sum_i |mean - v_i|^2` over all agents.
    fn consensus_error(&mut self, v: Vector) -> Result<f64, AgentsError> {
        let mean = self.mean(v)?;
        let mut sums = vec![0.0; block::distance_sums(mean.len())];
        self.fold(v, &mut sums, &mut |sums, _, rows| {
            block::add_distances(sums, rows, &mean);
            Ok(())
        })?;
        Ok(sums.iter().sum::<f64>() / self.agents() as f64)
    }
}
