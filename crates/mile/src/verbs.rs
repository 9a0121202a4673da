//! Verbs that are noted and carried out later.
//!
//! Between two exchanges agents do not depend on each other, so an engine may note verbs and let each
//! agent do several at once, while its rows are in the cache, or hand all of them to a device together.
//! [`Verbs`] is what was noted, in stages; [`Rows`] are the rows of one agent, and [`Rows::carry_out`] is
//! what a verb other than an exchange does to them, wherever the agent is.

use std::ops::Range;

use rayon::prelude::*;

use crate::agents::{AgentsError, CompressedPull, OptimiserStep, SteadyPull, Vector};
use crate::block;
use crate::compression::Compression;
use crate::optimiser::{self, AdamRows, MatrixPart};
use crate::problems::{Draw, Problem};
use crate::real::Real;
use crate::shared::Shared;
use crate::sparse::SparseRows;

/// Most terms of one combination.
pub const MOST_TERMS: usize = 8;
/// Most vectors a method works with.
pub const MOST_VECTORS: usize = 12;
/// Exchanges up to which verbs are noted before they are carried out: what agents do between two waits is
/// bounded, however many exchanges a step has. Measured with MG-Skip on rings of 200 and 1,000 (`bench/core`): from 8 to 32
/// there is little difference, below 8 the waits become noticeable.
pub const MOST_EXCHANGES: usize = 16;
/// Verbs up to which they are noted before they are carried out: a round of a million local steps needs no more memory than one of a
/// hundred, and can be interrupted.
pub const MOST_VERBS: usize = 256;

/// A noted verb.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verb {
    /// `g <- grad f(x)`.
    Gradient {
        /// The point.
        x: Vector,
        /// The vector for the result.
        g: Vector,
        /// The samples.
        draw: u64,
    },
    /// `y <- keep*y + sum_k a_k v_k` over the first `used` terms.
    Combine {
        /// What is replaced.
        y: Vector,
        /// The factor by which it is kept.
        keep: f64,
        /// Coefficients and vectors; those beyond `used` mean nothing.
        terms: [(f64, Vector); MOST_TERMS],
        /// How many terms there are.
        used: usize,
    },
    /// `x <- prox_{step g}(x)` with the penalty g of the problem.
    Prox {
        /// What is replaced.
        x: Vector,
        /// Step size of the proximal step.
        step: f64,
    },
    /// A step of a local optimiser.
    Optimise(OptimiserStep),
    /// `g <- g min(1, most/|g|)`.
    Clip {
        /// What is shortened.
        g: Vector,
        /// The largest norm.
        most: f64,
    },
    /// `u <- C(u)`.
    Compress {
        /// What is replaced.
        u: Vector,
        /// How it is compressed.
        by: Compression,
    },
    /// `to <- (W - I) from`, one pair of an exchange.
    Pull {
        /// What is sent.
        from: Vector,
        /// The vector for the result.
        to: Vector,
    },
    /// The contents of the vector must not be used.
    Forget {
        /// Which vector.
        scratch: Vector,
    },
}

/// A noted verb, and for whom it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noted {
    /// The verb.
    pub verb: Verb,
    /// For some agents only; for all if none.
    pub only: Option<Only>,
}

/// Some of the agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Only {
    /// Those with this own number of local steps.
    Own(u64),
    /// This one.
    Agent(usize),
}

impl Noted {
    /// Whether it is for an agent, given all agents' numbers of local steps.
    pub fn is_for(&self, agent: usize, own_steps: &[u64]) -> bool {
        self.only.is_none_or(|only| match only {
            Only::Own(own) => own_steps.get(agent) == Some(&own),
            Only::Agent(one) => one == agent,
        })
    }
}

impl From<Verb> for Noted {
    /// For all agents.
    fn from(verb: Verb) -> Self {
        Self { verb, only: None }
    }
}

/// Verbs in the order in which they were noted, in stages: an exchange is a stage by itself, and what
/// lies between two exchanges is one.
#[derive(Clone, Debug, Default)]
pub struct Verbs {
    vectors: usize,
    verbs: Vec<Noted>,
    /// Where each stage but the last ends.
    ends: Vec<usize>,
    /// For whom verbs are noted.
    only: Option<Only>,
}

impl Verbs {
    /// No verbs yet, for a method that works with `vectors` vectors.
    pub fn new(vectors: usize) -> Self {
        Self { vectors, ..Self::default() }
    }

    /// From now on, verbs are noted for agents with this own number of local steps only, or for all again.
    pub fn only(&mut self, own: Option<u64>) {
        self.only = own.map(Only::Own);
    }

