//! A run directory on disk. Files are replaced atomically, and records are appended line by line.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mile_store::{FolderLock, LockError};
use serde::{Deserialize, Serialize};

use crate::ending::Ending;
use crate::error::LabError;
use crate::record::Record;

/// How a job, that is one algorithm with one seed, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobStatus {
    /// The experiment's `stop` was reached; without one, gradient and disagreement have vanished next to what they were.
    Converged,
    /// All rounds were run, and it had not converged. Runs before this was told apart say `done`.
    #[serde(rename = "last round", alias = "done")]
    LastRound,
    /// The models became too large or not finite ([`DIVERGED`](crate::DIVERGED)).
    Diverged,
    /// It was interrupted, and can be resumed.
    Stopped,
    /// Its objective or its engine failed; resuming retries it from its last checkpoint.
    Failed,
}

impl JobStatus {
    /// Whether it ran to its end, converged or not.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Converged | Self::LastRound)
    }

    /// Whether nothing is left to run: it is done, or diverged.
    pub fn is_over(self) -> bool {
        self.is_done() || self == Self::Diverged
    }

    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::LastRound => "last round",
            Self::Diverged => "diverged",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// The outcome of a job: an entry of `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Label of the algorithm.
    pub label: String,
    /// Name of its method.
    pub algorithm: String,
    /// Seed of the run.
    pub seed: u64,
    /// How it ended.
    pub status: JobStatus,
    /// Vectors that an agent stores between updates.
    pub vectors_stored: usize,
    /// Vectors that an agent sends to each neighbour per round, on average.
    pub vectors_sent_per_round: f64,
    /// Completed rounds.
    pub round: u64,
    /// What its records show of its end.
    #[serde(default)]
    pub ending: Ending,
    /// The last record.
    pub last: Record,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Outcome {
    /// The name of the job and why it failed, if it did.
    pub fn failure(&self) -> Option<(String, String)> {
        Some((format!("{}, seed {}", self.label, self.seed), self.error.clone()?))
    }
}

/// Locks a folder against other processes.
pub(crate) fn lock_folder(folder: &Path) -> Result<FolderLock, LabError> {
    FolderLock::take(folder, Duration::ZERO).map_err(|error| match error {
        LockError::Io { path, source } => LabError::Io { path, action: "lock", source },
        _ => {
            let problem = "in use by another mile process; wait for it, or give another --out".into();
            LabError::Directory { path: folder.to_owned(), problem }
        }
    })
}

/// The distinct labels of outcomes, in order.
pub(crate) fn labels(outcomes: &[Outcome]) -> Vec<&str> {
    distinct(outcomes.iter().map(|outcome| outcome.label.as_str()))
}

/// The distinct names, in the order of their first occurrence.
pub(crate) fn distinct<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut found = Vec::new();
    names.for_each(|name| {
        if !found.contains(&name) {
            found.push(name);
        }
    });
    found
}

/// Writes a file atomically.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    mile_store::write_file(path, bytes).map_err(LabError::io(path, "write"))
}

/// The files and folders that a run directory, or the folder of a sweep, may hold. What else is in one belongs to somebody else.
pub const CONTENTS: [&str; 25] = [
    ".lock",
    "agents.csv",
    "checkpoints",
    "coefficients.csv",
    "config.toml",
    "context.json",
    "data.csv",
    "figures",
    "final",
    "metrics.jsonl",
    "mlflow.db",
    "model.json",
    "pairings",
    "points",
    "report.html",
    "statistics.json",
    "summary.json",
    "sweep.json",
    "sweep.toml",
    "table.tex",
    "table.txt",
    "tensorboard",
    "trials.csv",
    "trials.txt",
    "wandb",
];

/// An open run directory, locked against other processes.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    place: Place,
}

/// Who writes the run directory.
#[derive(Debug)]
enum Place {
    /// This process, which keeps `metrics.jsonl` open.
    Here { metrics: Mutex<File>, _lock: FolderLock },
    /// Another rank: the records are known here too, and nothing is written.
    Elsewhere { records: Mutex<Vec<Record>> },
}

impl Store {
    /// Opens a run directory. A new run needs one without a run; `resume` needs one with a run.
    pub(crate) fn open(folder: &Path, resume: bool) -> Result<Self, LabError> {
        let used = folder.join("config.toml").exists();
        let refuse = |problem: &str| LabError::Directory { path: folder.to_owned(), problem: problem.into() };
        if folder.join("sweep.toml").exists() {
            return Err(refuse("holds a sweep; give another folder"));
        }
        if folder.exists() && !folder.is_dir() {
            return Err(refuse("expected a folder for the run, got a file; choose another --out"));
        }
        if used && !resume {
            return Err(refuse("already holds a run; add --resume to resume it, or choose another --out"));
        }
        if !used && resume {
            return Err(refuse("no run to resume; leave --resume out, or give its folder with --out"));
        }
        for path in [folder.to_owned(), folder.join("checkpoints"), folder.join("final")] {
            fs::create_dir_all(&path).map_err(LabError::io(&path, "create"))?;
        }
        let lock = lock_folder(folder)?;
        let path = folder.join("metrics.jsonl");
        let options = File::options().create(true).append(true).read(true).open(&path);
        let metrics = Mutex::new(options.map_err(LabError::io(&path, "write"))?);
        Ok(Self { folder: folder.to_owned(), place: Place::Here { metrics, _lock: lock } })
    }

