//! `mile agent`.

mod recording;
pub(crate) mod socket;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mile_lab::config::AgentConfig;
use mile_lab::plan::Plan;
use mile_lab::store::write_file;
use mile_net::checkpoint::Folder;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::INTERRUPTED;

/// How long an agent waits for its predecessor in the same folder to be gone.
const PREDECESSOR: Duration = Duration::from_secs(5);

/// Runs one agent of an experiment until all its rounds are done.
#[derive(Args)]
pub(crate) struct AgentArguments {
    /// The agent's file: an experiment with a section [agent]; mile swarm --emit writes such files
    #[arg(value_name = "AGENT.toml")]
    file: PathBuf,
    /// End when standard input does
    #[arg(long, hide = true)]
    leashed: bool,
}

pub(crate) fn run(arguments: &AgentArguments) -> anyhow::Result<u8> {
    speak();
    ctrlc::set_handler(|| {
        tracing::info!(
            "interrupted; the last checkpoint is whole, and the agent goes on from it when started again"
        );
        std::process::exit(INTERRUPTED.into());
    })
    .context("cannot listen for Ctrl-C")?;
    if arguments.leashed {
        std::thread::spawn(end_with_standard_input);
    }
    let name = arguments.file.display().to_string();
    let (experiment, config) = AgentConfig::load(&arguments.file)?;
    let folder = Folder::open(&config.folder, PREDECESSOR)?;
    write_file(&config.folder.join("pid"), format!("{}\n", std::process::id()).as_bytes())?;
    let plan = Plan::for_agent(experiment, config.id).map_err(|error| error.in_file(&name))?;
    mile::with_precision!(plan.experiment.precision, T => work::work::<T>(&plan, &config, folder))?;
    Ok(0)
}

/// Plain lines on standard error: ours, and no chatter of the transport.
fn speak() {
    let ours = Targets::new()
        .with_default(LevelFilter::OFF)
        .with_target("mile", LevelFilter::INFO)
        .with_target("mile_net", LevelFilter::INFO);
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    tracing_subscriber::registry().with(lines).with(ours).init();
}

/// Whoever holds the other end of standard input is gone: so is this agent.
fn end_with_standard_input() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tracing::info!("whoever started this agent is gone; ending");
    std::process::exit(INTERRUPTED.into());
}
