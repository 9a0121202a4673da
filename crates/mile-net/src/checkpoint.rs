//! An agent's folder on disk: its checkpoint, from which it resumes exactly.
//!
//! A checkpoint is a safetensors file with the state vectors, with what the agent's objective remembers, and with the agent's own messages
//! that neighbours may still ask for; see [`mile_store`]. Every file is the old one or the complete new one, even after a crash, and has checksums.
//!
//! Every checkpoint is a new file. It copies the messages that are still needed from the earlier one, part by part; a link that is sending
//! from the earlier one keeps it open. Each part has a checksum, since a neighbour cannot see that bits have changed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mile::agents::Costs;
use mile::real::Real;
use mile::run::Progress;
use mile_store::packed::{pack, unpack};
use mile_store::{Array, FolderLock, LockError, StateError, StateFile};
use serde::{Deserialize, Serialize};

use crate::agent::{RoundEnd, State};
use crate::edge::Decisions;
use crate::farewell::{self, FAREWELL, Farewell};
use crate::gossip::Gossip;
use crate::handshake::{Mark, Terms};
use crate::json_float::bits;
use crate::outbox::{Content, KeptMessage, LARGE, StoredMessage};
use crate::protocol::Memory;

/// A checkpoint that cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file could not be read or written.
    #[error(
        "cannot {action} {path}: {source}; the last checkpoint is intact: free or repair the disk, then start the agent again"
    )]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is damaged or incomplete.
    #[error(
        "{path} is damaged or incomplete ({what}); restore the agent's folder from a copy, or replace the agent (operators' guide, \"Recovery\")"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another process uses the folder.
    #[error(
        "{0} is in use by another agent that is still running; stop it first, or give this one another folder"
    )]
    InUse(PathBuf),
    /// The checkpoint belongs to another run.
    #[error(
        "{path} belongs to another run: {what}; restore the settings it was made with, give the agent another folder, or, to start \
         the run over with these settings, stop all its agents and remove {path} from each folder"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
}

/// The folder in which an agent keeps its state. It stays locked until this is dropped: one process uses it at a time.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: FolderLock,
}

