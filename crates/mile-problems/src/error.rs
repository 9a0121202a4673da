//! The errors of experiments.

use std::path::{Path, PathBuf};

use mile::engine::HostError;

/// An invalid value of a key of an experiment file, or of a command-line option.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{key}: {problem}", file.as_ref().map(|f| format!("{f}: ")).unwrap_or_default())]
#[non_exhaustive]
pub struct ConfigError {
    /// The experiment file, if there is one.
    pub file: Option<String>,
    /// The full path of the key, such as `network.agents`.
    pub key: String,
    /// What is wrong: the expected values, the one it got, and a remedy.
    pub problem: String,
}

/// A place in a data file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FilePlace {
    /// A line of a text.
    Line(u64),
    /// A row of a file without lines.
    Row(u64),
}

impl std::fmt::Display for FilePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// An error in a data file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{}{}: {problem}", file.display(), place.map(|place| format!(", {place}")).unwrap_or_default(), column.as_ref().map(|c| format!(", column '{c}'")).unwrap_or_default())]
pub struct DataFileError {
    /// The file.
    pub file: PathBuf,
    /// The line or row.
    pub place: Option<FilePlace>,
    /// The name of the column.
    pub column: Option<String>,
    /// What is wrong.
    pub problem: String,
}

/// Why an experiment cannot be run, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// An invalid experiment file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An invalid data file.
    #[error(transparent)]
    Data(#[from] DataFileError),
    /// An image data set is missing or invalid.
    #[error(transparent)]
    Images(#[from] mile_nn::data::DataError),
    /// A file or folder does not hold what is expected there.
    #[error("{}: {problem}", path.display())]
    Directory {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failed operation, a verb such as `read`.
        action: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// An objective or an engine failed.
    #[error(transparent)]
    Agents(#[from] mile::agents::AgentsError),
    /// Agents cannot be hosted.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An error that all ranks return together: none of them waits for another.
    #[error("{0}")]
    Agreed(Box<LabError>),
    /// What failed on one of several ranks.
    #[error("{rank}: {message}")]
    OnRank {
        /// The rank and its host.
        rank: String,
        /// Its message.
        message: String,
        /// Whether it is an error in the user's input.
        is_usage: bool,
    },
    /// A job panicked: a bug in its objective or in this library.
    #[error("panicked: {0}")]
    Panicked(String),
    /// Some jobs failed (name and message of each); the others were finished.
    #[error("{}; their records are kept, and resuming the run retries them from their last checkpoints", listed(.0))]
    Failed(Vec<(String, String)>),
}

impl LabError {
    /// Whether the error is in the user's input, rather than a failure while running.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Agreed(error) => error.is_usage(),
            Self::OnRank { is_usage, .. } => *is_usage,
            Self::Host(error) => !matches!(error, HostError::Engine(_)),
            _ => matches!(self, Self::Config(_) | Self::Data(_) | Self::Images(_) | Self::Directory { .. }),
        }
    }

    /// A panic, with its message.
    pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::Panicked(text.unwrap_or("without a message").to_owned())
    }

    /// Whether the error concerns only the job in which it happened, so that other jobs can continue.
    pub fn is_of_one_job(&self) -> bool {
        matches!(self, Self::Agents(_) | Self::Panicked(_))
    }

    /// Converts an I/O error on a file; `action` is a verb such as `read`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// The error of an invalid value of a key or option.
    pub fn config(key: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self::Config(ConfigError { file: None, key: key.into(), problem: problem.to_string() })
    }

    /// The error of a value that is not what is expected: a noun phrase such as `a positive number`.
    pub fn expected(
        key: impl Into<String>,
        expected: impl std::fmt::Display,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::config(key, mile::refusal::expected(&expected.to_string(), got))
    }

    /// Adds the name of the experiment file to a config error.
    pub fn in_file(mut self, name: &str) -> Self {
        match &mut self {
            Self::Config(error) => drop(error.file.get_or_insert_with(|| name.to_owned())),
            Self::Agreed(error) => {
                let inner = std::mem::replace(&mut **error, Self::Failed(Vec::new()));
                **error = inner.in_file(name);
            }
            _ => {}
        }
        self
    }
}

fn listed(failed: &[(String, String)]) -> String {
    failed.iter().map(|(name, why)| format!("{name} failed: {why}")).collect::<Vec<_>>().join("; ")
}
