//! When each of several agents in one process may be worked on.
//!
//! Work is divided into stages, an exchange being one by itself, and the rule is: an agent begins a stage
//! when it and its neighbours have finished the one before. No agent waits for agents further away.
//! Where neighbours have neighbouring numbers, an agent is served again while its rows and its
//! neighbours' are still in the cache: a round passes over memory once, instead of once before the
//! exchange, once for it and once after it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::agents::AgentsError;
use crate::real::Real;
use crate::shared::Shared;
use crate::sparse::SparseRows;
use crate::verbs::{Rows, share};

/// Neighbours that are notified one after the other; more are divided.
const FEW: usize = 8;

/// For each agent, how many it still waits for, itself included, before it may begin a stage; one
/// number for even stages and one for odd, because neighbours are at most one stage apart.
pub(crate) struct Stages {
    missing: Vec<[AtomicUsize; 2]>,
}

impl Stages {
    /// Agents that wait for those in their row of `weights`.
    ///
    /// # Panics
    /// If an agent waits for another that does not wait for it, or does not wait for itself.
    pub(crate) fn new(weights: &SparseRows) -> Self {
        let waits = |i: usize, j: usize| weights.row(i).binary_search_by_key(&j, |(k, _)| *k).is_ok();
        for i in 0..weights.rows() {
            assert!(waits(i, i) && weights.row(i).iter().all(|(j, _)| waits(*j, i)), "neighbours are mutual");
        }
        Self { missing: (0..weights.rows()).map(|_| Default::default()).collect() }
    }

