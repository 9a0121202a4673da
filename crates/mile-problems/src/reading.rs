//! Opening data files, and the progress of reading large ones.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Reading that takes less is not reported.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

type Show = dyn Fn(&str, f64) + Send + Sync;

static SHOW: OnceLock<Box<Show>> = OnceLock::new();

/// Calls `show` with the name of the data and the part that is read, from 0 to 1, while data are read that take longer
/// than a second; the last call has 1. Data are read while an experiment is planned, before there is a run to observe,
/// so this is set once for the process; a second call changes nothing.
pub fn show(show: impl Fn(&str, f64) + Send + Sync + 'static) {
    let _ = SHOW.set(Box::new(show));
}

/// Opens a data file. A pipe is refused: opening one waits until somebody writes to it, and data are read more than once.
pub fn open(path: &Path) -> std::io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() {
        return File::open(path);
    }
    let got = if kind.is_dir() { "a folder" } else { "a pipe or device; save its contents to a file" };
    Err(Error::new(ErrorKind::InvalidInput, mile::refusal::expected("a file", got)))
}

/// The progress of reading some files.
pub(crate) struct Reading {
    name: String,
    bytes: u64,
    read: AtomicU64,
    begun: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Reading {
    pub(crate) fn new(name: impl Into<String>, bytes: u64) -> Self {
        let (read, begun) = (AtomicU64::new(0), Instant::now());
        Self { name: name.into(), bytes: bytes.max(1), read, begun, shown: Mutex::default() }
    }

    pub(crate) fn advance(&self, bytes: u64) {
        let read = self.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(show) = SHOW.get().filter(|_| self.begun.elapsed() > QUIET) else { return };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_none_or(|last| last.elapsed() > INTERVAL) {
            *shown = Some(Instant::now());
            show(&self.name, (read as f64 / self.bytes as f64).min(0.99));
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(show), Some(_)) = (SHOW.get(), *shown) {
            show(&self.name, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_reading_is_shown_from_time_to_time_and_at_its_end() {
        static SHOWN: Mutex<Vec<(String, f64)>> = Mutex::new(Vec::new());
        show(|name, part| SHOWN.lock().unwrap().push((name.to_owned(), part)));
        Reading::new("quick.csv", 100).advance(50);
        let mut slow = Reading::new("slow.csv", 100);
        slow.begun = slow.begun.checked_sub(2 * QUIET).unwrap();
        slow.advance(43);
        slow.advance(10);
        drop(slow);
        let shown = SHOWN.lock().unwrap();
        let of = |name: &str| -> Vec<f64> {
            shown.iter().filter(|(n, _)| n == name).map(|(_, part)| *part).collect()
        };
        assert_eq!((of("slow.csv"), of("quick.csv")), (vec![0.43, 1.0], vec![]));
    }
}
