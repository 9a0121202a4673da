//! One agent of an experiment, as a process on a network: what `mile agent` runs.
//!
//! The experiment comes from `mile-lab`, the protocol and the connections from `mile-net`; here they meet.

mod jobs;
mod recording;
pub mod socket;

use mile_lab::config::AgentConfig;
use mile_lab::plan::Plan;
use mile_net::checkpoint::Folder;

/// Runs all jobs of the agent, from its checkpoint if there is one, and waits until the neighbours have confirmed the last messages.
pub fn run(plan: &Plan, config: &AgentConfig, folder: Folder) -> anyhow::Result<()> {
    mile::with_precision!(plan.experiment.precision, T => jobs::run_jobs::<T>(plan, config, folder))
}
