//! NoLoCo (Kolehmainen et al., "NoLoCo: No-all-reduce Low Communication Training Method for Large Models", 2025): local steps, and an outer
//! step with momentum in which random pairs of agents average.
//!
//! ```text
//! repeat tau times:  x = x - alpha grad f(x)                                   from x = phi, the slow weights
//! D = x - phi ;  u = mu u + eta mean(D) + gamma (mean(phi) - phi)              means over a pair
//! phi = phi + u ;  x = phi
//! ```
//!
//! as in the authors' code (the paper prints the term with D with a minus) with mu = 0.5 and eta = gamma = 0.7. With eta = gamma, which is
//! the case here, the means of D and phi add up to that of x, and it is enough to send x where the authors send D and phi:
//!
//! ```text
//! send x ;  u = mu u + eta (mean(x) - phi) ;  phi = phi + u ;  x = phi
//! ```
//!
//! *The pairs* are those of the network: `time_varying = "random-matching"`, on a complete graph for any pair. In such a round the two ends
//! of the edge with the largest weight take their mean, whatever that weight is in W; edges of smaller weight count less. An agent
//! without a partner takes its own x for the mean. On a network that does not consist of pairs in every round, `mean(x)` is W x: a
//! gossiped DiLoCo whose momentum is formed after the exchange.
//!
//! It is not exact: at a fixed point u = 0 and phi = mean(x), where x has made tau steps along its own gradient. On a fixed graph these are the
//! fixed points of local DSGD, for every mu and eta.
//!
//! The paper's local optimiser is Adam; here local steps are plain unless another optimiser is asked for (`parts/local.rs`).
//!
//! Sent: x, one vector. Stored: x, phi, u; with momentum in the local steps also m.

use super::parts::{Correction, Local, Needs, OuterMomentum, Pace, Vectors, pair_weight};
use super::{LocalSteps, Momentum};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;
use crate::optimiser::Muon;

const X: Vector = Vector(0);
const PHI: Vector = Vector(1);
const U: Vector = Vector(2);

/// Local steps, and an outer step with momentum in which pairs average.
#[derive(Clone, Debug, PartialEq)]
pub struct NoLoCo {
    pace: Pace,
    outer: OuterMomentum,
    /// The weight of what an exchange finds, which makes it the mean of a pair.
    share: f64,
    local: Local,
}

impl NoLoCo {
    /// The authors' momentum mu and outer step size eta.
    pub const USUAL: OuterMomentum = OuterMomentum { momentum: 0.5, step_size: 0.7 };

    /// With the momentum mu and the step size eta of `outer`.
    pub fn new(local_steps: u64, outer: OuterMomentum, network: &Network) -> Result<Self, InvalidParameter> {
        let pace = Pace::new(Checker("noloco"), local_steps)?;
        let outer = outer.checked("noloco")?;
        Ok(Self { pace, outer, share: pair_weight(network), local: Local::PLAIN })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("noloco"), own)?;
        Ok(Self { pace, ..self })
    }

    /// With these local steps, and a momentum unless they have an optimiser.
    pub fn with_local(
        self,
        momentum: Option<Momentum>,
        local: &LocalSteps,
    ) -> Result<Self, InvalidParameter> {
        let local = Local::of("noloco", momentum, local)?;
        Ok(Self { local, ..self })
    }

    fn vectors(&self) -> Vectors<2> {
        let state = &[("x", Unit::Fixed), ("phi", Unit::Fixed), ("u", Unit::Fixed)];
        Vectors([Needs { state, scratch: &["g"] }, self.local.needs(Correction::None.unit())])
    }
}

impl Method for NoLoCo {
    fn layout(&self) -> Layout {
        self.vectors().layout()
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.combine(PHI, 0.0, &[(1.0, X)])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let vectors = self.vectors();
        let (g, local) = (vectors.scratch(0), vectors.state(1));
        self.pace.each(s, |s, t, _| self.local.uncorrected_step(s, X, (g, local), t + 1))?;
        if self.pace.exchanges(s.t) {
            let (OuterMomentum { momentum: mu, step_size: eta }, d) = (self.outer, g);
            s.pull(&[(X, d)])?;
            s.combine(U, mu, &[(eta, X), (eta * self.share, d), (-eta, PHI)])?;
            s.combine(PHI, 1.0, &[(1.0, U)])?;
            s.combine(X, 0.0, &[(1.0, PHI)])?;
            self.local.share(s, local, d)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.local.check("noloco", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.local.muon()
    }
}
