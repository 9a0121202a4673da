//! All agents of a network in one process.
//!
//! Between two exchanges agents do not depend on each other, and in an exchange on their neighbours
//! only. So verbs are not carried out when they are called but noted down, and when somebody looks each
//! agent does all that was noted, waiting for nobody but its neighbours: its rows stay in cache through
//! all local steps and, where neighbours have neighbouring numbers, through the exchange.

use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::agents::{Agents, AgentsError, Vector};
use crate::block::{self, SparseRows};
use crate::method::Method;
use crate::network::Network;
use crate::problems::{Draw, Problem};
use crate::real::Real;
use crate::stages::{Rows, Stages};

/// Work that takes less than this in all is not worth waking the thread pool.
const WORTH_THREADS: Duration = Duration::from_micros(60);
/// Bytes of the rows in use, of all vectors, up to which an exchange is put off.
const NEAR: usize = 4 << 20;
/// Most terms of one combination.
const TERMS: usize = 8;

/// A verb that was noted down.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Gradient {
        x: Vector,
        g: Vector,
        draw: u64,
    },
    Combine {
        y: Vector,
        keep: f64,
        terms: [(f64, Vector); TERMS],
        used: usize,
    },
    Pull {
        round: u64,
        from: Vector,
        to: Vector,
    },
    Forget {
        scratch: Vector,
    },
    /// Until the neighbours have come as far.
    Wait,
}

/// Hosts every agent of a [`Network`]: a block is the paper's matrix X, a row for each agent.
pub struct Simulator<'a, T> {
    problem: &'a dyn Problem<T>,
    network: &'a Network,
    seed: u64,
    dim: usize,
    blocks: Vec<Vec<T>>,
    noted: Vec<Verb>,
    weights: SparseRows,
    in_use: usize,
    stages: Stages,
    threads: Option<bool>,
    watching: bool,
    drift: Option<f64>,
}

impl<'a, T: Real> Simulator<'a, T> {
    /// Agents at their starting points, with the vectors `method` works with.
    ///
    /// `start` has one row for each agent, or a single row for all.
    ///
    /// # Panics
    /// If `problem` and `network` have different numbers of agents or `start` has another shape.
    pub fn new(
        problem: &'a dyn Problem<T>,
        network: &'a Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Self {
        let (agents, dim) = (network.agents(), problem.dim());
        assert_eq!(problem.agents(), agents, "a problem for as many agents as the network has");
        assert!(start.len() == dim || start.len() == agents * dim, "a starting point for each agent");
        let vectors = method.layout().vectors();
        let mut blocks: Vec<Vec<T>> = (0..vectors).map(|_| block::zeros(agents * dim)).collect();
        let starts = start.chunks_exact(dim.max(1)).cycle();
        for (row, start) in blocks[0].chunks_exact_mut(dim.max(1)).zip(starts) {
            row.copy_from_slice(start);
        }
        let weights = network.rows();
        Self {
            problem,
            network,
            seed,
            dim,
            blocks,
            noted: Vec::new(),
            in_use: weights.in_use(),
            stages: Stages::new(&weights),
            weights,
            threads: None,
            watching: false,
            drift: None,
        }
    }

    /// One vector of all agents, row after row, as it was when the last step or round ended.
    pub fn vector(&self, v: Vector) -> &[T] {
        debug_assert!(self.noted.is_empty(), "a step is over before its result is looked at");
        &self.blocks[v.0]
    }

    /// The same, to be written: how a checkpoint is restored.
    pub fn vector_mut(&mut self, v: Vector) -> &mut [T] {
        self.settle();
        &mut self.blocks[v.0]
    }

    /// The agents' models.
    pub fn models(&self) -> &[T] {
        self.vector(Vector(0))
    }

    /// The model of one agent.
    pub fn model(&self, agent: usize) -> &[T] {
        &self.models()[agent * self.dim..(agent + 1) * self.dim]
    }

    /// Asks for the consensus error just before the next exchange; see [`drift`](Self::drift).
    pub fn watch(&mut self) {
        self.watching = true;
        self.drift = None;
    }

    /// The consensus error of the models as they were sent in the exchange that was watched.
    pub fn drift(&self) -> Option<f64> {
        self.drift
    }

    /// Agents that are fewer than the threads share them within their rows, verb by verb.
    fn verb_by_verb(&self) -> bool {
        self.network.agents() < rayon::current_num_threads() && self.dim > 1 << 16
    }

    /// Whether an exchange is put off with the rest, and done by each agent when its neighbours are ready:
    /// if the rows in use meanwhile fit the caches, and are few among all.
    fn near(&self) -> bool {
        let row = self.blocks.len() * self.dim * size_of::<T>();
        let near = self.in_use * row <= NEAR && 4 * self.in_use <= self.network.agents();
        near && self.threads == Some(true) && !self.verb_by_verb()
    }

