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
//! Here c = -y. Sent: z, when the coin says so. Stored: x, c.

use rand::RngExt;

use super::primal_dual::{LAYOUT, exchange, local};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};
use crate::random::{Purpose, stream};

/// The coin that all agents share: a function of (seed, step).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Coin {
    pub(super) seed: u64,
    pub(super) probability: f64,
}

impl Coin {
    pub(super) fn checked(check: Checker, seed: u64, probability: f64) -> Result<Self, InvalidParameter> {
        let admissible = probability > 0.0 && probability <= 1.0;
        let takes = "a probability in (0, 1]; 1/local_steps is the default";
        Ok(Self { seed, probability: check.number("probability", probability, admissible, takes)? })
    }

    pub(super) fn says_exchange(&self, t: u64) -> bool {
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
    /// `beta` is the probability of an exchange unless given.
    pub fn new(seed: u64, probability: f64, beta: Option<f64>, chi: f64) -> Result<Self, InvalidParameter> {
        let check = Checker("proxskip");
        let coin = Coin::checked(check, seed, probability)?;
        let beta = beta.unwrap_or(probability);
        Ok(Self {
            coin,
            beta: check.number("beta", beta, beta > 0.0 && beta <= 1.0, "a number in (0, 1]; p is usual")?,
            chi: check.number("chi", chi, chi >= 1.0, "a number from 1")?,
        })
    }
}

impl Method for ProxSkip {
    fn layout(&self) -> Layout {
        LAYOUT
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        local(s)?;
        if self.coin.says_exchange(s.t) {
            let gamma = 1.0 / (2.0 * self.chi);
            exchange(s, gamma, self.beta * gamma)?;
        }
        Ok(())
    }
}
