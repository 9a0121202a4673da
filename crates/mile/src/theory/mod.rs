//! Theory as a tool: from the graph to admissible weights, step sizes, rates and certificates.
//!
//! | module | answers |
//! |---|---|
//! | [`weights`] | which xi and gamma are admissible, and which mix fastest as the step size goes to zero |
//! | [`auto`] | which xi and gamma to take: `xi = "auto"`, `gamma = "auto"` |
//! | [`modes`] | a method's exact one-period matrix, extracted from its own code |
//! | [`stability`] | the largest stable step size, contraction per round, stability maps |
//! | [`mixed`] | the largest step size when agents differ in curvature |
//! | [`drops`] | what edges that drop do to stability |
//! | [`advice`] | what to say to a user before step 0 |
//! | [`lemma1`] | the paper's closed form, per mode, corrected |
//! | [`smoothness`] | L and the gradient noise of a problem that is only known by its gradients |
//! | [`constants`] | A_1 to A_5, B_1 to B_4, C_1, C_2, rho and the two step-size bounds |
//! | [`theorems`] | both sides of Theorems 1 to 4 on an actual run |
//! | [`demonstration`] | the runs of `mile reproduce theorems` |
//! | [`report`] | all of it on one page |

pub mod advice;
pub mod auto;
pub mod constants;
pub mod demonstration;
pub mod drops;
pub mod lemma1;
pub mod mixed;
pub mod modes;
pub mod report;
pub mod smoothness;
pub mod stability;
mod text;
pub mod theorems;
pub mod weights;

use crate::agents::AgentsError;
use crate::method::InvalidParameter;
use crate::simulator::SimulatorError;

/// A question the theory cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TheoryError {
    /// A number out of its range.
    #[error("{parameter} = {got} is not admissible: it takes {takes}")]
    Parameter {
        /// Its name in experiment files.
        parameter: &'static str,
        /// What it was.
        got: f64,
        /// What it may be.
        takes: &'static str,
    },
    /// A method that cannot be built with these parameters on this network.
    #[error(transparent)]
    Method(#[from] InvalidParameter),
    /// A method whose agents do not talk.
    #[error("the method did not exchange anything in {steps} steps, so it has no period to analyse")]
    NeverExchanges {
        /// Steps waited for.
        steps: u64,
    },
    /// A theorem asked for parameters it does not cover.
    #[error(
        "xi = {xi} is outside the theorems: some rho_i = {rho} has no complex pair of modes at tau = {tau}; take xi below {xi_max}"
    )]
    OutsideTheorems {
        /// The weight.
        xi: f64,
        /// Local steps.
        tau: u64,
        /// The offending eigenvalue of W~.
        rho: f64,
        /// What is covered on this graph.
        xi_max: f64,
    },
    /// A problem and a network that do not go together.
    #[error(transparent)]
    Simulator(#[from] SimulatorError),
    /// The agents failed.
    #[error(transparent)]
    Agents(#[from] AgentsError),
}

pub(crate) fn require(
    parameter: &'static str,
    got: f64,
    admissible: bool,
    takes: &'static str,
) -> Result<f64, TheoryError> {
    if admissible && got.is_finite() {
        Ok(got)
    } else {
        Err(TheoryError::Parameter { parameter, got, takes })
    }
}

/// Refuses tau = 0.
pub fn valid_local_steps(local_steps: u64) -> Result<u64, TheoryError> {
    require("local_steps", local_steps as f64, local_steps >= 1, "a whole number from 1")?;
    Ok(local_steps)
}

/// Refuses xi outside (0, 1].
pub fn valid_xi(xi: f64) -> Result<f64, TheoryError> {
    require("xi", xi, xi > 0.0 && xi <= 1.0, "a number in (0, 1]")
}

/// Refuses a smoothness constant that is not positive and finite.
pub fn valid_smoothness(smoothness: f64) -> Result<f64, TheoryError> {
    require("smoothness", smoothness, smoothness > 0.0, "a positive finite number")
}

/// Refuses a step size that is not positive and finite.
pub fn valid_step_size(step_size: f64) -> Result<f64, TheoryError> {
    require("step_size", step_size, step_size > 0.0, "a positive finite number")
}
