//! All agents of a network on one device.
//!
//! Verbs are noted, as in the simulator, and carried out when results are needed, together with those of other jobs on the same device
//! ([`Stack`]). Combinations and exchanges form the simulator's sums in its order, products and sums rounded separately, so that the bits
//! are the same.

mod copied;
mod crossing;
mod evaluation;
mod on_cpu;
mod ranks;
mod steady;

pub use ranks::GpuRank;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mile::agents::{Agents, AgentsError, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector};
use mile::engine::parts::{self, Drift, Guard, check_len, compress, measure_drift};
use mile::engine::{Engine, EvaluatedModels, HostError};
use mile::method::Method;
use mile::network::Network;
use mile::optimiser::{MatrixPart, OptimiserRule};
use mile::problems::{Draw, Problem};
use mile::ranks::{Alone, Together};
use mile::real::Real;
use mile::sparse::SparseRows;
use mile::steady::message_bytes;
use mile::verbs::{Noted, Verb, Verbs};

use crate::decay::WeightDecay;
use crate::device::{Buffer, Device, DeviceError};
use crate::forms::on_device;
use crate::objective::Objective;
use crate::stack::Stack;
use crate::vectors::Vectors;
use crate::work::Work;

/// Hosts every agent of a [`Network`] on a [`Device`].
pub struct GpuAgents<'a, T: Real> {
    stack: Arc<Stack<T>>,
    /// The number of this job among those that compute together; none if its gradients are computed on the CPU.
    member: Option<usize>,
    problem: &'a dyn Problem<T>,
    /// None if the problem is computed on the CPU.
    objective: Option<Box<dyn Objective>>,
    /// Added to gradients that are computed on the device.
    weight_decay: WeightDecay,
    network: Network,
    /// The agents of the rows: all, or those of a rank.
    hosted: Vec<usize>,
    seed: u64,
    vectors: Vectors<T>,
    matrices: Vec<MatrixPart>,
    /// All agents' numbers of local steps, where they differ.
    own_steps: Vec<u64>,
    noted: Verbs,
    round: u64,
    weights: SparseRows,
    /// The sum of squares of the models, if they have not changed since it was computed, and whether it has been asked for since the
    /// last round.
    norm_sq: Option<f64>,
    asks_for_norm: bool,
    /// Where evaluations put their numbers, and gradients at the mean, once they are needed.
    numbers: Option<(usize, Buffer)>,
    spare: Option<Buffer>,
    drift: Drift,
    guard: Guard,
}

