//! What engines are composed of: the checks before agents are hosted, and small parts that guard and watch their vectors.

use std::time::{Duration, Instant};

use super::{Engine, HostError};
use crate::agents::{AgentsError, CompressedPull, Vector};
use crate::block;
use crate::method::Method;
use crate::network::Network;
use crate::optimiser::MatrixPart;
use crate::problems::{self, Problem};
use crate::ranks::Together;
use crate::real::Real;
use crate::verbs::MOST_VECTORS;

/// Work that takes less than this in total is not worth waking the thread pool for.
const WORTH_THREADS: Duration = Duration::from_micros(60);

/// Refuses a method that an engine has no room for, or one without a proximal step for a problem that has a penalty. Returns the
/// number of its vectors.
pub fn check_method(method: &dyn Method, has_penalty: bool) -> Result<usize, HostError> {
    let vectors = method.layout().vectors();
    if vectors == 0 || vectors > MOST_VECTORS {
        return Err(HostError::Vectors { vectors });
    }
    if has_penalty && !method.takes_penalty() {
        return Err(HostError::Penalty);
    }
    Ok(vectors)
}

/// Refuses parts that do not match, where `hosted` agents of a network are hosted. `start` has one row for all agents, or one for each
/// hosted agent. Returns how many vectors there are, and the numbers in each.
pub fn check<T: Real>(
    problem: &dyn Problem<T>,
    network: &Network,
    method: &dyn Method,
    start: &[T],
    hosted: usize,
) -> Result<(usize, usize), HostError> {
    if problem.agents() != network.agents() {
        return Err(HostError::Agents { problem: problem.agents(), network: network.agents() });
    }
    let vectors = check_method(method, problem.penalty().is_some())?;
    let (agents, dim) = (hosted, problem.dim());
    let numbers = agents.checked_mul(dim).ok_or(HostError::TooLarge { agents, dim, vectors })?;
    if start.len() != dim && start.len() != numbers {
        return Err(HostError::Start { got: start.len(), dim, agents });
    }
    Ok((vectors, numbers))
}

/// The vectors of hosted agents at their starting points, [checked](check): models in the first one, zeros in the others.
pub fn blocks<T: Real>(
    problem: &dyn Problem<T>,
    network: &Network,
    method: &dyn Method,
    start: &[T],
    hosted: usize,
) -> Result<Vec<Vec<T>>, HostError> {
    let (vectors, numbers) = check(problem, network, method, start, hosted)?;
    let (agents, dim) = (hosted, problem.dim());
    let mut blocks =
        block::try_zeros(vectors, numbers).ok_or(HostError::TooLarge { agents, dim, vectors })?;
    let starts = start.chunks_exact(dim.max(1)).cycle();
    for (row, start) in blocks[0].chunks_exact_mut(dim.max(1)).zip(starts) {
        row.copy_from_slice(start);
    }
    Ok(blocks)
}

/// The matrices of the problem's variable that the method's optimiser steps along; none if it needs none.
pub fn matrices<T: Real>(
    problem: &dyn Problem<T>,
    method: &dyn Method,
) -> Result<Vec<MatrixPart>, HostError> {
    let Some(muon) = method.muon() else { return Ok(Vec::new()) };
    let parts = problem.tensors().map(|tensors| tensors.parts()).unwrap_or_default();
    let matrices = problems::matrices(&parts, muon);
    if matrices.is_empty() { Err(HostError::Matrices) } else { Ok(matrices) }
}

/// How many of these agents have this own number of local steps; all of them if none is asked for.
pub fn movers(agents: impl IntoIterator<Item = usize>, own_steps: &[u64], own: Option<u64>) -> u64 {
    let moves = |agent: &usize| own.is_none_or(|own| own_steps.get(*agent) == Some(&own));
    agents.into_iter().filter(moves).count() as u64
}

/// Refuses to replace the numbers of a vector by more or fewer.
pub fn check_len(numbers: usize, got: usize) -> Result<(), AgentsError> {
    if numbers == got {
        return Ok(());
    }
    Err(AgentsError::Engine(format!("rows of a vector: expected {numbers} numbers, got {got}").into()))
}

/// Replaces the numbers of a vector by as many others.
pub fn replace<T: Copy>(vector: &mut [T], rows: &[T]) -> Result<(), AgentsError> {
    check_len(vector.len(), rows.len())?;
    vector.copy_from_slice(rows);
    Ok(())
}

/// Keeps an engine from using vectors that an error left half updated.
#[derive(Debug, Default)]
pub struct Guard {
    is_open: bool,
}

impl Guard {
    /// Refuses to go on after work has failed.
    pub fn check(&self) -> Result<(), AgentsError> {
        if self.is_open { Err(AgentsError::Unusable) } else { Ok(()) }
    }

    /// Work on the vectors begins. Until it [ends](Self::end) they count as damaged: an error, or a panic in an objective, leaves them
    /// half updated.
    pub fn begin(&mut self) -> Result<(), AgentsError> {
        self.check()?;
        self.is_open = true;
        Ok(())
    }

    /// The work is done.
    pub fn end(&mut self) {
        self.is_open = false;
    }
}

/// The consensus error of the models just before an exchange, if it was asked for.
#[derive(Debug, Default)]
pub struct Drift {
    is_asked: bool,
    found: Option<f64>,
}

impl Drift {
    /// Asks for the error before the next exchange.
    pub fn ask(&mut self) {
        *self = Self { is_asked: true, found: None };
    }

    /// Whether the error before the next exchange is asked for.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// What was measured since the last call.
    pub fn found(&self) -> Option<f64> {
        self.found
    }
}

/// Measures the consensus error of the models that are about to be sent, if it was asked for.
pub fn measure_drift<T: Real>(
    engine: &mut impl Engine<T>,
    together: Together<'_>,
    model: Vector,
) -> Result<(), AgentsError> {
    if engine.watched().is_some_and(|drift| std::mem::take(&mut drift.is_asked)) {
        let found = Some(engine.consensus_error(together, model)?);
        if let Some(drift) = engine.watched() {
            drift.found = found;
        }
    }
    Ok(())
}

/// Replaces what is sent in an exchange by what its compressed messages encode, and returns it: for engines whose vectors are not in the
/// memory of this process.
pub fn compress<T: Real>(engine: &mut impl Engine<T>, pull: &CompressedPull) -> Result<Vec<T>, AgentsError> {
    let mut rows = engine.vector(pull.from)?.into_owned();
    pull.by.compress_rows(&mut rows, engine.dim());
    engine.set_vector(pull.from, &rows)?;
    Ok(rows)
}

/// Whether the thread pool is worth waking, which the first work determines.
#[derive(Debug, Default)]
pub struct Pool {
    pub(crate) is_worth: Option<bool>,
}

impl Pool {
    /// Whether it is known to be worth it.
    pub fn is_worth(&self) -> bool {
        self.is_worth == Some(true)
    }

    /// Work begins.
    pub fn begin(&self) -> Option<Instant> {
        self.is_worth.is_none().then(Instant::now)
    }

    /// The work begun this way is done.
    pub fn end(&mut self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.is_worth = Some(begun.elapsed() >= WORTH_THREADS);
        }
    }
}
