//! What a run directory says, for people: pictures, and one page that holds everything.

mod context;
mod folder;
mod page;
mod words;

use std::path::{Path, PathBuf};

pub use context::{Context, Machine, SeedLabels};
pub use folder::RunFolder;
pub use page::page;
pub(crate) use page::{live_page, section};

use crate::error::LabError;

/// Writes a page about some runs.
pub fn write_report(folders: &[RunFolder], path: &Path) -> Result<PathBuf, LabError> {
    crate::store::write_file(path, page(folders).as_bytes())?;
    Ok(path.to_owned())
}
