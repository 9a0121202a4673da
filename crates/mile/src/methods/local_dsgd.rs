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
//! Sent: x. Stored: x.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};

const X: Vector = Vector(0);
const G: Vector = Vector(1);

/// Local decentralized (stochastic) gradient descent.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalDsgd {
    local_steps: u64,
}

impl LocalDsgd {
    /// An exchange after every `local_steps` updates.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        Ok(Self { local_steps: Checker("local-dsgd").at_least_one("local_steps", local_steps)? })
    }
}

impl Method for LocalDsgd {
    fn layout(&self) -> Layout {
        Layout { state: &[("x", Unit::Fixed)], scratch: &["g"] }
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.gradient(X, G)?;
        s.combine(X, 1.0, &[(-s.step_size, G)])?;
        if (s.t + 1).is_multiple_of(self.local_steps) {
            let d = G;
            s.pull(&[(X, d)])?;
            s.combine(X, 1.0, &[(1.0, d)])?; // W x = x + d
        }
        s.prox(X, s.step_size)
    }

    fn takes_penalty(&self) -> bool {
        true
    }
}
