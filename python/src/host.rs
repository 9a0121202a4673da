//! Agents whose vectors are in Python, such as PyTorch tensors on any device: the verbs are calls of a host object.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use mile::agents::{Agents, AgentsError, BlockFunction, CompressedPull, OptimiserStep, SteadyPull, Vector};
use mile::compression::Compression;
use mile::engine::parts::{Drift, Guard, check_len, check_method, compress, measure_drift, movers};
use mile::engine::{Engine, HostError, in_order};
use mile::method::Method;
use mile::network::Network;
use mile::optimiser::MatrixPart;
use mile::ranks::{Ranks, Together};
use mile::real::Real;
use mile::steady::{Summaries, message_bytes, share};
use mile::verbs::Verbs;
use numpy::{Element, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::failure::Raised;
use crate::optimiser::numbers_of;
use crate::problem::attribute;
use crate::ranks::{PyRanks, or_alone};

/// The agents of a host object.
pub(crate) struct HostEngine<'a, T> {
    host: Py<PyAny>,
    network: &'a Network,
    /// The edges in the order in which the host knows them.
    edges: Vec<(usize, usize, f64)>,
    hosted: Range<usize>,
    seed: u64,
    dim: usize,
    /// Numbers of a row that agents send; the others stay with their agent.
    shared: usize,
    /// The step size of the current step.
    step_size: f64,
    checks: Verbs,
    /// The matrices of the variable that the method's optimiser steps along.
    matrices: Vec<MatrixPart>,
    /// The agents' numbers of local steps, where they differ.
    own_steps: Vec<u64>,
    drift: Drift,
    guard: Guard,
    raised: Raised,
    ranks: Option<Arc<PyRanks>>,
    start: std::marker::PhantomData<T>,
}

/// The agents of a rank: contiguous blocks, whose sizes differ by at most one.
pub(crate) fn block(agents: usize, rank: usize, count: usize) -> Range<usize> {
    rank * agents / count..(rank + 1) * agents / count
}

impl<'a, T: Real + Element> HostEngine<'a, T> {
    /// Asks the problem for a host with the vectors of a method; `start` has one row for all agents, or one for each hosted agent.
    pub(crate) fn new(
        problem: &Py<PyAny>,
        network: &'a Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
        raised: Raised,
        ranks: Option<Arc<PyRanks>>,
    ) -> Result<Self, HostError> {
        let (agents, vectors) = (network.agents(), check_method(method, false)?);
        let (rank, count) = ranks.as_ref().map_or((0, 1), |ranks| (ranks.rank(), ranks.count()));
        let hosted = block(agents, rank, count);
        let edges: Vec<(usize, usize, f64)> =
            network.graph().edges().map(|(i, j)| (i, j, network.mixing().weight(i, j))).collect();
        let (host, dim, shared) = raised
            .call(|py| {
                let problem = problem.bind(py);
                let dim: usize = problem.getattr("dim")?.extract()?;
                let shared = attribute(problem, "shared_dim")?.map_or(Ok(dim), |shared| shared.extract())?;
                let start = PyArray1::from_slice(py, start);
                let peers = ranks.as_ref().map(|ranks| ranks.count());
                let arguments =
                    (agents, (hosted.start, hosted.end), edges.clone(), vectors, start, seed, peers);
                Ok((problem.call_method1("host", arguments)?.unbind(), dim, shared))
            })
            .map_err(HostError::Engine)?;
        Ok(Self {
            host,
            network,
            edges,
            hosted,
            seed,
            dim,
            shared,
            step_size: 1.0,
            checks: Verbs::new(vectors),
            matrices: Vec::new(),
            own_steps: method.own_steps().unwrap_or_default().to_vec(),
            drift: Drift::default(),
            guard: Guard::default(),
            raised,
            ranks,
            start: std::marker::PhantomData,
        })
    }

    /// With the matrices that the method's optimiser steps along.
    pub(crate) fn with_matrices(self, matrices: Vec<MatrixPart>) -> Self {
        Self { matrices, ..self }
    }

