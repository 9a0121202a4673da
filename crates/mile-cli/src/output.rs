//! What is printed: to standard output without a panic on a closed pipe, and how much of it.

use std::io::{ErrorKind, Write};

use clap::{Args, ValueEnum};

/// Prints text; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// How much a run prints, and in which format.
#[derive(Args, Default)]
pub(crate) struct OutputArguments {
    /// Print nothing but errors (and, with --format json, the records); results are in the run directory
    #[arg(long, short)]
    quiet: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text", conflicts_with = "dry_run")]
    format: RunFormat,
}

/// Output format of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum RunFormat {
    /// Progress, and a table of results
    #[default]
    Text,
    /// Every record when it is made, one JSON object per line as in metrics.jsonl; everything else goes to standard error
    Json,
}

impl OutputArguments {
    /// Nothing but errors.
    pub(crate) fn silent() -> Self {
        Self { quiet: true, format: RunFormat::Text }
    }

    /// Whether messages and progress are shown.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether records are printed as JSON.
    pub(crate) fn streams_records(&self) -> bool {
        self.format == RunFormat::Json
    }

    /// Prints a result: to standard error if standard output has the records.
    pub(crate) fn result(&self, text: &str) -> anyhow::Result<()> {
        match (self.quiet, self.streams_records()) {
            (true, _) => Ok(()),
            (false, false) => print(text),
            (false, true) => {
                eprint!("{text}");
                Ok(())
            }
        }
    }

    /// Prints a message to standard error.
    pub(crate) fn message(&self, text: &str) {
        if !self.quiet {
            eprint!("{text}");
        }
    }
}
