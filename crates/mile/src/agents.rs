//! Agents and the verbs (operations on vectors) every method is written in: gradient, combine and pull; prox for
//! objectives with a nonsmooth penalty, and optimise for local optimisers with memory.
//!
//! [`Agents`] is implemented by whatever hosts agents: all of them in one process, one process on a
//! network, a rank of a cluster, a GPU. A method does not see where its vectors are stored; it refers to them by
//! number. [`Engine`](crate::engine::Engine) adds what is needed to run a method and record its results.

use std::ops::Range;

use crate::compression::Compression;
use crate::optimiser::Stepping;
use crate::real::{Precision, Real};
use crate::robust::Robust;

/// The number of a vector that every agent has, such as its model x: a block with one row per hosted agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vector(pub usize);

/// An exchange that also weighs the differences by how [steady](crate::steady) they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyPull {
    /// The vector v that is sent.
    pub from: Vector,
    /// What an agent remembers of earlier exchanges; zero before the first one.
    pub memory: Vector,
    /// Where `sum_j w_ij (v_j - v_i)` goes.
    pub to: Vector,
    /// Where `sum_j w_ij rho_ij (v_j - v_i)` goes.
    pub steady: Vector,
    /// The share of this exchange in the running mean r_i, in [0, 1].
    pub fresh: f64,
}

/// An exchange that sends [compressed](crate::compression) messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompressedPull {
    /// The agents' models.
    pub model: Vector,
    /// The vector u that is compressed and sent; afterwards it holds C(u).
    pub from: Vector,
    /// Where `sum_j w_ij (C(u_j) - C(u_i))` goes.
    pub to: Vector,
    /// How messages are compressed.
    pub by: Compression,
}

/// An exchange that limits what malicious neighbours can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustPull {
    /// The vector v that is sent.
    pub from: Vector,
    /// Where d goes.
    pub to: Vector,
    /// How the exchange is protected.
    pub by: Robust,
}

/// One step of a local [optimiser](crate::optimiser).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimiserStep {
    /// The models, which move.
    pub x: Vector,
    /// The gradients.
    pub g: Vector,
    /// What is added to gradients before the optimiser, times a factor.
    pub inner: Option<Vector>,
    /// What is added to models after it, times a factor.
    pub shift: Option<Vector>,
    /// The first vector of the optimiser's state: m, then v, then v_max if there is one.
    pub state: Vector,
    /// The numbers of the step.
    pub by: Stepping,
}

impl OptimiserStep {
    /// The vectors of the optimiser's state.
    pub fn states(&self) -> impl Iterator<Item = Vector> + use<> {
        let count = if self.by.rule.elements().amsgrad { 3 } else { 2 };
        (self.state.0..self.state.0 + count).map(Vector)
    }

    /// The vectors that are only read.
    pub fn reads(&self) -> impl Iterator<Item = Vector> + use<> {
        [Some(self.g), self.inner, self.shift].into_iter().flatten()
    }
}

/// An error of any type, returned by an objective or an engine.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An error while agents computed or communicated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentsError {
    /// An agent's objective could not be evaluated.
    #[error("the objective of agent {agent} could not be evaluated: {source}")]
    Objective {
        /// The agent with this objective.
        agent: usize,
        /// The error of the objective.
        source: Failure,
    },
    /// The objective of the whole network could not be evaluated.
    #[error("the objective could not be evaluated: {0}")]
    Evaluation(Failure),
    /// A method called a verb with vectors it does not allow.
    #[error("the method misuses its vectors: {0}")]
    Method(String),
    /// An earlier step failed, and left the agents' vectors half updated.
    #[error("an earlier step failed and left the agents' vectors unusable; start again")]
    Unusable,
    /// The engine that hosts the agents failed.
    #[error("the engine that hosts the agents failed: {0}")]
    Engine(#[source] Failure),
    /// The run was asked to end at once, in the middle of a round.
    #[error("interrupted in the middle of a round")]
    Interrupted,
}

impl AgentsError {
    /// Wraps the error of an agent's objective, for `map_err`.
    pub fn objective(agent: usize) -> impl FnOnce(Failure) -> Self {
        move |source| Self::Objective { agent, source }
    }
}

