//! `mile report`.

use std::path::{Path, PathBuf};

use clap::Args;
use mile_lab::report::{RunFolder, write_report};

use crate::output;

/// One self-contained HTML page about finished or running runs.
#[derive(Args)]
pub(crate) struct ReportArguments {
    /// Run directories, one section of the page each
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Where to write the page [default: DIR/report.html, or ./report.html for several]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReportArguments) -> anyhow::Result<u8> {
    let folders: Vec<RunFolder> =
        arguments.folders.iter().map(|path| RunFolder::read(path)).collect::<Result<_, _>>()?;
    let path = match (&arguments.out, &folders[..]) {
        (Some(path), _) => path.clone(),
        (None, [only]) => only.path.join("report.html"),
        (None, _) => Path::new("report.html").to_owned(),
    };
    let written = write_report(&folders, &path)?;
    output::print(&format!("{}\n", written.display()))?;
    Ok(0)
}