impl<'a, T: Real> GpuAgents<'a, T> {
    /// Agents at their starting points, with the vectors `method` works with; `start` has one row for each agent, or a single row
    /// for all. They have the device to themselves.
    pub fn new(
        device: Arc<dyn Device>,
        problem: &'a dyn Problem<T>,
        network: &Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Result<Self, HostError> {
        Self::within(&Stack::new(device)?, problem, network, method, start, seed)
    }

    /// As [`new`](Self::new), on a device where other jobs compute at the same time, each in its own thread.
    pub fn within(
        stack: &Arc<Stack<T>>,
        problem: &'a dyn Problem<T>,
        network: &Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Result<Self, HostError> {
        let all = (0..network.agents()).collect();
        Self::hosting(all, stack, problem, network, method, start, seed)
    }

    /// As [`within`](Self::within), for some of the agents; what crosses to others is not carried out here.
    fn hosting(
        hosted: Vec<usize>,
        stack: &Arc<Stack<T>>,
        problem: &'a dyn Problem<T>,
        network: &Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Result<Self, HostError> {
        let (agents, dim) = (hosted.len(), problem.dim());
        let (count, _) = parts::check(problem, network, method, start, agents)?;
        let weights = if agents == network.agents() { network.rows() } else { SparseRows::default() };
        let mut shared = stack.lock();
        let vectors = Vectors::new(&stack.queue, problem.penalty(), &weights, [count, agents, dim])?;
        let member = problem.device_form().map(|_| shared.number());
        drop(shared);
        let mut found = Self {
            stack: stack.clone(),
            member,
            problem,
            objective: None,
            weight_decay: WeightDecay::of(problem),
            network: network.clone(),
            hosted,
            seed,
            vectors,
            matrices: parts::matrices(problem, method)?,
            own_steps: method.own_steps().unwrap_or_default().to_vec(),
            noted: Verbs::new(count),
            round: 0,
            weights,
            norm_sq: None,
            asks_for_norm: false,
            numbers: None,
            spare: None,
            drift: Drift::default(),
            guard: Guard::default(),
        };
        let mut shared = stack.lock();
        found.objective = on_device(&mut shared, &stack.queue, member.unwrap_or(0), problem, &found.hosted)?;
        drop(shared);
        let mut work = Work::default();
        (0..count).for_each(|v| found.vectors.fill(Vector(v), T::zero(), &mut work));
        stack.alone(&work)?;
        let rows: Cow<[T]> = if start.len() == dim { start.repeat(agents).into() } else { start.into() };
        let mut shared = stack.lock();
        found.vectors.set(Vector(0), &rows)?;
        member.into_iter().for_each(|member| shared.join(member));
        drop(shared);
        Ok(found)
    }

    /// Whether gradients are computed on the device; otherwise the problem computes them on the CPU.
    pub fn computes_gradients(&self) -> bool {
        self.objective.is_some()
    }

    /// The rows that a verb is for, in contiguous ranges.
    fn rows_of(&self, noted: &Noted) -> Vec<Range<usize>> {
        let moves = |agent: &usize| noted.is_for(*agent, &self.own_steps);
        let same = self.hosted.chunk_by(|one, next| moves(one) == moves(next));
        let ends = same.scan(0, |end, agents| {
            *end += agents.len();
            Some((*end - agents.len()..*end, moves(&agents[0])))
        });
        ends.filter(|(_, moves)| *moves).map(|(rows, _)| rows).collect()
    }

    /// Adds the commands of a verb; `weights` are those of the round, if some edges are down in some rounds.
    fn lower(&self, noted: &Noted, weights: Option<usize>, work: &mut Work) {
        let (vectors, rows) = (&self.vectors, &self.rows_of(noted)[..]);
        match noted.verb {
            Verb::Gradient { x, g, draw } => {
                if let Some(objective) = &self.objective {
                    let draw = Draw { seed: self.seed, step: draw };
                    let rows: Vec<usize> = rows.iter().cloned().flatten().collect();
                    objective.gradients(&rows, vectors.place(x), vectors.place(g), Some(draw), work);
                }
            }
            Verb::Combine { y, keep, ref terms, used } => {
                vectors.combine(rows, y, keep, &terms[..used], work)
            }
            Verb::Prox { x, step } => {
                let weight = self.problem.penalty().map_or(0.0, |penalty| penalty.weight());
                vectors.prox(rows, x, step * weight, work);
            }
            Verb::Optimise(ref step) => vectors.adam(rows, step, work),
            Verb::Clip { g, most } => vectors.clip(rows, g, most, work),
            Verb::Pull { from, to } => vectors.pull(from, to, weights, work),
            Verb::Forget { scratch } => vectors.fill(scratch, T::nan(), work),
            _ => {}
        }
    }

    /// The weights of the round, if edges can drop.
    fn weights_of_round(&self, work: &mut Work) -> Option<usize> {
        let now = || self.weights.entries.iter().map(|(_, w)| T::of(*w)).collect::<Vec<T>>();
        (self.network.varies() && self.noted.exchanges() > 0).then(|| work.data(&now()))
    }

    /// Carries out all noted verbs at once. If the norm of the models is asked for after every exchange, it is computed along with them.
    fn carry_out(&mut self) -> Result<(), DeviceError> {
        let mut work = Work::default();
        let weights = self.weights_of_round(&mut work);
        for noted in (0..self.noted.stages()).flat_map(|stage| self.noted.stage(stage)) {
            self.lower(noted, weights, &mut work);
        }
        if self.noted.exchanges() > 0 && std::mem::take(&mut self.asks_for_norm) {
            self.vectors.squares(Vector(0), &mut work);
        }
        self.norm_sq = match self.member {
            Some(member) => self.stack.together(member, work)?,
            None => self.stack.alone(&work)?,
        };
        Ok(())
    }

    /// A vector, once all pending work is done.
    fn read(&self, v: Vector) -> Result<Vec<T>, DeviceError> {
        let _queue = self.stack.lock();
        self.vectors.get(v)
    }
}

/// A device error as an engine error.
fn engine(error: DeviceError) -> AgentsError {
    AgentsError::Engine(Box::new(error))
}

impl<T: Real> Agents for GpuAgents<'_, T> {
    fn hosted(&self) -> Range<usize> {
        0..self.network.agents()
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.gradient(x, g, draw)?;
        if let (Some(_), Some(factor)) = (&self.objective, self.weight_decay.factor()) {
            self.noted.combine(g, 1.0, &[(factor, x)])?;
        }
        Ok(())
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.combine(y, keep, terms)
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.check(x)?;
        if self.problem.penalty().is_none() {
            return Ok(());
        }
        self.noted.prox(x, step)
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.guard.check()?;
        if let OptimiserRule::Adam(_) = step.by.rule {
            return self.noted.optimise(step);
        }
        self.noted.check_optimise(step)?;
        self.settle()?;
        self.guard.begin()?;
        self.step_on_cpu(step)?;
        self.guard.end();
        Ok(())
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.guard.check()?;
        self.noted.clip(g, most)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.guard.check()?;
        self.noted.check_pull(pairs)?;
        // If edges can drop, the weights are those of one round.
        let other_round = self.noted.exchanges() > 0 && self.round != round;
        if self.drift.is_asked() || self.noted.is_full() || other_round {
            self.settle()?;
        }
        measure_drift(self, Together::of(&Alone), pairs[0].0)?;
        self.round = round;
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        self.noted.pull(pairs);
        Ok(messages * (pairs.len() * self.vectors.dim() * size_of::<T>()) as u64)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.guard.check()?;
        self.noted.check_steady(pull)?;
        self.settle()?;
        measure_drift(self, Together::of(&Alone), pull.from)?;
        self.round = round;
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        self.guard.begin()?;
        self.carry_out_steady(pull).map_err(engine)?;
        self.guard.end();
        Ok(messages * message_bytes::<T>(self.vectors.dim()) as u64)
    }

    /// The CPU compresses, with the same bits as in every engine.
    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.noted.check(pull.model)?;
        self.noted.check_pull(&[(pull.from, pull.to)])?;
        self.settle()?;
        measure_drift(self, Together::of(&Alone), pull.model)?;
        let dim = self.vectors.dim();
        compress(self, pull)?;
        let whole = self.pull(round, &[(pull.from, pull.to)])?;
        Ok(whole / (dim * size_of::<T>()).max(1) as u64 * pull.by.message_bytes::<T>(dim) as u64)
    }

    /// The CPU compares the agents, with the same bits as in every engine.
    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.noted.check_pull(&[(pull.from, pull.to)])?;
        self.settle()?;
        measure_drift(self, Together::of(&Alone), pull.from)?;
        self.round = round;
        let (messages, dim) =
            (self.network.rows_in_round(self.seed, round, &mut self.weights), self.vectors.dim());
        let from = self.vector(pull.from)?.into_owned();
        let mut to = vec![T::zero(); from.len()];
        pull.by.pull_all(&self.weights, &from, &mut to, dim);
        self.set_vector(pull.to, &to)?;
        Ok(messages * (dim * size_of::<T>()) as u64)
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.noted.only(own);
        Ok(parts::movers(self.hosted.iter().copied(), &self.own_steps, own))
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        if cfg!(debug_assertions) { self.noted.forget(scratch) } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        self.guard.check()?;
        if self.noted.is_empty() {
            return Ok(());
        }
        self.guard.begin()?;
        if self.objective.is_none() {
            self.carry_out_with_cpu()?;
        } else {
            self.carry_out().map_err(engine)?;
        }
        self.noted.clear();
        self.guard.end();
        Ok(())
    }
}