    fn carry_out(&mut self, verb: Verb) {
        match verb {
            Verb::Gradient { x, g, draw } => {
                let mut out = std::mem::take(&mut self.blocks[g.0]);
                let (dim, draw) = (self.dim, Draw { seed: self.seed, step: draw });
                let rows = self.blocks[x.0].par_chunks_exact(dim);
                out.par_chunks_exact_mut(dim).zip(rows).enumerate().for_each(|(agent, (g, x))| {
                    self.problem.sample_gradient(agent, x, draw, g);
                });
                self.blocks[g.0] = out;
            }
            Verb::Combine { y, keep, terms, used } => {
                let mut out = std::mem::take(&mut self.blocks[y.0]);
                let mut lent: [(f64, &[T]); TERMS] = [(0.0, &[]); TERMS];
                for (slot, (a, v)) in lent.iter_mut().zip(&terms[..used]) {
                    *slot = (*a, &self.blocks[v.0]);
                }
                block::combine_block(&mut out, keep, &lent[..used]);
                self.blocks[y.0] = out;
            }
            Verb::Pull { from, to, .. } => {
                let mut out = std::mem::take(&mut self.blocks[to.0]);
                block::pull(&self.weights, &self.blocks[from.0], &mut out, self.dim);
                self.blocks[to.0] = out;
            }
            Verb::Forget { scratch } => self.blocks[scratch.0].fill(T::nan()),
            Verb::Wait => {}
        }
    }

    fn note(&mut self, verb: Verb) {
        if self.verb_by_verb() {
            self.carry_out(verb);
        } else {
            self.noted.push(verb);
        }
    }
}

/// One stage of what was noted, done for one agent.
fn serve<T: Real>(
    verbs: &[Verb],
    rows: &mut Rows<T>,
    weights: &SparseRows,
    problem: &dyn Problem<T>,
    seed: u64,
) {
    for verb in verbs {
        match *verb {
            Verb::Gradient { x, g, draw } => {
                let agent = rows.agent;
                let (g, [x]) = rows.borrow(g, [x]);
                problem.sample_gradient(agent, x, Draw { seed, step: draw }, g);
            }
            Verb::Combine { y, keep, terms, used } => {
                let (y, lent) = rows.borrow(y, terms.map(|(_, v)| v));
                let mut with: [(f64, &[T]); TERMS] = [(0.0, &[]); TERMS];
                for k in 0..used {
                    with[k] = (terms[k].0, lent[k]);
                }
                block::combine(y, keep, &with[..used]);
            }
            // SAFETY: a stage with a pull has nothing but the pulls of one exchange, none of which writes
            // what another reads (`Simulator::pull`); the weights are those the stages were made for.
            Verb::Pull { from, to, .. } => unsafe { rows.pull(weights, from, to) },
            Verb::Forget { scratch } => rows.borrow(scratch, []).0.fill(T::nan()),
            Verb::Wait => {}
        }
    }
}

impl<T: Real> Agents for Simulator<'_, T> {
    fn hosted(&self) -> usize {
        self.network.agents()
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.note(Verb::Gradient { x, g, draw });
        Ok(())
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) {
        assert!(terms.len() <= TERMS, "a combination has at most {TERMS} terms");
        assert!(terms.iter().all(|(_, v)| *v != y), "a vector is not a term of its own combination");
        // Unused places name some other vector than y: a row is lent once to be written.
        let idle = Vector(usize::from(y.0 == 0));
        let mut room = [(0.0, idle); TERMS];
        room[..terms.len()].copy_from_slice(terms);
        self.note(Verb::Combine { y, keep, terms: room, used: terms.len() });
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        let apart = |v: Vector| pairs.iter().all(|(_, to)| *to != v);
        assert!(pairs.iter().all(|(from, _)| apart(*from)), "nothing is sent and written in one exchange");
        let near = self.near();
        let of_another = |verb: &Verb| matches!(verb, Verb::Pull { round: noted, .. } if *noted != round);
        if !near || self.watching || self.noted.iter().any(of_another) {
            self.settle();
        }
        if self.watching {
            self.drift = Some(block::consensus_error(&self.blocks[pairs[0].0.0], self.dim));
            self.watching = false;
        }
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        let pulls = pairs.iter().map(|&(from, to)| Verb::Pull { round, from, to });
        if near {
            self.noted.push(Verb::Wait);
            self.noted.extend(pulls);
            self.noted.push(Verb::Wait);
        } else {
            pulls.for_each(|pull| self.carry_out(pull));
        }
        Ok(messages * (pairs.len() * self.dim * size_of::<T>()) as u64)
    }

    fn forget(&mut self, scratch: Vector) {
        if cfg!(debug_assertions) {
            self.note(Verb::Forget { scratch });
        }
    }

    fn settle(&mut self) {
        if self.noted.is_empty() {
            return;
        }
        let verbs = std::mem::take(&mut self.noted);
        let stages = || verbs.split(|verb| matches!(verb, Verb::Wait));
        let (problem, seed, weights) = (self.problem, self.seed, &self.weights);
        let begun = Instant::now();
        let threads = self.threads == Some(true);
        self.stages.run(&mut self.blocks, self.dim, weights, stages().count(), threads, |stage, rows| {
            serve(stages().nth(stage).unwrap_or(&[]), rows, weights, problem, seed);
        });
        self.threads.get_or_insert(begun.elapsed() >= WORTH_THREADS);
        self.noted = verbs;
        self.noted.clear();
    }
}
