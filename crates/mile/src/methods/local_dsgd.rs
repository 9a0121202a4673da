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
//! With [compression](crate::compression) agents send differences from public copies (`methods/public_copy.rs`), and mixing is damped:
//!
//! ```text
//! s = W y - y ;  x = x + gamma s
//! ```
//!
//! This is CHOCO-SGD with local steps. There is no proximal form of it.
//!
//! Sent: x; compressed C(x - y). Stored: x; with momentum also m; compressed also y and s.

use super::momentum::Momentum;
use super::public_copy::{self, PublicCopy};
use crate::agents::{AgentsError, Step, Vector};
use crate::compression::Compression;
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;

const X: Vector = Vector(0);
const M: Vector = Vector(1);

/// Local decentralized (stochastic) gradient descent.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalDsgd {
    local_steps: u64,
    momentum: Option<Momentum>,
    /// How messages are compressed, and the weight gamma of the mixing.
    compression: Option<(Compression, f64)>,
}

impl LocalDsgd {
    /// An exchange after every `local_steps` updates.
    pub fn new(local_steps: u64) -> Result<Self, InvalidParameter> {
        let local_steps = Checker("local-dsgd").at_least_one("local_steps", local_steps)?;
        Ok(Self { local_steps, momentum: None, compression: None })
    }

    /// With momentum in the local steps: DFedAvgM.
    pub fn with_momentum(self, momentum: Option<Momentum>) -> Self {
        Self { momentum, ..self }
    }

    /// With compressed messages, and the weight `gamma` of the mixing.
    pub fn with_compression(self, by: Compression, gamma: f64) -> Result<Self, InvalidParameter> {
        let is_weight = gamma > 0.0 && gamma <= 1.0;
        Checker("local-dsgd").number("gamma", gamma, is_weight, "a number in (0, 1]")?;
        Ok(Self { compression: Some((by, gamma)), ..self })
    }
}

impl Method for LocalDsgd {
    fn layout(&self) -> Layout {
        let plain = |state| Layout { state, scratch: &["g"] };
        let compressed = |state| Layout { state, scratch: &["g", "d"] };
        const X: (&str, Unit) = ("x", Unit::Fixed);
        const M: (&str, Unit) = ("m", Unit::StepSize);
        const Y: (&str, Unit) = ("y", Unit::Fixed);
        const S: (&str, Unit) = ("s", Unit::Fixed);
        match (self.momentum, self.compression) {
            (None, None) => plain(&[X]),
            (Some(_), None) => plain(&[X, M]),
            (None, Some(_)) => compressed(&[X, Y, S]),
            (Some(_), Some(_)) => compressed(&[X, M, Y, S]),
        }
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let g = Vector(self.layout().state.len());
        s.gradient(X, g)?;
        match self.momentum {
            None => s.combine(X, 1.0, &[(-s.step_size, g)])?,
            Some(momentum) => momentum.step(s, (X, M), 1.0, &[(s.step_size, g)])?,
        }
        if (s.t + 1).is_multiple_of(self.local_steps) {
            let (d, gamma) = match self.compression {
                None => {
                    s.pull(&[(X, g)])?;
                    (g, 1.0)
                }
                Some((by, gamma)) => {
                    let copy =
                        PublicCopy { y: Vector(g.0 - 2), s: Vector(g.0 - 1), q: g, d: Vector(g.0 + 1) };
                    (copy.exchange(s, X, by)?, gamma)
                }
            };
            s.combine(X, 1.0, &[(gamma, d)])?; // W x = x + d
        }
        s.prox(X, s.step_size)
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        public_copy::check("local-dsgd", self.compression.map(|(by, _)| by), network)
    }

    fn takes_penalty(&self) -> bool {
        self.momentum.is_none() && self.compression.is_none()
    }
}
