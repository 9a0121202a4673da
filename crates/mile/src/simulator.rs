//! All agents of a network in one process.
//!
//! Between two exchanges agents do not depend on each other, and in an exchange only on their
//! neighbours. So verbs are not carried out when they are called but noted, and when results are needed each
//! agent does everything noted, waiting for nobody but its neighbours: its rows stay in cache through
//! all local steps and, where neighbours have neighbouring numbers, through the exchange. Rows too short for that to matter
//! are served by one thread, each verb for all agents together.

mod steady;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;

use crate::agents::{
    Agents, AgentsError, BlockFunction, BlocksMut, CompressedPull, OptimiserStep, RobustPull, SteadyPull,
    Vector,
};
use crate::block;
use crate::engine::parts::{self, Drift, Guard, Pool, blocks, matrices, measure_drift, replace};
use crate::engine::{Engine, HostError};
use crate::method::Method;
use crate::network::Network;
use crate::optimiser::{self, AdamRows, MatrixPart};
use crate::problems::{Draw, Problem};
use crate::ranks::{Alone, Together};
use crate::real::Real;
use crate::sparse::SparseRows;
use crate::stages::Stages;
use crate::steady::message_bytes;
use crate::verbs::{LocalWork, MOST_TERMS, Noted, Rows, Verb, Verbs};

/// Bytes of the rows in use, over all vectors, up to which an exchange is deferred.
const NEAR: usize = 4 << 20;
/// Bytes of a row up to which calling a verb costs more than passing over its memory: one thread then does a verb for
/// all agents together.
const SHORT: usize = 1 << 10;

/// Hosts every agent of a [`Network`]: a block is the paper's matrix X, a row for each agent.
pub struct Simulator<'a, T> {
    problem: &'a dyn Problem<T>,
    network: Network,
    seed: u64,
    dim: usize,
    blocks: Vec<Vec<T>>,
    matrices: Vec<MatrixPart>,
    /// The agents' numbers of local steps, where they differ.
    own_steps: Vec<u64>,
    noted: Verbs,
    /// Round of the last exchange.
    round: u64,
    weights: SparseRows,
    in_use: usize,
    stages: Stages,
    pool: Pool,
    drift: Drift,
    guard: Guard,
    calls_functions: bool,
}

