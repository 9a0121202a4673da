//! `mile report`: an HTML page about runs and sweeps.

use std::path::{Path, PathBuf};

use clap::Args;
use mile_lab::report::write_report;

use crate::output;

/// One self-contained HTML page about finished, stopped or running runs.
#[derive(Args)]
pub(crate) struct ReportArguments {
    /// Run directories and sweeps; each becomes a section of the page
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// HTML file to write [default: DIR/report.html, or ./report.html for several folders]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReportArguments) -> anyhow::Result<u8> {
    let path = match (&arguments.out, &arguments.folders[..]) {
        (Some(path), _) => path.clone(),
        (None, [only]) => only.join("report.html"),
        (None, _) => Path::new("report.html").to_owned(),
    };
    write_report(&arguments.folders, &path)?;
    output::print(&format!("{}\n", path.display()))?;
    Ok(0)
}
