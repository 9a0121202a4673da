//! Writes records as TensorBoard event files, in one folder for each algorithm and seed.
//!
//! An event file is a sequence of records, each a protobuf message `Event` between its length and checksums:
//!
//! ```text
//! u64 length | u32 masked crc32c(length) | bytes | u32 masked crc32c(bytes)
//! Event   { 1: double wall_time, 2: int64 step, 3: string file_version | 5: Summary }
//! Summary { 1: repeated Value { 1: string tag, 2: float simple_value } }
//! ```

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::LabError;
use crate::observer::Observer;
use crate::plan::Job;
use crate::quantity::Quantity;
use crate::record::Record;
use crate::store::Outcome;

/// Prefix and suffix of the names of event files, around the time.
const PREFIX: &str = "events.out.tfevents.";
const SUFFIX: &str = ".mile";

/// An observer that writes each record to TensorBoard event files.
#[derive(Debug)]
pub struct EventFiles {
    folder: PathBuf,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<(String, u64), (PathBuf, File)>,
    failure: Option<LabError>,
}

impl EventFiles {
    /// Event files in `tensorboard/` of a run directory. Nothing is written before the run directory is opened.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.join("tensorboard"), open: Mutex::default() }
    }

    /// Returns the first error that occurred during the run, if any.
    pub fn finish(self) -> Result<(), LabError> {
        let open = self.open.into_inner().unwrap_or_else(PoisonError::into_inner);
        open.failure.map_or(Ok(()), Err)
    }

    /// Keeps the first error; the run continues.
    fn note(&self, result: Result<(), LabError>) {
        if let Err(error) = result {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.failure.get_or_insert(error);
        }
    }

    fn write(&self, record: &Record) -> Result<(), LabError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (record.label.clone(), record.seed);
        if !open.files.contains_key(&key) {
            let begun = begin(&self.folder, record)?;
            open.files.insert(key.clone(), begun);
        }
        let Some((path, file)) = open.files.get_mut(&key) else { return Ok(()) };
        let bytes = framed(&event(now(), record.round, &summary(record)));
        file.write_all(&bytes).map_err(LabError::io(path, "write"))
    }
}

impl Observer for EventFiles {
    /// Rewrites the event files of earlier processes, which may have events after the last kept record.
    fn opened(&self, records: &[Record], _: &[Outcome]) {
        let replaced = remove_events(&self.folder);
        self.note(replaced.and_then(|()| records.iter().try_for_each(|record| self.write(record))));
    }

    fn recorded(&self, _: Job, record: &Record) {
        self.note(self.write(record));
    }
}

/// Removes the event files of earlier processes, and no other files.
fn remove_events(folder: &Path) -> Result<(), LabError> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>, LabError> {
        let failed = || LabError::io(folder, "read");
        let entries = fs::read_dir(folder).map_err(failed())?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed())).collect()
    };
    if !folder.exists() {
        return Ok(());
    }
    for run in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        for path in entries(&run)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                fs::remove_file(&path).map_err(LabError::io(&path, "replace"))?;
            }
        }
    }
    Ok(())
}

