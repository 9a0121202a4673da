//! The agents of one rank.
//!
//! Verbs between exchanges are noted, and each agent then does all of them at once. In an exchange, receives are posted first, then
//! sends. While messages are under way, agents whose neighbours are all here are served, and the others as soon as the rows they
//! need have arrived.

mod compressed;
mod robust;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mile::agents::{Agents, AgentsError, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector};
use mile::block;
use mile::engine::parts::{self, Drift, Guard, Pool, blocks, matrices, measure_drift, replace};
use mile::engine::{Engine, HostError};
use mile::method::Method;
use mile::network::Network;
use mile::optimiser::MatrixPart;
use mile::problems::Problem;
use mile::ranks::Together;
use mile::real::Real;
use mile::steady::{Summaries, message_bytes, remember};
use mile::verbs::{LocalWork, Noted, Rows, Verb, Verbs};

use crate::exchange::Crossing;
use crate::placement::Placement;
use crate::steady::{SteadyRows, exchange_steady};
use crate::together;
use crate::transport::RankTransport;
use crate::work::{Messages, Work};

/// Bytes from which a row is a message by itself, sent from where it lies: packing it would cost a copy, which is more than a
/// message costs.
const LONG: usize = 8 << 10;

/// The agents of one rank of a cluster.
pub struct RankEngine<'a, T, C> {
    transport: Arc<C>,
    placement: Arc<Placement>,
    problem: &'a dyn Problem<T>,
    network: &'a Network,
    seed: u64,
    dim: usize,
    blocks: Vec<Vec<T>>,
    matrices: Vec<MatrixPart>,
    /// The agents' numbers of local steps, where they differ.
    own_steps: Vec<u64>,
    noted: Verbs,
    /// What crosses ranks, for the edges that were up in the last round.
    crossing: Crossing,
    /// Messages to and from each peer.
    buffers: (Vec<Vec<T>>, Vec<Vec<T>>),
    pool: Pool,
    drift: Drift,
    guard: Guard,
}

impl<'a, T: Real, C: RankTransport> RankEngine<'a, T, C> {
    /// Agents at their starting points, with the vectors `method` works with. `start` has one row for all agents, or one for each
    /// agent of this rank, in the order of its places.
    pub fn new(
        transport: Arc<C>,
        placement: Arc<Placement>,
        problem: &'a dyn Problem<T>,
        network: &'a Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Result<Self, HostError> {
        let rank = transport.rank();
        let blocks = blocks(problem, network, method, start, placement.agents(rank).len())?;
        let crossing = Crossing::of(network, &placement, rank, seed, 0);
        Ok(Self {
            transport,
            placement,
            problem,
            network,
            seed,
            dim: problem.dim(),
            matrices: matrices(problem, method)?,
            own_steps: method.own_steps().unwrap_or_default().to_vec(),
            noted: Verbs::new(blocks.len()),
            blocks,
            crossing,
            buffers: (Vec::new(), Vec::new()),
            pool: Pool::default(),
            drift: Drift::default(),
            guard: Guard::default(),
        })
    }

    /// Whether agents are so few that threads share their rows, verb by verb.
    fn is_wide(&self) -> bool {
        self.dim > 1 << 16 && self.hosted().len() < rayon::current_num_threads()
    }

    /// Carries out what was noted, which contains no exchanges.
    fn carry_out(&mut self) -> Result<(), AgentsError> {
        let agents = self.placement.agents(self.transport.rank());
        let dim = self.dim;
        let (matrices, own_steps) = (&self.matrices[..], &self.own_steps[..]);
        let work = LocalWork { problem: self.problem, seed: self.seed, matrices, own_steps };
        let noted = self.noted.stage(0);
        let threads = self.pool.is_worth();
        if !self.is_wide() {
            let serve =
                |rows: &mut Rows<'_, T>| noted.iter().try_for_each(|verb| rows.carry_out(verb, &work));
            return Rows::each(agents, &mut self.blocks, dim, threads, serve);
        }
        for verb in noted {
            if let &Noted { verb: Verb::Combine { y, keep, ref terms, used }, only: None } = verb {
                let mut out = std::mem::take(&mut self.blocks[y.0]);
                let lent: Vec<(f64, &[T])> =
                    terms[..used].iter().map(|(a, v)| (*a, &self.blocks[v.0][..])).collect();
                block::combine_block(&mut out, keep, &lent);
                self.blocks[y.0] = out;
            } else {
                let serve = |rows: &mut Rows<'_, T>| rows.carry_out(verb, &work);
                Rows::each(agents, &mut self.blocks, dim, threads, serve)?;
            }
        }
        Ok(())
    }