    /// From now on, verbs are noted for this agent only, or for all again.
    pub fn only_agent(&mut self, agent: Option<usize>) {
        self.only = agent.map(Only::Agent);
    }

    /// A verb for those for whom verbs are noted now.
    pub fn noted(&self, verb: Verb) -> Noted {
        Noted { verb, only: self.only }
    }

    fn note(&mut self, verb: Verb) {
        self.verbs.push(self.noted(verb));
    }

    /// Refuses a vector that the method's layout does not have.
    pub fn check(&self, v: Vector) -> Result<(), AgentsError> {
        if v.0 < self.vectors {
            return Ok(());
        }
        let problem = format!("vector {} is not in its layout, which has {}", v.0, self.vectors);
        Err(AgentsError::Method(problem))
    }

    /// Notes a gradient.
    pub fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.check(x)?;
        self.check(g)?;
        if x == g {
            return Err(AgentsError::Method(format!("vector {} is its own gradient", x.0)));
        }
        self.note(Verb::Gradient { x, g, draw });
        Ok(())
    }

    /// Notes a combination.
    pub fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.check(y)?;
        terms.iter().try_for_each(|(_, v)| self.check(*v))?;
        if terms.len() > MOST_TERMS {
            let problem =
                format!("a combination has {} terms, at most {MOST_TERMS} are possible", terms.len());
            return Err(AgentsError::Method(problem));
        }
        if terms.iter().any(|(_, v)| *v == y) {
            return Err(AgentsError::Method(format!("vector {} is a term of its own combination", y.0)));
        }
        let mut room = [(0.0, Vector(0)); MOST_TERMS];
        room[..terms.len()].copy_from_slice(terms);
        self.note(Verb::Combine { y, keep, terms: room, used: terms.len() });
        Ok(())
    }

    /// Notes a proximal step.
    pub fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.check(x)?;
        self.note(Verb::Prox { x, step });
        Ok(())
    }

    /// Checks the vectors of a local optimiser's step.
    pub fn check_optimise(&self, step: &OptimiserStep) -> Result<(), AgentsError> {
        let written: Vec<Vector> = step.states().chain([step.x]).collect();
        written.iter().copied().chain(step.reads()).try_for_each(|v| self.check(v))?;
        let twice = |v: &Vector| written.iter().filter(|other| *other == v).count() > 1;
        if let Some(v) = written.iter().find(|v| twice(v) || step.reads().any(|read| read == **v)) {
            return Err(AgentsError::Method(format!("vector {} has two parts in an optimiser's step", v.0)));
        }
        Ok(())
    }

    /// Notes a step of a local optimiser.
    pub fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.check_optimise(step)?;
        self.note(Verb::Optimise(*step));
        Ok(())
    }

    /// Notes that gradients are shortened.
    pub fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.check(g)?;
        self.note(Verb::Clip { g, most });
        Ok(())
    }

    /// Checks the pairs of an exchange.
    pub fn check_pull(&self, pairs: &[(Vector, Vector)]) -> Result<(), AgentsError> {
        if pairs.is_empty() {
            return Err(AgentsError::Method("an exchange sends no vector".into()));
        }
        if self.only.is_some() {
            return Err(AgentsError::Method("an exchange is for all agents".into()));
        }
        for (k, (from, to)) in pairs.iter().enumerate() {
            self.check(*from)?;
            self.check(*to)?;
            if pairs.iter().any(|(_, to)| to == from) {
                return Err(AgentsError::Method(format!(
                    "vector {} is sent and replaced in one exchange",
                    from.0
                )));
            }
            if pairs[..k].iter().any(|(_, other)| other == to) {
                return Err(AgentsError::Method(format!(
                    "vector {} is replaced twice in one exchange",
                    to.0
                )));
            }
        }
        Ok(())
    }

    /// Checks an exchange of pairs among `agents` agents.
    pub fn check_pairs(
        &self,
        (from, to): (Vector, Vector),
        pairs: &[[usize; 2]],
        agents: usize,
    ) -> Result<(), AgentsError> {
        self.check_pull(&[(from, to)])?;
        let mut seen = vec![false; agents];
        for agent in pairs.iter().flatten() {
            if seen.get(*agent).is_none_or(|seen| *seen) {
                return Err(AgentsError::Method(format!(
                    "agent {agent} cannot be in two pairs, or is not here"
                )));
            }
            seen[*agent] = true;
        }
        Ok(())
    }

    /// Checks the vectors of an exchange that weighs differences by how steady they are.
    pub fn check_steady(&self, pull: &SteadyPull) -> Result<(), AgentsError> {
        let &SteadyPull { from, memory, to, steady, fresh } = pull;
        self.check_pull(&[(from, to), (from, steady), (from, memory)])?;
        if (0.0..=1.0).contains(&fresh) {
            return Ok(());
        }
        Err(AgentsError::Method(format!(
            "the share of an exchange in a running mean: expected 0 to 1, got {fresh}"
        )))
    }

    /// Checks an exchange of compressed messages, and notes what precedes it: compressing what is sent.
    pub fn compress(&mut self, pull: &CompressedPull) -> Result<(), AgentsError> {
        self.check(pull.model)?;
        self.check_pull(&[(pull.from, pull.to)])?;
        self.note(Verb::Compress { u: pull.from, by: pull.by });
        Ok(())
    }

    /// Notes an exchange whose pairs have been checked, as a stage by itself.
    pub fn pull(&mut self, pairs: &[(Vector, Vector)]) {
        self.ends.push(self.verbs.len());
        self.verbs.extend(pairs.iter().map(|&(from, to)| Noted::from(Verb::Pull { from, to })));
        self.ends.push(self.verbs.len());
    }

    /// Notes that a vector must not be used.
    pub fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.check(scratch)?;
        self.note(Verb::Forget { scratch });
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.verbs.is_empty()
    }

    /// Whether there are enough of them to carry them out now.
    pub fn are_many(&self) -> bool {
        self.verbs.len() >= MOST_VERBS
    }

    /// Refuses to apply a function to vectors that are not in the layout, or to one of them twice.
    pub fn check_apply(&self, vectors: &[Vector]) -> Result<(), AgentsError> {
        vectors.iter().try_for_each(|v| self.check(*v))?;
        match (1..vectors.len()).find(|k| vectors[..*k].contains(&vectors[*k])) {
            Some(k) => Err(AgentsError::Method(format!("vector {} is applied to twice", vectors[k].0))),
            None => Ok(()),
        }
    }

    /// Whether they should be carried out before another exchange is noted.
    pub fn is_full(&self) -> bool {
        self.exchanges() >= MOST_EXCHANGES
    }

    /// Exchanges among them.
    pub fn exchanges(&self) -> usize {
        self.ends.len() / 2
    }

    /// Number of stages.
    pub fn stages(&self) -> usize {
        self.ends.len() + 1
    }

    /// One stage: exchanges are those with odd numbers.
    pub fn stage(&self, k: usize) -> &[Noted] {
        let begin = if k == 0 { 0 } else { self.ends[k - 1] };
        &self.verbs[begin..self.ends.get(k).copied().unwrap_or(self.verbs.len())]
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.verbs.clear();
        self.ends.clear();
    }
}

