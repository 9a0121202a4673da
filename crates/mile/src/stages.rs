//! The rows of agents, and when each may be worked on.
//!
//! Work falls into stages, with an exchange in one of its own, and the rule is: an agent begins a stage
//! when it and its neighbours are through with the one before. Nobody waits for agents further away.
//! Where neighbours have neighbouring numbers, an agent is served again while its rows and its
//! neighbours' are still in the cache: a round passes over memory once, instead of once before the
//! exchange, once for it and once after it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::agents::Vector;
use crate::block::{self, SparseRows};
use crate::real::Real;

/// A pointer to a block of which tasks take disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);
// SAFETY: whoever shares one gives each task a part of its own, so no two tasks touch one element
// unless both only read it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// # Safety
    /// The range must lie within the block, and no other reference to it may be alive.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }

    /// # Safety
    /// The range must lie within the block, and nobody may write to it meanwhile.
    unsafe fn slice(&self, range: Range<usize>) -> &[T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.0.add(range.start), range.len()) }
    }
}

/// The rows of one agent in all blocks.
pub(crate) struct Rows<'b, T> {
    /// Whose rows they are.
    pub(crate) agent: usize,
    blocks: &'b [Shared<T>],
    dim: usize,
}

impl<T: Real> Rows<'_, T> {
    fn range(&self, agent: usize) -> Range<usize> {
        agent * self.dim..(agent + 1) * self.dim
    }

    /// One row to be written and others to be read; the former must not be among the latter.
    pub(crate) fn borrow<const K: usize>(
        &mut self,
        write: Vector,
        read: [Vector; K],
    ) -> (&mut [T], [&[T]; K]) {
        assert!(read.iter().all(|v| *v != write), "a row is not read and written at once");
        let range = self.range(self.agent);
        // SAFETY: the range is this agent's row and inside every block (`Stages::run`), `self` is
        // borrowed mutably, and the row to be written is in another block than those to be read.
        unsafe {
            let y = self.blocks[write.0].slice_mut(range.clone());
            (y, read.map(|v| self.blocks[v.0].slice(range.clone())))
        }
    }

    /// This agent's row of `to <- (W - I) from`, see [`block::pull`].
    ///
    /// # Safety
    /// No agent writes its row of `from` in this stage, and the weights have the structure of those
    /// that the [`Stages`] were made for.
    pub(crate) unsafe fn pull(&mut self, weights: &SparseRows, from: Vector, to: Vector) {
        assert!(from != to, "a row is not read and written at once");
        let source = &self.blocks[from.0];
        // SAFETY: neighbours are rows of the block, and none of them is in a stage in which it would
        // write this one: that is the rule of `Stages`, and the caller's promise for this stage.
        let row = |j: usize| unsafe { source.slice(self.range(j)) };
        // SAFETY: this agent's own row, inside the block, and of another block than `from`.
        let y = unsafe { self.blocks[to.0].slice_mut(self.range(self.agent)) };
        let entries = weights.row(self.agent).iter().map(|&(j, w)| (w, row(j), j == self.agent));
        block::pull_row(y, row(self.agent), entries);
    }
}

/// For each agent, how many it still waits for, itself included, before it may begin a stage; one
/// number for even stages and one for odd, because neighbours are at most one stage apart.
pub(crate) struct Stages {
    missing: Vec<[AtomicUsize; 2]>,
}

impl Stages {
    /// Agents that wait for those in their row of `weights`.
    ///
    /// # Panics
    /// If one waits for another but not the other for it, or not for itself.
    pub(crate) fn new(weights: &SparseRows) -> Self {
        let waits = |i: usize, j: usize| weights.row(i).binary_search_by_key(&j, |(k, _)| *k).is_ok();
        for i in 0..weights.rows() {
            assert!(waits(i, i) && weights.row(i).iter().all(|(j, _)| waits(*j, i)), "neighbours are mutual");
        }
        Self { missing: (0..weights.rows()).map(|_| Default::default()).collect() }
    }

    /// Calls `work` with each stage and each agent's rows, by the rule; on all threads if asked.
    pub(crate) fn run<T: Real>(
        &mut self,
        blocks: &mut [Vec<T>],
        dim: usize,
        weights: &SparseRows,
        stages: usize,
        threads: bool,
        work: impl Fn(usize, &mut Rows<T>) + Sync,
    ) {
        const ROOM: usize = 12;
        assert!(blocks.len() <= ROOM, "a method works with at most {ROOM} vectors");
        assert_eq!(self.missing.len(), weights.rows(), "weights for each agent");
        assert!(blocks.iter().all(|block| block.len() == weights.rows() * dim), "a row for each agent");
        for (agent, missing) in self.missing.iter_mut().enumerate() {
            *missing = [(); 2].map(|()| AtomicUsize::new(weights.row(agent).len()));
        }
        let mut shared = [Shared(std::ptr::null_mut()); ROOM];
        for (slot, block) in shared.iter_mut().zip(blocks.iter_mut()) {
            *slot = Shared(block.as_mut_ptr());
        }
        let blocks = &shared[..blocks.len()];
        let round = Round { blocks, dim, weights, missing: &self.missing, stages, threads, work };
        if threads {
            (0..weights.rows()).into_par_iter().for_each(|agent| round.serve(agent, 0));
        } else {
            (0..weights.rows()).for_each(|agent| round.serve(agent, 0));
        }
    }
}

