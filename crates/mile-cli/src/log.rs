//! `mile log`: the records of a run in Weights & Biases or MLflow, whose clients are Python packages.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::{FAILED, Program};

/// Finds the package, and says how to get it.
const SCRIPT: &str = "import sys
try:
    from mile.loggers import main
except ModuleNotFoundError as error:
    sys.exit(print(f'mile: log: expected Python packages that are installed, got no {error.name}; pip install mile-learn', file=sys.stderr) or 2)
sys.exit(main(sys.argv[1:]))
";

/// Logs the records of a run, or of all points of a sweep.
#[derive(Args)]
pub(crate) struct LogArguments {
    /// Run directory, or that of a sweep; it may still be going on
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Logger to send the records to
    #[arg(long, value_enum)]
    to: Destination,
    /// Project (Weights & Biases) or experiment (MLflow) to log to
    #[arg(long, value_name = "NAME", default_value = "mile")]
    project: String,
    /// Work offline: write wandb/ or mlflow.db in the run directory
    #[arg(long)]
    offline: bool,
    /// Keep sending records until all jobs have ended
    #[arg(long)]
    follow: bool,
}

/// A logger.
#[derive(Clone, Copy, ValueEnum)]
enum Destination {
    /// Weights & Biases
    Wandb,
    /// MLflow
    Mlflow,
}

pub(crate) fn run(arguments: &LogArguments, program: &Program) -> anyhow::Result<u8> {
    let LogArguments { run, to, project, offline, follow } = arguments;
    let to = if matches!(to, Destination::Wandb) { "wandb" } else { "mlflow" };
    let mut command = program.python();
    command.args(["-c", SCRIPT]).arg(run).args(["--to", to, "--project", project]);
    command.args(
        [(offline, "--offline"), (follow, "--follow")].iter().filter(|(on, _)| **on).map(|(_, flag)| flag),
    );
    let status = command.status().context("cannot start python3, which mile log needs")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}