/// What agents need for verbs other than exchanges.
pub struct LocalWork<'w, T> {
    /// Their objectives.
    pub problem: &'w dyn Problem<T>,
    /// The seed of the run.
    pub seed: u64,
    /// The matrices of the variable that an optimiser steps along ([`engine::parts::matrices`](crate::engine::parts::matrices)).
    pub matrices: &'w [MatrixPart],
    /// All agents' numbers of local steps, where they differ.
    pub own_steps: &'w [u64],
}

/// The rows of one agent in all vectors.
pub struct Rows<'b, T> {
    agent: usize,
    blocks: &'b [Shared<T>],
    /// Elements before this agent's row in each block.
    offset: usize,
    dim: usize,
}

/// Pointers to the blocks, without allocating.
pub(crate) fn share<T>(blocks: &mut [Vec<T>]) -> [Shared<T>; MOST_VECTORS] {
    assert!(blocks.len() <= MOST_VECTORS, "a method works with at most {MOST_VECTORS} vectors");
    let mut shared = [const { Shared(std::ptr::null_mut()) }; MOST_VECTORS];
    for (slot, block) in shared.iter_mut().zip(blocks) {
        *slot = Shared(block.as_mut_ptr());
    }
    shared
}

impl<'b, T: Real> Rows<'b, T> {
    /// Works with the rows of an agent that is hosted alone: its vectors.
    ///
    /// # Panics
    /// If there are more than [`MOST_VECTORS`], or if they have different lengths.
    pub fn alone<R>(agent: usize, vectors: &mut [Vec<T>], work: impl FnOnce(&mut Rows<'_, T>) -> R) -> R {
        let dim = vectors.first().map_or(0, Vec::len);
        assert!(vectors.iter().all(|vector| vector.len() == dim), "vectors of one length");
        let blocks = &share(vectors)[..vectors.len()];
        work(&mut Rows { agent, blocks, offset: 0, dim })
    }

    /// Works with the rows of each of several agents, whose vectors are blocks with a row for each in this order; on all
    /// threads if asked. An error ends the work.
    ///
    /// # Panics
    /// If there are more than [`MOST_VECTORS`] blocks, or one does not have a row of `dim` elements for each agent.
    pub fn each(
        agents: &[usize],
        blocks: &mut [Vec<T>],
        dim: usize,
        threads: bool,
        work: impl Fn(&mut Rows<'_, T>) -> Result<(), AgentsError> + Sync,
    ) -> Result<(), AgentsError> {
        let elements = agents.len().checked_mul(dim);
        assert!(blocks.iter().all(|block| Some(block.len()) == elements), "a row for each agent");
        let blocks = &share(blocks)[..blocks.len()];
        // Every place is served once, so nobody else has its rows.
        let one = |(place, agent): (usize, &usize)| {
            work(&mut Rows { agent: *agent, blocks, offset: place * dim, dim })
        };
        match threads {
            true => agents.par_iter().enumerate().try_for_each(one),
            false => agents.iter().enumerate().try_for_each(one),
        }
    }

    /// The rows of one of several agents.
    ///
    /// # Safety
    /// Each block has a row of `dim` elements for this agent, and until these rows are dropped nobody else writes to
    /// them, or reads what they are used to write.
    pub(crate) unsafe fn among(agent: usize, blocks: &'b [Shared<T>], dim: usize) -> Self {
        Self { agent, blocks, offset: agent * dim, dim }
    }

    /// Whose rows they are.
    pub fn agent(&self) -> usize {
        self.agent
    }

    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.dim
    }

    /// One row to be written and others to be read; the former must not be among the latter.
    pub fn borrow<const K: usize>(&mut self, write: Vector, read: [Vector; K]) -> (&mut [T], [&[T]; K]) {
        assert!(read.iter().all(|v| *v != write), "a row is not read and written at once");
        let range = self.range();
        // SAFETY: the range is this agent's row and inside every block (`alone`, `each`, `among`), `self` is borrowed
        // mutably, and the row to be written is in another block than those to be read.
        unsafe {
            let y = self.blocks[write.0].slice_mut(range.clone());
            (y, read.map(|v| self.blocks[v.0].slice(range.clone())))
        }
    }

    /// Applies a verb to this agent's rows, if it is for this agent. It cannot be an exchange, which needs the
    /// rows of others.
    pub fn carry_out(&mut self, noted: &Noted, work: &LocalWork<'_, T>) -> Result<(), AgentsError> {
        let &LocalWork { problem, seed, matrices, own_steps } = work;
        if !noted.is_for(self.agent, own_steps) {
            return Ok(());
        }
        match noted.verb {
            Verb::Gradient { x, g, draw } => {
                let agent = self.agent;
                let (g, [x]) = self.borrow(g, [x]);
                let draw = Draw { seed, step: draw };
                problem.sample_gradient(agent, x, draw, g).map_err(AgentsError::objective(agent))?;
            }
            Verb::Combine { y, keep, ref terms, used } => {
                let (y, lent) = self.borrow_terms(y, &terms[..used]);
                block::combine(y, keep, &lent[..used]);
            }
            Verb::Prox { x, step } => {
                if let Some(penalty) = problem.penalty() {
                    penalty.prox(step, self.borrow(x, []).0);
                }
            }
            Verb::Optimise(ref step) => optimiser::take_step(self.borrow_step(step), &step.by, matrices),
            Verb::Clip { g, most } => optimiser::clip(self.borrow(g, []).0, most),
            Verb::Compress { u, by } => by.compress(self.borrow(u, []).0),
            Verb::Forget { scratch } => self.borrow(scratch, []).0.fill(T::nan()),
            Verb::Pull { .. } => return Err(AgentsError::Method("an exchange is not a local verb".into())),
        }
        Ok(())
    }

    fn borrow_terms(&mut self, y: Vector, terms: &[(f64, Vector)]) -> (&mut [T], [(f64, &[T]); MOST_TERMS]) {
        assert!(terms.iter().all(|(_, v)| *v != y), "a row is not read and written at once");
        let range = self.range();
        let mut lent: [(f64, &[T]); MOST_TERMS] = [(0.0, &[]); MOST_TERMS];
        // SAFETY: as in `borrow`.
        unsafe {
            for (slot, (a, v)) in lent.iter_mut().zip(terms) {
                *slot = (*a, self.blocks[v.0].slice(range.clone()));
            }
            (self.blocks[y.0].slice_mut(range), lent)
        }
    }

    fn borrow_step(&mut self, step: &OptimiserStep) -> AdamRows<'_, T> {
        let has_two_parts = step.states().any(|v| v == step.x || step.reads().any(|read| read == v));
        assert!(!has_two_parts && step.reads().all(|v| v != step.x), "a row is not read and written at once");
        let range = self.range();
        let state = |k: usize| Vector(step.state.0 + k);
        // SAFETY: as in `borrow`; the model and the vectors of the state are different blocks, and none is read too.
        unsafe {
            let read = |v: Vector| self.blocks[v.0].slice(range.clone());
            let write = |v: Vector| self.blocks[v.0].slice_mut(range.clone());
            AdamRows {
                x: write(step.x),
                m: write(state(0)),
                v: write(state(1)),
                largest: step.by.rule.elements().amsgrad.then(|| write(state(2))),
                g: read(step.g),
                inner: step.inner.map(read),
                shift: step.shift.map(read),
            }
        }
    }

