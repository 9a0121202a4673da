//! The command `mile`, which a wheel brings along: the same code as the program's, and objectives and methods in Python.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use mile_cli::{CommandLine, Program};
use pyo3::prelude::*;

use crate::engines::PyEngines;
use crate::failure::Raised;
use crate::kind;
use crate::memory::Memory;
use crate::method;

/// Runs the command with these arguments, the first of which is its name, and returns its exit code. The interpreter `python` runs it too, with
/// the arguments `again`. If it failed because of an exception in Python, that is printed with its traceback.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, python: PathBuf, again: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    let (memory, raised) = (Memory::default(), Raised::default());
    let (lent, kept) = (memory.clone(), raised.clone());
    let engines = PyEngines { host: None, batch_losses: None, memory: lent, raised: kept, ranks: None };
    let line = CommandLine::of(Program::interpreted(python, again))
        .with_kind("python", kind::python(memory, raised.clone()))
        .loading_methods(method::loader(raised.clone()))
        .on(Arc::new(engines));
    let code = py.detach(|| line.run(arguments));
    raised.take().filter(|_| code != 0).into_iter().for_each(|error| error.print(py));
    code
}
