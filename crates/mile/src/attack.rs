//! Malicious agents, for experiments.
//!
//! They know what every honest agent sends and act together. With mean and sd over the honest agents, element by element, and a strength s they
//! send to all of their neighbours
//!
//! ```text
//! sign-flip:  -s mean
//! alie:       mean - s sd                       ("a little is enough": within what honest agents differ by)
//! noise:      mean + s z                        z standard normal, in every round and for each attacker its own
//! slow:       mean + s in up to three elements  which each attacker chooses once: corrections integrate it
//! ```
//!
//! and, to agent i alone,
//!
//! ```text
//! dissensus:  v_i - s sum_k w_ik (v_k - v_i) / sum_b w_ib      over its honest neighbours k and its malicious ones b
//! ```
//!
//! which drives agents apart; with s = 1 it undoes what honest neighbours would do. Everything is a function of seed, round and agent.
//!
//! The first two and noise are as in Karimireddy, He, Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", 2022, and Baruch, Baruch, Goldberg,
//! "A Little Is Enough", 2019, on models in place of gradients; dissensus is that of He, Karimireddy, Jaggi, "Byzantine-Robust Decentralized
//! Learning via ClippedGossip", 2022.

mod attacked;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use rand::RngExt;
use rand_distr::StandardNormal;

pub use self::attacked::Attacked;
use crate::random::{Purpose, stream};
use crate::real::Real;

/// Elements that a slow attacker poisons.
const POISONED: usize = 3;

/// What malicious agents send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttackKind {
    /// The opposite of the honest mean.
    SignFlip,
    /// A mean that is wrong by as much as honest agents differ.
    Alie,
    /// What drives each receiver away from its neighbours.
    Dissensus,
    /// A mean that is always wrong by the same small amount.
    Slow,
    /// A mean with noise.
    Noise,
}

impl AttackKind {
    /// All of them, with their names in experiment files.
    pub const ALL: [(&'static str, Self); 5] = [
        ("sign-flip", Self::SignFlip),
        ("alie", Self::Alie),
        ("dissensus", Self::Dissensus),
        ("slow", Self::Slow),
        ("noise", Self::Noise),
    ];

    /// Its name in experiment files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The strength s if none is given.
    pub fn usual_strength(self) -> f64 {
        match self {
            Self::Dissensus => 1.5,
            Self::Slow => 0.3,
            Self::SignFlip | Self::Alie | Self::Noise => 1.0,
        }
    }
}

/// Malicious agents, and what they do.
#[derive(Clone, Debug, PartialEq)]
pub struct Attack {
    /// Who they are, in increasing order.
    pub agents: Vec<usize>,
    /// What they send.
    pub kind: AttackKind,
    /// The strength s.
    pub strength: f64,
}

impl Attack {
    /// The other agents of a network of this many, in increasing order.
    pub fn honest(&self, agents: usize) -> Vec<usize> {
        (0..agents).filter(|agent| !self.agents.contains(agent)).collect()
    }
}

/// What the honest agents send in an exchange, as attackers see it.
struct Seen<'s, T> {
    attack: &'s Attack,
    seed: u64,
    round: u64,
    mean: Vec<f64>,
    deviation: Vec<f64>,
    /// Of the precision of messages.
    precision: std::marker::PhantomData<T>,
}

impl<'s, T: Real> Seen<'s, T> {
    /// From the honest agents' rows.
    fn of(attack: &'s Attack, (seed, round): (u64, u64), rows: &[T], dim: usize) -> Self {
        let honest = (rows.len() / dim.max(1)).max(1) as f64;
        let mean: Vec<f64> = (0..dim).map(|e| column(rows, dim, e).sum::<f64>() / honest).collect();
        let spread = |e: usize| column(rows, dim, e).map(|v| (v - mean[e]).powi(2)).sum::<f64>() / honest;
        let needs = attack.kind == AttackKind::Alie;
        let deviation = if needs { (0..dim).map(|e| spread(e).sqrt()).collect() } else { Vec::new() };
        Self { attack, seed, round, mean, deviation, precision: std::marker::PhantomData }
    }

    /// What an attacker sends to all of its neighbours; nothing if it sends each its own.
    fn to_all(&self, attacker: usize) -> Option<Vec<T>> {
        let strength = self.attack.strength;
        let index = attacker as u64;
        let mut message = self.mean.clone();
        match self.attack.kind {
            AttackKind::SignFlip => message.iter_mut().for_each(|m| *m *= -strength),
            AttackKind::Alie => {
                message.iter_mut().zip(&self.deviation).for_each(|(m, sd)| *m -= strength * sd);
            }
            AttackKind::Noise => {
                let mut random = stream(self.seed, Purpose::Attack, index, 1 + self.round);
                message.iter_mut().for_each(|m| *m += strength * random.sample::<f64, _>(StandardNormal));
            }
            AttackKind::Slow => {
                let mut random = stream(self.seed, Purpose::Attack, index, 0);
                let chosen =
                    rand::seq::index::sample(&mut random, message.len(), POISONED.min(message.len()));
                chosen.iter().for_each(|e| message[e] += strength);
            }
            AttackKind::Dissensus => return None,
        }
        Some(message.into_iter().map(T::of).collect())
    }

    /// What attackers send to an agent with this vector that has these honest neighbours, by weight, and malicious ones of this weight in
    /// all, if they send each agent its own.
    fn to_one(&self, own: &[T], honest: &[(f64, &[T])], malicious: f64) -> Vec<T> {
        let pulled =
            |e: usize, v: f64| honest.iter().map(|(w, other)| w * (other[e].wide() - v)).sum::<f64>();
        let away = |(e, v): (usize, &T)| v.wide() - self.attack.strength * pulled(e, v.wide()) / malicious;
        own.iter().enumerate().map(away).map(T::of).collect()
    }
}

/// One element of all rows.
fn column<T: Real>(rows: &[T], dim: usize, element: usize) -> impl Iterator<Item = f64> {
    rows.iter().skip(element).step_by(dim.max(1)).map(|v| v.wide())
}

/// What an agent hears: a neighbour's vector, or a lie.
type Heard<'v, T> = (f64, Cow<'v, [T]>);
