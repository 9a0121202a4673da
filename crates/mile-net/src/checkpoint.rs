//! An agent's folder on disk: its checkpoint, from which it resumes exactly.
//!
//! A checkpoint is a safetensors file with the state vectors, with what the agent's objective remembers, and with the agent's own messages
//! that neighbours may still ask for; see [`mile_store`]. Every file is the old one or the complete new one, even after a crash, and has checksums.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::RoundRange;
    use crate::outbox::{Message, MessageForm};
    use mile::method::{Layout, Unit};

    fn terms() -> Terms {
        let facts = BTreeMap::from([("seeds".into(), "[0]".into())]);
        Terms { run: "test".into(), dim: 3, precision: "f32".into(), facts }
    }

    /// Saves a state with this memory.
    fn save(folder: &Folder, memory: &Memory<f32>) -> State<f32> {
        let costs = Costs { vectors_sent: 7, exchanges: 7, bytes_sent: 168, gradient_evals: 31 };
        let progress = Progress { step: 30, round: 6, step_size: 0.1, costs };
        let vectors = vec![vec![1.5f32, -2.0, f32::NAN], vec![0.25, 0.0, -0.0]];
        let gossip = Gossip::default();
        let layout = Layout::new([("x", Unit::Fixed), ("c", Unit::StepSize)], ["g"]);
        let end = RoundEnd {
            job: 1,
            mark: memory.mark,
            progress: &progress,
            layout: &layout,
            vectors: &vectors,
            gossip: &gossip,
            last: false,
        };
        folder.save(1, &terms(), &end, Some(b"statistics"), memory).unwrap();
        end.state()
    }

    fn write(folder: &Folder, elements: usize) -> (State<f32>, Memory<f32>) {
        let mark = Mark { exchange: 7, round: 6 };
        let message = Message {
            mark: Mark { exchange: 6, round: 5 },
            vectors: (0..elements).map(|k| 9.0 + k as f32).collect(),
            form: MessageForm::Whole,
            gossip: vec![f64::INFINITY],
        };
        let mut decisions = Decisions::default();
        decisions.add(RoundRange { from: 5, to: 6, used: false }).unwrap();
        let memory = Memory {
            mark,
            known: BTreeMap::from([(2, Mark { exchange: 6, round: 5 })]),
            outbox: vec![KeptMessage { content: Content::Memory(Arc::new(message)), recipients: vec![2] }],
            decisions: BTreeMap::from([(2, decisions)]),
            scales: vec![1.0, 0.1f64.cbrt()],
        };
        (save(folder, &memory), memory)
    }

    /// Everything that was saved, as text: NaN is equal to itself there.
    fn all(state: &State<f32>, memory: &Memory<f32>) -> String {
        let Memory { mark, known, outbox, decisions, scales } = memory;
        let messages: Vec<_> = outbox
            .iter()
            .map(|KeptMessage { content, recipients }| {
                let elements = content.read(0..content.elements()).unwrap().into_owned();
                (content.mark(), elements, content.gossip().to_vec(), recipients)
            })
            .collect();
        format!("{state:?} {mark:?} {known:?} {messages:?} {decisions:?} {scales:?}")
    }

    #[test]
    fn what_was_saved_is_read_and_nothing_else_is_mistaken_for_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
        assert!(folder.load::<f32>(1, &terms()).unwrap().state.is_none());
        let (state, memory) = write(&folder, 3);
        let expected = all(&state, &memory);
        let read = folder.load::<f32>(1, &terms()).unwrap();
        assert_eq!(all(&read.state.unwrap(), &read.memory), expected);
        assert_eq!(read.objective.as_deref(), Some(&b"statistics"[..]));
        assert_eq!(standing(home.path()).unwrap(), Some(Mark { exchange: 7, round: 6 }));
        assert_eq!(folder.belongs_to().unwrap(), Some((terms(), 1, 6)));

        let path = folder.path().join(CHECKPOINT);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = folder.load::<f32>(1, &terms()).unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{length}: {error}");
        }
        fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        let error = folder.load::<f32>(1, &terms()).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "one byte more: {error}");
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << (place % 8);
            fs::write(&path, &damaged).unwrap();
            // A flipped bit in what is not used, such as a tensor's shape, does no harm.
            if let Ok(read) = folder.load::<f32>(1, &terms()) {
                assert_eq!(all(&read.state.unwrap(), &read.memory), expected, "byte {place}");
                assert_eq!(read.objective.as_deref(), Some(&b"statistics"[..]), "byte {place}");
            }
        }
    }

    #[test]
    fn large_messages_are_read_from_the_checkpoint_and_copied_into_the_next_one() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
        let small = write(&folder, 3).1;
        assert!(folder.stored(&small).unwrap().is_empty());
        let (state, memory) = write(&folder, LARGE / 4);
        let expected = all(&state, &memory);
        let [stored] = &folder.stored(&memory).unwrap()[..] else { panic!("one message") };
        let recipients = vec![2];
        let outbox = vec![KeptMessage { content: Content::Disk(stored.clone()), recipients }];
        let memory = Memory { outbox, ..memory };
        assert_eq!(all(&state, &memory), expected);
        let path = folder.path().join(CHECKPOINT);
        let before = fs::read(&path).unwrap();
        save(&folder, &memory);
        assert_eq!(fs::read(&path).unwrap(), before);
        let read = folder.load::<f32>(1, &terms()).unwrap();
        assert_eq!(all(&read.state.unwrap(), &read.memory), expected);
        assert_eq!(folder.stored(&memory).unwrap().len(), 1);
        // The new checkpoint is wrong from here on, and that must not go unnoticed.
        let mut damaged = before;
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(&path, &damaged).unwrap();
        let error = folder.stored(&memory).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_checkpoint_of_another_run_or_agent_is_refused_with_what_differs() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
        write(&folder, 3);
        let refused = |agent, terms: &Terms| match folder.load::<f32>(agent, terms).unwrap_err() {
            CheckpointError::Foreign { what, .. } => what,
            other => panic!("{other}"),
        };
        assert!(refused(2, &terms()).contains("agent 2"));
        let mut other = terms();
        other.facts.insert("seeds".into(), "[1]".into());
        assert!(refused(1, &other).contains("seeds"));
        let error = folder.load::<f64>(1, &terms()).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
    }

    #[test]
    fn decisions_on_disk_come_before_those_in_the_checkpoint_and_are_whole_or_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
        let (_, memory) = write(&folder, 3);
        let mut later = memory.decisions.clone();
        later.get_mut(&2).unwrap().add(RoundRange { from: 7, to: 9, used: true }).unwrap();
        folder.save_decisions(&later).unwrap();
        assert_eq!(folder.load::<f32>(1, &terms()).unwrap().memory.decisions, later);
        let path = folder.path().join(DECISIONS);
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(folder.load::<f32>(1, &terms()).is_err(), "byte {place}");
        }
    }

    #[test]
    fn what_neighbours_confirmed_before_the_agent_left_is_known_at_the_next_start_of_the_same_run() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
        let later = Mark { exchange: 7, round: 6 };
        let farewell = Farewell { mark: later, known: BTreeMap::from([(2, later)]), parted: [2].into() };
        let known = || folder.load::<f32>(1, &terms()).unwrap().memory.known;
        farewell.write(home.path()).unwrap();
        assert!(known().is_empty(), "without a checkpoint it is of another run");
        write(&folder, 3);
        assert_eq!(known(), BTreeMap::from([(2, Mark { exchange: 6, round: 5 })]), "and is removed");
        farewell.write(home.path()).unwrap();
        assert_eq!((known(), Farewell::read(home.path())), (farewell.known.clone(), Some(farewell)));
        let path = home.path().join(FAREWELL);
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(known(), BTreeMap::from([(2, Mark { exchange: 6, round: 5 })]), "byte {place}");
        }
    }

    #[test]
    fn every_start_has_a_larger_number() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
        assert_eq!([(); 3].map(|()| folder.incarnation().unwrap()), [1, 2, 3]);
        for damaged in ["", "-1", "two", "18446744073709551615"] {
            fs::write(folder.path().join(INCARNATION), damaged).unwrap();
            let error = folder.incarnation().unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{damaged}: {error}");
        }
    }

    #[test]
    fn a_folder_is_locked_while_it_is_open_and_a_predecessor_that_ends_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("new");
        let folder = Folder::open(&path, Duration::ZERO).unwrap();
        let leftover = path.join(".decisions.safetensors.aB3xYz");
        fs::write(&leftover, "half of it").unwrap();
        let second = Folder::open(&path, Duration::from_millis(30)).unwrap_err();
        assert!(matches!(second, CheckpointError::InUse(_)), "{second}");
        assert!(leftover.exists(), "it may be in use");
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(folder);
        });
        Folder::open(&path, Duration::from_secs(20)).unwrap();
        ending.join().unwrap();
        assert!(!leftover.exists());
    }
}