    /// Calls the host, unless an earlier call failed.
    fn call<R>(
        &mut self,
        work: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<R>,
    ) -> Result<R, AgentsError> {
        self.guard.begin()?;
        let result = self.raised.verb(|py| work(self.host.bind(py)))?;
        self.guard.end();
        Ok(result)
    }

    /// Checks a verb as the simulator does.
    fn check(&mut self, verb: impl FnOnce(&mut Verbs) -> Result<(), AgentsError>) -> Result<(), AgentsError> {
        self.checks.clear();
        verb(&mut self.checks)
    }

    /// The weights of the edges in a round, if they change, and how many messages the hosted agents send.
    fn weights(&self, round: u64) -> (Option<Vec<f64>>, u64) {
        let up = |i, j| self.network.edge_is_up(self.seed, i, j, round);
        let sent = |i: usize| self.network.graph().neighbours(i).iter().filter(|j| up(i, **j)).count() as u64;
        let messages = self.hosted.clone().map(sent).sum();
        let changing = self.network.varies();
        let weight = |i, j| self.network.weight_in_round(self.seed, (i, j), round).unwrap_or(0.0);
        let now = || self.edges.iter().map(|(i, j, _)| weight(*i, *j)).collect();
        (changing.then(now), messages)
    }

    /// The compressed rows of the neighbours on other ranks, from messages.
    fn exchange_compressed(&mut self, by: Compression, rows: &[T]) -> Result<Vec<T>, AgentsError> {
        let (dim, length) = (self.dim, by.message_bytes::<T>(self.dim));
        let mut sent = Vec::with_capacity(self.hosted.len() * length);
        rows.chunks_exact(dim.max(1)).for_each(|row| by.encode(row, &mut sent));
        let received = self.call(|host| {
            let sent = PyArray1::from_vec(host.py(), sent);
            let received = host.call_method1("exchange_messages", (sent, length))?;
            Ok(received.cast::<PyArray1<u8>>()?.try_readonly()?.as_slice()?.to_vec())
        })?;
        let mut found = vec![T::zero(); received.len() / length.max(1) * dim];
        let messages = received.chunks_exact(length.max(1)).zip(found.chunks_exact_mut(dim.max(1)));
        messages
            .into_iter()
            .try_for_each(|(message, row)| by.decode(message, row))
            .map_err(|error| AgentsError::Engine(error.into()))?;
        Ok(found)
    }
}

