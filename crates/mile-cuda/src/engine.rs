//! All agents of a network on one device.
//!
//! Verbs are noted down, as in the simulator, and carried out when somebody looks. Combinations and exchanges form the simulator's sums in
//! its order, products and sums rounded one by one, so that they have its bits. What a round does, its kernels and buffers, is the
//! same for many rounds: from the second time on it is recorded, and run again with the numbers of the round
//! (`Parameters`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use mile::agents::{Agents, AgentsError, Vector};
use mile::engine::Engine;
use mile::method::Method;
use mile::network::Network;
use mile::problems::{Draw, Problem};
use mile::real::Real;
use mile::simulator::SimulatorError;
use mile::sparse::SparseRows;
use mile::verbs::{MOST_TERMS, MOST_VECTORS, Verb, Verbs};
use rayon::prelude::*;

use crate::device::{Device, DeviceError, Recording};
use crate::forms::{on_device, weight_decay};
use crate::objective::Objective;
use crate::parameters::{OnDevice, Parameters};
use crate::queue::Queue;
use crate::vectors::Vectors;

/// Why agents cannot be hosted on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// Agents, problem, method and starting point do not go together.
    #[error(transparent)]
    Agents(#[from] SimulatorError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Most recordings that are kept: rounds of a method differ in few ways.
const MOST_RECORDINGS: usize = 64;

/// What a sequence of verbs does, without the numbers that change from round to round.
type Shape = Vec<(Verb, bool)>;

/// What is known of a sequence of verbs.
#[derive(Clone, Copy)]
enum Seen {
    Once,
    Recorded(Recording),
}

/// Hosts every agent of a [`Network`] on a [`Device`].
pub struct GpuAgents<'a, T> {
    queue: Queue,
    problem: &'a dyn Problem<T>,
    /// None if the problem is computed on the CPU.
    objective: Option<Box<dyn Objective>>,
    /// Added to gradients that are computed on the device.
    weight_decay: f64,
    network: Network,
    seed: u64,
    vectors: Vectors<T>,
    noted: Verbs,
    round: u64,
    weights: SparseRows,
    parameters: Parameters,
    on_device: OnDevice,
    seen: HashMap<Vec<u8>, Seen>,
    watching: bool,
    drift: Option<f64>,
    /// Whether a verb has failed: the vectors hold nothing of use any more.
    failed: bool,
}

impl<'a, T: Real> GpuAgents<'a, T> {
    /// Agents at their starting points, with the vectors `method` works with; `start` has one row for each agent, or a single row
    /// for all.
    pub fn new(
        device: Arc<dyn Device>,
        problem: &'a dyn Problem<T>,
        network: &Network,
        method: &dyn Method,
        start: &[T],
        seed: u64,
    ) -> Result<Self, GpuError> {
        let (agents, dim, count) = (network.agents(), problem.dim(), method.layout().vectors());
        if problem.agents() != agents {
            return Err(SimulatorError::Agents { problem: problem.agents(), network: agents }.into());
        }
        if problem.penalty().is_some() && !method.takes_penalty() {
            return Err(SimulatorError::Penalty.into());
        }
        if count == 0 || count > MOST_VECTORS {
            return Err(SimulatorError::Vectors { vectors: count }.into());
        }
        if start.len() != dim && Some(start.len()) != agents.checked_mul(dim) {
            return Err(SimulatorError::Start { got: start.len(), dim, agents }.into());
        }
        let queue = Queue { device };
        let weights = network.rows();
        let vectors = Vectors::new(&queue, problem.penalty(), &weights, [count, agents, dim])?;
        let objective = on_device(&queue, problem, vectors.stride())?;
        let on_device = OnDevice::new(&queue.device)?;
        let rows: Cow<[T]> = if start.len() == dim { start.repeat(agents).into() } else { start.into() };
        vectors.set(Vector(0), &rows)?;
        Ok(Self {
            queue,
            problem,
            objective,
            weight_decay: weight_decay(problem),
            network: network.clone(),
            seed,
            vectors,
            noted: Verbs::new(count),
            round: 0,
            weights,
            parameters: Parameters::default(),
            on_device,
            seen: HashMap::new(),
            watching: false,
            drift: None,
            failed: false,
        })
    }

    /// Whether gradients are computed on the device; else the problem computes them on the CPU.
    pub fn computes_gradients(&self) -> bool {
        self.objective.is_some()
    }

    /// Refuses to go on after a verb has failed.
    fn check(&self) -> Result<(), AgentsError> {
        if self.failed {
            let problem = "an earlier step failed, so the agents' vectors are unusable: start anew";
            return Err(AgentsError::Engine(problem.into()));
        }
        Ok(())
    }

    /// Verbs that were noted, all stages in order.
    fn verbs(&self) -> Shape {
        let stages = (0..self.noted.stages()).flat_map(|stage| self.noted.stage(stage));
        stages
            .map(|verb| {
                (*verb, matches!(verb, Verb::Combine { keep, used, .. } if *keep == 0.0 && *used > 0))
            })
            .collect()
    }

