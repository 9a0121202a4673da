//! Ctrl-C during long work: the first stops it after its round, the second does what it would do without this library.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::progress::{Display, Event};

/// What Python calls when a signal has arrived: on the main thread, between two of its instructions.
#[pyclass(frozen)]
struct Handler {
    display: Arc<Display>,
    stop: Arc<AtomicBool>,
    /// Whether a signal has arrived before.
    asked: AtomicBool,
    previous: Py<PyAny>,
    /// Forked processes, such as the workers of data loaders, inherit the handler; they continue until this process is done.
    process: u32,
}

#[pymethods]
impl Handler {
    fn __call__(&self, py: Python<'_>, signal: i32, frame: Py<PyAny>) -> PyResult<()> {
        if self.asked.swap(true, Ordering::Relaxed) {
            return self.previous.bind(py).call1((signal, frame)).map(drop);
        }
        if self.process == std::process::id() {
            self.stop.store(true, Ordering::Relaxed);
            let text = "stopping after this round; interrupt again to stop at once".to_owned();
            let (name, round, value) = (String::new(), 0, f64::NAN);
            self.display.show(py, Event { kind: "stopping", name, round, value, text });
        }
        Ok(())
    }
}

/// The handler is in place until [`restore`](Self::restore).
pub(crate) struct Interrupt {
    previous: Option<Py<PyAny>>,
}

/// `signal.signal(SIGINT, handler)`. Signals that have arrived are handled before, which may raise.
fn set<'py>(py: Python<'py>, handler: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("signal")?;
    module.call_method1("signal", (module.getattr("SIGINT")?, handler))
}

impl Interrupt {
    /// Handles Ctrl-C from now on, if this is the main thread and Python handles it: if it kills the process or is ignored, that was
    /// chosen on purpose.
    pub(crate) fn install(py: Python<'_>, display: &Arc<Display>, stop: &Arc<AtomicBool>) -> PyResult<Self> {
        let module = py.import("signal")?;
        let previous = module.call_method1("getsignal", (module.getattr("SIGINT")?,))?;
        if !previous.is_callable() {
            return Ok(Self { previous: None });
        }
        let handler = Handler {
            display: display.clone(),
            stop: stop.clone(),
            asked: AtomicBool::new(false),
            previous: previous.clone().unbind(),
            process: std::process::id(),
        };
        match set(py, Bound::new(py, handler)?.as_any()) {
            Ok(_) => Ok(Self { previous: Some(previous.unbind()) }),
            // Handlers can be set on the main thread only.
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(Self { previous: None }),
            Err(error) => Err(error),
        }
    }

    /// Restores the previous handler. A signal that arrives before that is handled like those before it.
    pub(crate) fn restore(self, py: Python<'_>) -> PyResult<()> {
        let Some(previous) = self.previous else { return Ok(()) };
        let previous = previous.bind(py);
        // What is raised is a second Ctrl-C at the last moment; after it there is nothing left to handle.
        set(py, previous).or_else(|error| set(py, previous).and(Err(error))).map(drop)
    }
}