impl<T: Real + Element> Agents for HostEngine<'_, T> {
    fn hosted(&self) -> Range<usize> {
        self.hosted.clone()
    }

    fn begin(&mut self, step_size: f64) {
        self.step_size = step_size;
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.check(|verbs| verbs.gradient(x, g, draw))?;
        let step_size = self.step_size;
        self.call(|host| host.call_method1("gradient", (x.0, g.0, draw, step_size)).map(drop))
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.check(|verbs| verbs.combine(y, keep, terms))?;
        self.call(|host| {
            let terms = PyList::new(host.py(), terms.iter().map(|(a, v)| (*a, v.0)))?;
            host.call_method1("combine", (y.0, keep, terms)).map(drop)
        })
    }

    /// The host carries it out on its device, or hands its memory to [`take_steps`](crate::optimiser::take_steps).
    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.check(|verbs| verbs.optimise(step))?;
        let states: Vec<usize> = step.states().map(|v| v.0).collect();
        let vectors = (step.x.0, states, step.g.0, step.inner.map(|v| v.0), step.shift.map(|v| v.0));
        let by = numbers_of(&step.by);
        let matrices: Vec<[usize; 3]> =
            self.matrices.iter().map(|part| [part.range.start, part.shape[0], part.shape[1]]).collect();
        self.call(|host| host.call_method1("optimise", (vectors, by, matrices)).map(drop))
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.check(|verbs| verbs.clip(g, most))?;
        self.call(|host| host.call_method1("clip", (g.0, most)).map(drop))
    }

    /// Objectives in Python have no penalty.
    fn prox(&mut self, x: Vector, _: f64) -> Result<(), AgentsError> {
        self.checks.check(x)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.checks.check_pull(pairs)?;
        let ranks = self.ranks.clone();
        let together = Together::of(or_alone(ranks.as_ref()));
        measure_drift(self, together, pairs[0].0)?;
        let (weights, messages) = self.weights(round);
        self.call(|host| {
            let weights = weights.map(|weights| PyArray1::from_vec(host.py(), weights));
            let pairs = PyList::new(host.py(), pairs.iter().map(|(from, to)| (from.0, to.0)))?;
            host.call_method1("pull", (pairs, weights)).map(drop)
        })?;
        Ok(messages * (pairs.len() * self.shared * size_of::<T>()) as u64)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.checks.check_steady(pull)?;
        let ranks = self.ranks.clone();
        let together = Together::of(or_alone(ranks.as_ref()));
        measure_drift(self, together, pull.from)?;
        let own =
            self.call(|host| numbers(&host.call_method1("summaries", (pull.from.0, pull.memory.0))?))?;
        let summaries = Summaries::from_numbers(self.of_all(together, own)?, self.dim);
        let mut rows = self.network.rows();
        self.network.rows_in_round(self.seed, round, &mut rows);
        let r = summaries.steadiness(&rows, pull.fresh)[self.hosted.clone()].to_vec();
        let (weights, messages) = self.weights(round);
        let weights = weights.unwrap_or_else(|| self.edges.iter().map(|(_, _, w)| *w).collect());
        let shares = self.edges.iter().map(|(i, j, _)| share(summaries.agent(*i), summaries.agent(*j)));
        let weighed: Vec<f64> = weights.iter().zip(shares).map(|(w, share)| w * share).collect();
        self.call(|host| {
            let py = host.py();
            let vectors = (pull.from.0, pull.memory.0, pull.to.0, pull.steady.0);
            let [weights, weighed, r] = [weights, weighed, r].map(|numbers| PyArray1::from_vec(py, numbers));
            host.call_method1("pull_steady", (vectors, weights, weighed, r)).map(drop)
        })?;
        let kept = (self.dim - self.shared) * size_of::<T>();
        Ok(messages * (message_bytes::<T>(self.dim) - kept) as u64)
    }

    /// Rust compresses, with the same bits as in every engine; between ranks the host moves the messages that agents on a network would send.
    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.checks.check(pull.model)?;
        self.checks.check_pull(&[(pull.from, pull.to)])?;
        if self.shared < self.dim {
            let problem =
                "it sends compressed vectors, which has no meaning where parameters stay with their agent";
            return Err(AgentsError::Method(problem.into()));
        }
        let ranks = self.ranks.clone();
        let together = Together::of(or_alone(ranks.as_ref()));
        measure_drift(self, together, pull.model)?;
        let rows = compress(self, pull)?;
        let received = match &self.ranks {
            Some(_) => Some(self.exchange_compressed(pull.by, &rows)?),
            None => None,
        };
        let (weights, messages) = self.weights(round);
        self.call(|host| {
            let py = host.py();
            let weights = weights.map(|weights| PyArray1::from_vec(py, weights));
            let received = received.map(|rows| PyArray1::from_vec(py, rows));
            let pairs = PyList::new(py, [(pull.from.0, pull.to.0)])?;
            host.call_method1("pull", (pairs, weights, received)).map(drop)
        })?;
        Ok(messages * pull.by.message_bytes::<T>(self.dim) as u64)
    }

    /// The function gets the host's own vectors.
    fn apply(&mut self, function: &dyn BlockFunction, vectors: &[Vector]) -> Result<(), AgentsError> {
        self.check(|verbs| verbs.check_apply(vectors))?;
        let function = function
            .hand_over()
            .then(|| self.raised.handed_over())
            .flatten()
            .ok_or_else(|| AgentsError::Method("it applies a function that is not in Python".into()))?;
        self.call(|host| {
            let numbers = PyList::new(host.py(), vectors.iter().map(|v| v.0))?;
            host.call_method1("apply", (function, numbers)).map(drop)
        })
    }

    /// The host is told the rows.
    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.checks.only(own);
        let moves = |agent: &usize| self.own_steps.get(*agent).copied() == own;
        let rows = own.map(|_| {
            let first = self.hosted.start;
            self.hosted.clone().filter(moves).map(|agent| agent - first).collect::<Vec<usize>>()
        });
        self.call(|host| host.call_method1("only", (rows,)).map(drop))?;
        Ok(movers(self.hosted.clone(), &self.own_steps, own))
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.checks.check(scratch)
    }
}

