//! `mile agent`: one agent of an experiment, over the network. The experiment comes from `mile-lab`, the protocol and the
//! connections from `mile-net`; here they meet.

mod jobs;
mod recording;
pub(crate) mod refused;
pub(crate) mod socket;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mile::with_precision;
use mile_lab::error::LabError;
use mile_lab::own_data::check_own_data;
use mile_lab::plan::Plan;
use mile_lab::spec::AgentSpec;
use mile_lab::store::write_file;
use mile_lab::trained::write_form;
use mile_net::checkpoint::Folder;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use self::jobs::{check_event_settings, check_events};
pub(crate) use self::recording::ModelDiverged;

use crate::{CommandLine, FAILED, INTERRUPTED};

/// How long to wait for another agent that still uses the folder to exit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs one agent of an experiment until all its rounds are done.
#[derive(Args)]
pub(crate) struct AgentArguments {
    /// Configuration of the agent: an experiment file with a section [agent], as mile swarm --emit writes it
    #[arg(value_name = "AGENT.toml")]
    file: PathBuf,
    /// First job to run, counted from 0, where an earlier one has diverged; give all agents the same
    #[arg(long, value_name = "JOB", default_value = "0")]
    from_job: usize,
    /// Exit when standard input is closed, that is, when the parent process ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

pub(crate) fn run(arguments: &AgentArguments, line: &CommandLine) -> anyhow::Result<u8> {
    init_logging();
    mile_net::engine::exit_on_panic(FAILED);
    ctrlc::set_handler(|| {
        tracing::info!(
            "interrupted; the last checkpoint is complete, start the agent again to resume from it"
        );
        std::process::exit(INTERRUPTED.into());
    })
    .context("cannot handle Ctrl-C")?;
    if arguments.exit_with_parent {
        std::thread::spawn(exit_when_stdin_closes);
    }
    let name = arguments.file.display().to_string();
    let (experiment, config) = AgentSpec::load(&arguments.file, &line.kinds(), line.catalogue())?;
    let folder = Folder::open(&config.folder, LOCK_TIMEOUT)?;
    write_file(&config.folder.join("pid"), format!("{}\n", std::process::id()).as_bytes())?;
    let plan = Plan::for_agent(experiment, config.id).map_err(|error| error.in_file(&name))?;
    check_stop(&plan).map_err(|error| error.in_file(&name))?;
    check_own_data(&plan, config.id).map_err(|error| error.in_file(&name))?;
    write_form(&plan, &config.folder).map_err(|error| error.in_file(&name))?;
    let jobs = plan.jobs().len();
    if arguments.from_job >= jobs {
        let expected = format!("a job of this experiment, from 0 to {}", jobs - 1);
        return Err(LabError::expected("--from-job", expected, arguments.from_job).into());
    }
    let from = arguments.from_job;
    with_precision!(plan.spec.precision, T => jobs::run_jobs::<T>(&plan, &config, folder, from))?;
    Ok(0)
}

/// Checks that agents can measure what they stop by.
pub(crate) fn check_stop(plan: &Plan) -> Result<(), LabError> {
    if plan.size.has_penalty && plan.spec.stop.is_some_and(|rule| rule.grad_norm.is_some()) {
        let problem = "with problem.l1 the agents' mean gradient is not zero at a minimiser; use consensus or loss_change";
        return Err(LabError::config("stop.grad_norm", problem));
    }
    Ok(())
}

/// Logs to standard error: messages of this program but not of the transport library, unless `RUST_LOG` asks for others.
fn init_logging() {
    let wanted = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let parsed = wanted.as_ref().map(|text| text.parse::<Targets>());
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    let targets = match &parsed {
        Some(Ok(targets)) => targets.clone(),
        _ => Targets::new()
            .with_default(LevelFilter::OFF)
            .with_target("mile", LevelFilter::INFO)
            .with_target("mile_net", LevelFilter::INFO),
    };
    tracing_subscriber::registry().with(lines).with(targets).init();
    if let Some(Err(error)) = parsed {
        tracing::warn!(
            "RUST_LOG is ignored: {error}; expected, for instance, mile_net=debug or iroh=info,mile=debug"
        );
    }
}

/// Waits until the parent process closes standard input, by exiting at the latest, and exits too.
fn exit_when_stdin_closes() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tracing::info!("the process that started this agent has ended; exiting");
    std::process::exit(INTERRUPTED.into());
}
