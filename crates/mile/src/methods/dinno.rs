//! DiNNO (Yu, Vincent, Schwager, "DiNNO: Distributed Neural Network Optimization for Multi-Robot Collaborative Learning",
//! 2022): ADMM in which an agent's minimisation is replaced by tau steps of an optimiser.
//!
//! ```text
//! send x ;  p_i = p_i + rho sum_j w_ij (x_i - x_j)
//! phi = x_i ;  tau steps on  f_i(phi) + p_i' phi + rho sum_j w_ij |phi - (x_i + x_j)/2|^2 ;  x_i = phi
//! ```
//!
//! from p = 0, in the paper with all weights w_ij = 1: equal weights such as those of `max-degree` are the paper's, with
//! another rho. With d = W x - x and a degree w, the same for all agents, the gradient of the last two terms is
//!
//! ```text
//! h = grad f(phi) + p + 2 rho w (phi - y) ,    y = x + d/(2w)
//! p = p - rho d
//! ```
//!
//! w is the largest sum of an agent's weights. An agent with less is its own neighbour with the rest: the term `rho (w - sum_j w_ij) |phi -
//! x_i|^2` pulls it to its last model. On a regular graph with equal weights there is no such agent. The same becomes of the weight of
//! an edge that is down.
//!
//! A fixed point has d = 0, y = x and p_i = -grad f_i, and the p_i sum to zero: exact. This holds for every optimiser that does not move
//! when h = 0. The authors use SGD, Adam or AdamW; here it is the plain step unless another optimiser is asked for (`parts/local.rs`). Momentum is not among the choices:
//! one of 0.9 that outlives a round was unstable with every rho that we tried at one and five local steps.
//!
//! The parameter rho is in units of 1/alpha, so that it does not depend on the scale of f; in the paper it is a number. For small step
//! sizes the method is stable on every fixed graph for rho up to 1/(2w). With AdamW, AMSGrad or Muon, whose steps do not scale with h, rho is the paper's number.
//! The default, min(1/2, 1/tau)/w, lets about half of the progress of
//! several local steps stand. The proof in the paper is for convex f_i.
//!
//! The exchange comes after the local steps here, before them in the paper. So the first round has y = x and p = 0, as if all agents
//! started at the same point. With plain steps this is LT-ADMM with the penalty at phi (`lt_admm.rs`).
//!
//! Sent: x, one vector. Stored: x, p, y; with AdamW or Muon also m and v.

use super::LocalSteps;
use super::parts::{Correction, Local, Needs, Pace, Vectors};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;
use crate::optimiser::Muon;

const X: Vector = Vector(0);
const P: Vector = Vector(1);
const Y: Vector = Vector(2);

/// ADMM whose minimisations are steps of a local optimiser.
#[derive(Clone, Debug, PartialEq)]
pub struct Dinno {
    pace: Pace,
    /// In units of 1/alpha, or a number where the optimiser divides by the size of gradients.
    rho: f64,
    /// The largest sum of an agent's weights.
    degree: f64,
    local: Local,
}

impl Dinno {
    /// `rho`, in units of 1/alpha, is min(1/2, 1/tau)/w unless given, with the largest sum w of an agent's weights.
    pub fn new(local_steps: u64, rho: Option<f64>, network: &Network) -> Result<Self, InvalidParameter> {
        let check = Checker("dinno");
        let pace = Pace::new(check, local_steps)?;
        let degree = network.mixing().degree();
        let rho = rho.unwrap_or(f64::min(0.5, 1.0 / local_steps as f64) / degree);
        let rho = check.number("rho", rho, rho > 0.0, "a positive number")?;
        Ok(Self { pace, rho, degree, local: Local::PLAIN })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("dinno"), own)?;
        Ok(Self { pace, ..self })
    }

    /// With these local steps; the optimiser gets the gradient h of all terms, and only that of f is clipped.
    pub fn with_local(self, local: &LocalSteps) -> Result<Self, InvalidParameter> {
        Ok(Self { local: Local::of("dinno", None, local)?, ..self })
    }

    fn vectors(&self) -> Vectors<2> {
        let state = &[("x", Unit::Fixed), ("p", Unit::Fixed), ("y", Unit::Fixed)];
        Vectors([Needs { state, scratch: &["g"] }, self.local.needs(Correction::None.unit())])
    }
}

impl Method for Dinno {
    fn layout(&self) -> Layout {
        self.vectors().layout()
    }

    /// From y = x.
    fn start(&self, s: &mut Step) -> Result<(), AgentsError> {
        s.combine(Y, 0.0, &[(1.0, X)])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (alpha, vectors) = (s.step_size, self.vectors());
        let (g, m) = (vectors.scratch(0), vectors.state(1));
        let rho = if self.local.by.is_preconditioned() { self.rho } else { self.rho / alpha };
        let (h, d) = (g, g);
        let pull_back = 2.0 * rho * self.degree;
        self.pace.each(s, |s, t, _| {
            self.local.gradient(s, X, g)?;
            s.combine(h, 1.0, &[(1.0, P), (pull_back, X), (-pull_back, Y)])?;
            self.local.step(s, X, m, &Correction::None.direction(self.local.at, alpha, h, P), t + 1)
        })?;
        if self.pace.exchanges(s.t) {
            s.pull(&[(X, d)])?;
            s.combine(P, 1.0, &[(-rho, d)])?;
            s.combine(Y, 0.0, &[(1.0, X), (0.5 / self.degree, d)])?;
            self.local.share(s, m, d)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        self.local.check("dinno", network)
    }

    fn muon(&self) -> Option<&Muon> {
        self.local.muon()
    }
}