impl<'a, T: Real> Simulator<'a, T> {
    /// Agents at their starting points, with the vectors `method` works with.
    ///
    /// `start` has one row for each agent, or a single row for all.
    pub fn new(
        problem: &'a dyn Problem<T>,
        network: &Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Result<Self, HostError> {
        let blocks = blocks(problem, network, method, start, network.agents())?;
        let weights = network.rows();
        Ok(Self {
            problem,
            network: network.clone(),
            seed,
            dim: problem.dim(),
            matrices: matrices(problem, method)?,
            own_steps: method.own_steps().unwrap_or_default().to_vec(),
            noted: Verbs::new(blocks.len()),
            blocks,
            round: 0,
            in_use: weights.in_use(),
            stages: Stages::new(&weights),
            weights,
            pool: Pool::default(),
            drift: Drift::default(),
            guard: Guard::default(),
            calls_functions: true,
        })
    }

    /// Functions that the method applies to vectors are not called: they may need the vectors of its own problem, or of its own engine.
    pub fn without_functions(self) -> Self {
        Self { calls_functions: false, ..self }
    }

    /// One vector of all agents, row after row, as it was when the last step or round ended.
    pub fn vector(&self, v: Vector) -> &[T] {
        assert!(self.noted.is_empty(), "a step is over before its result is looked at");
        &self.blocks[v.0]
    }

    /// The same, for writing.
    pub fn vector_mut(&mut self, v: Vector) -> &mut [T] {
        assert!(self.noted.is_empty(), "a step is over before its result is changed");
        &mut self.blocks[v.0]
    }

    /// The memory of all vectors, for a caller that has lent it to others and must keep it.
    pub fn into_blocks(self) -> Vec<Vec<T>> {
        self.blocks
    }

    /// The network of the agents.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The agents' models.
    pub fn models(&self) -> &[T] {
        self.vector(Vector(0))
    }

    /// The model of one agent.
    pub fn model(&self, agent: usize) -> &[T] {
        &self.models()[agent * self.dim..(agent + 1) * self.dim]
    }

    /// Whether rows are long and agents fewer than the threads, which then share each row, verb by verb.
    fn verb_by_verb(&self) -> bool {
        self.dim > 1 << 16 && self.network.agents() < rayon::current_num_threads()
    }

    /// Whether one thread does each verb for all agents together: their rows are short, and few enough to stay in the
    /// cache from verb to verb.
    fn together(&self) -> bool {
        let short = self.dim * size_of::<T>() <= SHORT;
        !self.pool.is_worth() && short && self.network.agents() * self.dim <= 2 * block::CHUNK
    }

    /// Whether an exchange is deferred with the rest, and done by each agent when its neighbours are ready:
    /// if the rows in use meanwhile fit the caches, and are a small part of all rows.
    fn near(&self) -> bool {
        let row = self.blocks.len() * self.dim * size_of::<T>();
        let near = self.in_use * row <= NEAR && 4 * self.in_use <= self.network.agents();
        near && self.pool.is_worth() && !self.verb_by_verb()
    }

    /// One verb for some agents, row by row.
    fn carry_out_for_some(&mut self, noted: &Noted) -> Result<(), AgentsError> {
        let agents: Vec<usize> = (0..self.network.agents()).collect();
        let threads = !self.together();
        let work = LocalWork {
            problem: self.problem,
            seed: self.seed,
            matrices: &self.matrices,
            own_steps: &self.own_steps,
        };
        Rows::each(&agents, &mut self.blocks, self.dim, threads, |rows| rows.carry_out(noted, &work))
    }

    /// One verb for all agents that it is for, on all threads if that is worth it.
    fn carry_out(&mut self, noted: &Noted) -> Result<(), AgentsError> {
        if noted.only.is_some() {
            return self.carry_out_for_some(noted);
        }
        let together = self.together();
        match noted.verb {
            Verb::Gradient { x, g, draw } => {
                let mut out = std::mem::take(&mut self.blocks[g.0]);
                let (problem, dim, draw) =
                    (self.problem, self.dim.max(1), Draw { seed: self.seed, step: draw });
                let x = &self.blocks[x.0];
                let one = |(agent, (g, x)): (usize, (&mut [T], &[T]))| {
                    problem.sample_gradient(agent, x, draw, g).map_err(AgentsError::objective(agent))
                };
                let done = if together {
                    out.chunks_exact_mut(dim).zip(x.chunks_exact(dim)).enumerate().try_for_each(one)
                } else {
                    out.par_chunks_exact_mut(dim).zip(x.par_chunks_exact(dim)).enumerate().try_for_each(one)
                };
                self.blocks[g.0] = out;
                done?;
            }
            Verb::Combine { y, keep, ref terms, used } => {
                let mut out = std::mem::take(&mut self.blocks[y.0]);
                let mut lent: [(f64, &[T]); MOST_TERMS] = [(0.0, &[]); MOST_TERMS];
                for (slot, (a, v)) in lent.iter_mut().zip(&terms[..used]) {
                    *slot = (*a, &self.blocks[v.0]);
                }
                block::combine_block(&mut out, keep, &lent[..used]);
                self.blocks[y.0] = out;
            }
            Verb::Prox { x, step } => {
                if let Some(penalty) = self.problem.penalty() {
                    let (dim, block) = (self.dim.max(1), &mut self.blocks[x.0]);
                    if together {
                        block.chunks_exact_mut(dim).for_each(|row| penalty.prox(step, row));
                    } else {
                        block.par_chunks_exact_mut(dim).for_each(|row| penalty.prox(step, row));
                    }
                }
            }
            Verb::Optimise(ref step) => self.optimise_all(step),
            Verb::Clip { g, most } => {
                let (dim, block) = (self.dim.max(1), &mut self.blocks[g.0]);
                if together {
                    block.chunks_exact_mut(dim).for_each(|row| optimiser::clip(row, most));
                } else {
                    block.par_chunks_exact_mut(dim).for_each(|row| optimiser::clip(row, most));
                }
            }
            Verb::Pull { from, to } => {
                let mut out = std::mem::take(&mut self.blocks[to.0]);
                block::pull(&self.weights, &self.blocks[from.0], &mut out, self.dim);
                self.blocks[to.0] = out;
            }
            Verb::Compress { u, by } => by.compress_rows(&mut self.blocks[u.0], self.dim),
            Verb::Forget { scratch } => self.blocks[scratch.0].fill(T::nan()),
        }
        Ok(())
    }

    /// A step of an optimiser for all agents.
    fn optimise_all(&mut self, step: &OptimiserStep) {
        let written: Vec<Vector> = [step.x].into_iter().chain(step.states()).collect();
        let mut taken: Vec<Vec<T>> = written.iter().map(|v| std::mem::take(&mut self.blocks[v.0])).collect();
        if let [x, m, v, rest @ ..] = &mut taken[..] {
            let read = |v: Vector| &self.blocks[v.0][..];
            let rows = AdamRows {
                x,
                m,
                v,
                largest: rest.first_mut().map(|row| &mut row[..]),
                g: read(step.g),
                inner: step.inner.map(read),
                shift: step.shift.map(read),
            };
            optimiser::take_steps(rows, self.dim, &step.by, &self.matrices);
        }
        for (v, block) in written.into_iter().zip(taken) {
            self.blocks[v.0] = block;
        }
    }

    /// An exchange of these pairs; returns the number of messages.
    fn exchange(
        &mut self,
        round: u64,
        model: Vector,
        pairs: &[(Vector, Vector)],
    ) -> Result<u64, AgentsError> {
        let near = self.near();
        // If edges can drop, the weights are those of one round.
        let other_round = self.noted.exchanges() > 0 && self.round != round;
        if !near || self.drift.is_asked() || self.noted.is_full() || other_round {
            self.settle()?;
        }
        measure_drift(self, Together::of(&Alone), model)?;
        self.round = round;
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        if near {
            self.noted.pull(pairs);
        } else {
            for &(from, to) in pairs {
                self.carry_out(&Verb::Pull { from, to }.into())?;
            }
        }
        Ok(messages)
    }

    /// Carries out at once what was noted last, if agents work verb by verb, or if many verbs have been noted.
    fn at_once(&mut self) -> Result<(), AgentsError> {
        let verb_by_verb = self.noted.exchanges() == 0 && self.verb_by_verb();
        if verb_by_verb || self.noted.are_many() { self.settle() } else { Ok(()) }
    }

    /// Carries out what was noted, which contains no exchanges: each verb for all agents.
    fn carry_out_all(&mut self) -> Result<(), AgentsError> {
        let noted = std::mem::take(&mut self.noted);
        let done = noted.stage(0).iter().try_for_each(|verb| self.carry_out(verb));
        self.noted = noted;
        done
    }

    /// Carries out what was noted: all verbs of each agent, as far as it need not wait for its neighbours.
    fn serve_all(&mut self) -> Result<(), AgentsError> {
        let (verbs, weights) = (&self.noted, &self.weights);
        let work = LocalWork {
            problem: self.problem,
            seed: self.seed,
            matrices: &self.matrices,
            own_steps: &self.own_steps,
        };
        let serve = |stage: usize, rows: &mut Rows<T>| {
            verbs.stage(stage).iter().try_for_each(|noted| match noted.verb {
                Verb::Pull { from, to } => {
                    // SAFETY: a stage with a pull contains only the pulls of one exchange, none of which writes
                    // what another reads (`Verbs::check_pull`); the weights have the agents that the stages were made for
                    // (a round changes only their values, `Network::rows_in_round`), so each of them has rows here.
                    unsafe { rows.pull(weights, from, to) };
                    Ok(())
                }
                _ => rows.carry_out(noted, &work),
            })
        };
        let threads = self.pool.is_worth();
        self.stages.run(&mut self.blocks, self.dim, weights, verbs.stages(), threads, serve)
    }
}

impl<T: Real> Agents for Simulator<'_, T> {
    fn hosted(&self) -> Range<usize> {
        0..self.network.agents()
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.gradient(x, g, draw)?;
        self.at_once()
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.combine(y, keep, terms)?;
        self.at_once()
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.check(x)?;
        if self.problem.penalty().is_none() {
            return Ok(());
        }
        self.noted.prox(x, step)?;
        self.at_once()
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.optimise(step)?;
        self.at_once()
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.clip(g, most)?;
        self.at_once()
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.guard.check()?;
        self.noted.check_pull(pairs)?;
        let messages = self.exchange(round, pairs[0].0, pairs)?;
        Ok(messages * (pairs.len() * self.dim * size_of::<T>()) as u64)
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.guard.check()?;
        self.noted.compress(pull)?;
        self.at_once()?;
        let messages = self.exchange(round, pull.model, &[(pull.from, pull.to)])?;
        Ok(messages * pull.by.message_bytes::<T>(self.dim) as u64)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.guard.check()?;
        self.noted.check_steady(pull)?;
        self.settle()?;
        measure_drift(self, Together::of(&Alone), pull.from)?;
        self.round = round;
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        self.carry_out_steady(pull);
        Ok(messages * message_bytes::<T>(self.dim) as u64)
    }

    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.guard.check()?;
        self.noted.check_pull(&[(pull.from, pull.to)])?;
        self.settle()?;
        measure_drift(self, Together::of(&Alone), pull.from)?;
        self.round = round;
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        let mut to = std::mem::take(&mut self.blocks[pull.to.0]);
        pull.by.pull_all(&self.weights, &self.blocks[pull.from.0], &mut to, self.dim);
        self.blocks[pull.to.0] = to;
        Ok(messages * (self.dim * size_of::<T>()) as u64)
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.noted.only(own);
        Ok(parts::movers(0..self.network.agents(), &self.own_steps, own))
    }

    fn only_agent(&mut self, agent: Option<usize>) -> Result<(), AgentsError> {
        self.noted.only_agent(agent);
        Ok(())
    }

    fn pull_in_pairs(&mut self, from: Vector, to: Vector, pairs: &[[usize; 2]]) -> Result<u64, AgentsError> {
        self.noted.check_pairs((from, to), pairs, self.network.agents())?;
        self.settle()?;
        let (dim, mut out) = (self.dim, std::mem::take(&mut self.blocks[to.0]));
        let row = |agent: usize| &self.blocks[from.0][agent * dim..(agent + 1) * dim];
        for &[i, j] in pairs {
            for (own, other) in [(i, j), (j, i)] {
                block::fold((0.5, row(other)), row(own), &mut out[own * dim..(own + 1) * dim], true);
            }
        }
        self.blocks[to.0] = out;
        Ok(2 * (pairs.len() * dim * size_of::<T>()) as u64)
    }

    fn apply(&mut self, function: &dyn BlockFunction, vectors: &[Vector]) -> Result<(), AgentsError> {
        self.noted.check_apply(vectors)?;
        self.settle()?;
        if !self.calls_functions {
            return Ok(());
        }
        self.guard.begin()?;
        let mut taken: Vec<Vec<T>> = vectors.iter().map(|v| std::mem::take(&mut self.blocks[v.0])).collect();
        let done = function.apply(self.network.agents(), BlocksMut::of(&mut taken));
        for (v, block) in vectors.iter().zip(taken) {
            self.blocks[v.0] = block;
        }
        done.map_err(AgentsError::Engine)?;
        self.guard.end();
        Ok(())
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        if cfg!(debug_assertions) {
            self.noted.forget(scratch)?;
            self.at_once()?;
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
        let for_all = self.noted.exchanges() == 0 && (self.verb_by_verb() || self.together());
        let done = if for_all { self.carry_out_all() } else { self.serve_all() };
        self.pool.end(begun);
        self.noted.clear();
        done?;
        self.guard.end();
        Ok(())
    }
}

impl<T: Real> Engine<T> for Simulator<'_, T> {
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
}
