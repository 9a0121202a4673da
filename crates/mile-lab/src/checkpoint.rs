//! The state of a run as a file: named tensors of shape [N, n], and how far it has come.
//!
//! `final/` and `checkpoints/` hold the same kind of file, so a finished run can be extended.

use std::collections::HashMap;
use std::path::Path;

use mile::agents::Costs;
use mile::real::Real;
use mile::run::Progress;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::store::{to_json, write_file};

/// Everything but the tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// What the run is a function of; a state is of use only to the same run.
    pub(crate) identity: String,
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

const META: &str = "mile";

impl Header {
    pub(crate) fn new(identity: String, progress: &Progress, wall_s: Option<f64>) -> Self {
        let Progress { step, round, step_size, costs } = *progress;
        let Costs { vectors_sent, exchanges, bytes_sent, gradient_evals } = costs;
        Self { identity, step, round, step_size, vectors_sent, exchanges, bytes_sent, gradient_evals, wall_s }
    }

    pub(crate) fn progress(&self) -> Progress {
        let Self { step, round, step_size, vectors_sent, exchanges, bytes_sent, gradient_evals, .. } = *self;
        let costs = Costs { vectors_sent, exchanges, bytes_sent, gradient_evals };
        Progress { step, round, step_size, costs }
    }
}

fn dtype<T: Real>() -> Dtype {
    if T::NAME == "f32" { Dtype::F32 } else { Dtype::F64 }
}

/// Writes vectors by their names, each with a row for every agent.
pub(crate) fn save<T: Real>(
    path: &Path,
    header: &Header,
    vectors: &[(&str, &[T])],
    shape: [usize; 2],
) -> Result<(), LabError> {
    let failed = |error: safetensors::SafeTensorError| LabError::Io {
        path: path.to_owned(),
        action: "write",
        source: std::io::Error::other(error),
    };
    let tensors: Vec<(&str, TensorView)> = vectors
        .iter()
        .map(|(name, vector)| {
            let bytes = bytemuck::cast_slice(vector);
            Ok((*name, TensorView::new(dtype::<T>(), shape.to_vec(), bytes)?))
        })
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let meta = HashMap::from([(META.to_owned(), to_json(header))]);
    write_file(path, &safetensors::serialize(tensors, Some(meta)).map_err(failed)?)
}

fn refuse(path: &Path, problem: String) -> LabError {
    LabError::Directory { path: path.to_owned(), problem }
}

fn torn(path: &Path, what: impl std::fmt::Display) -> LabError {
    refuse(path, format!("is not a whole state ({what}): delete it to start this run anew"))
}

fn parse_header(path: &Path, bytes: &[u8]) -> Result<Header, LabError> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| torn(path, error))?;
    let text = metadata.metadata().as_ref().and_then(|meta| meta.get(META));
    let text = text.ok_or_else(|| torn(path, "no header"))?;
    serde_json::from_str(text).map_err(|error| torn(path, error))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, LabError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LabError::io(path, "read")(source)),
    }
}

/// How far a saved run had come, if the file is there.
pub(crate) fn header(path: &Path) -> Result<Option<Header>, LabError> {
    read(path)?.map(|bytes| parse_header(path, &bytes)).transpose()
}

/// Refuses a state that is of no use to this run.
pub(crate) fn check_identity(path: &Path, header: &Header, identity: &str) -> Result<(), LabError> {
    if header.identity == identity {
        return Ok(());
    }
    let problem = "belongs to another experiment: network, problem, start, precision or this algorithm's \
                   parameters differ; give another --out, or delete it to start this run anew";
    Err(refuse(path, problem.into()))
}

/// Reads vectors by their names, if the file is there; `take` gets the place of each name and its elements.
pub(crate) fn load<T: Real>(
    path: &Path,
    identity: &str,
    names: &[&str],
    shape: [usize; 2],
    take: &mut dyn FnMut(usize, &[T]),
) -> Result<Option<Header>, LabError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let header = parse_header(path, &bytes)?;
    check_identity(path, &header, identity)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| torn(path, error))?;
    let mut elements = vec![T::zero(); shape[0] * shape[1]];
    for (k, name) in names.iter().enumerate() {
        let tensor = tensors.tensor(name).map_err(|error| torn(path, error))?;
        if tensor.dtype() != dtype::<T>() || tensor.shape() != shape {
            return Err(torn(path, format!("tensor {name} has shape {:?}", tensor.shape())));
        }
        // The file's bytes need not be aligned for T.
        bytemuck::cast_slice_mut(&mut elements).copy_from_slice(tensor.data());
        take(k, &elements);
    }
    Ok(Some(header))
}
