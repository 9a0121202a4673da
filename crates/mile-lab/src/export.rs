//! Exports trained models: one safetensors file per model, with the tensor names and shapes of its problem. For neural
//! networks these are PyTorch's `state_dict`.

use std::path::{Path, PathBuf};

use mile::agents::AgentsError;
use mile::block;
use mile::engine::Engine;
use mile::problems::{NamedTensors, Problem};
use mile::ranks::Together;
use mile::real::Real;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::error::LabError;
use crate::ranks::is_first;
use crate::record::MODELS;
use crate::store::write_file;

/// Writes the average model and the model of each of these agents next to the final state: `NAME.average.safetensors`,
/// `NAME.agent-0.safetensors`, ...; nothing for problems that name no tensors.
pub(crate) fn models<T: Real>(
    state: &Path,
    problem: &dyn Problem<T>,
    members: &[usize],
    rows: &[T],
) -> Result<(), LabError> {
    let Some(tensors) = problem.tensors() else { return Ok(()) };
    let dim = problem.dim();
    write(state, tensors, None, &block::mean_row(rows, dim))?;
    let mut agents = members.iter().zip(rows.chunks_exact(dim));
    agents.try_for_each(|(agent, row)| write(state, tensors, Some(*agent), row))
}

/// The same for the models of an engine; the first rank writes them one after the other.
pub(crate) fn models_of<T: Real>(
    together: Together<'_>,
    state: &Path,
    problem: &dyn Problem<T>,
    members: &[usize],
    engine: &mut dyn Engine<T>,
) -> Result<(), LabError> {
    if together.count() == 1 {
        return models(state, problem, members, &engine.vector(MODELS)?);
    }
    let Some(tensors) = problem.tensors() else { return Ok(()) };
    let average: Vec<T> = engine.mean(together, MODELS)?.into_iter().map(T::of).collect();
    let writes = is_first(&*together);
    if writes {
        write(state, tensors, None, &average)?;
    }
    for (place, agent) in members.iter().enumerate() {
        let row = engine.row(together, MODELS, place)?;
        if writes {
            write(state, tensors, Some(*agent), &row)?;
        }
    }
    Ok(())
}

/// The file of the model of an agent, or of the average of all, next to their final state.
pub(crate) fn path_of(state: &Path, agent: Option<usize>) -> PathBuf {
    let whose = agent.map_or_else(|| "average".to_owned(), |agent| format!("agent-{agent}"));
    state.with_extension(format!("{whose}.safetensors"))
}

fn write<T: Real>(
    state: &Path,
    problem: &dyn NamedTensors<T>,
    agent: Option<usize>,
    x: &[T],
) -> Result<(), LabError> {
    let path = path_of(state, agent);
    let tensors = problem.export_model(agent, x).map_err(AgentsError::Evaluation)?;
    let failed = |error: safetensors::SafeTensorError| LabError::Io {
        path: path.clone(),
        action: "write",
        source: std::io::Error::other(error),
    };
    let views = tensors
        .iter()
        .map(|tensor| {
            let bytes = bytemuck::cast_slice(&tensor.values);
            Ok((tensor.name.as_str(), TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)?))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    write_file(&path, &safetensors::serialize(views, None).map_err(failed)?)
}