/// What [`Folder::load`] found.
#[derive(Debug)]
pub struct Restored<T> {
    /// The agent's state, unless this is its first start.
    pub state: Option<State<T>>,
    /// What the agent's objective remembered, if it does.
    pub objective: Option<Vec<u8>>,
    /// The session's part of the checkpoint.
    pub memory: Memory<T>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    agent: usize,
    terms: Terms,
    job: usize,
    mark: Mark,
    step: u64,
    round: u64,
    step_size: f64,
    costs: [u64; 4],
    state: Vec<String>,
    gossip: Gossip,
    known: BTreeMap<usize, Mark>,
    decisions: BTreeMap<usize, Decisions>,
    outbox: Vec<OutboxEntry>,
    #[serde(default)]
    scales: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct OutboxEntry {
    mark: Mark,
    #[serde(with = "bits")]
    gossip: Vec<f64>,
    recipients: Vec<usize>,
}

/// What an agent's objective remembers, in a checkpoint. Vectors of methods have short names of their own.
const OBJECTIVE: &str = "objective.memory";
const CHECKPOINT: &str = "checkpoint.safetensors";
const DECISIONS: &str = "decisions.safetensors";
const INCARNATION: &str = "incarnation";

impl Folder {
    /// Creates the folder if it is not there, locks it, and removes what interrupted writes have left. If another process
    /// has the lock, waits for it to end for as long as `patience` says.
    pub fn open(path: &Path, patience: Duration) -> Result<Self, CheckpointError> {
        let failed = |action| move |source| CheckpointError::Disk { action, path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(failed("create"))?;
        let lock = FolderLock::take(path, patience).map_err(|error| match error {
            LockError::InUse(path) => CheckpointError::InUse(path),
            LockError::Io { path, source } => CheckpointError::Disk { action: "lock", path, source },
            other => failed("lock")(std::io::Error::other(other)),
        })?;
        mile_store::file::remove_leftovers(path, &[CHECKPOINT, DECISIONS, INCARNATION, FAREWELL])
            .map_err(failed("remove leftovers of interrupted writes in"))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts the starts of this agent: a number larger than at every earlier start.
    pub fn incarnation(&self) -> Result<u64, CheckpointError> {
        let path = self.path.join(INCARNATION);
        let disk = |action| {
            let path = path.clone();
            move |source| CheckpointError::Disk { action, path, source }
        };
        let next = match fs::read(&path) {
            Ok(bytes) => {
                std::str::from_utf8(&bytes).ok().and_then(|text| text.parse::<u64>().ok()?.checked_add(1))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(1),
            Err(source) => return Err(disk("read")(source)),
        };
        let Some(next) = next else {
            return Err(CheckpointError::Damaged { path, what: "the number of starts is missing".into() });
        };
        mile_store::write_file(&path, next.to_string().as_bytes()).map_err(disk("write"))?;
        Ok(next)
    }

    /// Writes a checkpoint: the agent's state, what its objective remembers, and its session's memory.
    pub fn save<T: Real>(
        &self,
        agent: usize,
        terms: &Terms,
        end: &RoundEnd<T>,
        objective: Option<&[u8]>,
        memory: &Memory<T>,
    ) -> Result<(), CheckpointError> {
        let state: Vec<String> = end.layout.state_names().map(str::to_owned).collect();
        let messages = memory
            .outbox
            .iter()
            .map(|kept| (outbox_name(kept.content.mark()), [kept.content.elements()], &kept.content));
        let messages: Vec<(String, [usize; 1], &Content<T>)> = messages.collect();
        let dims: Vec<[usize; 1]> = end.vectors.iter().map(|vector| [vector.len()]).collect();
        let vectors = state.iter().zip(&dims).zip(end.vectors);
        let vectors = vectors.map(|((name, shape), values)| Array::new(name, shape, values.as_slice()));
        let kept = messages.iter().map(|(name, shape, content)| match content {
            Content::Memory(message) => Array::new(name, shape, message.vectors.as_slice()),
            Content::Disk(message) => Array::stored(name, shape, &message.vectors),
        });
        let objective: Option<Vec<T>> = objective.map(pack);
        let size = [objective.as_ref().map_or(0, Vec::len)];
        let remembered = objective.iter().map(|numbers| Array::new(OBJECTIVE, &size, numbers.as_slice()));
        let arrays: Vec<Array> = vectors.chain(kept).chain(remembered).collect();
        let Progress { step, round, step_size, costs } = *end.progress;
        let Costs { vectors_sent, exchanges, bytes_sent, gradient_evals } = costs;
        let header = Header {
            agent,
            terms: terms.clone(),
            job: end.job,
            mark: end.mark,
            step,
            round,
            step_size,
            costs: [vectors_sent, exchanges, bytes_sent, gradient_evals],
            state: state.clone(),
            gossip: end.gossip.clone(),
            known: memory.known.clone(),
            decisions: memory.decisions.clone(),
            outbox: memory.outbox.iter().map(OutboxEntry::of).collect(),
            scales: memory.scales.clone(),
        };
        let path = self.path.join(CHECKPOINT);
        mile_store::state::write(&path, &header, &arrays).map_err(|error| unusable(&path, error))
    }

    /// The messages of a memory that was just saved which are read from the checkpoint from now on: the large ones, and those of an
    /// earlier checkpoint.
    pub fn stored<T: Real>(&self, memory: &Memory<T>) -> Result<Vec<Arc<StoredMessage>>, CheckpointError> {
        let on_disk = |kept: &&KeptMessage<T>| match &kept.content {
            Content::Memory(message) => size_of_val(&message.vectors[..]) >= LARGE,
            Content::Disk(_) => true,
        };
        let mut found = memory.outbox.iter().filter(on_disk).peekable();
        if found.peek().is_none() {
            return Ok(Vec::new());
        }
        let path = self.path.join(CHECKPOINT);
        let Some(mut file) = open(&path)? else {
            return Err(CheckpointError::Damaged {
                path,
                what: "it has just been written and is missing".into(),
            });
        };
        let found = found.map(|kept| stored::<T>(&mut file, OutboxEntry::of(kept)));
        found.collect::<Result<_, _>>().map_err(|error| unusable(&path, error))
    }

    /// Reads the checkpoint, if there is one, of this agent in a run with these terms. Messages stay on disk.
    pub fn load<T: Real>(&self, agent: usize, terms: &Terms) -> Result<Restored<T>, CheckpointError> {
        let path = self.path.join(CHECKPOINT);
        let failed = |error| unusable(&path, error);
        let Some(mut file) = open(&path)? else {
            farewell::forget(&self.path).map_err(|source| CheckpointError::Disk {
                action: "remove",
                path: self.path.join(FAREWELL),
                source,
            })?;
            let decisions = self.decisions()?.unwrap_or_default();
            return Ok(Restored {
                state: None,
                objective: None,
                memory: Memory { decisions, ..Memory::default() },
            });
        };
        if let Some(what) = foreign(&file.header, agent, terms) {
            return Err(CheckpointError::Foreign { path, what });
        }
        let names: Vec<String> = file.header.state.clone();
        let vectors: Vec<Vec<T>> =
            names.iter().map(|name| file.vector(name)).collect::<Result<_, _>>().map_err(failed)?;
        let remembers = file.names().any(|name| name == OBJECTIVE);
        let objective = remembers.then(|| file.vector::<T>(OBJECTIVE)).transpose().map_err(failed)?;
        let objective = objective.and_then(|numbers| unpack(&numbers));
        let entries = std::mem::take(&mut file.header.outbox);
        let kept = entries.into_iter().map(|entry| {
            let recipients = entry.recipients.clone();
            Ok(KeptMessage { content: Content::Disk(stored::<T>(&mut file, entry)?), recipients })
        });
        let outbox: Vec<KeptMessage<T>> = kept.collect::<Result<_, _>>().map_err(failed)?;
        let Header { job, mark, step, round, step_size, costs, gossip, mut known, scales, .. } = file.header;
        // What neighbours have confirmed since, while this agent was about to leave.
        for (id, mark) in Farewell::read(&self.path).into_iter().flat_map(|farewell| farewell.known) {
            let known = known.entry(id).or_default();
            *known = mark.max(*known);
        }
        let [vectors_sent, exchanges, bytes_sent, gradient_evals] = costs;
        let costs = Costs { vectors_sent, exchanges, bytes_sent, gradient_evals };
        let decisions = self.decisions()?.unwrap_or(file.header.decisions);
        let memory = Memory { mark, known, outbox, decisions, scales };
        let progress = Progress { step, round, step_size, costs };
        Ok(Restored { state: Some(State { job, mark, progress, vectors, gossip }), objective, memory })
    }

    /// What the checkpoint belongs to, if there is one: the terms it was made with, its job, and the rounds of that job that are done.
    pub fn belongs_to(&self) -> Result<Option<(Terms, usize, u64)>, CheckpointError> {
        let file = open(&self.path.join(CHECKPOINT))?;
        Ok(file.map(|file| (file.header.terms, file.header.job, file.header.round)))
    }

    /// Writes decisions about edges, which must be on disk before the neighbours learn of them.
    pub fn save_decisions(&self, decisions: &BTreeMap<usize, Decisions>) -> Result<(), CheckpointError> {
        let path = self.path.join(DECISIONS);
        mile_store::state::write(&path, decisions, &[]).map_err(|error| unusable(&path, error))
    }

    /// The decisions that were written last, if any were. This agent's are never older than in the checkpoint, and neighbours
    /// send theirs again.
    fn decisions(&self) -> Result<Option<BTreeMap<usize, Decisions>>, CheckpointError> {
        let path = self.path.join(DECISIONS);
        let file = StateFile::open(&path).map_err(|error| unusable(&path, error))?;
        Ok(file.map(|file| file.header))
    }
}

/// Which round the agent in a folder has reached by its checkpoint, if it has one; the folder may be in use.
pub fn standing(folder: &Path) -> Result<Option<Mark>, CheckpointError> {
    Ok(open(&folder.join(CHECKPOINT))?.map(|file| file.header.mark))
}

/// Opens a checkpoint, if there is one.
fn open(path: &Path) -> Result<Option<StateFile<Header>>, CheckpointError> {
    StateFile::open(path).map_err(|error| unusable(path, error))
}

impl OutboxEntry {
    fn of<T: Real>(kept: &KeptMessage<T>) -> Self {
        let KeptMessage { content, recipients } = kept;
        Self { mark: content.mark(), gossip: content.gossip().to_vec(), recipients: recipients.clone() }
    }
}

/// A message of a checkpoint.
fn stored<T: Real>(
    file: &mut StateFile<Header>,
    entry: OutboxEntry,
) -> Result<Arc<StoredMessage>, StateError> {
    let vectors = file.stored::<T>(&outbox_name(entry.mark))?;
    Ok(Arc::new(StoredMessage { mark: entry.mark, vectors, gossip: entry.gossip }))
}

/// The name of a kept message in a checkpoint.
fn outbox_name(mark: Mark) -> String {
    format!("outbox.{}", mark.exchange)
}

/// Why a checkpoint belongs to another run, if it does.
fn foreign(header: &Header, agent: usize, terms: &Terms) -> Option<String> {
    if header.agent != agent {
        return Some(format!("it belongs to agent {}, but this is agent {agent}", header.agent));
    }
    terms.differs(&header.terms).map(|(key, here, there)| format!("{key} is {here} here and {there} there"))
}

pub(crate) fn unusable(path: &Path, error: StateError) -> CheckpointError {
    match error {
        StateError::Io { path, action, source } => CheckpointError::Disk { action, path, source },
        StateError::Damaged { path, what } => CheckpointError::Damaged { path, what },
        other => CheckpointError::Disk {
            action: "use",
            path: path.to_owned(),
            source: std::io::Error::other(other),
        },
    }
}
