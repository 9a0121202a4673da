//! Models as safetensors.

use std::path::Path;

use mile::real::Precision;
use mile_problems::predictions::ModelTensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::error::LabError;
use crate::store::write_file;

/// Reads the tensors of a model.
pub(super) fn read(path: &Path) -> Result<Vec<ModelTensor>, LabError> {
    let refuse = |problem: String| LabError::Directory { path: path.to_owned(), problem };
    let bytes = std::fs::read(path).map_err(LabError::io(path, "read"))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| refuse(format!("expected tensors, got {error}; export the model again")))?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        let values = match view.dtype() {
            Dtype::F32 => numbers::<4>(view.data(), |bytes| f32::from_le_bytes(bytes).into()),
            Dtype::F64 => numbers::<8>(view.data(), f64::from_le_bytes),
            other => return Err(refuse(format!("tensor {name}: expected F32 or F64, got {other:?}"))),
        };
        tensors.push(ModelTensor { name, shape: view.shape().to_vec(), values });
    }
    Ok(tensors)
}

fn numbers<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
}

/// Writes the tensors of a model in this precision.
pub(super) fn write(path: &Path, tensors: &[ModelTensor], precision: Precision) -> Result<(), LabError> {
    let failed = |error| LabError::io(path, "write")(std::io::Error::other(error));
    write_file(path, &serialized(tensors, precision).map_err(failed)?)
}

fn serialized(tensors: &[ModelTensor], precision: Precision) -> Result<Vec<u8>, SafeTensorError> {
    let dtype = if precision == Precision::F32 { Dtype::F32 } else { Dtype::F64 };
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|tensor| match precision {
            Precision::F32 => tensor.values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
            Precision::F64 => tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        })
        .collect();
    let mut views = Vec::with_capacity(tensors.len());
    for (tensor, bytes) in tensors.iter().zip(&bytes) {
        views.push((tensor.name.as_str(), TensorView::new(dtype, tensor.shape.clone(), bytes)?));
    }
    safetensors::serialize(views, None)
}
