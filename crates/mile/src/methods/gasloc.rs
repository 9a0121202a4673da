//! GASLoC (Cagnasso, Belilovsky, Oyallon, "Unifying Local Communications and Local Updates for LLM Pretraining", 2026): local
//! steps, gossip, and momentum on what is gossiped.
//!
//! ```text
//! repeat tau times:  x = x - alpha grad f(x)
//! P = a + eta (x - a)                                                          a: the model at the start of the round
//! send P ;  x = P + gamma (W P - P) + mu (P - P_old) ;  P_old = P
//! ```
//!
//! from P_old = x(0). Without its gossip, this is Nesterov's momentum on the progress of rounds, in its form with two sequences: `u = mu u + (x - a) ;
//! x = a + eta (x - a + mu u)` has the same x, with eta u = P - P_old. So for agents that agree it is DiLoCo. The outer momentum of
//! [local DSGD](super::LocalDsgd) mixes what the momentum adds, too; here it is added after the mixing.
//!
//! It is not exact: where nothing moves, P = P_old, and what is left is local DSGD's balance between gradients and mixing, in which the
//! gradients count eta times. mu does not matter there.
//!
//! The paper's local optimisers are adaptive; here local steps are plain unless another optimiser is asked for (`parts/local.rs`). Its
//! text was available only in part, without values of eta, gamma and mu: the defaults are ours. Where the edges of every round form pairs, gamma is such that the two
//! ends of the edge with the largest weight take their mean.
//!
//! Sent: P, one vector. Stored: x, a, P_old; with momentum in the local steps also m, with AdamW or Muon also m and v.

use super::parts::{Correction, Local, Needs, OuterMomentum, Pace, Vectors};
use super::{LocalSteps, Momentum};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;
use crate::optimiser::Muon;

const X: Vector = Vector(0);
const A: Vector = Vector(1);
const P_OLD: Vector = Vector(2);

/// Local steps, gossip, and momentum on what is gossiped.
#[derive(Clone, Debug, PartialEq)]
pub struct Gasloc {
    pace: Pace,
    outer: OuterMomentum,
    /// The weight of the mixing.
    gamma: f64,
    local: Local,
}

impl Gasloc {
    /// The default momentum mu and outer step size eta.
    pub const USUAL: OuterMomentum = OuterMomentum { momentum: 0.5, step_size: 0.7 };

    /// With the momentum mu and the step size eta of `outer`, and the weight `gamma` of the mixing.
    pub fn new(local_steps: u64, outer: OuterMomentum, gamma: f64) -> Result<Self, InvalidParameter> {
        let check = Checker("gasloc");
        let pace = Pace::new(check, local_steps)?;
        let outer = outer.checked("gasloc")?;
        let gamma = check.number("gamma", gamma, gamma > 0.0, "a positive number")?;
        Ok(Self { pace, outer, gamma, local: Local::PLAIN })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("gasloc"), own)?;
        Ok(Self { pace, ..self })
    }

    /// With these local steps, and a momentum unless they have an optimiser.
    pub fn with_local(
        self,
        momentum: Option<Momentum>,
        local: &LocalSteps,
    ) -> Result<Self, InvalidParameter> {
        let local = Local::of("gasloc", momentum, local)?;
        Ok(Self { local, ..self })
    }

    fn vectors(&self) -> Vectors<2> {
        let state = &[("x", Unit::Fixed), ("a", Unit::Fixed), ("p", Unit::Fixed)];
        Vectors([Needs { state, scratch: &["g"] }, self.local.needs(Correction::None.unit())])
    }
}

impl Method for Gasloc {
    fn layout(&self) -> Layout {
        self.vectors().layout()
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.combine(P_OLD, 0.0, &[(1.0, X)])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let vectors = self.vectors();
        let (g, m) = (vectors.scratch(0), vectors.state(1));
        if self.pace.begins(s.t) {
            s.combine(A, 0.0, &[(1.0, X)])?;
        }
        self.pace.each(s, |s, t, _| self.local.uncorrected_step(s, X, (g, m), t + 1))?;
        if self.pace.exchanges(s.t) {
            let (OuterMomentum { momentum: mu, step_size: eta }, d, p) = (self.outer, g, A);
            s.combine(p, 1.0 - eta, &[(eta, X)])?; // P, in the memory of a
            s.pull(&[(p, d)])?;
            s.combine(X, 0.0, &[(1.0 + mu, p), (self.gamma, d), (-mu, P_OLD)])?;
            s.combine(P_OLD, 0.0, &[(1.0, p)])?;
            self.local.share(s, m, d)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.local.check("gasloc", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.local.muon()
    }
}