    /// Whether each row is a message by itself.
    fn is_long(&self) -> bool {
        self.dim * size_of::<T>() >= LONG
    }

    /// Packs the rows that each peer gets, if they are short.
    fn pack(&mut self, from: &[Vector]) {
        let is_long = self.is_long();
        let (dim, peers) = (self.dim, &self.crossing.peers);
        let (out, room) = &mut self.buffers;
        out.resize_with(peers.len().max(out.len()), Vec::new);
        room.resize_with(peers.len().max(room.len()), Vec::new);
        for (peer, (out, room)) in peers.iter().zip(out.iter_mut().zip(room)) {
            room.resize(peer.receives.len() * from.len() * dim, T::zero());
            out.clear();
            if !is_long {
                for row in &peer.sends {
                    for from in from {
                        out.extend_from_slice(&self.blocks[from.0][row * dim..(row + 1) * dim]);
                    }
                }
            }
        }
    }

    /// Sends and receives the rows of vectors, and adds them up; if there are second weights, a single vector is added up again with those.
    fn send_and_fold(
        &mut self,
        from: &[Vector],
        to: &[Vector],
        weighed: Option<&Crossing>,
    ) -> Result<(), AgentsError> {
        self.pack(from);
        let mut targets: Vec<Vec<T>> = to.iter().map(|to| std::mem::take(&mut self.blocks[to.0])).collect();
        let (dim, crossing, is_long) = (self.dim, &self.crossing, self.is_long());
        let sources: Vec<&[T]> = from.iter().map(|from| &self.blocks[from.0][..]).collect();
        let (out, room) = &mut self.buffers;
        let mut sends: Vec<(usize, &[u8])> = Vec::new();
        let mut receives: Vec<(usize, &mut [u8])> = Vec::new();
        let mut first = Vec::new();
        for (peer, (packed, room)) in crossing.peers.iter().zip(out.iter().zip(room)) {
            first.push(receives.len());
            if is_long {
                for row in &peer.sends {
                    let rows = sources.iter().map(|source| &source[row * dim..(row + 1) * dim]);
                    sends.extend(rows.map(|row| (peer.rank, bytemuck::cast_slice(row))));
                }
                let rows = room.chunks_exact_mut(dim);
                receives.extend(rows.map(|row| (peer.rank, bytemuck::cast_slice_mut(row))));
            } else {
                sends.push((peer.rank, bytemuck::cast_slice(packed)));
                receives.push((peer.rank, bytemuck::cast_slice_mut(room)));
            }
        }
        let messages = Messages { first: &first, pairs: from.len(), dim, is_long };
        let mut work = Work::new(crossing, weighed, messages, &sources, &mut targets);
        let done = self.transport.exchange(&sends, &mut receives, &mut |arrived| work.step(arrived));
        let complete = work.is_done();
        for (to, target) in to.iter().zip(targets) {
            self.blocks[to.0] = target;
        }
        done.map_err(AgentsError::Engine)?;
        if !complete {
            return Err(AgentsError::Engine("not all rows of an exchange were added up".into()));
        }
        Ok(())
    }
}

impl<T: Real, C: RankTransport> RankEngine<'_, T, C> {
    /// What precedes every exchange: carrying out what was noted, the drift if it was asked for, and the edges that are up in the round.
    /// Then the exchange begins.
    fn begin_exchange(&mut self, round: u64, model: Vector) -> Result<(), AgentsError> {
        self.settle()?;
        let transport = self.transport.clone();
        measure_drift(self, Together::of(&*transport), model)?;
        self.crossing.turn_to(round, self.network, &self.placement, self.transport.rank(), self.seed);
        self.guard.begin()
    }
}

