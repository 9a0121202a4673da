//! The agents of one rank of a cluster on a device.
//!
//! Rows that cross ranks are sent by the [`RankTransport`] that ranks on the CPU use, from the device's memory if it accepts that,
//! otherwise from a copy in the host's, and added up on the device in increasing agent. Sums over the agents of all ranks are formed as
//! one device forms them, so that states and records have the same bits whatever the number of ranks.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mile::agents::{Agents, AgentsError, CompressedPull, OptimiserStep, SteadyPull, Vector};
use mile::engine::parts::{Drift, compress, measure_drift};
use mile::engine::{Engine, EvaluatedModels, HostError};
use mile::method::Method;
use mile::network::Network;
use mile::problems::Problem;
use mile::ranks::Together;
use mile::real::Real;
use mile::steady;
use mile_ranks::exchange::Crossing;
use mile_ranks::placement::Placement;
use mile_ranks::steady::exchange_steady;
use mile_ranks::together;
use mile_ranks::transport::RankTransport;

use super::copied::Copied;
use super::evaluation::{LossesAndMetrics, value};
use super::{GpuAgents, engine};
use crate::device::DeviceError;
use crate::objective::Model;
use crate::stack::Stack;
use crate::vectors::total;
use crate::work::Work;

/// Hosts the agents of one rank on a [`Device`](crate::device::Device).
pub struct GpuRank<'a, T: Real, C> {
    /// The agents of this rank; their exchanges are carried out here.
    pub(super) own: GpuAgents<'a, T>,
    pub(super) transport: Arc<C>,
    placement: Arc<Placement>,
    /// What crosses ranks, for the edges that were up in the last round.
    pub(super) crossing: Crossing,
    pub(super) sent: Copied<T>,
    pub(super) received: Copied<T>,
    /// Models that are evaluated.
    models: Copied<T>,
}

