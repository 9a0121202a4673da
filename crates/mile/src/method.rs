//! The trait of a decentralized method: hyperparameters, a layout of vectors, a start-up and a step.

use std::borrow::Cow;

use crate::agents::{AgentsError, Step, Vector};
use crate::network::Network;
use crate::optimiser::Muon;
use crate::refusal;

/// How a state vector scales with the step size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Independent of the step size: a model, or a vector in units of gradients.
    Fixed,
    /// Proportional to the step size: a correction in units of x. It is rescaled when the step size changes.
    StepSize,
}

/// The vectors a method works with, in the order of their [`Vector`] numbers: state, then scratch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// State vectors, which are kept from step to step. The first is always `x`, the agents' models.
    pub state: Vec<(Cow<'static, str>, Unit)>,
    /// Scratch vectors, for gradients and messages: not kept.
    pub scratch: Vec<Cow<'static, str>>,
}

impl Layout {
    /// State vectors with their units, and scratch vectors.
    pub fn new<N: Into<Cow<'static, str>>>(
        state: impl IntoIterator<Item = (N, Unit)>,
        scratch: impl IntoIterator<Item = N>,
    ) -> Self {
        let state = state.into_iter().map(|(name, unit)| (name.into(), unit)).collect();
        Self { state, scratch: scratch.into_iter().map(N::into).collect() }
    }

    /// The names of the state vectors.
    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.state.iter().map(|(name, _)| &**name)
    }

    /// Number of vectors in all.
    pub fn vectors(&self) -> usize {
        self.state.len() + self.scratch.len()
    }

    pub(crate) fn corrections(&self) -> impl Iterator<Item = Vector> {
        let scaled = self.state.iter().enumerate().filter(|(_, (_, unit))| *unit == Unit::StepSize);
        scaled.map(|(k, _)| Vector(k))
    }

    pub(crate) fn scratch_vectors(&self) -> impl Iterator<Item = Vector> + use<> {
        (self.state.len()..self.vectors()).map(Vector)
    }
}

/// A hyperparameter that is out of range, or a network on which a method cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{method}: {parameter}: {}", refusal::expected(.expected, .got))]
#[non_exhaustive]
pub struct InvalidParameter {
    /// Name of the method.
    pub method: String,
    /// Name of the parameter in experiment files.
    pub parameter: &'static str,
    /// The value given.
    pub got: String,
    /// The values allowed; a reason or a remedy may follow, after a semicolon.
    pub expected: String,
}

/// A decentralized method, written in the verbs of [`Step`].
///
/// `&self` holds hyperparameters only; everything that is kept from step to step is in the state vectors of the
/// [`Layout`]. To add a method of your own, implement this trait and pass it to a [`Run`](crate::run::Run).
pub trait Method: std::fmt::Debug + Send + Sync {
    /// The vectors it works with; a run asks for them once.
    fn layout(&self) -> Layout;

    /// Start-up: from the starting point to x(0). All state vectors except `x` are zero before it.
    fn start(&self, step: &mut Step) -> Result<(), AgentsError> {
        let _ = step;
        Ok(())
    }

    /// One update, from x(t) to x(t+1).
    fn step(&self, step: &mut Step) -> Result<(), AgentsError>;

    /// Whether it minimises objectives with a [`Penalty`](crate::problems::Penalty): its step then has a proximal step,
    /// [`Step::prox`]. Methods that do not are refused for such objectives.
    fn takes_penalty(&self) -> bool {
        false
    }

    /// The numbers of local steps in a round, by agent, where agents differ in them. An agent with fewer than the others waits at the
    /// beginning of the round.
    fn own_steps(&self) -> Option<&[u64]> {
        None
    }

    /// What its agents do if they exchange in [pairs](crate::pairing) instead of rounds; [`step`](Self::step) is then not called.
    fn pairwise(&self) -> Option<&dyn Pairwise> {
        None
    }

    /// The optimiser of its local steps, if that steps along the matrices of the problem's variable.
    fn muon(&self) -> Option<&Muon> {
        None
    }

    /// An error if the method cannot run on this network.
    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        let _ = network;
        Ok(())
    }
}

/// A method whose agents exchange in [pairs](crate::pairing), each as soon as it and a neighbour are ready.
pub trait Pairwise {
    /// The local steps of an agent between two exchanges.
    fn local_steps(&self, agent: usize) -> u64;

    /// What one agent does before an exchange: its local steps, of which it has made `before` earlier.
    fn work(&self, step: &mut Step, before: u64, steps: u64) -> Result<(), AgentsError>;

    /// The exchange of some pairs that have no agent in common.
    fn exchange(&self, step: &mut Step, pairs: &[[usize; 2]]) -> Result<(), AgentsError>;
}

/// Checks the hyperparameters of the method with this name.
#[derive(Clone, Copy)]
pub(crate) struct Checker<'m>(pub(crate) &'m str);

impl Checker<'_> {
    pub(crate) fn number(
        self,
        parameter: &'static str,
        value: f64,
        admissible: bool,
        expected: &str,
    ) -> Result<f64, InvalidParameter> {
        if admissible && value.is_finite() { Ok(value) } else { Err(self.refuse(parameter, value, expected)) }
    }

    pub(crate) fn at_least_one(self, parameter: &'static str, value: u64) -> Result<u64, InvalidParameter> {
        if value >= 1 {
            Ok(value)
        } else {
            Err(self.refuse(parameter, value, "a whole number of at least 1"))
        }
    }

    /// An error unless one exchange gives every agent the average of all: what takes the place of a server.
    pub(crate) fn averages(self, network: &Network) -> Result<(), InvalidParameter> {
        if network.averages_at_once() && !network.varies() {
            return Ok(());
        }
        let got = "a network on which one exchange is not the average of all agents";
        let expected = "topology = \"complete\", mixing = \"metropolis\", drop_rate = 0, no bursts, no absence, not time_varying";
        Err(self.refuse("network", got, expected))
    }

    pub(crate) fn refuse(
        self,
        parameter: &'static str,
        got: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> InvalidParameter {
        InvalidParameter {
            method: self.0.to_owned(),
            parameter,
            got: got.to_string(),
            expected: expected.into(),
        }
    }
}