/// Vectors of the hosted agents, row after row, in one of the two precisions.
#[derive(Debug)]
pub enum BlocksMut<'a> {
    /// In single precision.
    F32(Vec<&'a mut [f32]>),
    /// In double precision.
    F64(Vec<&'a mut [f64]>),
}

impl<'a> BlocksMut<'a> {
    /// Blocks in their precision.
    pub fn of<T: Real>(blocks: &'a mut [Vec<T>]) -> Self {
        match T::PRECISION {
            Precision::F32 => Self::F32(blocks.iter_mut().map(|b| bytemuck::cast_slice_mut(b)).collect()),
            Precision::F64 => Self::F64(blocks.iter_mut().map(|b| bytemuck::cast_slice_mut(b)).collect()),
        }
    }
}

/// A function of whole vectors that a method [applies](Agents::apply): what no other verb expresses, such as signs of elements.
pub trait BlockFunction: Send + Sync {
    /// Changes the vectors, each with `rows` rows.
    fn apply(&self, rows: usize, vectors: BlocksMut<'_>) -> Result<(), Failure>;

    /// Hands the function over to an engine whose vectors are not in this process's memory, by a way that both know; whether it
    /// can. By default it cannot.
    fn hand_over(&self) -> bool {
        false
    }
}

/// The agents hosted in one place, each with its own row of every [`Vector`].
///
/// An engine may defer work: an error may then be returned later than by the verb that caused it, at the
/// latest by [`settle`](Self::settle). After an error the contents of the vectors are unspecified. Verbs may be called from
/// different threads, one after the other.
pub trait Agents: Send {
    /// The places of the agents hosted here. An agent's place is its number, unless an engine puts neighbours next to each
    /// other ([`Engine::agent_at`](crate::engine::Engine::agent_at)).
    fn hosted(&self) -> Range<usize>;

    /// Called before each step with its step size, for engines whose gradients depend on it: those of an engine's own optimiser.
    fn begin(&mut self, step_size: f64) {
        let _ = step_size;
    }

    /// `g_i <- grad f_i(x_i)`, stochastic or exact; the same `draw` uses the same mini-batch.
    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError>;

    /// `y <- keep*y + sum_k a_k v_k`. `y` must not be among the terms; with `keep = 0` it is not read.
    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError>;

    /// `x_i <- prox_{step g}(x_i)` with the [`Penalty`](crate::problems::Penalty) g of the objectives; nothing where they
    /// have none.
    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError>;

    /// A step of a local [optimiser](crate::optimiser), which moves x and its own state.
    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError>;

    /// `g_i <- g_i min(1, most/|g_i|)`: gradients that are longer are shortened.
    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError>;

    /// `to_i <- sum_j w_ij (from_j - from_i)` for each pair, as one exchange with all neighbours; returns the
    /// bytes sent from here.
    ///
    /// This is the only communication between agents: `(W - I) from`, by how much mixing with the neighbours
    /// changes an agent's vector. The sum runs in increasing j, over the neighbours whose edge is up in this
    /// communication round. The first pair sends the model. `from` and `to` differ, and no `to` is another
    /// pair's `from`.
    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError>;

    /// `to_i <- sum_j w_ij (v_j - v_i)` and `steady_i <- sum_j w_ij rho_ij (v_j - v_i)` with v = `from`, in one exchange of v, where
    /// rho_ij in [0, 1] says how [steady](crate::steady) the difference is, and is the same at both ends; then
    /// `memory_i` holds v_i for the next such exchange, and the new r_i. Returns the bytes sent from here.
    ///
    /// The sums run as in [`pull`](Self::pull), and `from` is the model. The four vectors differ.
    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError>;

    /// `from_i <- C(from_i)`, then `to_i <- sum_j w_ij (from_j - from_i)`, in one exchange of compressed messages, as
    /// [`pull`](Self::pull) does it. Returns the bytes sent from here.
    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError>;

    /// `to_i <- d_i` in one exchange of v = `from`, as a [robust](crate::robust) rule finds it from the vectors of the neighbours
    /// whose edge is up in this round. Returns the bytes sent from here, which are those of [`pull`](Self::pull). `from` is the model.
    /// Refused by engines that do not keep the vectors of neighbours.
    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        let _ = (round, pull);
        Err(AgentsError::Method(
            "its exchange is robust, which this engine does not support; leave out the key exchange, or use another engine".into(),
        ))
    }

    /// From now on verbs are for those hosted agents only that have this [own number](crate::method::Method::own_steps) of local steps,
    /// or for all of them again; returns how many that are. Exchanges are for all.
    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        match own {
            None => Ok(self.hosted().len() as u64),
            Some(_) => Err(AgentsError::Method(
                "its agents differ in local steps, which this engine does not support".into(),
            )),
        }
    }

    /// From now on verbs are for this agent only, or for all hosted agents again: for agents that exchange in [pairs](crate::pairing).
    fn only_agent(&mut self, agent: Option<usize>) -> Result<(), AgentsError> {
        let _ = agent;
        Err(AgentsError::Method(NO_PAIRS.into()))
    }

    /// `to_i <- (from_j - from_i)/2` and `to_j <- (from_i - from_j)/2` for each pair (i, j), as one exchange of these agents, which all
    /// differ; the rows of others in `to` are undefined. Returns the bytes sent.
    fn pull_in_pairs(&mut self, from: Vector, to: Vector, pairs: &[[usize; 2]]) -> Result<u64, AgentsError> {
        let _ = (from, to, pairs);
        Err(AgentsError::Method(NO_PAIRS.into()))
    }

    /// Applies a function to vectors, which differ; refused by engines that do not host rows in a form it can be given.
    fn apply(&mut self, function: &dyn BlockFunction, vectors: &[Vector]) -> Result<(), AgentsError> {
        let _ = (function, vectors);
        Err(AgentsError::Method(
            "it applies a function to vectors, which this engine does not support".into(),
        ))
    }

    /// Called for every scratch vector before a step: its contents are no longer needed and must not be read.
    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        let _ = scratch;
        Ok(())
    }

    /// Called before the vectors are read from outside: deferred work must be done now.
    fn settle(&mut self) -> Result<(), AgentsError> {
        Ok(())
    }
}