    /// Puts the numbers of all verbs where their kernels find them: the place of each.
    fn place_parameters(&mut self, verbs: &Shape) -> Vec<usize> {
        self.parameters.clear();
        let varies = self.network.varies();
        let exchanges = verbs.iter().any(|(verb, _)| matches!(verb, Verb::Pull { .. }));
        let mut weights = 0;
        if varies && exchanges {
            let now: Vec<T> = self.weights.entries.iter().map(|(_, w)| T::of(*w)).collect();
            weights = self.parameters.add(&now);
        }
        let mut place = |verb: &Verb| match *verb {
            Verb::Gradient { draw, .. } => match &self.objective {
                Some(objective) => objective.draw(Draw { seed: self.seed, step: draw }, &mut self.parameters),
                None => 0,
            },
            Verb::Combine { keep, ref terms, used, .. } => {
                let mut numbers = [T::of(keep); 1 + MOST_TERMS];
                numbers[1..].iter_mut().zip(&terms[..used]).for_each(|(to, (a, _))| *to = T::of(*a));
                self.parameters.add(&numbers[..1 + used])
            }
            Verb::Prox { step, .. } => {
                let weight = self.problem.penalty().map_or(0.0, |penalty| penalty.weight());
                self.parameters.add(&[T::of(step * weight)])
            }
            Verb::Pull { .. } => weights,
            _ => 0,
        };
        verbs.iter().map(|(verb, _)| place(verb)).collect()
    }

    /// Runs the kernels of all verbs.
    fn launch(&self, verbs: &Shape, places: &[usize]) -> Result<(), DeviceError> {
        for ((verb, replaces), place) in verbs.iter().zip(places) {
            let at = self.on_device.at(*place);
            match *verb {
                Verb::Gradient { x, g, .. } => {
                    if let Some(objective) = &self.objective {
                        objective.gradient(self.vectors.buffer(x), self.vectors.buffer(g), at)?;
                    }
                }
                Verb::Combine { y, ref terms, used, .. } => {
                    let mut of = [Vector(0); MOST_TERMS];
                    of.iter_mut().zip(&terms[..used]).for_each(|(to, (_, v))| *to = *v);
                    self.vectors.combine(y, *replaces, &of[..used], at)?;
                }
                Verb::Prox { x, .. } => self.vectors.prox(x, at)?,
                Verb::Pull { from, to } => {
                    let varies = self.network.varies();
                    self.vectors.pull(from, to, varies.then_some(at))?;
                }
                Verb::Forget { scratch } => self.vectors.fill(scratch, T::nan())?,
                _ => {}
            }
        }
        Ok(())
    }

    /// One verb at a time, gradients on the CPU.
    fn carry_out_with_cpu(&mut self, verbs: &Shape) -> Result<(), AgentsError> {
        let places = self.place_parameters(verbs);
        self.on_device.write(&self.queue.device, &self.parameters).map_err(engine)?;
        for (k, verb) in verbs.iter().enumerate() {
            if let Verb::Gradient { x, g, draw } = verb.0 {
                let x = self.vectors.get(x).map_err(engine)?;
                let gradients = self.cpu_gradients(&x, draw)?;
                self.vectors.set(g, &gradients).map_err(engine)?;
            } else {
                self.launch(&vec![*verb], &places[k..=k]).map_err(engine)?;
            }
        }
        Ok(())
    }

    fn cpu_gradients(&self, x: &[T], draw: u64) -> Result<Vec<T>, AgentsError> {
        let (problem, dim) = (self.problem, self.vectors.dim());
        let draw = Draw { seed: self.seed, step: draw };
        let mut gradients = vec![T::zero(); x.len()];
        let rows = gradients.par_chunks_exact_mut(dim.max(1)).zip(x.par_chunks_exact(dim.max(1)));
        rows.enumerate().try_for_each(|(agent, (g, x))| {
            problem.sample_gradient(agent, x, draw, g).map_err(AgentsError::objective(agent))
        })?;
        Ok(gradients)
    }

    /// All verbs at once: run, or recorded and run, or run from the recording.
    fn carry_out(&mut self, verbs: &Shape) -> Result<(), DeviceError> {
        let places = self.place_parameters(verbs);
        if self.on_device.write(&self.queue.device, &self.parameters)? {
            self.forget_recordings();
        }
        let key = key(verbs, &places);
        let recording = match self.seen.get(&key) {
            Some(Seen::Recorded(recording)) => *recording,
            Some(Seen::Once) => {
                self.queue.device.record()?;
                let launched = self.launch(verbs, &places);
                let recording = self.queue.device.recorded();
                launched?;
                let recording = recording?;
                self.seen.insert(key, Seen::Recorded(recording));
                recording
            }
            None => {
                if self.seen.len() >= MOST_RECORDINGS {
                    self.forget_recordings();
                }
                self.seen.insert(key, Seen::Once);
                return self.launch(verbs, &places);
            }
        };
        // SAFETY: all buffers of its launches belong to this engine, and what moves them forgets all recordings.
        unsafe { self.queue.device.replay(recording) }
    }

