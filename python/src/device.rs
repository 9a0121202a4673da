//! `device`: where the agents of built-in problems compute.

use std::sync::Arc;

use mile_lab::LabError;
use mile_lab::device::DeviceChoice;
use mile_lab::engines::{Engines, InProcess};
use pyo3::prelude::*;

use crate::failure::exception;

/// The engines on a device.
pub(crate) fn engines(device: Option<&str>) -> PyResult<Arc<dyn Engines>> {
    let refuse = |problem: String| exception(&LabError::config("device", problem));
    let Some(name) = device else { return Ok(Arc::new(InProcess)) };
    match name.parse().map_err(|expected| refuse(format!("{expected}, got {name}")))? {
        DeviceChoice::Cpu => Ok(Arc::new(InProcess)),
        DeviceChoice::Cuda(number) => open(number).map_err(|error| exception(&error)),
        DeviceChoice::Auto => Ok(open(0).unwrap_or_else(|_| Arc::new(InProcess))),
    }
}

#[cfg(feature = "cuda")]
fn open(number: usize) -> Result<Arc<dyn Engines>, LabError> {
    let opened = mile_cuda::GpuEngines::open(number, |note| eprintln!("note: {note}"));
    Ok(Arc::new(opened.map_err(|error| LabError::config("device", error))?))
}

#[cfg(not(feature = "cuda"))]
fn open(_: usize) -> Result<Arc<dyn Engines>, LabError> {
    let problem = "expected cpu, got a GPU; build this package with the feature cuda, or leave device out";
    Err(LabError::config("device", problem))
}
