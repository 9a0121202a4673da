//! `mile agent`.

mod keeper;
pub(crate) mod socket;
mod work;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use mile_lab::config::{AgentConfig, Precision};
use mile_lab::error::LabError;
use mile_lab::plan::Plan;
use mile_lab::store::write_file;
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
    let lock = take_possession(&config.folder)?;
    let plan = Plan::for_agent(experiment, config.id).map_err(|error| error.in_file(&name))?;
    match plan.experiment.precision {
        Precision::F32 => work::work::<f32>(&plan, &config),
        Precision::F64 => work::work::<f64>(&plan, &config),
    }?;
    drop(lock);
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

/// Locks the agent's folder against a second agent, and leaves a note of who has it.
fn take_possession(folder: &Path) -> anyhow::Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(".lock");
    let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let begun = Instant::now();
    while let Err(error) = lock.try_lock() {
        if let std::fs::TryLockError::Error(error) = error {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
        if begun.elapsed() > PREDECESSOR {
            let problem = "another agent is at work in this folder: end it, or give agent.folder".into();
            return Err(LabError::Directory { path: folder.to_owned(), problem }.into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    write_file(&folder.join("pid"), format!("{}\n", std::process::id()).as_bytes())?;
    Ok(lock)
}
