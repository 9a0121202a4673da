//! The command `mile`, which a wheel brings along: the same code as the program's.

use std::ffi::OsString;
use std::path::PathBuf;

use mile_cli::Program;
use pyo3::prelude::*;

/// Runs the command with these arguments, the first of which is its name, and returns its exit code. The interpreter `python` runs it too, with
/// the arguments `again`.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, python: PathBuf, again: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    let program = Program::interpreted(python, again);
    py.detach(|| mile_cli::run(&program, arguments))
}
