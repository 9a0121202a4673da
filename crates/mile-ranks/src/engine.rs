//! The agents of one rank.
//!
//! Verbs between exchanges are noted down, and each agent does all of them at once. In an exchange, receives are posted first, then
//! sends; while messages are under way, agents whose neighbours are all here are served, and the others as soon as the rows that they
//! need are here.

mod compressed;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mile::agents::{Agents, AgentsError, CompressedPull, SteadyPull, Vector};
use mile::block;
use mile::engine::Engine;
use mile::method::Method;
use mile::network::Network;
use mile::problems::Problem;
use mile::ranks::Ranks;
use mile::real::Real;
use mile::simulator::SimulatorError;
use mile::steady::{self, Summaries, remember};
use mile::verbs::{MOST_VECTORS, Rows, Verb, Verbs};

use crate::exchange::{Crossing, Source};
use crate::placement::Placement;
use crate::together;
use crate::transport::RankTransport;
use crate::work::{Messages, Work};

/// Work that takes less than this in all is not worth waking the thread pool.
const WORTH_THREADS: Duration = Duration::from_micros(60);
/// Bytes of a row from which on it is a message of its own, sent from where it lies: packing it would cost a copy, which is more than a
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
    noted: Verbs,
    /// What crosses ranks, for the edges that were up in this round.
    crossing: (u64, Crossing),
    /// Messages to and from each peer.
    buffers: (Vec<Vec<T>>, Vec<Vec<T>>),
    threads: Option<bool>,
    watching: bool,
    drift: Option<f64>,
    /// Whether a verb has failed: the vectors hold nothing of use any more.
    failed: bool,
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
    ) -> Result<Self, SimulatorError> {
        let (agents, dim, vectors) = (network.agents(), problem.dim(), method.layout().vectors());
        if problem.agents() != agents {
            return Err(SimulatorError::Agents { problem: problem.agents(), network: agents });
        }
        if vectors == 0 || vectors > MOST_VECTORS {
            return Err(SimulatorError::Vectors { vectors });
        }
        if problem.penalty().is_some() && !method.takes_penalty() {
            return Err(SimulatorError::Penalty);
        }
        let hosted = placement.agents(transport.rank()).len();
        let too_large = SimulatorError::TooLarge { agents: hosted, dim, vectors };
        let elements = hosted.checked_mul(dim).ok_or(too_large.clone())?;
        if start.len() != dim && start.len() != elements {
            return Err(SimulatorError::Start { got: start.len(), dim, agents: hosted });
        }
        let mut blocks = block::try_zeros(vectors, elements).ok_or(too_large)?;
        let starts = start.chunks_exact(dim.max(1)).cycle();
        for (row, start) in blocks[0].chunks_exact_mut(dim.max(1)).zip(starts) {
            row.copy_from_slice(start);
        }
        let crossing = (0, Crossing::of(network, &placement, transport.rank(), seed, 0));
        Ok(Self {
            transport,
            placement,
            problem,
            network,
            seed,
            dim,
            blocks,
            noted: Verbs::new(vectors),
            crossing,
            buffers: (Vec::new(), Vec::new()),
            threads: None,
            watching: false,
            drift: None,
            failed: false,
        })
    }

    /// Refuses to go on after a verb has failed.
    fn check(&self) -> Result<(), AgentsError> {
        if self.failed {
            return Err(AgentsError::Unusable);
        }
        Ok(())
    }

    /// Whether agents are so few that threads share their rows, verb by verb.
    fn is_wide(&self) -> bool {
        self.dim > 1 << 16 && self.hosted().len() < rayon::current_num_threads()
    }

    /// Carries out what was noted, which has no exchanges.
    fn carry_out(&mut self) -> Result<(), AgentsError> {
        let agents = self.placement.agents(self.transport.rank());
        let (problem, seed, dim) = (self.problem, self.seed, self.dim);
        let noted = self.noted.stage(0);
        let threads = self.threads == Some(true);
        if !self.is_wide() {
            let serve = |rows: &mut Rows<'_, T>| {
                noted.iter().try_for_each(|verb| rows.carry_out(verb, problem, seed))
            };
            return Rows::each(agents, &mut self.blocks, dim, threads, serve);
        }
        for verb in noted {
            if let Verb::Combine { y, keep, ref terms, used } = *verb {
                let mut out = std::mem::take(&mut self.blocks[y.0]);
                let lent: Vec<(f64, &[T])> =
                    terms[..used].iter().map(|(a, v)| (*a, &self.blocks[v.0][..])).collect();
                block::combine_block(&mut out, keep, &lent);
                self.blocks[y.0] = out;
            } else {
                let serve = |rows: &mut Rows<'_, T>| rows.carry_out(verb, problem, seed);
                Rows::each(agents, &mut self.blocks, dim, threads, serve)?;
            }
        }
        Ok(())
    }

    /// Whether each row is a message of its own.
    fn is_long(&self) -> bool {
        self.dim * size_of::<T>() >= LONG
    }

    /// Packs the rows that each peer gets, if they are short.
    fn pack(&mut self, from: &[Vector]) {
        let is_long = self.is_long();
        let (dim, peers) = (self.dim, &self.crossing.1.peers);
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

    /// Sends and receives the rows of vectors, and adds up; what one vector sends a second time with other weights if there are some.
    fn send_and_fold(
        &mut self,
        from: &[Vector],
        to: &[Vector],
        weighed: Option<&Crossing>,
    ) -> Result<(), AgentsError> {
        self.pack(from);
        let mut targets: Vec<Vec<T>> = to.iter().map(|to| std::mem::take(&mut self.blocks[to.0])).collect();
        let (dim, crossing, is_long) = (self.dim, &self.crossing.1, self.is_long());
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
    /// What comes before every exchange: what was noted, the drift if it was asked for, and the edges that are up in the round.
    fn begin_exchange(&mut self, round: u64, model: Vector) -> Result<(), AgentsError> {
        self.settle()?;
        if std::mem::take(&mut self.watching) {
            self.drift = Some(self.consensus_error(model)?);
        }
        if self.crossing.0 != round && self.network.varies() {
            let crossing =
                Crossing::of(self.network, &self.placement, self.transport.rank(), self.seed, round);
            self.crossing = (round, crossing);
        }
        Ok(())
    }

    /// First the summaries cross ranks, which tell the weights, then the rows.
    fn exchange_steady(&mut self, pull: &SteadyPull) -> Result<(), AgentsError> {
        let dim = self.dim;
        let own = Summaries::of(&self.blocks[pull.from.0], &self.blocks[pull.memory.0], dim);
        let peers = &self.crossing.1.peers;
        let others = together::summaries(&*self.transport, peers, &own, dim).map_err(AgentsError::Engine)?;
        let summary = |source: Source| match source {
            Source::Here(row) => own.agent(row),
            Source::From(peer, row) => others[peer].agent(row),
        };
        let weight = |row: usize, w: f64, source: Source| w * steady::share(own.agent(row), summary(source));
        let weighed = self.crossing.1.weighed(weight);
        self.send_and_fold(&[pull.from], &[pull.to, pull.steady], Some(&weighed))?;
        let mut memory = std::mem::take(&mut self.blocks[pull.memory.0]);
        let rows = self.blocks[pull.from.0].chunks_exact(dim.max(1)).zip(memory.chunks_exact_mut(dim.max(1)));
        for (row, (v, memory)) in rows.enumerate() {
            let terms = self.crossing.1.terms(row).iter().map(|(w, source)| (*w, summary(*source)));
            remember(memory, v, steady::steadiness(own.agent(row), pull.fresh, terms));
        }
        self.blocks[pull.memory.0] = memory;
        Ok(())
    }
}

impl<T: Real, C: RankTransport> Agents for RankEngine<'_, T, C> {
    fn hosted(&self) -> Range<usize> {
        self.placement.places(self.transport.rank())
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.check()?;
        self.noted.gradient(x, g, draw)
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.check()?;
        self.noted.combine(y, keep, terms)
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.check()?;
        self.noted.prox(x, step)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.noted.check_pull(pairs)?;
        self.begin_exchange(round, pairs[0].0)?;
        let (from, to): (Vec<Vector>, Vec<Vector>) = pairs.iter().copied().unzip();
        self.failed = true;
        self.send_and_fold(&from, &to, None)?;
        self.failed = false;
        Ok(self.crossing.1.messages * (pairs.len() * self.dim * size_of::<T>()) as u64)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.noted.check_steady(pull)?;
        self.begin_exchange(round, pull.from)?;
        self.failed = true;
        self.exchange_steady(pull)?;
        self.failed = false;
        Ok(self.crossing.1.messages * steady::message_bytes::<T>(self.dim) as u64)
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.check()?;
        self.noted.compress(pull)?;
        self.begin_exchange(round, pull.model)?;
        self.failed = true;
        self.exchange_compressed(pull)?;
        self.failed = false;
        Ok(self.crossing.1.messages * pull.by.message_bytes::<T>(self.dim) as u64)
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        if cfg!(debug_assertions) {
            self.noted.forget(scratch)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        self.check()?;
        if self.noted.is_empty() {
            return Ok(());
        }
        // Until all is well: an error, or a panic in an objective, leaves the vectors half done.
        self.failed = true;
        let begun = self.threads.is_none().then(Instant::now);
        self.carry_out()?;
        if let Some(begun) = begun {
            self.threads = Some(begun.elapsed() >= WORTH_THREADS);
        }
        self.noted.clear();
        self.failed = false;
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
        let block = &mut self.blocks[v.0];
        if block.len() != rows.len() {
            let problem = format!("a vector of {} numbers is set to {}", block.len(), rows.len());
            return Err(AgentsError::Engine(problem.into()));
        }
        block.copy_from_slice(rows);
        Ok(())
    }

    fn watch(&mut self) {
        self.watching = true;
        self.drift = None;
    }

    fn drift(&mut self) -> Result<Option<f64>, AgentsError> {
        Ok(self.drift)
    }

    fn ranks(&self) -> &dyn Ranks {
        &*self.transport
    }

    fn agent_at(&self, place: usize) -> usize {
        self.placement.agent_at(place)
    }

    fn of_all(&mut self, own: Vec<f64>) -> Result<Vec<f64>, AgentsError> {
        together::of_all(&*self.transport, &self.placement, &own).map_err(AgentsError::Engine)
    }

    fn sum(&mut self, v: Vector) -> Result<Vec<f64>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        together::sum(&*self.transport, &self.placement, &self.blocks[v.0], self.dim)
            .map_err(AgentsError::Engine)
    }

    fn sum_rows(&mut self, rows: &[T]) -> Result<Vec<f64>, AgentsError> {
        together::sum(&*self.transport, &self.placement, rows, self.dim).map_err(AgentsError::Engine)
    }

    fn row(&mut self, v: Vector, agent: usize) -> Result<Vec<T>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        let (dim, block) = (self.dim, &self.blocks[v.0]);
        let row = |row: usize| Ok(block[row * dim..(row + 1) * dim].to_vec());
        together::row(&*self.transport, &self.placement, agent, row).map_err(AgentsError::Engine)
    }
}
