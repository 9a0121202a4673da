//! Stability and convergence analysis: admissible weights, stable step sizes, convergence rates and the paper's bounds.
//!
//! ```
//! use mile::{Mile, Network, Rule, Topology};
//! use mile_theory::{modes::Modes, stability::step_limit};
//!
//! let network = Network::new(Topology::Ring.build(10, 0)?, Rule::Metropolis)?;
//! let method = Mile::new(5, Mile::paper_xi(5))?;
//! let limit = step_limit(&Modes::of(&method)?, network.spectrum())?;
//! let largest = limit.step_size(10.0); // for a smoothness constant of 10
//! assert!(largest > 0.0 && largest <= 0.2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | computes |
//! |---|---|
//! | [`weights`] | which xi and gamma are admissible, and which mix fastest as the step size goes to zero |
//! | [`auto`] | the xi and gamma chosen by `xi = "auto"`, `gamma = "auto"` |
//! | [`momentum`] | which xi and gamma are admissible with momentum, and the weights of `"auto"` with it |
//! | [`modes`] | a method's exact matrix of one period, extracted by running its own code |
//! | [`stability`] | the largest stable step size, the convergence rate of the consensus error, stability maps |
//! | [`mixed`] | the largest stable step size when the agents' Hessians differ |
//! | [`pairs`] | which xi is stable where agents exchange in pairs |
//! | [`drops`] | stability when edges drop at random (link failures) |
//! | [`advice`] | warnings about the parameters of a run, before it starts |
//! | [`lemma1`] | the closed form of the paper's Lemma 1, per mode, corrected |
//! | [`smoothness`] | estimates of the smoothness constant L, gradient noise and heterogeneity, from gradients |
//! | [`sample`] | what an estimate was made from, in words |
//! | [`constants`] | the paper's constants rho, A_1, A_3, A_4, B_2 and the step-size bounds of its theorems |
//! | [`theorems`] | both sides of Theorems 1 to 4 on an actual run |
//! | [`demonstration`] | the runs of `mile reproduce theorems` |
//! | [`report`] | the report of `mile theory` |

pub mod advice;
pub mod auto;
pub mod constants;
pub mod demonstration;
pub mod drops;
pub mod lemma1;
pub mod mixed;
pub mod modes;
pub mod momentum;
pub mod outer;
pub mod pairs;
pub mod report;
pub mod sample;
pub mod smoothness;
pub mod stability;
mod text;
pub mod theorems;
pub mod weights;

use mile::agents::AgentsError;
use mile::engine::HostError;
use mile::method::InvalidParameter;

/// Why an analysis failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TheoryError {
    /// A number is out of range.
    #[error("{parameter}: expected {expected}, got {got}")]
    Parameter {
        /// Name of the parameter in experiment files.
        parameter: &'static str,
        /// The value given.
        got: f64,
        /// The values allowed.
        expected: &'static str,
    },
    /// The method cannot be built with these parameters on this network.
    #[error(transparent)]
    Method(#[from] InvalidParameter),
    /// The method never communicates.
    #[error(
        "the agents did not communicate in {steps} steps, so there is no period to analyse; use a method that exchanges vectors"
    )]
    NeverExchanges {
        /// Steps that were run.
        steps: u64,
    },
    /// The parameters are outside the range of the theorems.
    #[error(
        "xi = {xi} is outside the range of the theorems: rho_i = {rho} has no complex pair of modes at tau = {tau}; use xi below {xi_max}"
    )]
    OutsideTheorems {
        /// The weight.
        xi: f64,
        /// Local steps.
        tau: u64,
        /// The eigenvalue of W~ that violates the condition.
        rho: f64,
        /// The theorems cover smaller xi on this graph.
        xi_max: f64,
    },
    /// The sizes of problem, network and starting point differ, or do not fit into memory.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A step failed.
    #[error(transparent)]
    Agents(#[from] AgentsError),
}

pub(crate) fn require(
    parameter: &'static str,
    got: f64,
    admissible: bool,
    expected: &'static str,
) -> Result<f64, TheoryError> {
    if admissible && got.is_finite() {
        Ok(got)
    } else {
        Err(TheoryError::Parameter { parameter, got, expected })
    }
}

/// An error unless tau is at least 1.
pub fn valid_local_steps(local_steps: u64) -> Result<u64, TheoryError> {
    require("local_steps", local_steps as f64, local_steps >= 1, "a whole number of at least 1")?;
    Ok(local_steps)
}

/// An error unless xi is in (0, 1].
pub fn valid_xi(xi: f64) -> Result<f64, TheoryError> {
    require("xi", xi, xi > 0.0 && xi <= 1.0, "a number in (0, 1]")
}

/// An error unless the smoothness constant is positive and finite.
pub fn valid_smoothness(smoothness: f64) -> Result<f64, TheoryError> {
    require("smoothness", smoothness, smoothness > 0.0, "a positive finite number")
}

/// An error unless the step size is positive and finite.
pub fn valid_step_size(step_size: f64) -> Result<f64, TheoryError> {
    require("step_size", step_size, step_size > 0.0, "a positive finite number")
}
