//! Opening files of users, and the progress of reading large ones.

use std::fmt;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reading that takes less is not reported.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

type Show = dyn Fn(&str, f64) + Send + Sync;

/// Who is told how much of large data files has been read; nobody by default.
///
/// Data are read while an experiment is planned, before there is a run to observe, so [`Kinds`](crate::Kinds) carry it.
#[derive(Clone, Default)]
pub struct ReadingProgress(Option<Arc<Show>>);

impl ReadingProgress {
    /// Calls `show` with the name of the data and the part that has been read, from 0 to 1, while data are read that take
    /// longer than a second; the last call has 1.
    pub fn shown(show: impl Fn(&str, f64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(show)))
    }
}

impl fmt::Debug for ReadingProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadingProgress").finish_non_exhaustive()
    }
}

/// Opens a file. A pipe is refused: opening one waits until somebody writes to it, and files are read more than once.
pub fn open(path: &Path) -> std::io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() {
        return File::open(path);
    }
    let got = if kind.is_dir() { "a folder" } else { "a pipe or device; save its contents to a file" };
    Err(Error::new(ErrorKind::InvalidInput, mile::refusal::expected("a file", got)))
}

/// The text of a file of UTF-8, such as an experiment file. Other text is refused by what it is: editors and shells of Windows write UTF-16.
pub fn text(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|error| {
        let (valid, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let got = match bytes {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16".to_owned(),
            _ => format!(
                "a byte that is not in line {}",
                1 + bytes[..valid].iter().filter(|byte| **byte == b'\n').count()
            ),
        };
        let got = format!("{got}; save it as UTF-8");
        Error::new(ErrorKind::InvalidData, mile::refusal::expected("text in UTF-8", got))
    })
}

/// The progress of reading some files.
pub(crate) struct Reading {
    progress: ReadingProgress,
    name: String,
    bytes: u64,
    read: AtomicU64,
    begun: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Reading {
    pub(crate) fn new(progress: &ReadingProgress, name: impl Into<String>, bytes: u64) -> Self {
        let (progress, read, begun) = (progress.clone(), AtomicU64::new(0), Instant::now());
        Self { progress, name: name.into(), bytes: bytes.max(1), read, begun, shown: Mutex::default() }
    }

    pub(crate) fn advance(&self, bytes: u64) {
        let read = self.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(show) = self.progress.0.as_ref().filter(|_| self.begun.elapsed() > QUIET) else { return };
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
        if let (Some(show), Some(_)) = (&self.progress.0, *shown) {
            show(&self.name, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_utf_8_is_named_as_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.toml");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            text(&path).map_err(|error| (error.kind(), error.to_string()))
        };
        assert_eq!(read("gr\u{f6}\u{df}e".as_bytes()).unwrap(), "gr\u{f6}\u{df}e");
        let (kind, message) = read(b"\xff\xfea\0").unwrap_err();
        assert!(kind == ErrorKind::InvalidData && message.contains("UTF-16"), "{message}");
        let (_, message) = read(b"a = 1\n# gr\xf6\xdfe\n").unwrap_err();
        assert!(message.contains(" 2") && !message.contains("UTF-16"), "{message}");
        assert_eq!(text(folder.path()).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn only_slow_reading_is_shown_from_time_to_time_and_at_its_end() {
        let shown: Arc<Mutex<Vec<(String, f64)>>> = Arc::default();
        let seen = shown.clone();
        let progress =
            ReadingProgress::shown(move |name, part| seen.lock().unwrap().push((name.to_owned(), part)));
        Reading::new(&progress, "quick.csv", 100).advance(50);
        let mut slow = Reading::new(&progress, "slow.csv", 100);
        slow.begun = slow.begun.checked_sub(2 * QUIET).unwrap();
        slow.advance(43);
        slow.advance(10);
        drop(slow);
        assert_eq!(*shown.lock().unwrap(), [("slow.csv".to_owned(), 0.43), ("slow.csv".to_owned(), 1.0)]);
    }
}