impl<'a, T: Real, C: RankTransport> GpuRank<'a, T, C> {
    /// The agents that a placement gives this rank, at their starting points, with the vectors `method` works with. `start` has one row for
    /// all agents, or one for each agent of this rank, in the order of its places.
    pub fn new(
        stack: &Arc<Stack<T>>,
        (transport, placement): (Arc<C>, Arc<Placement>),
        problem: &'a dyn Problem<T>,
        network: &Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Result<Self, HostError> {
        let rank = transport.rank();
        let hosted = placement.agents(rank).to_vec();
        let own = GpuAgents::hosting(hosted, stack, problem, network, method, start, seed)?;
        let crossing = Crossing::of(network, &placement, rank, seed, 0);
        let [sent, received, models] = [(); 3].map(|()| Copied::new());
        Ok(Self { own, transport, placement, crossing, sent, received, models })
    }

    /// Whether gradients are computed on the device; otherwise the problem computes them on the CPU.
    pub fn computes_gradients(&self) -> bool {
        self.own.computes_gradients()
    }

    /// What precedes every exchange: carrying out what was noted, the drift if it was asked for, and the edges that are up in the round.
    fn begin_exchange(&mut self, round: u64, model: Vector) -> Result<(), AgentsError> {
        self.settle()?;
        let transport = self.transport.clone();
        measure_drift(self, Together::of(&*transport), model)?;
        self.own.norm_sq = None;
        let (rank, seed) = (self.transport.rank(), self.own.seed);
        self.crossing.turn_to(round, &self.own.network, &self.placement, rank, seed);
        Ok(())
    }

    /// The sum of squares that this work asks for, over the agents of all ranks.
    fn squares(&mut self, together: Together<'_>, work: &Work) -> Result<f64, AgentsError> {
        self.own.stack.alone(work).map_err(engine)?;
        let parts = {
            let _queue = self.own.stack.lock();
            self.own.vectors.read_squares().map_err(engine)?
        };
        Ok(total(&self.of_all(together, parts)?))
    }

    /// Sets the mean on the device to that over all ranks, and returns it.
    fn set_mean(&mut self, together: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        let mean = self.mean(together, v)?;
        let _queue = self.own.stack.lock();
        self.own.vectors.set_mean(&mean).map_err(engine)?;
        Ok(mean)
    }

    /// The losses of models for the agents hosted here, and the metrics of the models that this rank measures.
    fn losses_and_metrics(&mut self, models: &[Vec<T>]) -> Result<Option<LossesAndMetrics>, DeviceError> {
        let (stride, stack) = (self.own.vectors.stride(), self.own.stack.clone());
        let at = self.models.reserve(&stack, models.len() * stride)?;
        let rows = self.models.here(models.len() * stride).chunks_exact_mut(stride);
        for (row, model) in rows.zip(models) {
            row[..model.len()].copy_from_slice(model);
        }
        self.models.put(&stack, models.len() * stride)?;
        let (rank, ranks) = (self.transport.rank(), self.transport.count());
        let model = |k: usize| Model { at: at + self.bytes(k), is_measured: k % ranks == rank };
        let models: Vec<Model> = (0..models.len()).map(model).collect();
        self.own.losses_and_metrics(&models, Work::default())
    }

    /// The metrics of all models, some of which each rank has measured.
    fn metrics(
        &self,
        together: Together<'_>,
        own: Vec<Option<Vec<f64>>>,
    ) -> Result<Option<Vec<Vec<f64>>>, AgentsError> {
        let (models, ranks) = (own.len(), self.transport.count());
        let measured: Vec<Vec<f64>> = own.into_iter().flatten().collect();
        let told = self.transport.all_gather(together, bytemuck::cast_slice(&measured.concat()));
        let told: Vec<Vec<f64>> = told
            .map_err(AgentsError::Engine)?
            .iter()
            .map(|part| bytemuck::pod_collect_to_vec(part))
            .collect();
        // The first rank measures the first model.
        let each = told[0].len() / models.div_ceil(ranks);
        let metrics = |k: usize| told[k % ranks].get(k / ranks * each..(k / ranks + 1) * each);
        let all: Option<Vec<Vec<f64>>> = (0..models).map(|k| metrics(k).map(<[f64]>::to_vec)).collect();
        Ok(all.filter(|_| each > 0))
    }
}

impl<T: Real, C: RankTransport> Agents for GpuRank<'_, T, C> {
    fn hosted(&self) -> Range<usize> {
        self.placement.places(self.transport.rank())
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.own.gradient(x, g, draw)
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.own.combine(y, keep, terms)
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.own.prox(x, step)
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.own.optimise(step)
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.own.clip(g, most)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.own.noted.check_pull(pairs)?;
        self.begin_exchange(round, pairs[0].0)?;
        self.own.guard.begin()?;
        let from: Vec<Vector> = pairs.iter().map(|(from, _)| *from).collect();
        let others = self.send(&from)?;
        let mut work = Work::default();
        let matrix = self.crossed(&self.crossing, &mut work);
        for ((from, to), others) in pairs.iter().zip(others) {
            self.own.vectors.pull_across(*from, *to, matrix, others, &mut work);
        }
        self.own.stack.alone(&work).map_err(engine)?;
        self.own.guard.end();
        Ok(self.crossing.messages * (pairs.len() * self.own.vectors.dim() * size_of::<T>()) as u64)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.own.noted.check_steady(pull)?;
        self.begin_exchange(round, pull.from)?;
        self.own.guard.begin()?;
        exchange_steady(self, pull)?;
        self.own.guard.end();
        Ok(self.crossing.messages * steady::message_bytes::<T>(self.own.vectors.dim()) as u64)
    }

    /// The CPU compresses, with the same bits as in every engine.
    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.own.noted.check(pull.model)?;
        self.own.noted.check_pull(&[(pull.from, pull.to)])?;
        self.begin_exchange(round, pull.model)?;
        let rows = compress(self, pull)?;
        self.own.guard.begin()?;
        self.exchange_compressed(pull, &rows)?;
        self.own.guard.end();
        Ok(self.crossing.messages * pull.by.message_bytes::<T>(self.own.vectors.dim()) as u64)
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.own.only(own)
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.own.forget(scratch)
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        self.own.settle()
    }
}

