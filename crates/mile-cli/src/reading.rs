//! Progress of reading large data files, on standard error.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how much of the data is read, if that takes longer than a second.
pub(crate) fn show_progress() {
    let terminal = std::io::stderr().is_terminal();
    let printed: Mutex<Option<Instant>> = Mutex::default();
    mile_lab::reading::show(move |name, part| {
        let line = format!("reading {name}: {:.0}%", 100.0 * part);
        let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        if terminal {
            // The line is replaced, and removed at the end.
            eprint!("\r\x1b[2K{}", if part < 1.0 { &line } else { "" });
        } else if part < 1.0 && printed.is_none_or(|last| last.elapsed() > LINE_INTERVAL) {
            *printed = Some(Instant::now());
            eprintln!("{line}");
        }
    });
}
