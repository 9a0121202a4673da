//! DiLoCo (Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023), without a server: on a complete
//! graph one exchange with W = 11'/N gives every agent the average that the server would compute.
//!
//! ```text
//! x = a ;  repeat tau times:  x = x - alpha grad f(x)                          a: the server's model
//! e = a - mean(x) ;  u = mu u + e ;  a = a - eta (mu u + e)                    Nesterov's momentum, mu = 0.9 and eta = 0.7
//! ```
//!
//! Here every agent forms u and the new a with its own x, and sends that a: the average of what they send is the server's a, as
//! both are linear in x. So one vector is sent instead of one in each direction. It is [local DSGD](super::LocalDsgd) with outer momentum on
//! this one network, under its own name.
//!
//! It is not exact: agents agree after every exchange, and settle where the progress of their rounds, and not their gradients, cancels. These are the
//! fixed points of local DSGD on this network, for every mu and eta.
//!
//! The paper's local optimiser is AdamW; here local steps are plain unless another optimiser is asked for (`parts/local.rs`).
//!
//! Sent: one vector. Stored: x, a, u; with momentum in the local steps also m, with AdamW or Muon also m and v.

use super::parts::{Correction, Local, Pace};
use super::primal_dual::{PLAIN, Steps};
use super::{LocalSteps, Momentum, OuterMomentum};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};
use crate::network::Network;
use crate::optimiser::Muon;

/// DiLoCo without a server.
#[derive(Clone, Debug, PartialEq)]
pub struct DiLoCo {
    pace: Pace,
    steps: Steps,
}

impl DiLoCo {
    /// The paper's momentum mu and outer step size eta.
    pub const USUAL: OuterMomentum = OuterMomentum { momentum: 0.9, step_size: 0.7 };

    /// With the momentum mu and the step size eta of `outer`.
    pub fn new(local_steps: u64, outer: OuterMomentum) -> Result<Self, InvalidParameter> {
        let pace = Pace::new(Checker("diloco"), local_steps)?;
        let outer = Some(outer.checked("diloco")?);
        Ok(Self { pace, steps: Steps { correction: Correction::None, outer, ..PLAIN } })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("diloco"), own)?;
        Ok(Self { pace, ..self })
    }

    /// With these local steps, and a momentum unless they have an optimiser.
    pub fn with_local(
        self,
        momentum: Option<Momentum>,
        local: &LocalSteps,
    ) -> Result<Self, InvalidParameter> {
        let local = Local::of("diloco", momentum, local)?;
        Ok(Self { steps: Steps { local, ..self.steps }, ..self })
    }
}

impl Method for DiLoCo {
    fn layout(&self) -> Layout {
        self.steps.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        if self.pace.begins(s.t) {
            self.steps.begin_round(s)?;
        }
        self.pace.each(s, |s, t, _| self.steps.local_step(s, t + 1))?;
        if self.pace.exchanges(s.t) {
            self.steps.exchange(s, 1.0, 0.0)?; // the mean of all agents
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        Checker("diloco").averages(network)?;
        self.steps.check("diloco", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.steps.local.muon()
    }
}
