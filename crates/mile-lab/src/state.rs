//! State files of jobs: named tensors of shape [N, n], the progress, and the facts that the run depends on; and what agents remember
//! besides their vectors, in `memory.AGENT`, if they do.
//!
//! `final/` and `checkpoints/` hold the same kind of file, so a finished run can be extended.

use std::path::Path;

use mile::agents::Costs;
use mile::real::Real;
use mile::run::Progress;
use mile_store::facts::{Difference, until};
use mile_store::packed::{pack, unpack};
use mile_store::state::{Array, StateError, StateFile, write};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::identity::difference;
use crate::objectives::Facts;
use crate::objectives::remembering::Memories;

/// The metadata of a state file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// What the run depends on; a state can be loaded only by a run with the same facts.
    pub(crate) facts: Facts,
    pub(crate) step: u64,
    pub(crate) round: u64,
    pub(crate) step_size: f64,
    pub(crate) vectors_sent: u64,
    pub(crate) exchanges: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) gradient_evals: u64,
    /// Not in final states, so that their bytes do not depend on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wall_s: Option<f64>,
}

impl Header {
    pub(crate) fn new(facts: Facts, progress: &Progress, wall_s: Option<f64>) -> Self {
        let Progress { step, round, step_size, costs } = *progress;
        let Costs { vectors_sent, exchanges, bytes_sent, gradient_evals } = costs;
        Self { facts, step, round, step_size, vectors_sent, exchanges, bytes_sent, gradient_evals, wall_s }
    }

    pub(crate) fn progress(&self) -> Progress {
        let Self { step, round, step_size, vectors_sent, exchanges, bytes_sent, gradient_evals, .. } = *self;
        let costs = Costs { vectors_sent, exchanges, bytes_sent, gradient_evals };
        Progress { step, round, step_size, costs }
    }
}

/// Writes named vectors, each with one row per agent, and what agents remember.
pub(crate) fn save<T: Real>(
    path: &Path,
    header: &Header,
    vectors: &[(&str, &[T])],
    shape: [usize; 2],
    memories: &Memories,
) -> Result<(), LabError> {
    let packed = memories.iter().map(|(agent, bytes)| (memory_name(*agent), pack(bytes)));
    let packed: Vec<(String, [usize; 1], Vec<T>)> =
        packed.map(|(name, numbers)| (name, [numbers.len()], numbers)).collect();
    let remembered = packed.iter().map(|(name, shape, numbers)| Array::new(name, shape, &numbers[..]));
    let arrays: Vec<Array> =
        vectors.iter().map(|(name, values)| Array::new(name, &shape, values)).chain(remembered).collect();
    write(path, header, &arrays).map_err(lab_error)
}

/// What stands before the number of an agent in the name of the array with what it remembers.
const MEMORY: &str = "memory.";

fn memory_name(agent: usize) -> String {
    format!("{MEMORY}{agent}")
}

/// The names of the vectors in a state.
pub(crate) fn vector_names(state: &StateFile<Header>) -> Vec<String> {
    state.names().filter(|name| !name.starts_with(MEMORY)).map(str::to_owned).collect()
}

/// Reads what agents remember.
pub(crate) fn memories<T: Real>(state: &mut StateFile<Header>, path: &Path) -> Result<Memories, LabError> {
    let agent = |name: &str| name.strip_prefix(MEMORY)?.parse().ok();
    let agents: Vec<usize> = state.names().filter_map(agent).collect();
    let mut found = Memories::new();
    for agent in agents {
        let name = memory_name(agent);
        let bytes = unpack(&state.vector::<T>(&name).map_err(lab_error)?);
        let what = || format!("{name} is not what was packed");
        let damaged = || lab_error(StateError::Damaged { path: path.to_owned(), what: what() });
        found.insert(agent, bytes.ok_or_else(damaged)?);
    }
    Ok(found)
}

/// Converts an error of a state file, and names the remedy.
fn lab_error(error: StateError) -> LabError {
    match error {
        StateError::Io { path, action, source } => LabError::Io { path, action, source },
        StateError::Damaged { path, what } => {
            let problem = format!("incomplete or damaged ({what}); delete it to restart this run");
            LabError::Directory { path, problem }
        }
        other => LabError::io(Path::new("a state file"), "read")(std::io::Error::other(other)),
    }
}

/// Opens a state file and reads its header; `None` if there is no such file.
pub(crate) fn open(path: &Path) -> Result<Option<StateFile<Header>>, LabError> {
    StateFile::open(path).map_err(lab_error)
}

/// Checks that a state belongs to a run with these facts.
pub(crate) fn check(path: &Path, header: &Header, facts: &Facts) -> Result<(), LabError> {
    refuse_difference(path, difference(&until(&header.facts, header.round), &until(facts, header.round)))
}

/// The error of a state that differs in a fact, if it does.
pub(crate) fn refuse_difference(path: &Path, difference: Option<Difference>) -> Result<(), LabError> {
    let Some(Difference { key, old, new }) = difference else { return Ok(()) };
    let was_there = old != "absent" && new != "absent";
    let differs = if key.starts_with("problem.data") && was_there {
        format!("the contents of {key} have changed")
    } else if key == "algorithm.code" && was_there {
        "the code of its method has changed".to_owned()
    } else {
        format!("{key} was {old} and is {new} now")
    };
    let problem = format!(
        "belongs to another experiment: {differs}; undo the change, choose another --out, or delete this file to restart the run"
    );
    Err(LabError::Directory { path: path.to_owned(), problem })
}

/// Reads one vector of a state.
pub(crate) fn vector<T: Real>(
    state: &mut StateFile<Header>,
    path: &Path,
    name: &str,
    shape: [usize; 2],
) -> Result<Vec<T>, LabError> {
    check_shape(state, path, name, shape)?;
    state.vector(name).map_err(lab_error)
}

/// Reads some rows of a vector, whose checksum is compared with [`check_sum`] when all rows are known.
pub(crate) fn rows<T: Real>(
    state: &mut StateFile<Header>,
    path: &Path,
    name: &str,
    rows: &[usize],
    shape: [usize; 2],
) -> Result<Vec<T>, LabError> {
    check_shape(state, path, name, shape)?;
    state.rows(name, rows, shape[1]).map_err(lab_error)
}

/// Compares the checksum of a vector.
pub(crate) fn check_sum(
    state: &StateFile<Header>,
    path: &Path,
    name: &str,
    sum: &str,
) -> Result<(), LabError> {
    if state.checksum(name) == Some(sum) {
        return Ok(());
    }
    let what = format!("the checksum of {name} differs");
    Err(lab_error(StateError::Damaged { path: path.to_owned(), what }))
}

fn check_shape(
    state: &StateFile<Header>,
    path: &Path,
    name: &str,
    shape: [usize; 2],
) -> Result<(), LabError> {
    let found = state.shape(name).map(<[usize]>::to_vec);
    if let Some(found) = found.filter(|found| *found != shape) {
        let what = format!("tensor {name} has shape {found:?}");
        return Err(lab_error(StateError::Damaged { path: path.to_owned(), what }));
    }
    Ok(())
}
