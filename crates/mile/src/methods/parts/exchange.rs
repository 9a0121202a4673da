//! The exchange: what crosses an edge, and with what weight.
//!
//! ```text
//! whole:       send v ;                d = e = W v - v
//! adaptive:    send v and a summary ;  d_i = sum_j w_ij (v_j - v_i) ;  e_i = sum_j w_ij rho_ij (v_j - v_i)
//! compressed:  send C(v - y) ;         d = e = W y - y
//! robust:      send v ;                d = e: what a rule leaves of the differences
//! ```
//!
//! d moves the model and e the correction. rho_ij, the same at both ends, measures how [steady](crate::steady) the difference along an
//! edge is. y is a public copy of v (`public_copy.rs`). A [robust](crate::robust) rule limits what malicious neighbours can do. Only
//! one that treats both ends of an edge alike leaves the sum of corrections at zero.

use super::Needs;
use super::public_copy::PublicCopy;
use crate::agents::{AgentsError, RobustPull, SteadyPull, Step, Vector};
use crate::compression::Compression;
use crate::method::{Checker, InvalidParameter, Unit};
use crate::network::Network;
use crate::robust::Robust;

/// The share of an exchange in the running mean of cosines, once there are enough of them.
const FRESH: f64 = 0.1;

/// An exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::methods) enum Exchange {
    /// Of v.
    #[default]
    Whole,
    /// Of v and a summary, which weighs differences by how steady they are.
    Adaptive {
        /// Steps between two exchanges.
        every: u64,
    },
    /// Of compressed differences of v from a public copy.
    Compressed(Compression),
    /// Of v, by a rule that limits what malicious neighbours can do.
    Robust(Robust),
}

/// Which vectors an exchange uses.
#[derive(Clone, Copy, Debug)]
pub(in crate::methods) struct Place {
    /// A free scratch vector of the method.
    pub(in crate::methods) free: Vector,
    /// The first of its state vectors.
    pub(in crate::methods) state: Vector,
    /// The first of its scratch vectors.
    pub(in crate::methods) scratch: Vector,
}

impl Exchange {
    /// The last v, p, or the public copy y and s = W y - y.
    pub(in crate::methods) fn needs(self) -> Needs {
        match self {
            Self::Whole | Self::Robust(_) => Needs::NOTHING,
            Self::Adaptive { .. } => Needs { state: &[("p", Unit::Fixed)], scratch: &["e"] },
            Self::Compressed(_) => {
                Needs { state: &[("y", Unit::Fixed), ("s", Unit::Fixed)], scratch: &["d"] }
            }
        }
    }

    /// Exchanges v, and returns where d and e are.
    pub(in crate::methods) fn pull(
        self,
        s: &mut Step,
        v: Vector,
        Place { free, state, scratch }: Place,
    ) -> Result<(Vector, Vector), AgentsError> {
        match self {
            Self::Whole => {
                s.pull(&[(v, free)])?;
                Ok((free, free))
            }
            Self::Adaptive { every } => {
                let earlier = s.t / every;
                let fresh = if earlier == 0 { 0.0 } else { FRESH.max(1.0 / earlier as f64) };
                s.pull_steady(&SteadyPull { from: v, memory: state, to: free, steady: scratch, fresh })?;
                Ok((free, scratch))
            }
            Self::Compressed(by) => {
                let copy = PublicCopy { y: state, s: Vector(state.0 + 1), q: free, d: scratch };
                let s = copy.exchange(s, v, by)?;
                Ok((s, s))
            }
            Self::Robust(by) => {
                s.pull_robust(&RobustPull { from: v, to: free, by })?;
                Ok((free, free))
            }
        }
    }

    /// With compressed messages instead of whole ones.
    pub(in crate::methods) fn compressed(
        self,
        method: &str,
        by: Compression,
    ) -> Result<Self, InvalidParameter> {
        if let Self::Adaptive { .. } = self {
            let expected = "no compression with an adaptive xi; neighbours do not know each other's v, whose differences are weighed";
            return Err(Checker(method).refuse("compression", by, expected));
        }
        Ok(Self::Compressed(by))
    }

    /// Protected against malicious neighbours. `corrects` says whether what it finds is added to corrections.
    pub(in crate::methods) fn robust(
        self,
        method: &str,
        by: Robust,
        corrects: bool,
    ) -> Result<Self, InvalidParameter> {
        let check = Checker(method);
        let conflict = match self {
            Self::Whole => None,
            Self::Adaptive { .. } => Some(
                "none with an adaptive xi, whose summaries a malicious neighbour can choose; use another xi",
            ),
            Self::Compressed(_) => Some(
                "none with compression; agents add up what is sent, and so do not know the models that they would compare",
            ),
            Self::Robust(_) => None,
        };
        if let Some(expected) = conflict {
            return Err(check.refuse("exchange", by, expected));
        }
        match by {
            Robust::Threshold(most) if most.is_nan() || most <= 0.0 => {
                Err(check.refuse("exchange.threshold", most, "a positive number"))
            }
            Robust::Clip { .. } | Robust::TrimmedMean { .. } if corrects => {
                let expected = "{ robust = \"clip\", threshold } with this method; agents that find their own thresholds treat the two ends of an edge differently, so corrections would not sum to zero, and the run would end at a wrong point even without an attack. local-dsgd supports this rule";
                Err(check.refuse("exchange", by, expected))
            }
            by => Ok(Self::Robust(by)),
        }
    }

    /// An error if it cannot be used on this network.
    pub(in crate::methods) fn check(self, method: &str, network: &Network) -> Result<(), InvalidParameter> {
        match self {
            Self::Compressed(by) => check_compression(method, by, network),
            Self::Robust(by) => check_robust(method, by, network),
            Self::Whole | Self::Adaptive { .. } => Ok(()),
        }
    }
}

/// Refuses networks on which an agent would hear nobody: it leaves out, or shortens, as many neighbours as twice the malicious ones.
pub(in crate::methods) fn check_robust(
    method: &str,
    by: Robust,
    network: &Network,
) -> Result<(), InvalidParameter> {
    let (check, key) = (Checker(method), "exchange.byzantine");
    let Some(byzantine) = by.byzantine().filter(|byzantine| *byzantine > 0 && network.agents() > 1) else {
        return Ok(());
    };
    if network.time_varying().is_some() {
        let expected = "0 with time_varying; an agent compares all of its neighbours in every round";
        return Err(check.refuse(key, byzantine, expected));
    }
    let degree = |agent: &usize| network.graph().neighbours(*agent).len();
    match (0..network.agents()).min_by_key(degree) {
        Some(agent) if degree(&agent) <= byzantine.saturating_mul(2) => {
            let expected = format!(
                "fewer than half of the neighbours of every agent, and agent {agent} has {}; use a denser graph",
                degree(&agent)
            );
            Err(check.refuse(key, byzantine, expected))
        }
        _ => Ok(()),
    }
}

/// Refuses invalid shares, and networks on which s would not be W y - y.
pub(in crate::methods) fn check_compression(
    method: &str,
    by: Compression,
    network: &Network,
) -> Result<(), InvalidParameter> {
    let (check, key) = (Checker(method), "compression");
    match by {
        Compression::TopK(share) if !(share > 0.0 && share < 1.0) => {
            Err(check.refuse(key, format!("top_k = {share}"), "a share of the elements in (0, 1)"))
        }
        by if network.varies() => {
            let expected = "a network whose edges are always up; agents add up what a neighbour has sent, and a skipped message would be missing for good";
            Err(check.refuse(key, by, expected))
        }
        _ => Ok(()),
    }
}
