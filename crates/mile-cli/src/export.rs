//! `mile export`: a trained model as a folder that can be published.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::output;
use crate::predict::ModelArguments;

/// Exports a trained model.
#[derive(Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Folder to write [default: MODEL/export]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ExportArguments) -> anyhow::Result<u8> {
    let model = arguments.model.open()?;
    let folder = arguments.out.clone().unwrap_or_else(|| arguments.model.model.join("export"));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    model.export(&folder)?;
    output::print(&format!("{}\n", folder.display()))?;
    Ok(0)
}
