//! All agents of a network in one process.

use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::agents::{Agents, AgentsError, Vector};
use crate::block::{self, SparseRows};
use crate::method::Method;
use crate::network::Network;
use crate::problems::{Draw, Problem};
use crate::real::Real;

/// Gradients that take less than this are not worth a thread of their own.
const WORTH_A_THREAD: Duration = Duration::from_micros(20);

/// Hosts every agent of a [`Network`]: a block is the paper's matrix X, a row for each agent.
pub struct Simulator<'a, T> {
    problem: &'a dyn Problem<T>,
    network: &'a Network,
    seed: u64,
    dim: usize,
    blocks: Vec<Vec<T>>,
    weights: SparseRows,
    threads_over_agents: Option<bool>,
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
        let mut blocks = vec![vec![T::zero(); agents * dim]; method.layout().vectors()];
        for row in blocks[0].chunks_exact_mut(dim.max(1)).zip(start.chunks_exact(dim.max(1)).cycle()) {
            row.0.copy_from_slice(row.1);
        }
        let weights = network.rows();
        Self {
            problem,
            network,
            seed,
            dim,
            blocks,
            weights,
            threads_over_agents: None,
            watching: false,
            drift: None,
        }
    }

    /// One vector of all agents, row after row.
    pub fn vector(&self, v: Vector) -> &[T] {
        &self.blocks[v.0]
    }

    /// The same, to be written: how a checkpoint is restored.
    pub fn vector_mut(&mut self, v: Vector) -> &mut [T] {
        &mut self.blocks[v.0]
    }

    /// The agents' models.
    pub fn models(&self) -> &[T] {
        &self.blocks[0]
    }

    /// The model of one agent.
    pub fn model(&self, agent: usize) -> &[T] {
        &self.blocks[0][agent * self.dim..(agent + 1) * self.dim]
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
}

impl<T: Real> Agents for Simulator<'_, T> {
    fn hosted(&self) -> usize {
        self.network.agents()
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        let draw = Draw { seed: self.seed, step: draw };
        let dim = self.dim.max(1);
        let mut out = std::mem::take(&mut self.blocks[g.0]);
        let rows = &self.blocks[x.0];
        let one = |agent: usize, g: &mut [T]| {
            self.problem.sample_gradient(agent, &rows[agent * dim..(agent + 1) * dim], draw, g);
        };
        let begun = Instant::now();
        if self.threads_over_agents == Some(true) {
            out.par_chunks_exact_mut(dim).enumerate().for_each(|(agent, g)| one(agent, g));
        } else {
            out.chunks_exact_mut(dim).enumerate().for_each(|(agent, g)| one(agent, g));
        }
        let per_agent = begun.elapsed() / self.network.agents() as u32;
        self.threads_over_agents.get_or_insert(per_agent >= WORTH_A_THREAD);
        self.blocks[g.0] = out;
        Ok(())
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) {
        let mut out = std::mem::take(&mut self.blocks[y.0]);
        let empty: (f64, &[T]) = (0.0, &[]);
        match *terms {
            [] => block::combine_block(&mut out, keep, &[]),
            _ => {
                let mut room = [empty; 8];
                for (slot, (a, v)) in room.iter_mut().zip(terms) {
                    debug_assert_ne!(*v, y, "a vector is not a term of its own combination");
                    *slot = (*a, &self.blocks[v.0]);
                }
                block::combine_block(&mut out, keep, &room[..terms.len()]);
            }
        }
        self.blocks[y.0] = out;
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        if self.watching {
            self.drift = Some(block::consensus_error(&self.blocks[pairs[0].0.0], self.dim));
            self.watching = false;
        }
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        for &(from, to) in pairs {
            let mut out = std::mem::take(&mut self.blocks[to.0]);
            block::pull(&self.weights, &self.blocks[from.0], &mut out, self.dim);
            self.blocks[to.0] = out;
        }
        Ok(messages * (pairs.len() * self.dim * size_of::<T>()) as u64)
    }

    fn forget(&mut self, scratch: Vector) {
        if cfg!(debug_assertions) {
            self.blocks[scratch.0].fill(T::nan());
        }
    }
}
