//! An agent's state on disk, from which it goes on as if nothing had happened.
//!
//! A checkpoint is a safetensors file: state vectors, and own messages that neighbours may still ask for. It is written under
//! another name, synced, and renamed, so it is the old one or the new one; a checksum tells a file that was damaged
//! later.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::agents::Costs;
use mile::real::Real;
use mile::run::Progress;
use safetensors::tensor::{Dtype, Metadata, TensorView};
use serde::{Deserialize, Serialize};

use crate::agent::{Moment, State};
use crate::edge::Decisions;
use crate::gossip::Gossip;
use crate::hello::{Mark, Terms};
use crate::numbers::bits;
use crate::outbox::{Kept, Message};
use crate::session::Memory;

/// A checkpoint that cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The disk will not have it.
    #[error(
        "cannot {action} {path}: {source}; the last checkpoint is whole: free or repair the disk and start the agent again"
    )]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not a whole checkpoint.
    #[error(
        "{path} is not a whole checkpoint ({what}): restore it from a copy; without it this agent cannot rejoin, and all agents must start anew with empty folders"
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another process works with it.
    #[error(
        "{0} is in use by another agent that is still running: end it first, or give this one another folder"
    )]
    InUse(PathBuf),
    /// It belongs to another run.
    #[error(
        "{path} belongs to another run: {what}; give the agent another folder, or restore the settings it was made with"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
}

/// A folder held by one agent, until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Held(#[allow(dead_code)] File);

/// Where an agent keeps its state.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// What was on disk.
#[derive(Debug)]
pub struct Restored<T> {
    /// The state, unless this is the first start.
    pub state: Option<State<T>>,
    /// What the session must not forget.
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
}

#[derive(Serialize, Deserialize)]
struct OutboxEntry {
    mark: Mark,
    #[serde(with = "bits")]
    gossip: Vec<f64>,
    recipients: Vec<usize>,
}

const META: &str = "mile-agent";
const CHECKSUM: &str = "crc32c";

