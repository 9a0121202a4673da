//! The settings of a run that is resumed, in its folder.

use std::path::Path;

use toml::Table;

use crate::error::LabError;

/// The settings of the run in a folder: its `config.toml`.
pub fn settings(folder: &Path) -> Result<Table, LabError> {
    let path = folder.join("config.toml");
    let refuse = |problem: String| LabError::Directory { path: path.clone(), problem };
    let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => LabError::Directory {
            path: folder.to_owned(),
            problem: "no run to resume; leave --resume out, or give its folder with --out".into(),
        },
        _ => refuse(format!("cannot read the settings of the run: {source}")),
    })?;
    text.parse().map_err(|error: toml::de::Error| refuse(format!("invalid: {}", error.message())))
}
