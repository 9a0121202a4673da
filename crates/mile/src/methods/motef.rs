//! MoTEF: momentum tracking with error feedback (Islamov, Gao, Stich, "Towards Faster Decentralized Stochastic Optimization with Communication
//! Compression", 2024):
//!
//! ```text
//! X = X + gamma (W H - H) - alpha V ;   H = H + C(X - H)
//! M = mu M + (1 - mu) grad f(X) ;       V = V + gamma (W G - G) + M - M_old ;   G = G + C(V - G)
//! ```
//!
//! C compresses, H and G are public copies of X and V, and mu is the paper's 1 - lambda. V tracks the momentum M, with the mean of
//! M in every step, whatever C leaves out. At a fixed point V = G = 0 and X = H: exact.
//!
//! It starts from V = M = grad f(x(0)). Copies are exchanged at the beginning of a step here, at the end of the one before in the paper, and
//! as everywhere with [compression](crate::compression) the first message is whole (`parts/public_copy.rs`). Without compression H = X and G = V, and
//!
//! ```text
//! X = X + gamma (W X - X) - alpha V ;   V = V + gamma (W V - V) + M - M_old
//! ```
//!
//! With mu = 0 and gamma = 1 that is DIGing.
//!
//! Sent: X and V, two vectors in one exchange; compressed C(X - H) and C(V - G), in two exchanges, since an engine compresses one vector at a
//! time. Stored: x, v, m; compressed also h, g, W H - H and W G - G.

use super::Momentum;
use super::parts::{PublicCopy, check_compression};
use crate::agents::{AgentsError, Step, Vector};
use crate::compression::Compression;
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;

const X: Vector = Vector(0);
const V: Vector = Vector(1);
const M: Vector = Vector(2);
/// The first vector after those that every form has.
const NEXT: usize = 3;
const COPIES: [&str; 4] = ["h", "wh", "g", "wg"];

/// Momentum tracking, with error feedback if messages are compressed.
#[derive(Clone, Debug, PartialEq)]
pub struct Motef {
    mu: f64,
    /// The weight of the mixing.
    gamma: f64,
    by: Option<Compression>,
}

impl Motef {
    /// With this momentum, the weight `gamma` of the mixing, and compressed messages if asked.
    pub fn new(
        momentum: Option<Momentum>,
        gamma: f64,
        by: Option<Compression>,
    ) -> Result<Self, InvalidParameter> {
        let is_weight = gamma > 0.0 && gamma <= 1.0;
        let gamma = Checker("motef").number("gamma", gamma, is_weight, "a number in (0, 1]")?;
        Ok(Self { mu: momentum.map_or(0.0, |momentum| momentum.mu), gamma, by })
    }

    fn copies(&self) -> &'static [&'static str] {
        if self.by.is_some() { &COPIES } else { &[] }
    }

    /// `W H - H` and `W G - G`, after an exchange.
    fn exchange(&self, s: &mut Step, [p, q]: [Vector; 2]) -> Result<[Vector; 2], AgentsError> {
        let Some(by) = self.by else {
            s.pull(&[(X, p), (V, q)])?;
            return Ok([p, q]);
        };
        let copy = |y: usize| PublicCopy { y: Vector(y), s: Vector(y + 1), q: p, d: q };
        Ok([copy(NEXT).exchange(s, X, by)?, copy(NEXT + 2).exchange(s, V, by)?])
    }
}

impl Method for Motef {
    fn layout(&self) -> Layout {
        let state = ["x", "v", "m"].iter().chain(self.copies());
        Layout::new(state.map(|name| (*name, Unit::Fixed)), ["grad", "p", "q"])
    }

    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.gradient(X, M)?;
        s.combine(V, 0.0, &[(1.0, M)])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let grad = Vector(NEXT + self.copies().len());
        let [of_x, of_v] = self.exchange(s, [Vector(grad.0 + 1), Vector(grad.0 + 2)])?;
        s.combine(X, 1.0, &[(self.gamma, of_x), (-s.step_size, V)])?;
        s.gradient(X, grad)?;
        s.combine(V, 1.0, &[(self.gamma, of_v), (-1.0, M)])?;
        s.combine(M, self.mu, &[(1.0 - self.mu, grad)])?;
        s.combine(V, 1.0, &[(1.0, M)])
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.by.map_or(Ok(()), |by| check_compression("motef", by, network))
    }
}