    fn forget_recordings(&mut self) {
        for (_, seen) in self.seen.drain() {
            if let Seen::Recorded(recording) = seen {
                self.queue.device.forget(recording);
            }
        }
    }
}

/// What tells one recording from another.
fn key(verbs: &Shape, places: &[usize]) -> Vec<u8> {
    let mut key = Vec::new();
    let mut note = |number: usize| key.extend_from_slice(&(number as u32).to_le_bytes());
    for ((verb, replaces), place) in verbs.iter().zip(places) {
        note(*place);
        match *verb {
            Verb::Gradient { x, g, .. } => [0, x.0, g.0].into_iter().for_each(&mut note),
            Verb::Combine { y, ref terms, used, .. } => {
                [1 + usize::from(*replaces), y.0, used].into_iter().for_each(&mut note);
                terms[..used].iter().for_each(|(_, v)| note(v.0));
            }
            Verb::Prox { x, .. } => [3, x.0].into_iter().for_each(&mut note),
            Verb::Pull { from, to } => [4, from.0, to.0].into_iter().for_each(&mut note),
            Verb::Forget { scratch } => [5, scratch.0].into_iter().for_each(&mut note),
            _ => note(6),
        }
    }
    key
}

/// An error of the device, as one of the engine.
fn engine(error: DeviceError) -> AgentsError {
    AgentsError::Engine(Box::new(error))
}

impl<T: Real> Agents for GpuAgents<'_, T> {
    fn hosted(&self) -> Range<usize> {
        0..self.network.agents()
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.check()?;
        self.noted.gradient(x, g, draw)?;
        if self.objective.is_some() && self.weight_decay != 0.0 {
            self.noted.combine(g, 1.0, &[(self.weight_decay, x)])?;
        }
        Ok(())
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.check()?;
        self.noted.combine(y, keep, terms)
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.check()?;
        self.noted.check(x)?;
        if self.problem.penalty().is_none() {
            return Ok(());
        }
        self.noted.prox(x, step)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.check()?;
        self.noted.check_pull(pairs)?;
        // With edges that drop, the weights are those of one round.
        let other_round = self.noted.exchanges() > 0 && self.round != round;
        if self.watching || self.noted.is_full() || other_round {
            self.settle()?;
        }
        if self.watching {
            self.watching = false;
            let drift = pairs.first().map(|(model, _)| self.vectors.consensus_error(*model));
            self.drift = drift.transpose().map_err(engine)?;
        }
        self.round = round;
        let messages = self.network.rows_in_round(self.seed, round, &mut self.weights);
        self.noted.pull(pairs);
        Ok(messages * (pairs.len() * self.vectors.dim() * size_of::<T>()) as u64)
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        if cfg!(debug_assertions) { self.noted.forget(scratch) } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        self.check()?;
        if self.noted.is_empty() {
            return Ok(());
        }
        // Until all is well: an error, or a panic in an objective, leaves the vectors half done.
        self.failed = true;
        let verbs = self.verbs();
        let gradients = verbs.iter().any(|(verb, _)| matches!(verb, Verb::Gradient { .. }));
        if gradients && self.objective.is_none() {
            self.carry_out_with_cpu(&verbs)?;
        } else {
            self.carry_out(&verbs).map_err(engine)?;
        }
        self.noted.clear();
        self.failed = false;
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
        Ok(Cow::Owned(self.vectors.get(v).map_err(engine)?))
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        let numbers = self.agents() * self.vectors.dim();
        if rows.len() != numbers {
            let problem = format!("a vector of {numbers} numbers is set to {}", rows.len());
            return Err(AgentsError::Engine(problem.into()));
        }
        self.vectors.set(v, rows).map_err(engine)
    }

    fn watch(&mut self) {
        self.watching = true;
        self.drift = None;
    }

    fn drift(&mut self) -> Result<Option<f64>, AgentsError> {
        Ok(self.drift)
    }

    fn norm_sq(&mut self, v: Vector) -> Result<f64, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        self.vectors.norm_sq(v).map_err(engine)
    }

    fn mean(&mut self, v: Vector) -> Result<Vec<f64>, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        self.vectors.mean(v).map_err(engine)
    }

    fn consensus_error(&mut self, v: Vector) -> Result<f64, AgentsError> {
        self.settle()?;
        self.noted.check(v)?;
        self.vectors.consensus_error(v).map_err(engine)
    }
}

impl<T> Drop for GpuAgents<'_, T> {
    fn drop(&mut self) {
        for (_, seen) in self.seen.drain() {
            if let Seen::Recorded(recording) = seen {
                self.queue.device.forget(recording);
            }
        }
    }
}
