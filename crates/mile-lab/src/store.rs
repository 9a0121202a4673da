//! A run directory: what is kept, and how nothing of it is ever half written.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mile_state::{FolderLock, LockError};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::record::Record;

/// How a run of one algorithm with one seed ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All rounds were run.
    Done,
    /// The models left every reasonable bound.
    Diverged,
    /// It was interrupted, and can be resumed.
    Stopped,
    /// Its objective or its engine failed; resuming tries again from its last checkpoint.
    Failed,
}

/// What `summary.json` says about one algorithm with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Label of the algorithm.
    pub label: String,
    /// Its method.
    pub algorithm: String,
    /// Seed of the run.
    pub seed: u64,
    /// How it ended.
    pub status: Status,
    /// Vectors an agent keeps between updates.
    pub vectors_stored: usize,
    /// Vectors it sends to each neighbour a round, on average.
    pub vectors_sent_per_round: f64,
    /// Rounds done.
    pub round: u64,
    /// The last record.
    pub last: Record,
    /// What it failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The labels of outcomes, each once, in order.
pub fn labels(outcomes: &[Outcome]) -> Vec<&str> {
    distinct(outcomes.iter().map(|outcome| outcome.label.as_str()))
}

/// Each of some names once, in the order in which they come first.
pub(crate) fn distinct<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut found = Vec::new();
    names.for_each(|name| {
        if !found.contains(&name) {
            found.push(name);
        }
    });
    found
}

/// Writes a file so that it is either the old one or the whole new one.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    mile_state::write_file(path, bytes).map_err(LabError::io(path, "write"))
}

/// An open run directory, locked against a second process.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    metrics: Mutex<File>,
    _lock: FolderLock,
}

impl Store {
    /// Opens a run directory. A new run needs an empty or absent one; `resume` continues what is there.
    pub fn open(folder: &Path, resume: bool) -> Result<Self, LabError> {
        let used = folder.join("config.toml").exists();
        let refuse = |problem: &str| LabError::Directory { path: folder.to_owned(), problem: problem.into() };
        if used && !resume {
            return Err(refuse("holds a run already: add --resume to go on with it, or give another --out"));
        }
        if !used && resume {
            return Err(refuse("holds no run to resume: leave --resume out, or give its folder with --out"));
        }
        for path in [folder.to_owned(), folder.join("checkpoints"), folder.join("final")] {
            fs::create_dir_all(&path).map_err(LabError::io(&path, "create"))?;
        }
        let lock = FolderLock::take(folder, Duration::ZERO).map_err(|error| match error {
            LockError::Io { path, source } => LabError::Io { path, action: "lock", source },
            _ => refuse("is in use by another mile process: wait for it, or give another --out"),
        })?;
        let path = folder.join("metrics.jsonl");
        let options = File::options().create(true).append(true).read(true).open(&path);
        let metrics = Mutex::new(options.map_err(LabError::io(&path, "write"))?);
        Ok(Self { folder: folder.to_owned(), metrics, _lock: lock })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file whole or not at all.
    pub fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<(), LabError> {
        write_file(&self.path(name), bytes)
    }

    /// Appends one record.
    pub(crate) fn append(&self, record: &Record) -> Result<(), LabError> {
        let mut line = to_json(record);
        line.push('\n');
        let mut file = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(LabError::io(&self.path("metrics.jsonl"), "write"))
    }

    /// Every record so far. A last line that a killed process left unfinished is passed over.
    pub fn records(&self) -> Result<Vec<Record>, LabError> {
        let path = self.path("metrics.jsonl");
        let mut file = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(LabError::io(&path, "read"))?;
        parse_records(&path, &text)
    }

    /// Replaces all records.
    pub(crate) fn rewrite(&self, records: &[Record]) -> Result<(), LabError> {
        let text: String = records.iter().map(|record| to_json(record) + "\n").collect();
        let path = self.path("metrics.jsonl");
        let mut file = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
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
        let known: Vec<&Outcome> = outcomes.collect();
        self.write("summary.json", serde_json::to_string_pretty(&known).unwrap_or_default().as_bytes())
    }

    /// What `summary.json` says, if it is there.
    pub(crate) fn outcomes(&self) -> Result<Vec<Outcome>, LabError> {
        read_outcomes(&self.folder)
    }
}

/// The outcomes in `summary.json` of a run directory; none if it is not there.
pub fn read_outcomes(folder: &Path) -> Result<Vec<Outcome>, LabError> {
    let path = folder.join("summary.json");
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| LabError::Directory {
            path,
            problem: format!("is not a summary: {error}; delete it to have it written anew"),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LabError::io(&path, "read")(source)),
    }
}

/// The records of a run directory that nobody is writing.
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

/// JSON of a type that always has one.
pub(crate) fn to_json<S: Serialize>(value: &S) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
