//! Local DSGD (DFedAvg: Sun, Li, Wang, "Decentralized Federated Averaging", 2022): local gradient steps, then
//! mixing with the neighbours.
//!
//! ```text
//! repeat tau times:  x = x - alpha grad f(x)
//! send x ;  x = W x
//! ```
//!
//! With a constant step size it does not reach a stationary point of f when the f_i differ.
//!
//! With a penalty g every update ends with its proximal step:
//!
//! ```text
//! tau - 1 times:  x = prox_{alpha g}(x - alpha grad f(x))
//! then:           x = prox_{alpha g}(W (x - alpha grad f(x)))
//! ```
//!
//! so that models keep their zeros, which are lost where mixing comes last (FedMiD: Yuan, Zaheer, Reddi, "Federated
//! Composite Optimization", 2021). It is as inexact as without a penalty.
//!
//! With momentum it is DFedAvgM of the same paper:
//!
//! ```text
//! repeat tau times:  m = mu m + alpha grad f(x) ;  x = x - m      (Nesterov: x = x - (mu m + alpha grad f(x)))
//! send x ;  x = W x
//! ```
//!
//! except that m is kept through the exchange, as PyTorch's optimizer keeps it, where the paper starts every round with m = 0.
//! There is no proximal form with momentum.
//!
//! With another [optimiser](crate::optimiser), such as AdamW or Muon, its step takes the place of `alpha grad f(x)`: what most systems for
//! training networks without a server do. There is no proximal form of it.
//!
//! With [compression](crate::compression) agents send differences from public copies (`methods/parts/public_copy.rs`), and mixing is damped:
//!
//! ```text
//! s = W y - y ;  x = x + gamma s
//! ```
//!
//! This is CHOCO-SGD with local steps. There is no proximal form of it.
//!
//! With [`OuterMomentum`] a finished round moves x along its progress from the model a at its start before x is sent:
//! `u = mu u + (a - x) ; x = a - eta (mu u + a - x)`. On the complete graph with weights 1/N this is DiLoCo (Douillard et al. 2023) with plain
//! local steps. There is no proximal form of it.
//!
//! With a [robust](crate::robust) exchange d takes the place of `W x - x`, so that up to b malicious neighbours of each agent have a limited
//! influence: `x = x + d`. With the rule that clips it is DSGD with CS+ and local steps.
//!
//! Sent: x; compressed C(x - y). Stored: x; with momentum also m; with AdamW or Muon also m and v; compressed also y and s; with outer momentum also a and u.

use super::parts::{Correction, Exchange, Local, Pace};
use super::primal_dual::{PLAIN, Steps, X};
use super::{LocalSteps, Momentum, Optimizer, OuterMomentum};
use crate::agents::{AgentsError, Step};
use crate::compression::Compression;
use crate::method::{Checker, InvalidParameter, Layout, Method};
use crate::network::Network;
use crate::optimiser::Muon;
use crate::robust::Robust;

/// Local decentralized (stochastic) gradient descent.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalDsgd {
    pace: Pace,
    /// The weight of the mixing.
    gamma: f64,
    steps: Steps,
}

impl LocalDsgd {
    /// An exchange after every `local_steps` updates.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        let pace = Pace::new(Checker("local-dsgd"), local_steps)?;
        Ok(Self { pace, gamma: 1.0, steps: Steps { correction: Correction::None, ..PLAIN } })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("local-dsgd"), own)?;
        Ok(Self { pace, ..self })
    }

    /// With momentum in the local steps: DFedAvgM.
    pub fn with_momentum(self, momentum: Option<Momentum>) -> Self {
        Self { steps: Steps { local: momentum.into(), ..self.steps }, ..self }
    }

    /// With these local steps, and a momentum unless they have an optimiser.
    pub fn with_local(
        self,
        momentum: Option<Momentum>,
        local: &LocalSteps,
    ) -> Result<Self, InvalidParameter> {
        let local = Local::of("local-dsgd", momentum, local)?;
        Ok(Self { steps: Steps { local, ..self.steps }, ..self })
    }

    /// With outer momentum, if asked.
    pub fn with_outer(self, outer: Option<OuterMomentum>) -> Result<Self, InvalidParameter> {
        let outer = OuterMomentum::of("local-dsgd", outer)?;
        Ok(Self { steps: Steps { outer, ..self.steps }, ..self })
    }

    /// With compressed messages, and the weight `gamma` of the mixing.
    pub fn with_compression(self, by: Compression, gamma: f64) -> Result<Self, InvalidParameter> {
        let is_weight = gamma > 0.0 && gamma <= 1.0;
        let gamma = Checker("local-dsgd").number("gamma", gamma, is_weight, "a number in (0, 1]")?;
        Ok(Self { gamma, steps: Steps { exchange: Exchange::Compressed(by), ..self.steps }, ..self })
    }

    /// With an exchange that limits what malicious neighbours can do, if asked; not with compressed messages.
    pub fn with_robust(self, by: Option<Robust>) -> Result<Self, InvalidParameter> {
        let Some(by) = by else { return Ok(self) };
        let exchange = self.steps.exchange.robust("local-dsgd", by, false)?;
        Ok(Self { steps: Steps { exchange, ..self.steps }, ..self })
    }
}

impl Method for LocalDsgd {
    fn layout(&self) -> Layout {
        self.steps.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        if self.pace.begins(s.t) {
            self.steps.begin_round(s)?;
        }
        let exchanges = self.pace.exchanges(s.t);
        self.pace.each(s, |s, t, _| {
            self.steps.local_step(s, t + 1)?;
            if exchanges { Ok(()) } else { s.prox(X, s.step_size) }
        })?;
        if exchanges {
            self.steps.exchange(s, self.gamma, 0.0)?; // W x = x + d
            s.prox(X, s.step_size)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.steps.check("local-dsgd", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.steps.local.muon()
    }

    fn takes_penalty(&self) -> bool {
        let Steps { local, exchange, outer, .. } = &self.steps;
        let is_whole = matches!(exchange, Exchange::Whole | Exchange::Robust(_));
        local.by == Optimizer::Sgd && is_whole && outer.is_none()
    }
}