impl<T: Real, C: RankTransport> SteadyRows<T> for RankEngine<'_, T, C> {
    fn transport(&self) -> &dyn RankTransport {
        &*self.transport
    }

    fn crossing(&self) -> &Crossing {
        &self.crossing
    }

    fn summaries(&mut self, pull: &SteadyPull) -> Result<Summaries, AgentsError> {
        Ok(Summaries::of(&self.blocks[pull.from.0], &self.blocks[pull.memory.0], self.dim))
    }

    fn send_and_add(&mut self, pull: &SteadyPull, weighed: &Crossing) -> Result<(), AgentsError> {
        self.send_and_fold(&[pull.from], &[pull.to, pull.steady], Some(weighed))
    }

    fn remember(&mut self, pull: &SteadyPull, r: Vec<f64>) -> Result<(), AgentsError> {
        let (dim, mut memory) = (self.dim.max(1), std::mem::take(&mut self.blocks[pull.memory.0]));
        let rows = self.blocks[pull.from.0].chunks_exact(dim).zip(memory.chunks_exact_mut(dim));
        rows.zip(r).for_each(|((v, memory), r)| remember(memory, v, r));
        self.blocks[pull.memory.0] = memory;
        Ok(())
    }
}

impl<T: Real, C: RankTransport> Agents for RankEngine<'_, T, C> {
    fn hosted(&self) -> Range<usize> {
        self.placement.places(self.transport.rank())
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.gradient(x, g, draw)
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.combine(y, keep, terms)
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.prox(x, step)
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.optimise(step)
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.clip(g, most)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.noted.check_pull(pairs)?;
        self.begin_exchange(round, pairs[0].0)?;
        let (from, to): (Vec<Vector>, Vec<Vector>) = pairs.iter().copied().unzip();
        self.send_and_fold(&from, &to, None)?;
        self.guard.end();
        Ok(self.crossing.messages * (pairs.len() * self.dim * size_of::<T>()) as u64)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.noted.check_steady(pull)?;
        self.begin_exchange(round, pull.from)?;
        exchange_steady(self, pull)?;
        self.guard.end();
        Ok(self.crossing.messages * message_bytes::<T>(self.dim) as u64)
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.guard.check()?;
        self.noted.compress(pull)?;
        self.begin_exchange(round, pull.model)?;
        self.exchange_compressed(pull)?;
        self.guard.end();
        Ok(self.crossing.messages * pull.by.message_bytes::<T>(self.dim) as u64)
    }

    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.noted.check_pull(&[(pull.from, pull.to)])?;
        self.begin_exchange(round, pull.from)?;
        self.exchange_robust(pull)?;
        self.guard.end();
        Ok(self.crossing.messages * (self.dim * size_of::<T>()) as u64)
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.noted.only(own);
        let hosted = self.placement.agents(self.transport.rank()).iter().copied();
        Ok(parts::movers(hosted, &self.own_steps, own))
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        if cfg!(debug_assertions) {
            self.noted.forget(scratch)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        self.guard.check()?;
        if self.noted.is_empty() {
            return Ok(());
        }
        self.guard.begin()?;
        let begun = self.pool.begin();
        self.carry_out()?;
        self.pool.end(begun);
        self.noted.clear();
        self.guard.end();
        Ok(())
    }
}

impl<T: Real, C: RankTransport> Engine<T> for RankEngine<'_, T, C> {
    fn agents(&self) -> usize {
        self.network.agents()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        Ok(Cow::Borrowed(&self.blocks[v.0]))
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        replace(&mut self.blocks[v.0], rows)
    }

    fn watched(&mut self) -> Option<&mut Drift> {
        Some(&mut self.drift)
    }

    fn agent_at(&self, place: usize) -> usize {
        self.placement.agent_at(place)
    }

    fn of_all(&mut self, together: Together<'_>, own: Vec<f64>) -> Result<Vec<f64>, AgentsError> {
        together::of_all(&*self.transport, together, &self.placement, &own).map_err(AgentsError::Engine)
    }

    fn sum(&mut self, together: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        together::sum(&*self.transport, together, &self.placement, &self.blocks[v.0], self.dim)
            .map_err(AgentsError::Engine)
    }

    fn sum_rows(&mut self, together: Together<'_>, rows: &[T]) -> Result<Vec<f64>, AgentsError> {
        together::sum(&*self.transport, together, &self.placement, rows, self.dim)
            .map_err(AgentsError::Engine)
    }

    fn row(&mut self, together: Together<'_>, v: Vector, agent: usize) -> Result<Vec<T>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        let (dim, block) = (self.dim, &self.blocks[v.0]);
        let row = |row: usize| Ok(block[row * dim..(row + 1) * dim].to_vec());
        together::row(&*self.transport, together, &self.placement, agent, row).map_err(AgentsError::Engine)
    }
}
