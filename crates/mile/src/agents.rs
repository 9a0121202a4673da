//! Agents: the three verbs every method is made of.
//!
//! [`Agents`] is implemented by whatever hosts agents: all of them in one process, one process on a
//! network, a rank of a cluster, a GPU. A method never sees where its vectors are; it names them and combines
//! them. [`Engine`](crate::engine::Engine) adds what those who run and record a method need.

use std::ops::Range;

/// Names one n-vector of each hosted agent: a block with one row for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vector(pub usize);

/// An error of any type, such as an objective or an engine may have.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong while agents computed or communicated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentsError {
    /// An agent's objective could not be evaluated.
    #[error("the objective of agent {agent} could not be evaluated: {source}")]
    Objective {
        /// Whose objective.
        agent: usize,
        /// What it said.
        source: Failure,
    },
    /// The objective of the whole network could not be evaluated.
    #[error("the objective could not be evaluated: {0}")]
    Evaluation(Failure),
    /// A method used a verb in a way that has no meaning.
    #[error("the method uses its vectors wrongly: {0}")]
    Method(String),
    /// The engine that hosts the agents failed.
    #[error("the engine that hosts the agents failed: {0}")]
    Engine(#[source] Failure),
}

impl AgentsError {
    /// The objective of an agent failed.
    pub fn objective(agent: usize) -> impl FnOnce(Failure) -> Self {
        move |source| Self::Objective { agent, source }
    }
}

/// The agents hosted in one place, each with its own row of every [`Vector`].
///
/// An engine may put work off: an error may then come later than the verb that caused it, at the latest
/// from [`settle`](Self::settle). After an error the vectors hold nothing of use.
pub trait Agents {
    /// Which agents are hosted here, by number.
    fn hosted(&self) -> Range<usize>;

    /// `g_i <- grad f_i(x_i)`, stochastic or exact; the same `draw` sees the same samples.
    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError>;

    /// `y <- keep*y + sum_k a_k v_k`. `y` must not be among the terms; with `keep = 0` it is not read.
    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError>;

    /// `to_i <- sum_j w_ij (from_j - from_i)` for each pair, as one exchange; returns the bytes sent
    /// from here.
    ///
    /// The only way in which rows may meet: how much an agent is pulled towards its neighbours,
    /// `(W - I) from`. The sum runs in increasing j, over the neighbours whose edge is up in this
    /// round. The first pair carries the model. `from` and `to` differ, and no `to` is another pair's
    /// `from`.
    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError>;

    /// Called for every scratch vector before a step: whatever it holds must not be used.
    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        let _ = scratch;
        Ok(())
    }

    /// Called when somebody is about to look at the vectors: what was put off must be done now.
    fn settle(&mut self) -> Result<(), AgentsError> {
        Ok(())
    }
}

/// What a run has cost so far, counted where it is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// n-vectors sent by an agent to each of its neighbours.
    pub vectors_sent: u64,
    /// Exchanges: times an agent had to wait for its neighbours.
    pub exchanges: u64,
    /// Bytes sent by all hosted agents together.
    pub bytes_sent: u64,
    /// Gradients evaluated by all hosted agents together.
    pub gradient_evals: u64,
}

/// One step of a method: the verbs, and what time it is.
pub struct Step<'a> {
    /// Updates done since x(0): the paper's t. Zero during start-up too.
    pub t: u64,
    /// Step size alpha of this step.
    pub step_size: f64,
    pub(crate) round: u64,
    pub(crate) draw: u64,
    pub(crate) agents: &'a mut dyn Agents,
    pub(crate) costs: &'a mut Costs,
    pub(crate) mixed: bool,
}

impl Step<'_> {
    /// `g_i <- grad f_i(x_i)`. Two calls in one step see the same samples.
    pub fn gradient(&mut self, x: Vector, g: Vector) -> Result<(), AgentsError> {
        self.agents.gradient(x, g, self.draw)?;
        self.costs.gradient_evals += self.agents.hosted().len() as u64;
        Ok(())
    }

    /// `y <- keep*y + sum_k a_k v_k`.
    pub fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.agents.combine(y, keep, terms)
    }

    /// `to_i <- sum_j w_ij (from_j - from_i)` for each pair: one exchange of `pairs.len()` vectors.
    pub fn pull(&mut self, pairs: &[(Vector, Vector)]) -> Result<(), AgentsError> {
        self.costs.bytes_sent += self.agents.pull(self.round, pairs)?;
        self.costs.vectors_sent += pairs.len() as u64;
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