impl<T: Real + Element> Engine<T> for HostEngine<'_, T> {
    fn agents(&self) -> usize {
        self.network.agents()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        self.checks.check(v)?;
        let rows = self.call(|host| {
            let rows = host.call_method1("vector", (v.0,))?;
            Ok(rows.cast::<PyArray1<T>>()?.try_readonly()?.as_slice()?.to_vec())
        })?;
        Ok(Cow::Owned(rows))
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        self.checks.check(v)?;
        check_len(self.hosted.len() * self.dim, rows.len())?;
        self.call(|host| {
            let rows = PyArray1::from_slice(host.py(), rows);
            host.call_method1("set_vector", (v.0, rows)).map(drop)
        })
    }

    fn watched(&mut self) -> Option<&mut Drift> {
        Some(&mut self.drift)
    }

    fn saving(&mut self, _: Together<'_>, state: &Path, round: u64) -> Result<(), AgentsError> {
        self.call(|host| host.call_method1("saving", (state, round)).map(drop))
    }

    fn saved(&mut self, _: Together<'_>, state: &Path, round: u64) -> Result<(), AgentsError> {
        self.call(|host| host.call_method1("saved", (state, round)).map(drop))
    }

    fn restored(&mut self, _: Together<'_>, state: &Path, round: u64) -> Result<(), AgentsError> {
        self.call(|host| host.call_method1("restored", (state, round)).map(drop))
    }

    fn batch_loss(&mut self, together: Together<'_>) -> Result<Option<f64>, AgentsError> {
        let own = self.call(|host| numbers(&host.call_method0("batch_losses")?))?;
        let all = self.of_all(together, own)?;
        Ok((!all.is_empty()).then(|| in_order(&all) / self.network.agents() as f64))
    }

    fn of_all(&mut self, together: Together<'_>, own: Vec<f64>) -> Result<Vec<f64>, AgentsError> {
        let Some(ranks) = &self.ranks else { return Ok(own) };
        let parts = ranks.all_gather(together, bytemuck::cast_slice(&own)).map_err(AgentsError::Engine)?;
        Ok(parts.iter().flat_map(|part| bytemuck::pod_collect_to_vec::<u8, f64>(part)).collect())
    }

    fn sum(&mut self, _: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        self.checks.check(v)?;
        self.call(|host| numbers(&host.call_method1("sum", (v.0,))?))
    }

    fn sum_rows(&mut self, _: Together<'_>, rows: &[T]) -> Result<Vec<f64>, AgentsError> {
        self.call(|host| {
            let rows = PyArray1::from_slice(host.py(), rows);
            numbers(&host.call_method1("sum_rows", (rows,))?)
        })
    }

    fn row(&mut self, _: Together<'_>, v: Vector, agent: usize) -> Result<Vec<T>, AgentsError> {
        self.checks.check(v)?;
        self.call(|host| {
            let row = host.call_method1("row", (v.0, agent))?;
            Ok(row.cast::<PyArray1<T>>()?.try_readonly()?.as_slice()?.to_vec())
        })
    }

    fn norm_sq(&mut self, together: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        self.checks.check(v)?;
        let own = self.call(|host| numbers(&host.call_method1("norms_sq", (v.0,))?))?;
        Ok(in_order(&self.of_all(together, own)?))
    }

    fn consensus_error(&mut self, together: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        let mean = self.mean(together, v)?;
        let own = self.call(|host| {
            let mean = PyArray1::from_vec(host.py(), mean);
            numbers(&host.call_method1("distances_sq", (v.0, mean))?)
        })?;
        Ok(in_order(&self.of_all(together, own)?) / self.network.agents() as f64)
    }
}

/// A one-dimensional array of numbers.
fn numbers(array: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    Ok(array.cast::<PyArray1<f64>>()?.try_readonly()?.as_slice()?.to_vec())
}
