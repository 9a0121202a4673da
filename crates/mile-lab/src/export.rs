//! Trained models as PyTorch has them: one file a model, with the names and shapes of a `state_dict`.

use std::path::Path;

use mile::block;
use mile::real::Real;
use mile_nn::model::Model;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::error::LabError;
use crate::store::write_file;

/// Writes the average model and each agent's beside the final state: `NAME.average.safetensors`,
/// `NAME.agent-0.safetensors`, ...
pub(crate) fn models<T: Real>(state: &Path, model: &Model, rows: &[T]) -> Result<(), LabError> {
    let dim = model.dim();
    let average = block::mean_row(rows, dim);
    write(&state.with_extension("average.safetensors"), model, &average)?;
    for (agent, row) in rows.chunks_exact(dim).enumerate() {
        write(&state.with_extension(format!("agent-{agent}.safetensors")), model, row)?;
    }
    Ok(())
}

fn write<T: Real>(path: &Path, model: &Model, parameters: &[T]) -> Result<(), LabError> {
    let failed = |error: safetensors::SafeTensorError| LabError::Io {
        path: path.to_owned(),
        action: "write",
        source: std::io::Error::other(error),
    };
    let single: Vec<f32> = parameters.iter().map(|value| value.wide() as f32).collect();
    let tensors = model.state_dict(&single);
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