struct Round<'a, T, F> {
    blocks: &'a [Shared<T>],
    dim: usize,
    weights: &'a SparseRows,
    missing: &'a [[AtomicUsize; 2]],
    stages: usize,
    threads: bool,
    work: F,
}

impl<T: Real, F: Fn(usize, &mut Rows<T>) + Sync> Round<'_, T, F> {
    /// One stage of one agent, and then whatever only waited for it.
    fn serve(&self, agent: usize, stage: usize) {
        (self.work)(stage, &mut Rows { agent, blocks: self.blocks, dim: self.dim });
        if stage + 1 < self.stages {
            self.tell(None, self.weights.row(agent), stage + 1);
        }
    }

    /// Tells agents that one more of those they wait for is through with the stage before, and serves
    /// those that have waited for nobody else; `ready` is one of them.
    fn tell(&self, mut ready: Option<usize>, agents: &[(usize, f64)], stage: usize) {
        for (k, &(agent, _)) in agents.iter().enumerate() {
            let missing = &self.missing[agent][stage % 2];
            if missing.fetch_sub(1, Ordering::AcqRel) > 1 {
                continue;
            }
            // Next told of at stage + 2, by neighbours that are then past this agent's `stage`.
            missing.store(self.weights.row(agent).len(), Ordering::Relaxed);
            if let Some(first) = ready.replace(agent) {
                // More than one at once, so an idle thread may take over the rest.
                let first = || self.serve(first, stage);
                let rest = || self.tell(ready, &agents[k + 1..], stage);
                if self.threads {
                    rayon::join(first, rest);
                } else {
                    first();
                    rest();
                }
                return;
            }
        }
        if let Some(agent) = ready {
            self.serve(agent, stage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Topology;
    use crate::mixing::Rule;
    use crate::network::Network;

    const X: Vector = Vector(0);
    const D: Vector = Vector(1);

    /// `d = (W - I) x ; x = x/2 + d`, three times, with agents that wait for each other's neighbours only.
    fn in_stages(weights: &SparseRows, start: &[f64], dim: usize, threads: Option<usize>) -> Vec<f64> {
        let mut blocks = [start.to_vec(), vec![f64::NAN; start.len()]];
        let mut stages = Stages::new(weights);
        let work = |stage: usize, rows: &mut Rows<f64>| {
            // Some are slower than others, in every stage other ones.
            (0..(rows.agent * 7 + stage * 5) % 11 * 50).for_each(|k| {
                std::hint::black_box(k);
            });
            if stage.is_multiple_of(2) {
                // SAFETY: these are the weights of the stages, and only the other stages write X.
                unsafe { rows.pull(weights, X, D) };
            } else {
                let (x, [d]) = rows.borrow(X, [D]);
                block::combine(x, 0.5, &[(1.0, d)]);
            }
        };
        let mut run = || stages.run(&mut blocks, dim, weights, 6, threads.is_some(), work);
        match threads {
            Some(n) => rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(run),
            None => run(),
        }
        let [x, _] = blocks;
        x
    }

    #[test]
    fn waiting_for_neighbours_is_as_good_as_waiting_for_all() {
        for topology in
            [Topology::Ring, Topology::Path, Topology::Star, Topology::Complete, Topology::Hypercube]
        {
            for (agents, dim) in [(1, 3), (2, 1), (4, 0), (16, 33), (64, 7)] {
                let Ok(graph) = topology.build(agents, 0) else { continue };
                let weights = Network::new(graph, Rule::Metropolis).unwrap().rows();
                let start: Vec<f64> = (0..agents * dim).map(|k| (k * 37 % 101) as f64).collect();
                let mut expected = start.clone();
                for _ in 0..3 {
                    let mut d = vec![f64::NAN; start.len()];
                    block::pull(&weights, &expected, &mut d, dim);
                    block::combine(&mut expected, 0.5, &[(1.0, &d)]);
                }
                for threads in [None, Some(1), Some(2), Some(5)] {
                    for _ in 0..10 {
                        let found = in_stages(&weights, &start, dim, threads);
                        assert_eq!(found, expected, "{topology:?} {agents} x {dim}, {threads:?} threads");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "neighbours are mutual")]
    fn one_sided_neighbours_are_refused() {
        Stages::new(&SparseRows { starts: vec![0, 2, 3], entries: vec![(0, 0.5), (1, 0.5), (1, 1.0)] });
    }
}
