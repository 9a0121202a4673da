//! Exports trained models: one safetensors file per model, with the tensor names and shapes of its problem. For neural
//! networks these are PyTorch's `state_dict`.

use std::path::Path;

use mile::block;
use mile::problems::{Problem, Tensor};
use mile::real::Real;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::error::LabError;
use crate::store::write_file;

/// Writes the average model and each agent's model next to the final state: `NAME.average.safetensors`,
/// `NAME.agent-0.safetensors`, ...; nothing for problems that name no tensors.
pub(crate) fn models<T: Real>(state: &Path, problem: &dyn Problem<T>, rows: &[T]) -> Result<(), LabError> {
    let dim = problem.dim();
    let average = problem.tensors(&block::mean_row(rows, dim));
    if average.is_empty() {
        return Ok(());
    }
    write(&state.with_extension("average.safetensors"), &average)?;
    for (agent, row) in rows.chunks_exact(dim).enumerate() {
        write(&state.with_extension(format!("agent-{agent}.safetensors")), &problem.tensors(row))?;
    }
    Ok(())
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
