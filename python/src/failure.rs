//! Errors on their way through Rust: Python exceptions of objectives, and errors of experiments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mile::agents::{AgentsError, Failure};
use mile_lab::LabError;
use mile_lab::error::DataFileError;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::problem::attribute;

pyo3::create_exception!(
    mile,
    ExperimentError,
    PyValueError,
    "An experiment, its data or its folder cannot be used."
);
pyo3::create_exception!(
    mile,
    RunError,
    PyRuntimeError,
    "A run failed; its records and checkpoints are kept."
);

/// What all that calls Python in a run shares: the first exception, with its traceback, whether the run is to end at once, and a
/// function that a method hands over to the host of its vectors.
#[derive(Clone, Default)]
pub(crate) struct Raised {
    first: Arc<Mutex<Option<PyErr>>>,
    abort: Arc<AtomicBool>,
    handed_over: Arc<Mutex<Option<Py<PyAny>>>>,
}

impl Raised {
    /// Calls Python; an exception is kept for the caller that started the run.
    pub(crate) fn call<R>(&self, work: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R, Failure> {
        Python::attach(|py| {
            let result = match self.is_aborted() {
                true => Err(PyKeyboardInterrupt::new_err("interrupted twice")),
                // On the main thread a handler of Ctrl-C may be waiting to be called.
                false => py.check_signals().and_then(|()| work(py)),
            };
            result.map_err(|error| self.keep(error))
        })
    }

    /// Keeps an exception for the caller that started the run, if it is the first.
    pub(crate) fn keep(&self, error: PyErr) -> Failure {
        let failure = Python::attach(|py| failure_of(py, &error));
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        match *first {
            Some(_) => {
                // Dropping an exception may run Python code, which must not find the lock held.
                drop(first);
                drop(error);
            }
            None => *first = Some(error),
        }
        failure
    }

    /// The same for verbs of an engine.
    pub(crate) fn verb<R>(&self, work: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R, AgentsError> {
        self.call(work).map_err(AgentsError::Engine)
    }

    /// Hands a function over, to be taken at once by the host of the vectors it is applied to: jobs whose vectors are in Python take
    /// turns on one thread.
    pub(crate) fn hand_over(&self, function: &Py<PyAny>) {
        let function = Python::attach(|py| function.clone_ref(py));
        *self.handed_over.lock().unwrap_or_else(PoisonError::into_inner) = Some(function);
    }

    /// The function that was handed over last.
    pub(crate) fn handed_over(&self) -> Option<Py<PyAny>> {
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// From now on Python is no longer called: the run ends in the middle of its round.
    pub(crate) fn abort(&self) {
        self.abort.store(true, Ordering::Relaxed);
    }

    /// Whether the run is to end in the middle of its round.
    pub(crate) fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    /// The exception, if there was one.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What an exception says. An `OSError` is about data: what could not be opened may be on another machine.
fn failure_of(py: Python<'_>, error: &PyErr) -> Failure {
    let text = error.to_string();
    if !error.is_instance_of::<PyOSError>(py) {
        return text.into();
    }
    let said = |name: &str| Some(attribute(error.value(py), name).ok()??.to_string());
    let (file, problem) = match (said("filename"), said("strerror")) {
        (Some(file), Some(problem)) => (file, problem),
        _ => ("data".to_owned(), text),
    };
    Box::new(DataFileError { file: file.into(), place: None, column: None, problem })
}

/// What is wrong with objectives that a user has given: data that could not be opened, or else this key.
pub(crate) fn refused(key: &str, failure: &Failure) -> LabError {
    match failure.downcast_ref::<DataFileError>() {
        Some(absent) => LabError::Data(absent.clone()),
        None => LabError::config(key, failure),
    }
}

/// The same where an objective could not be evaluated, if that is because of its data.
pub(crate) fn refused_data(error: LabError) -> LabError {
    match &error {
        LabError::Agents(AgentsError::Objective { source, .. } | AgentsError::Evaluation(source))
            if source.is::<DataFileError>() =>
        {
            refused("problem", source)
        }
        _ => error,
    }
}

/// An error of an experiment as an exception.
pub(crate) fn exception(error: &LabError) -> PyErr {
    let text = in_python(&error.to_string());
    if error.is_usage() { ExperimentError::new_err(text) } else { RunError::new_err(text) }
}

/// A message of the command, with its options written as arguments of functions.
pub(crate) fn in_python(message: &str) -> String {
    let words = [
        ("add --resume to resume it", "give resume=True to resume it, or overwrite=True to replace it"),
        ("add --resume to resume a sweep", "give resume=True to resume a sweep"),
        ("leave --resume out", "leave resume out"),
        ("choose another --out", "give another out"),
        ("another --out", "another out"),
        ("give its folder with --out", "give its folder as out"),
        ("mile algorithms lists them", "mile.methods() lists them"),
    ];
    words.iter().fold(message.to_owned(), |text, (from, to)| text.replace(from, to))
}
