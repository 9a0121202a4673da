//! Exports trained models: one safetensors file per model, with the tensor names and shapes of its problem. For neural
//! networks these are PyTorch's `state_dict`.

use std::path::{Path, PathBuf};

use mile::block;
use mile::engine::Engine;
use mile::problems::{Problem, Tensor};
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
    write(&of_average(state), &tensors.export(&block::mean_row(rows, dim)))?;
    let mut agents = members.iter().zip(rows.chunks_exact(dim));
    agents.try_for_each(|(agent, row)| write(&of_agent(state, *agent), &tensors.export(row)))
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
        write(&of_average(state), &tensors.export(&average))?;
    }
    for (place, agent) in members.iter().enumerate() {
        let row = engine.row(together, MODELS, place)?;
        if writes {
            write(&of_agent(state, *agent), &tensors.export(&row))?;
        }
    }
    Ok(())
}

fn of_average(state: &Path) -> PathBuf {
    state.with_extension("average.safetensors")
}

fn of_agent(state: &Path, agent: usize) -> PathBuf {
    state.with_extension(format!("agent-{agent}.safetensors"))
}

fn write(path: &Path, tensors: &[Tensor]) -> Result<(), LabError> {
    let failed = |error: safetensors::SafeTensorError| LabError::Io {
        path: path.to_owned(),
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
    write_file(path, &safetensors::serialize(views, None).map_err(failed)?)
}
