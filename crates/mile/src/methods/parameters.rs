//! Hyperparameters of all methods, as a user gives them.

use super::dsgd::Variant;
use super::mile::Mile;
use super::momentum::Momentum;
use crate::compression::Compression;
use crate::method::InvalidParameter;
use crate::schedule::Weight;

/// Default number of local steps.
pub const DEFAULT_LOCAL_STEPS: u64 = 10;

/// Hyperparameters as a user gives them; each method uses some of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Local steps tau: updates per communication round.
    pub local_steps: Option<u64>,
    /// Weight of the correction (mile).
    pub xi: Option<Weight>,
    /// Weight of the mixing (mile; local-dsgd with compression).
    pub gamma: Option<f64>,
    /// Weight of the correction (led, proxskip).
    pub beta: Option<f64>,
    /// Global step size, applied between communication rounds (k-gt, dec-fedtrack, scaffold).
    pub eta_s: Option<f64>,
    /// Exchanges per communication round (gta).
    pub communications: Option<u64>,
    /// Probability that a step communicates (proxskip, mg-skip).
    pub probability: Option<f64>,
    /// Damping of the mixing (proxskip).
    pub chi: Option<f64>,
    /// Gossip exchanges per communication round (mg-skip).
    pub gossip: Option<u64>,
    /// Order of mixing and gradient step (dsgd).
    pub variant: Option<Variant>,
    /// Momentum mu of the local steps.
    pub momentum: Option<f64>,
    /// Whether it has Nesterov's form, and not that of heavy ball.
    pub nesterov: Option<bool>,
    /// How messages are compressed (mile, local-dsgd).
    pub compression: Option<Compression>,
    /// Whether the problem has a penalty: the method is then its proximal form, or refused.
    pub penalty: bool,
}

impl Parameters {
    /// The parameters that are given, as (name in experiment files, value); different values have different texts.
    /// Parameters that are not given are left out, so that a parameter added in a later version does not change the
    /// result for older experiments.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let Self {
            local_steps,
            xi,
            gamma,
            beta,
            eta_s,
            communications,
            probability,
            chi,
            gossip,
            variant,
            momentum,
            nesterov,
            compression,
            penalty: _,
        } = self;
        let whole = |value: &Option<u64>| value.map(|value| value.to_string());
        let number = |value: &Option<f64>| value.map(|value| value.to_string());
        let all = [
            ("local_steps", whole(local_steps)),
            ("xi", xi.map(|xi| xi.to_string())),
            ("gamma", number(gamma)),
            ("beta", number(beta)),
            ("eta_s", number(eta_s)),
            ("communications", whole(communications)),
            ("probability", number(probability)),
            ("chi", number(chi)),
            ("gossip", whole(gossip)),
            ("variant", variant.map(|variant| variant.name().to_owned())),
            ("momentum", number(momentum)),
            ("nesterov", nesterov.filter(|yes| *yes).map(|yes| yes.to_string())),
            ("compression", compression.map(|by| by.to_string())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The momentum of local steps of the method with this name, checked; none if it is not given or 0.
    pub fn checked_momentum(&self, method: &str) -> Result<Option<Momentum>, InvalidParameter> {
        Momentum::of(method, self.momentum, self.nesterov)
    }

    /// The same for a method that is known by its momentum: 0.9 if it is not given.
    pub(super) fn usual_momentum(&self, method: &str) -> Result<Option<Momentum>, InvalidParameter> {
        Momentum::of(method, self.momentum.or(Some(0.9)), self.nesterov)
    }

    /// Fills in the weights that compression asks for, where they are not given: with few elements, mixing and correction are damped.
    pub fn weights_of_compression(&mut self, has_correction: bool) {
        let Some(least) = self.compression.and_then(Compression::usual_gamma) else { return };
        let gamma = *self.gamma.get_or_insert(least);
        if has_correction {
            self.xi.get_or_insert(Mile::compressed_xi(self.tau(), gamma).into());
        }
    }

    pub(super) fn tau(&self) -> u64 {
        self.local_steps.unwrap_or(DEFAULT_LOCAL_STEPS)
    }

    pub(super) fn probability(&self) -> f64 {
        self.probability.unwrap_or(1.0 / self.tau().max(1) as f64)
    }
}
