//! Long work; the thread that asked for it shows its progress and handles Ctrl-C.
//!
//! With objectives in Python that thread does the work itself: libraries keep threads, caches and devices for the thread that calls them
//! (OpenMP has a pool for each), and there is one interpreter. All other work gets its own threads, created for it: those of a shared
//! pool would be missing in a forked process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use mile::engine::HostError;
use mile_lab::LabError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::failure::{Raised, exception};
use crate::interrupt::Interrupt;
use crate::progress::{Display, Event, Listener, Work};

/// How often signals are checked.
const PATIENCE: Duration = Duration::from_millis(50);

/// Who does the work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worker {
    /// The thread that asked for it.
    Caller,
    /// Its own threads, as many as the machine has cores.
    Threads,
}

thread_local! {
    /// This thread as a pool. That cannot be undone, so the pool is kept for the next work of the thread; a process that is forked by
    /// this thread has all of it.
    static CALLER: Result<ThreadPool, ThreadPoolBuildError> = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
}

impl Worker {
    fn work<R: Send>(self, work: impl FnOnce() -> R + Send) -> Result<R, LabError> {
        match self {
            Self::Caller => Ok(on_this_thread(work)),
            Self::Threads => {
                let pool = ThreadPoolBuilder::new().build();
                Ok(pool.map_err(|error| HostError::Engine(Box::new(error)))?.install(work))
            }
        }
    }
}

/// Work that stays on this thread, unless the thread already belongs to another pool, that of a run in progress.
pub(crate) fn on_this_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    CALLER.with(|pool| match pool {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    })
}

/// From now on what this thread does in parallel it does alone, since it computes objectives in Python.
pub(crate) fn stay_on_this_thread() {
    CALLER.with(|_| ());
}

/// Short work, such as reading a graph: no progress.
pub(crate) fn quick<R: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, LabError> + Send,
) -> PyResult<R> {
    py.detach(|| Worker::Threads.work(work).and_then(|result| result)).map_err(|error| exception(&error))
}

/// Does long work, and returns whether it was asked to stop: the first Ctrl-C stops it after its round, the second at once.
pub(crate) fn long<R: Send>(
    py: Python<'_>,
    worker: Worker,
    callback: &Bound<'_, PyAny>,
    raised: &Raised,
    work: impl FnOnce(Work) -> Result<R, LabError> + Send,
) -> PyResult<(Result<R, LabError>, bool)> {
    let stop = Arc::new(AtomicBool::new(false));
    let display = Arc::new(Display::new(callback.clone().unbind(), stop.clone(), raised.clone()));
    let interrupt = Interrupt::install(py, &display, &stop)?;
    let (events, heard) = channel();
    let listener = match worker {
        Worker::Caller => Listener::Here,
        Worker::Threads => Listener::Waiting(events),
    };
    let given = Work { display: display.clone(), listener, stop: stop.clone() };
    let done = || catch_unwind(AssertUnwindSafe(|| worker.work(|| work(given)).and_then(|result| result)));
    let shown = display.clone();
    let result = py.detach(move || match worker {
        Worker::Caller => done(),
        Worker::Threads => std::thread::scope(|scope| {
            let working = scope.spawn(done);
            wait(&shown, &heard, raised);
            working.join().unwrap_or_else(Err)
        }),
    });
    interrupt.restore(py)?;
    if let Some(error) = display.take_failure() {
        return Err(error);
    }
    let result = result.map_err(|_| PyRuntimeError::new_err("mile panicked; please report this bug"))?;
    Ok((result, stop.load(Ordering::Relaxed)))
}

/// Shows events until the work is over.
fn wait(display: &Display, heard: &Receiver<Event>, raised: &Raised) {
    loop {
        let event = match heard.recv_timeout(PATIENCE) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        Python::attach(|py| {
            if let Some(event) = event {
                display.show(py, event);
            }
            if display.is_due() {
                display.show_rounds(py);
            }
            if let Err(error) = py.check_signals() {
                raised.abort();
                // Raised when the work has ended, which looks before each step.
                drop(raised.keep(error));
            }
        });
    }
}
