//! Hyperparameters of all methods, as a user gives them.

use std::sync::Arc;

use super::dsgd::Variant;
use super::mile::Mile;
use super::{LocalSteps, Momentum, Optimizer, OuterMomentum};
use crate::compression::Compression;
use crate::method::InvalidParameter;
use crate::robust::Robust;
use crate::schedule::Weight;

/// Default number of local steps.
pub const DEFAULT_LOCAL_STEPS: u64 = 10;

/// Hyperparameters as a user gives them: the choices of a method's parts, and the values of its own parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Local steps tau: updates per communication round.
    pub local_steps: Option<u64>,
    /// The agents' numbers of local steps, if they differ; the largest is `local_steps`.
    pub own_steps: Option<Arc<[u64]>>,
    /// Weight of the correction (mile).
    pub xi: Option<Weight>,
    /// Weight of the mixing (mile, fspda, gasloc; local-dsgd and motef with compression).
    pub gamma: Option<f64>,
    /// Momentum mu of the local steps.
    pub momentum: Option<f64>,
    /// Whether it has Nesterov's form rather than that of heavy ball.
    pub nesterov: Option<bool>,
    /// The optimiser of local steps and what belongs to it (mile, led, k-gt, local-dsgd, dinno, diloco, noloco, gasloc).
    pub local: LocalSteps,
    /// Momentum on the progress of rounds (mile, led, k-gt, local-dsgd, diloco, noloco, gasloc).
    pub outer: Option<OuterMomentum>,
    /// How messages are compressed (mile, local-dsgd, motef).
    pub compression: Option<Compression>,
    /// Whether agents exchange in [pairs](crate::pairing) instead of rounds (mile).
    pub pairs: bool,
    /// How exchanges are protected against malicious neighbours (mile, local-dsgd, dsgd).
    pub robust: Option<Robust>,
    /// Whether the problem has a penalty: the method then takes its proximal form, or is refused.
    pub penalty: bool,
    /// Values of the parameters that only this method has, by the names under which its
    /// [`Entry`](super::entry::Entry) declares them.
    pub own: Vec<(&'static str, ParameterValue)>,
}

/// The value of a method's own parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParameterValue {
    /// A number.
    Number(f64),
    /// A whole number.
    Whole(u64),
    /// One of several words.
    Word(&'static str),
}

impl From<f64> for ParameterValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for ParameterValue {
    fn from(whole: u64) -> Self {
        Self::Whole(whole)
    }
}

impl From<Variant> for ParameterValue {
    fn from(variant: Variant) -> Self {
        Self::Word(variant.name())
    }
}

impl std::fmt::Display for ParameterValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Whole(whole) => whole.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}

impl Parameters {
    /// With a value of one of the method's own parameters, such as `("beta", 0.1)`.
    pub fn with(mut self, name: &'static str, value: impl Into<ParameterValue>) -> Self {
        self.own.retain(|(other, _)| *other != name);
        self.own.push((name, value.into()));
        self
    }

    fn value(&self, name: &str) -> Option<ParameterValue> {
        self.own.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    /// The value of the method's own parameter of this name, if it is given and a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.value(name)? {
            ParameterValue::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The value of the method's own parameter of this name, if it is given and a whole number.
    pub fn whole(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            ParameterValue::Whole(whole) => Some(whole),
            _ => None,
        }
    }