    /// This agent's row of `to <- (W - I) from`, see [`block::pull`].
    ///
    /// # Safety
    /// These are rows among others ([`among`](Self::among)) of blocks with a row for every agent named in
    /// this agent's row of the weights, and nobody writes to any row of `from` meanwhile.
    pub(crate) unsafe fn pull(&mut self, weights: &SparseRows, from: Vector, to: Vector) {
        assert!(from != to, "a row is not read and written at once");
        let (source, dim) = (&self.blocks[from.0], self.dim);
        // SAFETY: promised by the caller.
        let row = |j: usize| unsafe { source.slice(j * dim..(j + 1) * dim) };
        // SAFETY: this agent's own row, inside the block, and of another block than `from`.
        let y = unsafe { self.blocks[to.0].slice_mut(self.range()) };
        let entries = weights.row(self.agent).iter().map(|&(j, w)| (w, row(j), j == self.agent));
        block::pull_row(y, row(self.agent), entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Vector = Vector(0);
    const G: Vector = Vector(1);
    const D: Vector = Vector(2);

    #[test]
    fn exchanges_are_separate_stages() {
        let mut verbs = Verbs::new(3);
        assert!(verbs.is_empty() && verbs.stages() == 1 && verbs.stage(0).is_empty());
        verbs.gradient(X, G, 1).unwrap();
        verbs.combine(X, 1.0, &[(-0.5, G)]).unwrap();
        verbs.pull(&[(X, D)]);
        verbs.pull(&[(D, G), (X, Vector(1))][..1]);
        verbs.forget(D).unwrap();
        let lengths: Vec<usize> = (0..verbs.stages()).map(|k| verbs.stage(k).len()).collect();
        assert_eq!((lengths, verbs.exchanges()), (vec![2, 1, 0, 1, 1], 2));
        assert!((2..MOST_EXCHANGES).all(|_| !verbs.is_full() && {
            verbs.pull(&[(X, D)]);
            true
        }));
        assert!(verbs.is_full());
        verbs.clear();
        assert!(verbs.is_empty() && !verbs.is_full());
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name() {
        let mut verbs = Verbs::new(3);
        // The error names the vector, or the number of terms.
        let named = |result: Result<(), AgentsError>, named: &str| match result {
            Err(AgentsError::Method(problem)) => assert!(problem.contains(named), "{problem}"),
            other => panic!("{other:?}"),
        };
        named(verbs.gradient(X, Vector(3), 0), "vector 3");
        named(verbs.gradient(X, X, 0), "vector 0");
        named(verbs.prox(Vector(3), 0.1), "vector 3");
        named(verbs.combine(X, 1.0, &[(1.0, G), (1.0, X)]), "vector 0");
        named(verbs.combine(X, 1.0, &[(1.0, G); 9]), "9");
        named(verbs.check_pull(&[(X, D), (D, G)]), "vector 2");
        named(verbs.check_pull(&[(X, D), (G, D)]), "vector 2");
        named(verbs.check_pull(&[(X, X)]), "vector 0");
        named(verbs.check_pull(&[]), "");
        let pull = SteadyPull { from: X, memory: G, to: D, steady: G, fresh: 0.1 };
        named(verbs.check_steady(&pull), "vector 1");
        let pull = SteadyPull { memory: X, ..pull };
        named(verbs.check_steady(&pull), "vector 0");
        assert!(verbs.is_empty());
    }
}