impl<T: Real> Engine<T> for GpuAgents<'_, T> {
    fn agents(&self) -> usize {
        self.network.agents()
    }

    fn dim(&self) -> usize {
        self.vectors.dim()
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        Ok(Cow::Owned(self.read(v).map_err(engine)?))
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        check_len(self.vectors.agents() * self.vectors.dim(), rows.len())?;
        self.norm_sq = None;
        let _queue = self.stack.lock();
        self.vectors.set(v, rows).map_err(engine)
    }

    fn watched(&mut self) -> Option<&mut Drift> {
        Some(&mut self.drift)
    }

    fn norm_sq(&mut self, _: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        self.asks_for_norm |= v == Vector(0);
        if let (Vector(0), Some(known)) = (v, self.norm_sq) {
            return Ok(known);
        }
        let mut work = Work::default();
        self.vectors.squares(v, &mut work);
        Ok(self.stack.alone(&work).map_err(engine)?.unwrap_or(f64::NAN))
    }

    fn mean(&mut self, _: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        self.mean_of(self.vectors.place(v).at).map_err(engine)
    }

    fn consensus_error(&mut self, _: Together<'_>, v: Vector) -> Result<f64, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        let mut work = Work::default();
        self.vectors.distances(v, &mut work);
        let sum = self.stack.alone(&work).map_err(engine)?.unwrap_or(f64::NAN);
        Ok(sum / self.agents() as f64)
    }

    fn evaluate(
        &mut self,
        _: Together<'_>,
        v: Vector,
        agents: &[usize],
    ) -> Result<Option<EvaluatedModels>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        self.evaluated(v, agents).map_err(engine)
    }

    fn mean_gradient(&mut self, _: Together<'_>, v: Vector) -> Result<Option<Vec<f64>>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        self.gradient_at_mean(v).map_err(engine)
    }
}

impl<T: Real> Drop for GpuAgents<'_, T> {
    fn drop(&mut self) {
        self.stack.leave(self.member.unwrap_or(0));
    }
}