const NO_PAIRS: &str = "its agents exchange in pairs, which this engine does not support";

/// What a run has cost so far: communication and gradient evaluations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Vectors sent by an agent to each of its neighbours.
    pub vectors_sent: u64,
    /// Exchanges: how often an agent communicated with its neighbours and had to wait for them.
    pub exchanges: u64,
    /// Bytes sent by all hosted agents together.
    pub bytes_sent: u64,
    /// Gradients evaluated by all hosted agents together.
    pub gradient_evals: u64,
}

/// One step of a method: the verbs it is written in, the time t and the step size.
#[non_exhaustive]
pub struct Step<'a> {
    /// Updates done since x(0): the paper's t. It is 0 during start-up as well.
    pub t: u64,
    /// Step size alpha of this step.
    pub step_size: f64,
    /// Communication rounds done.
    pub round: u64,
    pub(crate) draw: u64,
    /// How many hosted agents it is for.
    pub(crate) movers: u64,
    pub(crate) agents: &'a mut dyn Agents,
    pub(crate) costs: &'a mut Costs,
    pub(crate) mixed: bool,
}

impl Step<'_> {
    /// `g_i <- grad f_i(x_i)`. Two calls in one step use the same mini-batch.
    pub fn gradient(&mut self, x: Vector, g: Vector) -> Result<(), AgentsError> {
        self.agents.gradient(x, g, self.draw)?;
        self.costs.gradient_evals += self.movers;
        Ok(())
    }

    /// Does this for the agents with this own number of local steps only, whose own time is t.
    pub(crate) fn only(
        &mut self,
        own: u64,
        t: u64,
        work: impl FnOnce(&mut Self) -> Result<(), AgentsError>,
    ) -> Result<(), AgentsError> {
        let all = (self.movers, self.draw);
        (self.movers, self.draw) = (self.agents.only(Some(own))?, t + 1);
        if self.movers > 0 {
            work(self)?;
        }
        self.agents.only(None)?;
        (self.movers, self.draw) = all;
        Ok(())
    }

    /// Does this for one agent only.
    pub(crate) fn of_agent(
        &mut self,
        agent: usize,
        work: impl FnOnce(&mut Self) -> Result<(), AgentsError>,
    ) -> Result<(), AgentsError> {
        let all = (self.movers, self.draw);
        self.agents.only_agent(Some(agent))?;
        self.movers = 1;
        work(self)?;
        self.agents.only_agent(None)?;
        (self.movers, self.draw) = all;
        Ok(())
    }

    /// `to_i <- (from_j - from_i)/2` for both ends of each pair: an exchange of one vector.
    pub fn pull_in_pairs(
        &mut self,
        from: Vector,
        to: Vector,
        pairs: &[[usize; 2]],
    ) -> Result<(), AgentsError> {
        self.costs.bytes_sent += self.agents.pull_in_pairs(from, to, pairs)?;
        self.mixed = true;
        Ok(())
    }

    /// `y <- keep*y + sum_k a_k v_k`.
    pub fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.agents.combine(y, keep, terms)
    }

    /// Applies a function to vectors, which differ: whatever the other verbs do not express.
    pub fn apply(&mut self, function: &dyn BlockFunction, vectors: &[Vector]) -> Result<(), AgentsError> {
        self.agents.apply(function, vectors)
    }

    /// `x_i <- prox_{step g}(x_i)` with the [`Penalty`](crate::problems::Penalty) g of the objectives; nothing where they
    /// have none.
    pub fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.agents.prox(x, step)
    }

    /// A step of a local [optimiser](crate::optimiser).
    pub fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.agents.optimise(step)
    }

    /// `g_i <- g_i min(1, most/|g_i|)`.
    pub fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.agents.clip(g, most)
    }

    /// `to_i <- sum_j w_ij (from_j - from_i)` for each pair: one exchange of `pairs.len()` vectors.
    pub fn pull(&mut self, pairs: &[(Vector, Vector)]) -> Result<(), AgentsError> {
        self.costs.bytes_sent += self.agents.pull(self.round, pairs)?;
        self.costs.vectors_sent += pairs.len() as u64;
        self.costs.exchanges += 1;
        self.mixed = true;
        Ok(())
    }

    /// [`pull`](Self::pull) of one vector that also weighs its differences by how [steady](crate::steady) they are: one exchange
    /// of a vector and a few hundred numbers.
    pub fn pull_steady(&mut self, pull: &SteadyPull) -> Result<(), AgentsError> {
        self.costs.bytes_sent += self.agents.pull_steady(self.round, pull)?;
        self.costs.vectors_sent += 1;
        self.costs.exchanges += 1;
        self.mixed = true;
        Ok(())
    }

    /// [`pull`](Self::pull) of one vector by a [robust](crate::robust) rule.
    pub fn pull_robust(&mut self, pull: &RobustPull) -> Result<(), AgentsError> {
        self.costs.bytes_sent += self.agents.pull_robust(self.round, pull)?;
        self.costs.vectors_sent += 1;
        self.costs.exchanges += 1;
        self.mixed = true;
        Ok(())
    }

    /// `from_i <- C(from_i) ; to_i <- sum_j w_ij (from_j - from_i)`: one exchange of a [compressed](crate::compression) vector.
    pub fn pull_compressed(&mut self, pull: &CompressedPull) -> Result<(), AgentsError> {
        self.costs.bytes_sent += self.agents.pull_compressed(self.round, pull)?;
        self.costs.vectors_sent += 1;
        self.costs.exchanges += 1;
        self.mixed = true;
        Ok(())
    }

    /// `to_i <- sum_j w_ij from_j` for each pair: one exchange of `pairs.len()` vectors.
    pub fn mix(&mut self, pairs: &[(Vector, Vector)]) -> Result<(), AgentsError> {
        self.pull(pairs)?;
        for &(from, to) in pairs {
            self.combine(to, 1.0, &[(1.0, from)])?;
        }
        Ok(())
    }
}