impl Folder {
    /// A folder, made if it is not there, that can be written to.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let failed = |source| CheckpointError::Disk { action: "create", path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(failed)?;
        Ok(Self { path: path.to_owned() })
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Keeps other processes from working with it, and removes what an interrupted write has left.
    pub fn hold(&self) -> Result<Held, CheckpointError> {
        let path = self.file("lock");
        let failed = |source| CheckpointError::Disk { action: "lock", path: path.clone(), source };
        let file = File::create(&path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => CheckpointError::InUse(self.path.clone()),
            fs::TryLockError::Error(source) => failed(source),
        })?;
        for entry in fs::read_dir(&self.path).map_err(failed)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(".tmp") {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Held(file))
    }

    /// Counts the starts of this agent: a number larger than at every earlier start.
    pub fn incarnation(&self) -> Result<u64, CheckpointError> {
        let path = self.file("incarnation");
        let last = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().unwrap_or(0),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(source) => return Err(CheckpointError::Disk { action: "read", path, source }),
        };
        write_whole(&path, |file| write!(file, "{}", last + 1))?;
        Ok(last + 1)
    }

    /// Writes a state and what its session must not forget.
    pub fn save<T: Real>(
        &self,
        agent: usize,
        terms: &Terms,
        moment: &Moment<T>,
        memory: &Memory<T>,
    ) -> Result<(), CheckpointError> {
        let path = self.file("checkpoint.safetensors");
        let messages = memory.outbox.iter().map(|kept| kept.message.vectors.as_slice());
        let names = moment.layout.state.iter().map(|(name, _)| (*name).to_owned());
        let entries = memory.outbox.iter().map(|kept| format!("outbox.{}", kept.message.mark.exchange));
        let vectors: Vec<&[T]> = moment.vectors.iter().map(Vec::as_slice).chain(messages).collect();
        let Progress { step, round, step_size, costs } = *moment.progress;
        let Costs { vectors_sent, exchanges, bytes_sent, gradient_evals } = costs;
        let header = Header {
            agent,
            terms: terms.clone(),
            job: moment.job,
            mark: moment.mark,
            step,
            round,
            step_size,
            costs: [vectors_sent, exchanges, bytes_sent, gradient_evals],
            state: moment.layout.state.iter().map(|(name, _)| (*name).to_owned()).collect(),
            gossip: moment.gossip.clone(),
            known: memory.known.clone(),
            decisions: memory.decisions.clone(),
            outbox: memory.outbox.iter().map(OutboxEntry::of).collect(),
        };
        let views = names.chain(entries).zip(&vectors).map(|(name, vector)| {
            Ok((name, TensorView::new(dtype::<T>(), vec![vector.len()], bytemuck::cast_slice(vector))?))
        });
        let failed = |error: safetensors::SafeTensorError| CheckpointError::Disk {
            action: "write",
            path: path.clone(),
            source: std::io::Error::other(error),
        };
        let views: Vec<(String, TensorView)> = views.collect::<Result<_, _>>().map_err(failed)?;
        let text = serde_json::to_string(&header).map_err(|error| CheckpointError::Disk {
            action: "write",
            path: path.clone(),
            source: error.into(),
        })?;
        let temporary = path.with_added_extension("tmp");
        let sum = checksum(&text, vectors.iter().copied());
        let meta = HashMap::from([(META.to_owned(), text), (CHECKSUM.to_owned(), sum)]);
        safetensors::serialize_to_file(views, Some(meta), &temporary).map_err(failed)?;
        settle(&temporary, &path)
    }

    /// Reads what is there.
    pub fn load<T: Real>(&self, agent: usize, terms: &Terms) -> Result<Restored<T>, CheckpointError> {
        let path = self.file("checkpoint.safetensors");
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let decisions = self.decisions(BTreeMap::new())?;
                return Ok(Restored { state: None, memory: Memory { decisions, ..Memory::default() } });
            }
            Err(source) => return Err(CheckpointError::Disk { action: "read", path, source }),
        };
        let torn = |what: String| CheckpointError::Torn { path: path.clone(), what };
        let (start, metadata) = metadata(&mut file).map_err(torn)?;
        let meta = |key: &str| metadata.metadata().as_ref().and_then(|meta| meta.get(key));
        let text = meta(META).ok_or_else(|| torn("it has no header".into()))?;
        let header: Header = serde_json::from_str(text).map_err(|error| torn(error.to_string()))?;
        if let Some(what) = foreign(&header, agent, terms) {
            return Err(CheckpointError::Foreign { path, what });
        }
        let mut read = |name: &str| tensor::<T>(&mut file, start, &metadata, name).map_err(torn);
        let vectors: Vec<Vec<T>> = header.state.iter().map(|name| read(name)).collect::<Result<_, _>>()?;
        let name = |entry: &OutboxEntry| format!("outbox.{}", entry.mark.exchange);
        let messages: Vec<Vec<T>> =
            header.outbox.iter().map(|entry| read(&name(entry))).collect::<Result<_, _>>()?;
        let sum = checksum(text, vectors.iter().chain(&messages).map(Vec::as_slice));
        if meta(CHECKSUM) != Some(&sum) {
            return Err(torn("its checksum differs".into()));
        }
        let Header { job, mark, step, round, step_size, costs, gossip, known, outbox, .. } = header;
        let [vectors_sent, exchanges, bytes_sent, gradient_evals] = costs;
        let costs = Costs { vectors_sent, exchanges, bytes_sent, gradient_evals };
        let kept = outbox.into_iter().zip(messages).map(|(entry, vectors)| Kept {
            message: Arc::new(Message { mark: entry.mark, vectors, gossip: entry.gossip }),
            recipients: entry.recipients,
        });
        let decisions = self.decisions(header.decisions)?;
        let memory = Memory { mark, known, outbox: kept.collect(), decisions };
        let progress = Progress { step, round, step_size, costs };
        Ok(Restored { state: Some(State { job, mark, progress, vectors, gossip }), memory })
    }

    /// Writes decisions about edges, which must be on disk before the other ends learn of them.
    pub fn save_decisions(&self, decisions: &BTreeMap<usize, Decisions>) -> Result<(), CheckpointError> {
        let text = serde_json::to_string(decisions).unwrap_or_default();
        let sum = checksum::<f64>(&text, std::iter::empty());
        write_whole(&self.file("decisions"), |file| write!(file, "{sum}\n{text}"))
    }

    /// The decisions made after a checkpoint, or else those in it.
    fn decisions(
        &self,
        checkpointed: BTreeMap<usize, Decisions>,
    ) -> Result<BTreeMap<usize, Decisions>, CheckpointError> {
        let path = self.file("decisions");
        match fs::read_to_string(&path) {
            Ok(text) => {
                let torn = |what: String| CheckpointError::Torn { path: path.clone(), what };
                let (sum, text) = text.split_once('\n').ok_or_else(|| torn("it is cut short".into()))?;
                if checksum::<f64>(text, std::iter::empty()) != sum {
                    return Err(torn("its checksum differs".into()));
                }
                serde_json::from_str(text).map_err(|error| torn(error.to_string()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(checkpointed),
            Err(source) => Err(CheckpointError::Disk { action: "read", path, source }),
        }
    }
}

impl OutboxEntry {
    fn of<T>(kept: &Kept<T>) -> Self {
        let Message { mark, gossip, .. } = &*kept.message;
        Self { mark: *mark, gossip: gossip.clone(), recipients: kept.recipients.clone() }
    }
}

/// Where the tensors start, and what they are.
fn metadata(file: &mut File) -> Result<(u64, Metadata), String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut bytes = vec![0; 8];
    file.read_exact(&mut bytes).map_err(|error| error.to_string())?;
    let size = u64::from_le_bytes(std::array::from_fn(|k| bytes[k]));
    if size > length.saturating_sub(8) {
        return Err("it is cut short".into());
    }
    bytes.resize(8 + size as usize, 0);
    file.read_exact(&mut bytes[8..]).map_err(|error| error.to_string())?;
    // Not `SafeTensors::read_metadata`, which wants the whole file in memory.
    let metadata: Metadata = serde_json::from_slice(&bytes[8..]).map_err(|error| error.to_string())?;
    Ok((8 + size, metadata))
}

fn tensor<T: Real>(file: &mut File, start: u64, metadata: &Metadata, name: &str) -> Result<Vec<T>, String> {
    let info = metadata.info(name).ok_or_else(|| format!("{name} is not in it"))?;
    if info.dtype != dtype::<T>() {
        return Err(format!("{name} is {:?}", info.dtype));
    }
    let (from, to) = info.data_offsets;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if from > to || to as u64 > length.saturating_sub(start) {
        return Err("it is cut short".into());
    }
    let mut vector = vec![T::zero(); (to - from) / size_of::<T>()];
    file.seek(SeekFrom::Start(start + from as u64)).map_err(|error| error.to_string())?;
    file.read_exact(bytemuck::cast_slice_mut(&mut vector)).map_err(|error| error.to_string())?;
    Ok(vector)
}

/// What makes a checkpoint that of another run.
fn foreign(header: &Header, agent: usize, terms: &Terms) -> Option<String> {
    if header.agent != agent {
        return Some(format!("it is of agent {}, and this is agent {agent}", header.agent));
    }
    terms.differs(&header.terms).map(|(key, here, there)| format!("{key} is {here} here and {there} there"))
}

fn dtype<T: Real>() -> Dtype {
    if T::NAME == "f32" { Dtype::F32 } else { Dtype::F64 }
}

fn checksum<'a, T: Real>(text: &str, vectors: impl Iterator<Item = &'a [T]>) -> String {
    let of_text = crc32c::crc32c(text.as_bytes());
    let sum = vectors.fold(of_text, |sum, vector| crc32c::crc32c_append(sum, bytemuck::cast_slice(vector)));
    format!("{sum:08x}")
}

