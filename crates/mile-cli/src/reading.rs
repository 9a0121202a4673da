//! Progress of reading large data files, on standard error.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mile_lab::reading::ReadingProgress;

use crate::place;

/// Time between two lines, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how much of the data has been read, if that takes longer than a second; of several ranks, the first one does.
pub(crate) fn progress() -> ReadingProgress {
    if place::is_other_rank() {
        return ReadingProgress::default();
    }
    let terminal = std::io::stderr().is_terminal();
    let printed: Mutex<Option<Instant>> = Mutex::default();
    ReadingProgress::shown(move |name, part| {
        let line = format!("reading {name}: {:.0}%", 100.0 * part);
        let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        if terminal {
            // The line is replaced, and removed at the end.
            eprint!("\r\x1b[2K{}", if part < 1.0 { &line } else { "" });
        } else if part < 1.0 && printed.is_none_or(|last| last.elapsed() > LINE_INTERVAL) {
            *printed = Some(Instant::now());
            eprintln!("{line}");
        }
    })
}