fn begin(folder: &Path, record: &Record) -> Result<(PathBuf, File), LabError> {
    let safe = |c: char| if c.is_alphanumeric() || "-_.,+= ".contains(c) { c } else { '_' };
    let label: String = record.label.chars().map(safe).collect();
    let folder = folder.join(format!("{label}-seed{}", record.seed));
    fs::create_dir_all(&folder).map_err(LabError::io(&folder, "create"))?;
    let path = folder.join(format!("{PREFIX}{:.0}{SUFFIX}", now()));
    let mut file = File::create(&path).map_err(LabError::io(&path, "write"))?;
    let mut version = Vec::new();
    double(&mut version, 1, now());
    bytes(&mut version, 3, b"brain.Event:2");
    file.write_all(&framed(&version)).map_err(LabError::io(&path, "write"))?;
    Ok((path, file))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The values of a record; TensorBoard marks those that are not finite.
fn summary(record: &Record) -> Vec<u8> {
    let quantities = Quantity::ALL.into_iter().filter_map(|q| Some((q.name(), q.of(record)?)));
    let more = record.more.iter().map(|(name, value)| (name.as_str(), value.unwrap_or(f64::NAN)));
    let costs = [
        ("bytes_sent", record.bytes_sent as f64),
        ("gradient_evals", record.gradient_evals as f64),
        ("wall_s", record.wall_s),
    ];
    let mut summary = Vec::new();
    let modelled = record.modelled_s.map(|seconds| ("modelled_s", seconds));
    for (tag, value) in quantities.chain(more).chain(costs).chain(modelled) {
        let mut inner = Vec::new();
        bytes(&mut inner, 1, tag.as_bytes());
        inner.push((2 << 3) | 5);
        inner.extend((value as f32).to_le_bytes());
        bytes(&mut summary, 1, &inner);
    }
    summary
}

fn event(wall_time: f64, step: u64, summary: &[u8]) -> Vec<u8> {
    let mut event = Vec::new();
    double(&mut event, 1, wall_time);
    event.push(2 << 3);
    varint(&mut event, step);
    bytes(&mut event, 5, summary);
    event
}

fn double(out: &mut Vec<u8>, field: u8, value: f64) {
    out.push((field << 3) | 1);
    out.extend(value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push((field << 3) | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A message between its length and checksums.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    let mut frame = length.to_vec();
    frame.extend(masked(&length).to_le_bytes());
    frame.extend(message);
    frame.extend(masked(message).to_le_bytes());
    frame
}

fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of an event file, every length and checksum checked.
    fn messages(mut data: &[u8]) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while !data.is_empty() {
            let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
            let length = u64::from_le_bytes(data[..8].try_into().unwrap()) as usize;
            assert_eq!(word(8), masked(&data[..8]));
            assert_eq!(word(12 + length), masked(&data[12..12 + length]));
            messages.push(data[12..12 + length].to_vec());
            data = &data[16 + length..];
        }
        messages
    }

    /// The fields of a message: number and payload.
    fn fields(mut data: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let take_varint = |data: &mut &[u8]| {
            let (mut value, mut shift) = (0u64, 0);
            loop {
                let byte = data[0];
                *data = &data[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        };
        let mut fields = Vec::new();
        while !data.is_empty() {
            let key = take_varint(&mut data) as u8;
            let length = match key & 7 {
                0 => {
                    let value = take_varint(&mut data);
                    fields.push((key >> 3, value.to_le_bytes().to_vec()));
                    continue;
                }
                1 => 8,
                5 => 4,
                _ => take_varint(&mut data) as usize,
            };
            fields.push((key >> 3, data[..length].to_vec()));
            data = &data[length..];
        }
        fields
    }

    fn record(round: u64, loss: f64) -> Record {
        crate::record::tests::record("a/b", 3, round, loss)
    }

    #[test]
    fn what_is_written_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let files = EventFiles::new(folder.path());
        files.opened(&[record(0, 1.5)], &[]);
        let job = Job { algorithm: 0, seed: 3 };
        files.recorded(job, &record(300, 0.25));
        files.recorded(job, &record(400, f64::NAN));
        files.finish().unwrap();
        let inner = folder.path().join("tensorboard/a_b-seed3");
        let file = fs::read_dir(inner).unwrap().next().unwrap().unwrap().path();
        assert!(file.to_string_lossy().contains("tfevents"));
        let messages = messages(&fs::read(file).unwrap());
        assert_eq!(messages.len(), 4);
        assert_eq!(fields(&messages[0])[1], (3, b"brain.Event:2".to_vec()));
        let expected = [(0u64, 1.5f32), (300, 0.25), (400, f32::NAN)];
        for (message, (step, loss)) in messages[1..].iter().zip(expected) {
            let event = fields(message);
            assert_eq!(event[1], (2, step.to_le_bytes().to_vec()));
            let values = fields(&event[2].1);
            let first = fields(&values[0].1);
            assert_eq!(first[0], (1, b"loss".to_vec()));
            let value = f32::from_le_bytes(first[1].1.clone().try_into().unwrap());
            assert!(value == loss || (value.is_nan() && loss.is_nan()));
        }
    }

    /// Event files below a folder, and the events in them, without the one that begins a file.
    fn events(folder: &Path) -> (usize, usize) {
        let list = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<PathBuf> = list(folder.join("tensorboard")).flat_map(list).collect();
        let ours = |path: &&PathBuf| path.to_string_lossy().ends_with(SUFFIX);
        let count = |path: &PathBuf| messages(&fs::read(path).unwrap()).len() - 1;
        (files.len(), files.iter().filter(ours).map(count).sum())
    }

    #[test]
    fn events_of_an_earlier_process_are_replaced_when_the_directory_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let job = Job { algorithm: 0, seed: 3 };
        let first = EventFiles::new(folder.path());
        first.opened(&[], &[]);
        (0..5).for_each(|round| first.recorded(job, &record(round, 1.0)));
        let inner = folder.path().join("tensorboard/a_b-seed3");
        fs::rename(
            fs::read_dir(&inner).unwrap().next().unwrap().unwrap().path(),
            inner.join("events.out.tfevents.1.mile"),
        )
        .unwrap();
        fs::write(inner.join("events.out.tfevents.1.theirs"), "").unwrap();
        // A process that is refused never opens the directory.
        EventFiles::new(folder.path()).finish().unwrap();
        assert_eq!(events(folder.path()), (2, 5));
        // A resumed process has dropped the last two records.
        let kept: Vec<Record> = (0..3).map(|round| record(round, 1.0)).collect();
        let second = EventFiles::new(folder.path());
        second.opened(&kept, &[]);
        (3..6).for_each(|round| second.recorded(job, &record(round, 1.0)));
        second.finish().unwrap();
        assert_eq!(events(folder.path()), (2, 6));
    }

    /// The golden file was written by TensorBoard's own writer: see `tests/data/tensorboard-golden.py`.
    #[test]
    fn every_byte_but_the_time_is_what_tensorboard_writes() {
        let folder = tempfile::tempdir().unwrap();
        let files = EventFiles::new(folder.path());
        files.opened(&[record(1, 1.5), record(300, 0.25), record(40_000, f64::INFINITY)], &[]);
        files.finish().unwrap();
        let inner = folder.path().join("tensorboard/a_b-seed3");
        let file = fs::read_dir(inner).unwrap().next().unwrap().unwrap().path();
        let mut ours = Vec::new();
        for (k, mut message) in messages(&fs::read(file).unwrap()).into_iter().enumerate() {
            message[1..9].copy_from_slice(&(1.7e9 + 0.5 * k as f64).to_le_bytes());
            ours.extend(framed(&message));
        }
        assert_eq!(ours, include_bytes!("../tests/data/tensorboard-golden.tfevents"));
    }
}
