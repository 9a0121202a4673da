//! What a run directory says, for people: pictures, and one page that holds everything.

mod context;
mod folder;

pub use context::{Context, Machine, SeedLabels};
pub use folder::RunFolder;