    /// The value of the method's own parameter of this name, if it is given and a word.
    pub fn word(&self, name: &str) -> Option<&'static str> {
        match self.value(name)? {
            ParameterValue::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The parameters that are given, as (name in experiment files, value); different values have different texts.
    /// Parameters that are not given are left out, so that a parameter added in a later version does not change the
    /// result for older experiments.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let Self {
            local_steps,
            xi,
            gamma,
            momentum,
            nesterov,
            local,
            outer,
            compression,
            pairs,
            robust,
            own,
            ..
        } = self;
        let steps = local_steps.map(|_| self.steps_in_words());
        let LocalSteps { optimizer, correction, clip, share_moments } = local;
        let parts = [
            ("local_steps", steps),
            ("xi", xi.map(|xi| xi.to_string())),
            ("gamma", gamma.map(|gamma| gamma.to_string())),
            ("momentum", momentum.map(|mu| mu.to_string())),
            ("nesterov", nesterov.filter(|yes| *yes).map(|yes| yes.to_string())),
            ("optimizer", optimizer.as_ref().map(|by| by.to_string())),
            ("correction", correction.map(|at| at.to_string())),
            ("clip", clip.map(|most| most.to_string())),
            ("share_moments", share_moments.map(|rounds| rounds.to_string())),
            ("outer", outer.map(|outer| outer.to_string())),
            ("compression", compression.map(|by| by.to_string())),
            ("exchange", pairs.then(|| "pairs".to_owned()).or(robust.map(|by| by.to_string()))),
        ];
        let parts = parts.into_iter().filter_map(|(name, value)| Some((name, value?)));
        parts.chain(own.iter().map(|(name, value)| (*name, value.to_string()))).collect()
    }

    /// The momentum of local steps of the method with this name, checked; none if it is not given or 0.
    pub fn checked_momentum(&self, method: &str) -> Result<Option<Momentum>, InvalidParameter> {
        Momentum::of(method, self.momentum, self.nesterov)
    }

    /// The same for a method that is defined by its momentum: 0.9 if it is not given.
    pub(super) fn usual_momentum(&self, method: &str) -> Result<Option<Momentum>, InvalidParameter> {
        Momentum::of(method, self.momentum.or(Some(0.9)), self.nesterov)
    }

    /// Fills in the weights that compression requires, where they are not given: with few elements, mixing and correction are damped.
    pub fn weights_of_compression(&mut self, has_correction: bool) {
        let Some(least) = self.compression.and_then(Compression::usual_gamma) else { return };
        let gamma = *self.gamma.get_or_insert(least);
        if has_correction {
            self.xi.get_or_insert(Mile::compressed_xi(self.tau(), gamma).into());
        }
    }

    /// Whether local steps divide by the size of gradients, as those of AdamW and Muon do.
    pub fn is_preconditioned(&self) -> bool {
        self.local.optimizer.as_ref().is_some_and(Optimizer::is_preconditioned)
    }

    /// Fills in the weights of MILE with AdamW or Muon, where they are not given: the smallest eigenvalue of W bounds them.
    pub fn weights_of_optimizer(&mut self, lambda_n: f64) {
        if self.is_preconditioned() {
            self.gamma.get_or_insert(Mile::adaptive_gamma(lambda_n));
            self.xi.get_or_insert(Mile::preconditioned_xi(self.tau()).into());
        }
    }

    /// With a separate number of local steps for each agent.
    pub fn with_own_steps(self, own: impl Into<Arc<[u64]>>) -> Self {
        let own = own.into();
        Self { local_steps: own.iter().max().copied(), own_steps: Some(own), ..self }
    }

    /// The parameters of some of the agents.
    pub fn of_members(&self, members: &[usize]) -> Self {
        let Some(own) = &self.own_steps else { return self.clone() };
        let own: Vec<u64> = members.iter().filter_map(|agent| own.get(*agent).copied()).collect();
        self.clone().with_own_steps(own)
    }

    /// The parameters if all agents made the largest number of local steps: with few exceptions, what is stable for them is stable for own
    /// numbers (`docs/src/theory.md`).
    pub fn alike(&self) -> Self {
        Self { own_steps: None, ..self.clone() }
    }

    /// The number of local steps, 1 if none is given, or the list of the agents' numbers.
    pub fn steps_in_words(&self) -> String {
        match &self.own_steps {
            Some(own) => format!("{own:?}"),
            None => self.local_steps.unwrap_or(1).to_string(),
        }
    }

    pub(super) fn own_steps(&self) -> Option<&[u64]> {
        self.own_steps.as_deref()
    }

    pub(super) fn tau(&self) -> u64 {
        self.local_steps.unwrap_or(DEFAULT_LOCAL_STEPS)
    }

    pub(super) fn probability(&self) -> f64 {
        self.number("probability").unwrap_or(1.0 / self.tau().max(1) as f64)
    }
}
