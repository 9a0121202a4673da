//! `mile export`: a trained model as a folder that can be published.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use mile_lab::error::LabError;

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
    refuse_used(&folder)?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    model.export(&folder)?;
    output::print(&format!("{}\n", folder.display()))?;
    Ok(0)
}

/// Refuses a folder that is not empty: its model card may have been edited.
fn refuse_used(folder: &Path) -> Result<(), LabError> {
    let used = match std::fs::read_dir(folder) {
        Ok(mut files) => files.next().is_some(),
        Err(_) => folder.exists(),
    };
    if !used {
        return Ok(());
    }
    let problem = "already exists and is not overwritten; give another folder with --out, or remove it";
    Err(LabError::Directory { path: folder.to_owned(), problem: problem.into() })
}
