//! SCAFFOLD, option II (Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
//! Learning", 2020), without a server: on a complete graph one exchange with W = 11'/N gives every
//! agent the average that the server would compute.
//!
//! ```text
//! y = x ;  repeat K times:  y = y - alpha (grad f(y) - c_i + c)
//! c_i+ = c_i - c + (x - y)/(K alpha)
//! send y and c_i+ - c_i
//! x = x + eta_s (mean y - x) ;  c = c + mean(c_i+ - c_i) ;  c_i = c_i+
//! ```
//!
//! Where agents differ in their local steps (ours), K is the agent's own number.
//!
//! Sent: two vectors in one exchange. Stored: x, y, c_i, c.

use super::parts::{Outer, Pace};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Layout, Method, Unit};
use crate::network::Network;

const X: Vector = Vector(0);
const Y: Vector = Vector(1);
const CI: Vector = Vector(2);
const C: Vector = Vector(3);
const G: Vector = Vector(4);
const M: Vector = Vector(5);
const N: Vector = Vector(6);

/// SCAFFOLD without a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaffold {
    pace: Pace,
    outer: Outer,
}

impl Scaffold {
    /// `eta_s` is the global (server) step size; 1 is usual.
    pub fn new(local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        let pace = Pace::new(Checker("scaffold"), local_steps)?;
        Ok(Self { pace, outer: Outer::new("scaffold", eta_s)? })
    }

    /// With a separate number of local steps for each agent, if given: each at least 1, and the largest `local_steps`.
    pub fn with_own_steps(self, own: Option<&[u64]>) -> Result<Self, InvalidParameter> {
        let pace = self.pace.with_own(Checker("scaffold"), own)?;
        Ok(Self { pace, ..self })
    }
}

impl Method for Scaffold {
    fn layout(&self) -> Layout {
        let state = [("x", Unit::Fixed), ("y", Unit::Fixed), ("c_i", Unit::Fixed), ("c", Unit::Fixed)];
        Layout::new(state, ["g", "mean_y", "mean_change"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let alpha = s.step_size;
        if self.pace.begins(s.t) {
            s.combine(Y, 0.0, &[(1.0, X)])?;
        }
        self.pace.each(s, |s, _, _| {
            s.gradient(Y, G)?;
            s.combine(Y, 1.0, &[(-alpha, G), (alpha, CI), (-alpha, C)])
        })?;
        if self.pace.exchanges(s.t) {
            let (change, mean_y, mean_change) = (G, M, N);
            self.pace.each(s, |s, _, k| {
                let k = k as f64;
                s.combine(change, 0.0, &[(-1.0, C), (1.0 / (k * alpha), X), (-1.0 / (k * alpha), Y)])
            })?;
            s.mix(&[(Y, mean_y), (change, mean_change)])?;
            s.combine(CI, 1.0, &[(1.0, change)])?;
            s.combine(C, 1.0, &[(1.0, mean_change)])?;
            self.outer.toward(s, X, mean_y)?;
        }
        Ok(())
    }

    fn own_steps(&self) -> Option<&[u64]> {
        self.pace.own()
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        Checker("scaffold").averages(network)
    }
}
