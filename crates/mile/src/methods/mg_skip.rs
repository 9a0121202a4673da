//! MG-Skip (Guo, Wang, Shi, Cao, 2023), a reconstruction: only its abstract was available. It is ProxSkip with
//! the mixing step replaced by K exchanges of accelerated gossip:
//!
//! ```text
//! z = x - alpha grad f(x) - y ;  shared coin theta ~ Bernoulli(p)
//! theta = 1:  a_0 = a_{-1} = z ;  a_{k+1} = (1 + eta) W a_k - eta a_{k-1}, k < K ;  M z = a_K
//!             x = (z + M z)/2 ;  y = y + beta (z - x)
//! theta = 0:  x = z
//! ```
//!
//! eta = (1 - sqrt(1 - l^2))/(1 + sqrt(1 - l^2)), l = max(|l_2|, |l_N|); K = 1 is plain W (eta = 0).
//! Here c = -y. Sent: K vectors when theta = 1, one after the other. Stored: x, c.

use super::primal_dual::PLAIN;
use super::proxskip::Coin;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;

const X: Vector = Vector(0);
const C: Vector = Vector(1);
const G: Vector = Vector(2);
const A: Vector = Vector(3);
const B: Vector = Vector(4);

/// ProxSkip with accelerated gossip.
#[derive(Clone, Debug, PartialEq)]
pub struct MgSkip {
    coin: Coin,
    gossip: u64,
    eta: f64,
}

impl MgSkip {
    /// `gossip` is the smallest K with K >= 1/sqrt(1 - l) unless given.
    pub fn new(
        seed: u64,
        probability: f64,
        gossip: Option<u64>,
        network: &Network,
    ) -> Result<Self, InvalidParameter> {
        let check = Checker("mg-skip");
        let extremes = network.extremes();
        let l =
            if network.agents() == 1 { 0.0 } else { extremes.lambda_2.abs().max(extremes.lambda_n.abs()) };
        let gossip = gossip.unwrap_or((1.0 / (1.0 - l).sqrt()).ceil() as u64);
        let gossip = check.at_least_one("gossip", gossip)?;
        let root = (1.0 - l * l).sqrt();
        let eta = if gossip == 1 { 0.0 } else { (1.0 - root) / (1.0 + root) };
        Ok(Self { coin: Coin::new(check, seed, probability)?, gossip, eta })
    }
}

impl Method for MgSkip {
    fn layout(&self) -> Layout {
        Layout::new([("x", Unit::Fixed), ("c", Unit::StepSize)], ["g", "a", "b"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        PLAIN.local_step(s, s.t + 1)?;
        if !self.coin.is_heads(s.t) {
            return Ok(());
        }
        let (eta, beta) = (self.eta, self.coin.probability);
        let (mut before, mut now, mut next) = (A, G, B);
        s.combine(before, 0.0, &[(1.0, X)])?;
        s.combine(now, 0.0, &[(1.0, X)])?;
        for _ in 0..self.gossip {
            s.mix(&[(now, next)])?;
            s.combine(next, 1.0 + eta, &[(-eta, before)])?;
            (before, now, next) = (now, next, before);
        }
        s.combine(C, 1.0, &[(-0.5 * beta, X), (0.5 * beta, now)])?;
        s.combine(X, 0.5, &[(0.5, now)])?;
        Ok(())
    }
}