    /// The run directory that another rank writes, with the records it has.
    pub(crate) fn elsewhere(folder: &Path, records: Vec<Record>) -> Self {
        Self { folder: folder.to_owned(), place: Place::Elsewhere { records: Mutex::new(records) } }
    }

    /// Its path.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        debug_assert!(
            CONTENTS.iter().any(|known| name.starts_with(known)),
            "{} is not listed",
            name.display()
        );
        self.folder.join(name)
    }

    /// Writes a file in it, atomically.
    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<(), LabError> {
        match self.place {
            Place::Here { .. } => write_file(&self.path(name), bytes),
            Place::Elsewhere { .. } => Ok(()),
        }
    }

    /// Removes a file in it, if it exists.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), LabError> {
        if let Place::Elsewhere { .. } = self.place {
            return Ok(());
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LabError::io(path, "remove")(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes several files in it, given by their names and contents.
    pub(crate) fn write_all(&self, files: &[(&str, String)]) -> Result<(), LabError> {
        files.iter().try_for_each(|(name, text)| self.write(name, text.as_bytes()))
    }

    /// Appends one record.
    pub(crate) fn append(&self, record: &Record) -> Result<(), LabError> {
        let metrics = match &self.place {
            Place::Here { metrics, .. } => metrics,
            Place::Elsewhere { records } => {
                records.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
                return Ok(());
            }
        };
        let mut line = to_json(record);
        line.push('\n');
        let mut file = metrics.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(LabError::io(&self.path("metrics.jsonl"), "write"))
    }

    /// All records. An incomplete last line, left by a killed process, is ignored.
    pub(crate) fn records(&self) -> Result<Vec<Record>, LabError> {
        let path = self.path("metrics.jsonl");
        let metrics = match &self.place {
            Place::Here { metrics, .. } => metrics,
            Place::Elsewhere { records } => {
                return Ok(records.lock().unwrap_or_else(PoisonError::into_inner).clone());
            }
        };
        let mut file = metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(LabError::io(&path, "read"))?;
        parse_records(&path, &text)
    }

    /// Replaces all records.
    pub(crate) fn rewrite(&self, records: &[Record]) -> Result<(), LabError> {
        let Place::Here { metrics, .. } = &self.place else { return Ok(()) };
        let text: String = records.iter().map(|record| to_json(record) + "\n").collect();
        let path = self.path("metrics.jsonl");
        let mut file = metrics.lock().unwrap_or_else(PoisonError::into_inner);
        write_file(&path, text.as_bytes())?;
        let options = File::options().append(true).read(true).open(&path);
        *file = options.map_err(LabError::io(&path, "write"))?;
        Ok(())
    }

    /// Writes `summary.json`.
    pub(crate) fn write_summary<'o>(
        &self,
        outcomes: impl Iterator<Item = &'o Outcome>,
    ) -> Result<(), LabError> {
        match self.place {
            Place::Here { .. } => self.leave_summary(outcomes),
            Place::Elsewhere { .. } => Ok(()),
        }
    }

    /// Writes `summary.json`, also where another rank writes the run directory.
    pub(crate) fn leave_summary<'o>(
        &self,
        outcomes: impl Iterator<Item = &'o Outcome>,
    ) -> Result<(), LabError> {
        let known: Vec<&Outcome> = outcomes.collect();
        let text = serde_json::to_string_pretty(&known).unwrap_or_default();
        write_file(&self.path("summary.json"), text.as_bytes())
    }

    /// The outcomes in `summary.json`; none if it does not exist.
    pub(crate) fn outcomes(&self) -> Result<Vec<Outcome>, LabError> {
        read_outcomes(&self.folder)
    }
}

/// The outcomes in `summary.json` of a run directory; none if it does not exist.
pub fn read_outcomes(folder: &Path) -> Result<Vec<Outcome>, LabError> {
    let path = folder.join("summary.json");
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| LabError::Directory {
            path,
            problem: format!("not a valid summary: {error}; delete it, and resume the run to write it again"),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LabError::io(&path, "read")(source)),
    }
}

/// The records of a run directory.
pub fn read_records(folder: &Path) -> Result<Vec<Record>, LabError> {
    let path = folder.join("metrics.jsonl");
    let text = fs::read_to_string(&path).map_err(|source| LabError::Directory {
        path: path.clone(),
        problem: format!("cannot read the records of a run: {source}"),
    })?;
    parse_records(&path, &text)
}

fn parse_records(path: &Path, text: &str) -> Result<Vec<Record>, LabError> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(k, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| LabError::Directory {
            path: path.to_owned(),
            problem: format!("line {} is not a record: {error}", k + 1),
        })
    };
    complete.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

/// The JSON of a value that can always be serialized.
pub(crate) fn to_json<S: Serialize>(value: &S) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
