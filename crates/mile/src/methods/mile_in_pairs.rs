//! MILE whose agents exchange in pairs: decoupled MILE on one edge at a time, without a barrier. Ours, beyond the paper.
//!
//! An agent makes its own tau_i local steps and exchanges with one neighbour j that is ready too ([`pairing`](crate::pairing)):
//!
//! ```text
//! tau_i times:  v = x - alpha grad f(x) + c ;  x = v
//! exchange:     d_i = (v_j - v_i)/2 ;  c_i = c_i + xi d_i ;  x_i = v_i + gamma d_i
//! ```
//!
//! This is `mile.rs` with the matrix W that has 1/2 for both agents of the pair, from x with c = 0 and without a local step before the first round. d_j = -d_i to
//! the bit, so the c_i sum to zero after every exchange, whoever exchanges with whom, and after how many steps. At a fixed point both ends of every
//! edge that is used again and again agree, and c_i = alpha grad f_i, so the mean gradient is zero: it is exact. gamma = 1 leaves both with their mean.
//!
//! With tau_i = 1 and one random edge at a time the nearest published method is FSPDA (`fspda.rs`), whose exchange and step start from the same x.
//!
//! Momentum, AdamW, Muon and outer momentum are as in `mile.rs`: they are each agent's own. What neighbours would have to agree on between exchanges, or to
//! know of each other, is refused: a step size or xi that changes with the round, an adaptive xi, shared moments, and compression. Robust exchanges are
//! made in rounds only.
//!
//! Sent: v, to one neighbour. Stored: x, c, and what the optimiser needs.

use std::sync::Arc;

use super::parameters::Parameters;
use super::parts::{Local, OuterMomentum};
use super::primal_dual::{PLAIN, Steps};
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method, Pairwise};
use crate::network::Network;
use crate::optimiser::Muon;
use crate::schedule::Weight;

/// tau times the default xi: half of what is stable with gamma = 1 wherever that was measured (`docs/src/theory.md`).
const USUAL: f64 = 0.2;

/// MILE in pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct MileInPairs {
    local_steps: u64,
    own: Option<Arc<[u64]>>,
    xi: f64,
    gamma: f64,
    steps: Steps,
}

impl MileInPairs {
    /// The default xi: 0.2 divided by the largest number of local steps.
    pub fn usual_xi(local_steps: u64) -> f64 {
        USUAL / local_steps.max(1) as f64
    }

    /// The method with these parameters of `mile`; the default gamma is 1.
    pub fn of(parameters: &Parameters) -> Result<Self, InvalidParameter> {
        let check = Checker("mile");
        let local_steps = check.at_least_one("local_steps", parameters.tau())?;
        let xi = match parameters.xi {
            None => Self::usual_xi(local_steps),
            Some(Weight::Constant(xi)) => xi,
            Some(other) => {
                let expected = "a number in (0, 1] with exchange = \"pairs\"; both ends of an exchange need the same, and have no round in common";
                return Err(check.refuse("xi", other, expected));
            }
        };
        let is_weight = |weight: f64| weight > 0.0 && weight <= 1.0;
        check.number("xi", xi, is_weight(xi), "a number in (0, 1]")?;
        let gamma = parameters.gamma.unwrap_or(1.0);
        check.number("gamma", gamma, is_weight(gamma), "a number in (0, 1]")?;
        if let Some(by) = parameters.compression {
            let expected = "\"none\" with exchange = \"pairs\"; compressed messages add to those that all neighbours had before";
            return Err(check.refuse("compression", by, expected));
        }
        if let Some(by) = parameters.robust {
            let expected = "\"pairs\" or a rule, but not both; robust exchanges are made in rounds";
            return Err(check.refuse("exchange", by, expected));
        }
        if let Some(rounds) = parameters.local.share_moments {
            let expected =
                "none with exchange = \"pairs\"; agents have no round in common in which to share moments";
            return Err(check.refuse("share_moments", rounds, expected));
        }
        let local = Local::of("mile", parameters.checked_momentum("mile")?, &parameters.local)?;
        let outer = OuterMomentum::of("mile", parameters.outer)?;
        let own = parameters.own_steps.clone();
        Ok(Self { local_steps, own, xi, gamma, steps: Steps { local, outer, ..PLAIN } })
    }
}

impl Method for MileInPairs {
    fn layout(&self) -> Layout {
        self.steps.layout()
    }

    fn step(&self, _: &mut Step) -> Result<(), AgentsError> {
        Err(AgentsError::Method("its agents exchange in pairs, and have no common step".into()))
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.own.as_deref()
    }

    fn pairwise(&self) -> Option<&dyn Pairwise> {
        Some(self)
    }

    fn muon(&self) -> Option<&Muon> {
        self.steps.local.muon()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        let refuse = |expected| Err(Checker("mile").refuse("exchange", "\"pairs\"", expected));
        if network.agents() < 2 {
            return refuse("\"rounds\" on a network of one agent; a pair needs two");
        }
        if network.varies() {
            return refuse(
                "\"rounds\" with drop_rate, bursts, absence or time_varying; these are about rounds, and here speeds decide which edges are used",
            );
        }
        self.steps.check("mile", network)
    }
}

impl Pairwise for MileInPairs {
    fn local_steps(&self, agent: usize) -> u64 {
        self.own.as_ref().and_then(|own| own.get(agent)).copied().unwrap_or(self.local_steps)
    }

    fn work(&self, s: &mut Step, before: u64, steps: u64) -> Result<(), AgentsError> {
        self.steps.work(s, before, steps)
    }

    fn exchange(&self, s: &mut Step, pairs: &[[usize; 2]]) -> Result<(), AgentsError> {
        self.steps.exchange_in_pairs(s, pairs, self.gamma, self.xi)
    }
}
