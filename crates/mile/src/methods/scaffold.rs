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
//! Sent: two vectors in one exchange. Stored: x, y, c_i, c.

use super::parts::Outer;
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
    local_steps: u64,
    outer: Outer,
}

impl Scaffold {
    /// `eta_s` is the global (server) step size; 1 is usual.
    pub fn new(local_steps: u64, eta_s: f64) -> Result<Self, InvalidParameter> {
        let local_steps = Checker("scaffold").at_least_one("local_steps", local_steps)?;
        Ok(Self { local_steps, outer: Outer::new("scaffold", eta_s)? })
    }
}

impl Method for Scaffold {
    fn layout(&self) -> Layout {
        let state = [("x", Unit::Fixed), ("y", Unit::Fixed), ("c_i", Unit::Fixed), ("c", Unit::Fixed)];
        Layout::new(state, ["g", "mean_y", "mean_change"])
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        let (alpha, k) = (s.step_size, self.local_steps as f64);
        if s.t.is_multiple_of(self.local_steps) {
            s.combine(Y, 0.0, &[(1.0, X)])?;
        }
        s.gradient(Y, G)?;
        s.combine(Y, 1.0, &[(-alpha, G), (alpha, CI), (-alpha, C)])?;
        if (s.t + 1).is_multiple_of(self.local_steps) {
            let (change, mean_y, mean_change) = (G, M, N);
            s.combine(change, 0.0, &[(-1.0, C), (1.0 / (k * alpha), X), (-1.0 / (k * alpha), Y)])?;
            s.mix(&[(Y, mean_y), (change, mean_change)])?;
            s.combine(CI, 1.0, &[(1.0, change)])?;
            s.combine(C, 1.0, &[(1.0, mean_change)])?;
            self.outer.toward(s, X, mean_y)?;
        }
        Ok(())
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        Checker("scaffold").averages(network)
    }
}
