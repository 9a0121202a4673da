//! ProxSkip / Scaffnew, decentralized (Mishchenko, Malinovsky, Stich, Richtarik, "ProxSkip: Yes! Local
//! Gradient Steps Provably Lead to Communication Acceleration! Finally!", 2022; Guo et al.,
//! "Revisiting Decentralized ProxSkip", 2023), with `Wa = I - (I - W)/(2 chi)`:
//!
//! ```text
//! z = x - alpha grad f(x) - y ;  coin theta ~ Bernoulli(p), the same for all agents
//! theta = 1:  send z ;  x = Wa z ;  y = y + beta (z - x)
//! theta = 0:  x = z
//! ```
//!
//! Here c = -y. Sent: z when theta = 1. Stored: x, c.

use rand::RngExt;

use super::primal_dual::PLAIN;
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};
use crate::random::{Purpose, stream};

/// The random coin theta(t) that all agents share: a function of (seed, t).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Coin {
    pub(super) seed: u64,
    pub(super) probability: f64,
}

impl Coin {
    pub(super) fn new(check: Checker, seed: u64, probability: f64) -> Result<Self, InvalidParameter> {
        let admissible = probability > 0.0 && probability <= 1.0;
        let expected = "a probability in (0, 1]; 1/local_steps is the default";
        Ok(Self { seed, probability: check.number("probability", probability, admissible, expected)? })
    }

    pub(super) fn is_heads(&self, t: u64) -> bool {
        stream(self.seed, Purpose::Coin, 0, t).random_bool(self.probability)
    }
}

/// Decentralized ProxSkip.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxSkip {
    coin: Coin,
    beta: f64,
    chi: f64,
}

impl ProxSkip {
    /// `probability` is that of communicating in a step; `beta` equals it unless given.
    pub fn new(seed: u64, probability: f64, beta: Option<f64>, chi: f64) -> Result<Self, InvalidParameter> {
        let check = Checker("proxskip");
        let coin = Coin::new(check, seed, probability)?;
        let beta = beta.unwrap_or(probability);
        Ok(Self {
            coin,
            beta: check.number(
                "beta",
                beta,
                beta > 0.0 && beta <= 1.0,
                "a number in (0, 1]; the default is probability",
            )?,
            chi: check.number("chi", chi, chi >= 1.0, "a number from 1")?,
        })
    }
}

impl Method for ProxSkip {
    fn layout(&self) -> Layout {
        PLAIN.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        PLAIN.local_step(s, s.t + 1)?;
        if self.coin.is_heads(s.t) {
            let gamma = 1.0 / (2.0 * self.chi);
            PLAIN.exchange(s, gamma, self.beta * gamma)?;
        }
        Ok(())
    }
}
