//! What a method is: hyperparameters, a layout of vectors, a start and a step.

use crate::agents::{AgentsError, Step, Vector};
use crate::network::Network;

/// How a state vector scales with the step size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A model, or something in units of gradients: a new step size leaves it as it is.
    Fixed,
    /// A correction in units of x, proportional to the step size: rescaled when that changes.
    StepSize,
}

/// The vectors a method works with, in the order of their [`Vector`] numbers: state, then scratch.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// What survives a step. The first is always `x`, the agents' models.
    pub state: &'static [(&'static str, Unit)],
    /// What does not: gradients and messages.
    pub scratch: &'static [&'static str],
}

impl Layout {
    /// Number of vectors in all.
    pub fn vectors(&self) -> usize {
        self.state.len() + self.scratch.len()
    }

    pub(crate) fn corrections(&self) -> impl Iterator<Item = Vector> {
        let scaled = |(_, (_, unit)): &(usize, &(&str, Unit))| *unit == Unit::StepSize;
        self.state.iter().enumerate().filter(scaled).map(|(k, _)| Vector(k))
    }

    pub(crate) fn scratch_vectors(&self) -> impl Iterator<Item = Vector> {
        (self.state.len()..self.vectors()).map(Vector)
    }
}

/// A hyperparameter that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{method}: {parameter} = {got} is not admissible: {takes}")]
pub struct InvalidParameter {
    /// Method it was meant for.
    pub method: &'static str,
    /// Its name, as in experiment files.
    pub parameter: &'static str,
    /// What it was.
    pub got: String,
    /// What it may be, and why.
    pub takes: String,
}

/// A decentralized method, in the three verbs of [`Step`].
///
/// `&self` holds hyperparameters only; all that survives a step is in the state vectors of its
/// [`Layout`]. Implement it for a method of your own and hand it to [`Run`](crate::run::Run).
pub trait Method: std::fmt::Debug + Send + Sync {
    /// The vectors it works with.
    fn layout(&self) -> Layout;

    /// From the starting point to x(0). The state is zero but for `x`.
    fn start(&self, step: &mut Step) -> Result<(), AgentsError> {
        let _ = step;
        Ok(())
    }

    /// From x(t) to x(t+1).
    fn step(&self, step: &mut Step) -> Result<(), AgentsError>;

    /// Refuses a network on which the method cannot work.
    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        let _ = network;
        Ok(())
    }
}

/// Checks hyperparameters of one method.
#[derive(Clone, Copy)]
pub(crate) struct Checker(pub(crate) &'static str);

impl Checker {
    pub(crate) fn number(
        self,
        parameter: &'static str,
        value: f64,
        admissible: bool,
        takes: &str,
    ) -> Result<f64, InvalidParameter> {
        if admissible && value.is_finite() { Ok(value) } else { Err(self.refuse(parameter, value, takes)) }
    }

    pub(crate) fn at_least_one(self, parameter: &'static str, value: u64) -> Result<u64, InvalidParameter> {
        if value >= 1 { Ok(value) } else { Err(self.refuse(parameter, value, "a whole number from 1")) }
    }

    pub(crate) fn refuse(
        self,
        parameter: &'static str,
        got: impl std::fmt::Display,
        takes: impl Into<String>,
    ) -> InvalidParameter {
        InvalidParameter { method: self.0, parameter, got: got.to_string(), takes: takes.into() }
    }
}
