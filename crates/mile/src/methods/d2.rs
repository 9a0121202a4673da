//! D2 (Tang, Lian, Yan, Zhang, Liu, "D2: Decentralized Training over Decentralized Data", 2018):
//!
//! ```text
//! x(1) = W (x(0) - alpha grad f(x(0)))
//! x(k+1) = W (2x(k) - x(k-1) - alpha grad f(x(k)) + alpha grad f(x(k-1)))
//! ```
//!
//! in the correction form of `primal_dual.rs`. It needs l_N > -1/3. Sent: v, one vector. Stored: x, c.

use super::primal_dual::PLAIN;
use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter, Layout, Method};
use crate::network::Network;

/// D2, mixing with W itself.
#[derive(Clone, Debug, PartialEq)]
pub struct D2;

impl Method for D2 {
    fn layout(&self) -> Layout {
        PLAIN.layout()
    }

    fn step(&self, s: &mut Step) -> Result<(), AgentsError> {
        PLAIN.local_step(s, s.t + 1)?;
        PLAIN.exchange(s, 1.0, 1.0)
    }

    fn check(&self, network: &Network) -> Result<(), InvalidParameter> {
        let lambda_n = network.extremes().lambda_n;
        if lambda_n > -1.0 / 3.0 + 1e-12 {
            return Ok(());
        }
        let got = format!("one with {}", crate::digits::number(lambda_n));
        let expected = "a mixing matrix with smallest eigenvalue above -1/3; use mixing = \"lazy-metropolis\", or the method ed";
        Err(Checker("d2").refuse("mixing", got, expected))
    }
}
