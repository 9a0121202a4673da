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
//! Composite Optimization", 2021). It is as inexact as without.
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
//! Sent: x. Stored: x; with momentum also m.

use super::momentum::Momentum;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};

const X: Vector = Vector(0);
const M: Vector = Vector(1);

/// Local decentralized (stochastic) gradient descent.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalDsgd {
    local_steps: u64,
    momentum: Option<Momentum>,
}

impl LocalDsgd {
    /// An exchange after every `local_steps` updates.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        let local_steps = Checker("local-dsgd").at_least_one("local_steps", local_steps)?;
        Ok(Self { local_steps, momentum: None })
    }

    /// With momentum in the local steps: DFedAvgM.
    pub fn with_momentum(self, momentum: Option<Momentum>) -> Self {
        Self { momentum, ..self }
    }
}

impl Method for LocalDsgd {
    fn layout(&self) -> Layout {
        let state: &[_] = match self.momentum {
            None => &[("x", Unit::Fixed)],
            Some(_) => &[("x", Unit::Fixed), ("m", Unit::StepSize)],
        };
        Layout { state, scratch: &["g"] }
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let g = Vector(self.layout().state.len());
        s.gradient(X, g)?;
        match self.momentum {
            None => s.combine(X, 1.0, &[(-s.step_size, g)])?,
            Some(momentum) => momentum.step(s, (X, M), 1.0, &[(s.step_size, g)])?,
        }
        if (s.t + 1).is_multiple_of(self.local_steps) {
            let d = g;
            s.pull(&[(X, d)])?;
            s.combine(X, 1.0, &[(1.0, d)])?; // W x = x + d
        }
        s.prox(X, s.step_size)
    }

    fn takes_penalty(&self) -> bool {
        self.momentum.is_none()
    }
}
