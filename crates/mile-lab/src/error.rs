//! What can go wrong with an experiment, and whose fault it is.

use std::path::{Path, PathBuf};

/// A key of an experiment file that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{key}: {problem}", file.as_ref().map(|f| format!("{f}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// The experiment file, where there is one.
    pub file: Option<String>,
    /// The key, by its path.
    pub key: String,
    /// What it got and what it takes.
    pub problem: String,
}

/// A place in a data file that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{}{}: {problem}", file.display(), line.map(|l| format!(", line {l}")).unwrap_or_default(), column.as_ref().map(|c| format!(", column '{c}'")).unwrap_or_default())]
pub struct DataFileError {
    /// Which file.
    pub file: PathBuf,
    /// Which line, from 1.
    pub line: Option<u64>,
    /// Which column, by its name.
    pub column: Option<String>,
    /// What is wrong there.
    pub problem: String,
}

/// Why an experiment cannot be run, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The experiment file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A data file is wrong.
    #[error(transparent)]
    Data(#[from] DataFileError),
    /// An image data set is missing or wrong.
    #[error(transparent)]
    Images(#[from] mile_nn::data::DataError),
    /// A run directory holds something else than expected.
    #[error("{}: {problem}", path.display())]
    Directory {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Agents failed while running.
    #[error(transparent)]
    Agents(#[from] mile::agents::AgentsError),
    /// Problem, network and starting point do not go together, or do not fit into memory.
    #[error(transparent)]
    Simulator(#[from] mile::simulator::SimulatorError),
    /// A job panicked: a defect of its objective or of this program.
    #[error("a panic: {0}")]
    Panicked(String),
    /// Some jobs failed, the others went on; what they had recorded is kept.
    #[error("{} failed: {}; what it had recorded is kept, and resuming tries it again from its last checkpoint", .0[0].0, .0[0].1)]
    Failed(Vec<(String, String)>),
}

impl LabError {
    /// Whether it is in what the user gave, rather than in what happened while running.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Config(_) | Self::Data(_) | Self::Images(_) | Self::Directory { .. } | Self::Simulator(_)
        )
    }

    /// Whether it concerns the job it happened in only: another job may well do without it.
    pub(crate) fn is_of_one_job(&self) -> bool {
        matches!(self, Self::Agents(_) | Self::Panicked(_))
    }

    /// A file could not be read or written.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// Something is wrong with the value of a key, or of an option.
    pub fn config(key: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self::Config(ConfigError { file: None, key: key.into(), problem: problem.to_string() })
    }

    /// The same error, known to come from this experiment file.
    pub fn in_file(mut self, name: &str) -> Self {
        if let Self::Config(error) = &mut self {
            error.file.get_or_insert_with(|| name.to_owned());
        }
        self
    }
}
