//! The state of a job as a file: named tensors of shape [N, n], how far it has come, and what it depends on.
//!
//! `final/` and `checkpoints/` hold the same kind of file, so a finished run can be extended.

use std::path::Path;

use mile::agents::Costs;
use mile::real::Real;
use mile::run::Progress;
use mile_state::state::{Array, StateError, StateFile, write};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::identity::difference;
use crate::objectives::Facts;

/// Everything but the tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// What the run depends on; a state is of use only to the same run.
    pub(crate) facts: Facts,
    pub(crate) step: u64,
    pub(crate) round: u64,
    pub(crate) step_size: f64,
    pub(crate) vectors_sent: u64,
    pub(crate) exchanges: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) gradient_evals: u64,
    /// Not in final states, which are the same bytes whoever computes them.
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

/// Writes vectors by their names, each with a row for every agent.
pub(crate) fn save<T: Real>(
    path: &Path,
    header: &Header,
    vectors: &[(&str, &[T])],
    shape: [usize; 2],
) -> Result<(), LabError> {
    let arrays: Vec<Array<T>> =
        vectors.iter().map(|(name, values)| Array { name, shape: &shape, values }).collect();
    write(path, header, &arrays).map_err(told)
}

/// An error of a state's file, with what can be done about it.
fn told(error: StateError) -> LabError {
    match error {
        StateError::Io { path, action, source } => LabError::Io { path, action, source },
        StateError::Damaged { path, what } => {
            let problem = format!("is not a whole state ({what}): delete it to start this run anew");
            LabError::Directory { path, problem }
        }
        other => LabError::io(Path::new("a state"), "read")(std::io::Error::other(other)),
    }
}

/// A state that is there, with its header read.
pub(crate) fn open(path: &Path) -> Result<Option<StateFile<Header>>, LabError> {
    StateFile::open(path).map_err(told)
}

/// Refuses a state that is of no use to a run with these facts.
pub(crate) fn check(path: &Path, header: &Header, facts: &Facts) -> Result<(), LabError> {
    refuse(path, difference(&header.facts, facts))
}

/// Refuses a state that differs in some fact.
pub(crate) fn refuse(path: &Path, difference: Option<(String, String, String)>) -> Result<(), LabError> {
    let Some((key, old, new)) = difference else { return Ok(()) };
    let differs = if key.starts_with("problem.data") && old != "absent" && new != "absent" {
        format!("the contents of {key} are not those it was made with")
    } else {
        format!("{key} was {old} and is {new} now")
    };
    let problem = format!(
        "belongs to another experiment: {differs}; restore what it was, give another --out, or delete it to start this run anew"
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
    let found = state.shape(name).map(<[usize]>::to_vec);
    if let Some(found) = found.filter(|found| *found != shape) {
        let what = format!("tensor {name} has shape {found:?}");
        return Err(told(StateError::Damaged { path: path.to_owned(), what }));
    }
    state.vector(name).map_err(told)
}
