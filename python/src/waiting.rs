//! Long work in threads of its own, while the thread that asked for it shows progress and listens to Ctrl-C.
//!
//! Every piece of work has threads of its own: those of a pool that all share would be missing in a process that was forked.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use mile_lab::LabError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::{Raised, exception};
use crate::progress::{Event, Rounds, show};

/// How often signals are looked for.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often rounds are shown.
const SHOWN: Duration = Duration::from_millis(200);

/// What long work is given.
pub(crate) struct Work {
    pub(crate) events: Sender<Event>,
    pub(crate) rounds: Rounds,
    /// Set to stop after the current round.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Runs work on a pool of so many threads without the interpreter.
pub(crate) fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> Result<R, LabError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| LabError::Engine(Box::new(error)))?;
    Ok(pool.install(work))
}

/// Short work, such as reading a graph: no progress.
pub(crate) fn quick<R: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, LabError> + Send,
) -> PyResult<R> {
    py.detach(|| in_pool(0, work).and_then(|result| result)).map_err(|error| exception(&error))
}

/// Runs long work; the first Ctrl-C stops it after its round, the second at once.
pub(crate) fn long<R: Send>(
    py: Python<'_>,
    threads: usize,
    callback: &Bound<'_, PyAny>,
    raised: &Raised,
    work: impl FnOnce(Work) -> Result<R, LabError> + Send,
) -> PyResult<(Result<R, LabError>, bool)> {
    let (events, heard) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Rounds::default();
    let given = Work { events, rounds: rounds.clone(), stop: stop.clone() };
    let callback = callback.clone().unbind();
    py.detach(move || {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| in_pool(threads, || work(given)).and_then(|result| result));
            let waited = wait(&callback, &heard, &rounds, &stop, raised);
            let result = worker.join();
            waited?;
            let result = result.map_err(|_| PyRuntimeError::new_err("mile panicked: this is a bug in it"))?;
            Ok((result, stop.load(Ordering::Relaxed)))
        })
    })
}

/// Shows events until the work is over. An exception of the callback stops the work and is returned.
fn wait(
    callback: &Py<PyAny>,
    heard: &Receiver<Event>,
    rounds: &Rounds,
    stop: &AtomicBool,
    raised: &Raised,
) -> PyResult<()> {
    let mut shown = Instant::now();
    let mut failed = None;
    loop {
        let event = match heard.recv_timeout(PATIENCE) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        Python::attach(|py| {
            let tell = |event| if failed.is_none() { show(callback.bind(py), event) } else { Ok(()) };
            let mut told = event.map_or(Ok(()), tell);
            if shown.elapsed() > SHOWN {
                shown = Instant::now();
                let known = rounds.lock().unwrap_or_else(PoisonError::into_inner);
                for (name, round) in known.iter() {
                    let round = round.load(Ordering::Relaxed);
                    let event = Event {
                        kind: "advanced",
                        name: name.clone(),
                        round,
                        value: f64::NAN,
                        text: String::new(),
                    };
                    told = told.and_then(|()| tell(event));
                }
            }
            if let Err(error) = told {
                stop.store(true, Ordering::Relaxed);
                failed = Some(error);
            }
            if py.check_signals().is_err() {
                if stop.swap(true, Ordering::Relaxed) {
                    raised.abort();
                }
                let text = "stopping after this round; interrupt again to stop at once".to_owned();
                let event = Event { kind: "stopping", name: String::new(), round: 0, value: f64::NAN, text };
                drop(show(callback.bind(py), event));
            }
        });
    }
    failed.map_or(Ok(()), Err)
}