impl<T: Real, C: RankTransport> Engine<T> for GpuRank<'_, T, C> {
    fn agents(&self) -> usize {
        self.own.network.agents()
    }

    fn dim(&self) -> usize {
        self.own.vectors.dim()
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        self.own.vector(v)
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        self.own.set_vector(v, rows)
    }

    fn watched(&mut self) -> Option<&mut Drift> {
        self.own.watched()
    }

    fn agent_at(&self, place: usize) -> usize {
        self.placement.agent_at(place)
    }

    fn of_all(&mut self, together: Together<'_>, own: Vec<f64>) -> Result<Vec<f64>, AgentsError> {
        together::of_all(&*self.transport, together, &self.placement, &own).map_err(AgentsError::Engine)
    }

    fn sum(&mut self, together: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        let rows = self.vector(v)?.into_owned();
        self.sum_rows(together, &rows)
    }

    fn sum_rows(&mut self, together: Together<'_>, rows: &[T]) -> Result<Vec<f64>, AgentsError> {
        together::sum(&*self.transport, together, &self.placement, rows, self.dim())
            .map_err(AgentsError::Engine)
    }

    fn row(&mut self, together: Together<'_>, v: Vector, agent: usize) -> Result<Vec<T>, AgentsError> {
        self.settle()?;
        self.own.noted.check(v)?;
        let read = |row: usize| {
            let _queue = self.own.stack.lock();
            Ok(self.own.vectors.get_row(v, row)?)
        };
        together::row(&*self.transport, together, &self.placement, agent, read).map_err(AgentsError::Engine)
    }

    fn norm_sq(&mut self, together: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        self.settle()?;
        self.own.noted.check(v)?;
        let mut work = Work::default();
        self.own.vectors.squares(v, &mut work);
        self.squares(together, &work)
    }

    fn consensus_error(&mut self, together: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        self.set_mean(together, v)?;
        let mut work = Work::default();
        self.own.vectors.distances_from_mean(v, &mut work);
        Ok(self.squares(together, &work)? / self.agents() as f64)
    }

    fn evaluate(
        &mut self,
        together: Together<'_>,
        v: Vector,
        agents: &[usize],
    ) -> Result<Option<EvaluatedModels>, AgentsError> {
        if !self.computes_gradients() {
            return Ok(None);
        }
        let mut models = vec![self.mean(together, v)?.into_iter().map(T::of).collect::<Vec<T>>()];
        for agent in agents {
            models.push(self.row(together, v, *agent)?);
        }
        let Some(found) = self.losses_and_metrics(&models).map_err(engine)? else { return Ok(None) };
        let rows = 0..self.own.vectors.agents();
        let own = rows.flat_map(|row| found.iter().map(move |(losses, _)| losses[row])).collect();
        let all = self.of_all(together, own)?;
        let loss = |(k, x): (usize, &Vec<T>)| {
            let of_agents: Vec<f64> = all.iter().skip(k).step_by(models.len()).copied().collect();
            value(&of_agents) + self.own.beside(x)
        };
        let losses = models.iter().enumerate().map(loss).collect();
        let metrics = self.metrics(together, found.into_iter().map(|(_, metrics)| metrics).collect())?;
        Ok(Some(EvaluatedModels { losses, metrics }))
    }

    fn mean_gradient(&mut self, together: Together<'_>, v: Vector) -> Result<Option<Vec<f64>>, AgentsError> {
        if !self.computes_gradients() {
            return Ok(None);
        }
        let mean = self.set_mean(together, v)?;
        let Some(rows) = self.own.exact_gradients().map_err(engine)? else { return Ok(None) };
        let mut gradient = self.sum_rows(together, &rows)?;
        let agents = self.agents() as f64;
        gradient.iter_mut().for_each(|g| *g /= agents);
        self.own.weight_decay.add_gradient::<T>(&mut gradient, &mean);
        Ok(Some(gradient))
    }
}
