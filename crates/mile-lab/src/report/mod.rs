//! What a run directory says, for people: pictures, and one page that holds everything.

mod context;
mod folder;
mod html;
mod page;
mod words;

use std::path::Path;

pub use context::{Context, Machine, SeedLabels};
pub use folder::RunFolder;
pub use html::Page;
pub(crate) use html::live_page;
pub(crate) use page::section;
pub(crate) use words::evaluated_on;

use crate::error::LabError;
use crate::sweep::SweepFolder;

/// Writes a page about some run directories and sweeps.
pub fn write_report(folders: &[impl AsRef<Path>], out: &Path) -> Result<(), LabError> {
    let name =
        |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let title = match folders {
        [only] => name(only.as_ref()),
        several => format!("{} runs", several.len()),
    };
    let mut page = Page::new(title);
    for folder in folders {
        let folder = folder.as_ref();
        if SweepFolder::is_at(folder) {
            page.sweep(&SweepFolder::read(folder)?)?;
        } else {
            page.run(&RunFolder::read(folder)?);
        }
    }
    page.write(out)
}
