//! The common step of the methods with at most one correction vector c (primal-dual methods), composed of a
//! [local optimiser](Local), a [correction](Correction), an [exchange](Exchange) and an [outer step](OuterMomentum).
//!
//! ```text
//! v = x - alpha grad f(x) + c
//! no exchange:  x = v
//! exchange:     m = W v ;  x = (1 - gamma) v + gamma m ;  c = c - xi (v - m)
//! ```
//!
//! At a fixed point v = W v, so all agents agree, and the c_i sum to zero, so the mean gradient is zero.
//!
//! | method | gamma | xi | exchanges |
//! |---|---|---|---|
//! | MILE | xi | xi | t mod tau = 0 |
//! | MILE, decoupled | gamma | xi | t mod tau = 0 |
//! | LED | 1 | beta | every tau-th step |
//! | local DSGD, which has no c | 1 | 0 | every tau-th step |
//! | ProxSkip | 1/(2 chi) | beta/(2 chi) | shared coin |
//! | ED | 1/2 | 1/2 | always |
//! | D2 | 1 | 1 | always |
//! | NIDS | 1/2 | 1/2 | always, after an unmixed first step |
//!
//! With momentum the correction passes through it, `m = mu m + (alpha grad f(x) - c)` and `v = x - m`: at a fixed point
//! m = 0, and the rest is as above. m is in units of x, as c is, so it is rescaled with the step size. With AdamW or Muon, c acts before
//! or after the optimiser (`parts/correction.rs`).
//!
//! With outer momentum, v is replaced by the outer step before it is sent.

use super::parts::{Correction, Exchange, Local, Needs, OuterMomentum, Place, Vectors};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{InvalidParameter, Layout, Unit};
use crate::network::Network;

pub(super) const X: Vector = Vector(0);

/// Plain steps, the correction c, and exchanges of v.
pub(super) const PLAIN: Steps =
    Steps { correction: Correction::Dual, local: Local::PLAIN, exchange: Exchange::Whole, outer: None };

/// The steps of a method, by its parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Steps {
    pub(super) correction: Correction,
    pub(super) local: Local,
    pub(super) exchange: Exchange,
    pub(super) outer: Option<OuterMomentum>,
}

impl Steps {
    /// The scratch vector g holds the gradient, and then the result of an exchange.
    fn vectors(&self) -> Vectors<5> {
        let own = Needs { state: &[("x", Unit::Fixed)], scratch: &["g"] };
        let local = self.local.needs(self.correction.unit());
        let outer = if self.outer.is_some() { OuterMomentum::NEEDS } else { Needs::NOTHING };
        Vectors([own, self.correction.needs(), local, self.exchange.needs(), outer])
    }

    pub(super) fn layout(&self) -> Layout {
        self.vectors().layout()
    }

    /// Before the first local step of a round.
    pub(super) fn begin_round(&self, s: &mut Step) -> Result<(), AgentsError> {
        if self.outer.is_some() { OuterMomentum::begin(s, X, self.vectors().state(4)) } else { Ok(()) }
    }

    /// `x = v = x - alpha grad f(x) + c`, as the local optimiser does it in its `number`-th step.
    pub(super) fn local_step(&self, s: &mut Step, number: u64) -> Result<(), AgentsError> {
        let vectors = self.vectors();
        let (g, c, m) = (vectors.scratch(0), vectors.state(1), vectors.state(2));
        self.local.gradient(s, X, g)?;
        self.local.step(s, X, m, &self.correction.direction(self.local.at, s.step_size, g, c), number)
    }

    /// After the last local step of a round.
    fn end_round(&self, s: &mut Step) -> Result<(), AgentsError> {
        let Some(outer) = self.outer else { return Ok(()) };
        let a = self.vectors().state(4);
        outer.step(s, X, (a, Vector(a.0 + 1)))
    }

    /// What an agent does between two exchanges of pairs: its local steps, of which it has made `before` earlier.
    pub(super) fn work(&self, s: &mut Step, before: u64, steps: u64) -> Result<(), AgentsError> {
        self.begin_round(s)?;
        for number in before + 1..=before + steps {
            s.draw = number;
            self.local_step(s, number)?;
        }
        self.end_round(s)
    }

    /// An exchange of pairs: `d_i = (v_j - v_i)/2 ; c = c + xi d ; x = v + gamma d` at both ends of each.
    pub(super) fn exchange_in_pairs(
        &self,
        s: &mut Step,
        pairs: &[[usize; 2]],
        gamma: f64,
        xi: f64,
    ) -> Result<(), AgentsError> {
        let (c, d) = (self.vectors().state(1), self.vectors().scratch(0));
        s.pull_in_pairs(X, d, pairs)?;
        for agent in pairs.iter().flatten() {
            s.of_agent(*agent, |s| {
                self.correction.add(s, c, xi, d)?;
                s.combine(X, 1.0, &[(gamma, d)])
            })?;
        }
        Ok(())
    }

    /// The exchange above with d = m - v: `d = W v - v ; c = c + xi d ; x = v + gamma d`. In an adaptive exchange c has a separate
    /// sum e.
    pub(super) fn exchange(&self, s: &mut Step, gamma: f64, xi: f64) -> Result<(), AgentsError> {
        let (v, vectors) = (X, self.vectors());
        self.end_round(s)?;
        let place = Place { free: vectors.scratch(0), state: vectors.state(3), scratch: vectors.scratch(3) };
        let (d, e) = self.exchange.pull(s, v, place)?;
        self.correction.add(s, vectors.state(1), xi, e)?;
        s.combine(X, 1.0, &[(gamma, d)])?;
        self.local.share(s, vectors.state(2), vectors.scratch(0))
    }

    /// An error if the parts cannot be used on this network.
    pub(super) fn check(&self, method: &str, network: &Network) -> Result<(), InvalidParameter> {
        self.exchange.check(method, network)?;
        self.local.check(method, network)
    }
}