    /// Calls `work` with each stage and each agent's rows, by the rule; on all threads if asked. An error ends
    /// all work; of several errors, that of the smallest agent is reported.
    pub(crate) fn run<T: Real>(
        &mut self,
        blocks: &mut [Vec<T>],
        dim: usize,
        weights: &SparseRows,
        stages: usize,
        threads: bool,
        work: impl Fn(usize, &mut Rows<T>) -> Result<(), AgentsError> + Sync,
    ) -> Result<(), AgentsError> {
        assert_eq!(self.missing.len(), weights.rows(), "weights for each agent");
        let elements = weights.rows().checked_mul(dim);
        assert!(blocks.iter().all(|block| Some(block.len()) == elements), "a row for each agent");
        for (agent, missing) in self.missing.iter_mut().enumerate() {
            *missing = [(); 2].map(|()| AtomicUsize::new(weights.row(agent).len()));
        }
        let round = Round {
            blocks: &share(blocks)[..blocks.len()],
            dim,
            weights,
            missing: &self.missing,
            stages,
            threads,
            work,
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        };
        if threads {
            (0..weights.rows()).into_par_iter().for_each(|agent| round.serve(agent, 0));
        } else {
            (0..weights.rows()).for_each(|agent| round.serve(agent, 0));
        }
        match round.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((_, error)) => Err(error),
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
    failed: AtomicBool,
    failure: Mutex<Option<(usize, AgentsError)>>,
}

impl<T: Real, F: Fn(usize, &mut Rows<T>) -> Result<(), AgentsError> + Sync> Round<'_, T, F> {
    /// One stage of one agent, and then whatever was waiting only for it.
    fn serve(&self, agent: usize, stage: usize) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: every block has a row for each agent (`Stages::run`), and this agent's rows are lent to its own stages
        // only, which follow each other. Callers of `Rows::pull` promise that neighbours read a row only while nobody
        // writes it, by the rule of the stages.
        let mut rows = unsafe { Rows::among(agent, self.blocks, self.dim) };
        if let Err(error) = (self.work)(stage, &mut rows) {
            self.failed.store(true, Ordering::Relaxed);
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if failure.as_ref().is_none_or(|(first, _)| agent < *first) {
                *failure = Some((agent, error));
            }
            return;
        }
        if stage + 1 < self.stages {
            self.tell(self.weights.row(agent), stage + 1);
        }
    }

    /// Tells agents that one more of those they wait for has finished the previous stage, and serves those that no longer
    /// wait for anybody. In halves, so that a hub with thousands of neighbours does not nest as deeply.
    fn tell(&self, agents: &[(usize, f64)], stage: usize) {
        if agents.len() > FEW {
            let (one, other) = agents.split_at(agents.len() / 2);
            return self.both(|| self.tell(one, stage), || self.tell(other, stage));
        }
        let (mut ready, mut count) = ([0; FEW], 0);
        for &(agent, _) in agents {
            let missing = &self.missing[agent][stage % 2];
            if missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                // Next notified at stage + 2, by neighbours that are then past this agent's `stage`.
                missing.store(self.weights.row(agent).len(), Ordering::Relaxed);
                ready[count] = agent;
                count += 1;
            }
        }
        self.serve_all(&ready[..count], stage);
    }

    fn serve_all(&self, agents: &[usize], stage: usize) {
        match *agents {
            [] => {}
            [agent] => self.serve(agent, stage),
            _ => {
                let (one, other) = agents.split_at(agents.len() / 2);
                self.both(|| self.serve_all(one, stage), || self.serve_all(other, stage));
            }
        }
    }

    /// Two pieces of work, the second of which an idle thread may take.
    fn both(&self, first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
        if self.threads {
            rayon::join(first, second);
        } else {
            first();
            second();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Vector;
    use crate::block;
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
            // Some are slower than others, different ones in every stage.
            (0..(rows.agent() * 7 + stage * 5) % 11 * 50).for_each(|k| {
                std::hint::black_box(k);
            });
            if stage.is_multiple_of(2) {
                // SAFETY: these are the weights of the stages, and only the other stages write X.
                unsafe { rows.pull(weights, X, D) };
            } else {
                let (x, [d]) = rows.borrow(X, [D]);
                block::combine(x, 0.5, &[(1.0, d)]);
            }
            Ok(())
        };
        let mut run = || stages.run(&mut blocks, dim, weights, 6, threads.is_some(), work).unwrap();
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
    fn a_hub_with_thousands_of_neighbours_does_not_overflow_the_stack() {
        let agents = 6_000;
        let ring = (0..agents).map(|i| (i, (i + 1) % agents));
        let graph = crate::graph::Graph::from_edges(agents, ring.chain((2..5_000).map(|i| (0, i)))).unwrap();
        let weights = Network::new(graph, Rule::Metropolis).unwrap().rows();
        for threads in [false, true] {
            let served = AtomicUsize::new(0);
            let mut blocks = [vec![0.0f32; agents]];
            let count = |_: usize, _: &mut Rows<f32>| {
                served.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            Stages::new(&weights).run(&mut blocks, 1, &weights, 9, threads, count).unwrap();
            assert_eq!(served.into_inner(), 9 * agents);
        }
    }

    #[test]
    fn the_first_failure_ends_all_stages_and_is_reported() {
        let network = Network::new(Topology::Ring.build(16, 0).unwrap(), Rule::Metropolis).unwrap();
        let weights = network.rows();
        for threads in [false, true] {
            let mut blocks = [vec![0.0f32; 16 * 3]];
            let served = AtomicUsize::new(0);
            let error = Stages::new(&weights)
                .run(&mut blocks, 3, &weights, 40, threads, |stage, rows| {
                    served.fetch_add(1, Ordering::Relaxed);
                    match (stage, rows.agent()) {
                        (2, 5) => Err(AgentsError::objective(5)("lost".into())),
                        _ => Ok(()),
                    }
                })
                .unwrap_err();
            assert!(matches!(error, AgentsError::Objective { agent: 5, .. }), "{error}");
            assert!(served.into_inner() < 16 * 40);
        }
    }

    #[test]
    #[should_panic(expected = "neighbours are mutual")]
    fn one_sided_neighbours_are_refused() {
        Stages::new(&SparseRows { starts: vec![0, 2, 3], entries: vec![(0, 0.5), (1, 0.5), (1, 1.0)] });
    }
}