/// Writes a file so that it is the old one or the whole new one, also after a power failure.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<(), CheckpointError> {
    let temporary = path.with_added_extension("tmp");
    let failed = |source| CheckpointError::Disk { action: "write", path: path.to_owned(), source };
    File::create(&temporary).and_then(|mut file| write(&mut file)).map_err(failed)?;
    settle(&temporary, path)
}

fn settle(temporary: &Path, path: &Path) -> Result<(), CheckpointError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let sync = || {
        File::open(temporary)?.sync_all()?;
        fs::rename(temporary, path)?;
        File::open(folder)?.sync_all()
    };
    sync().map_err(|source| CheckpointError::Disk { action: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::Range;
    use mile::method::{Layout, Unit};

    const LAYOUT: Layout = Layout { state: &[("x", Unit::Fixed), ("c", Unit::StepSize)], scratch: &["g"] };

    fn terms() -> Terms {
        let facts = BTreeMap::from([("seeds".into(), "[0]".into())]);
        Terms { run: "test".into(), dim: 3, precision: "f32".into(), facts }
    }

    fn write(folder: &Folder) -> (State<f32>, Memory<f32>) {
        let mark = Mark { exchange: 7, round: 6 };
        let costs = Costs { vectors_sent: 7, exchanges: 7, bytes_sent: 168, gradient_evals: 31 };
        let progress = Progress { step: 30, round: 6, step_size: 0.1, costs };
        let vectors = vec![vec![1.5f32, -2.0, f32::NAN], vec![0.25, 0.0, -0.0]];
        let gossip = Gossip::default();
        let moment = Moment {
            job: 1,
            mark,
            progress: &progress,
            layout: LAYOUT,
            vectors: &vectors,
            gossip: &gossip,
            last: false,
        };
        let message = Message {
            mark: Mark { exchange: 6, round: 5 },
            vectors: vec![9.0; 3],
            gossip: vec![f64::INFINITY],
        };
        let mut decisions = Decisions::default();
        assert!(decisions.add(Range { from: 5, to: 6, used: false }));
        let memory = Memory {
            mark,
            known: BTreeMap::from([(2, Mark { exchange: 6, round: 5 })]),
            outbox: vec![Kept { message: Arc::new(message), recipients: vec![2] }],
            decisions: BTreeMap::from([(2, decisions)]),
        };
        folder.save(1, &terms(), &moment, &memory).unwrap();
        (moment.state(), memory)
    }

    /// All that was saved, as text: NaN is equal to itself there.
    fn all(state: &State<f32>, memory: &Memory<f32>) -> String {
        format!("{state:?} {memory:?}")
    }

    #[test]
    fn what_was_saved_is_read_and_nothing_else_is_taken_for_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        assert!(folder.load::<f32>(1, &terms()).unwrap().state.is_none());
        let (state, memory) = write(&folder);
        let expected = all(&state, &memory);
        let read = folder.load::<f32>(1, &terms()).unwrap();
        assert_eq!(all(&read.state.unwrap(), &read.memory), expected);

        let path = folder.file("checkpoint.safetensors");
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = folder.load::<f32>(1, &terms()).unwrap_err();
            assert!(matches!(error, CheckpointError::Torn { .. }), "{length}: {error}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << (place % 8);
            fs::write(&path, &damaged).unwrap();
            // A flipped bit in what is not used, such as a tensor's shape, does no harm.
            if let Ok(read) = folder.load::<f32>(1, &terms()) {
                assert_eq!(all(&read.state.unwrap(), &read.memory), expected, "byte {place}");
            }
        }
    }

    #[test]
    fn a_checkpoint_of_another_run_or_agent_is_refused_with_what_differs() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        write(&folder);
        let refused = |agent, terms: &Terms| folder.load::<f32>(agent, terms).unwrap_err().to_string();
        assert!(refused(2, &terms()).contains("it is of agent 1, and this is agent 2"));
        let mut other = terms();
        other.facts.insert("seeds".into(), "[1]".into());
        assert!(refused(1, &other).contains("seeds is [1] here and [0] there"));
        let error = folder.load::<f64>(1, &terms()).unwrap_err();
        assert!(matches!(error, CheckpointError::Torn { .. }), "{error}");
    }

    #[test]
    fn decisions_on_disk_come_before_those_in_the_checkpoint_and_are_whole_or_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let (_, memory) = write(&folder);
        let mut later = memory.decisions.clone();
        assert!(later.get_mut(&2).unwrap().add(Range { from: 7, to: 9, used: true }));
        folder.save_decisions(&later).unwrap();
        assert_eq!(folder.load::<f32>(1, &terms()).unwrap().memory.decisions, later);
        let path = folder.file("decisions");
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(folder.load::<f32>(1, &terms()).is_err(), "byte {place}");
        }
    }

    #[test]
    fn every_start_has_a_larger_number() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        assert_eq!([(); 3].map(|()| folder.incarnation().unwrap()), [1, 2, 3]);
    }
}
