//! `--device`: where the agents of a run compute.

use std::sync::Arc;

use clap::Args;
use mile_lab::device::Device;
use mile_lab::engines::{Engines, InProcess};
use mile_lab::error::LabError;

/// Where agents compute.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DeviceArguments {
    /// Where the agents compute: cpu, cuda or cuda:K for an NVIDIA GPU, auto for a GPU if there is one
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Device,
}

impl DeviceArguments {
    /// Whether a GPU was asked for.
    #[cfg(feature = "mpi")]
    pub(crate) fn is_gpu(&self) -> bool {
        matches!(self.device, Device::Cuda(_))
    }

    /// The engines of a run, and a line for the user if a choice was made.
    pub(crate) fn engines(&self) -> Result<(Arc<dyn Engines>, String), LabError> {
        let cpu = || -> Arc<dyn Engines> { Arc::new(InProcess) };
        match self.device {
            Device::Cpu => Ok((cpu(), String::new())),
            Device::Cuda(number) => gpu::open(number),
            Device::Auto => Ok(match gpu::open(0) {
                Ok(found) => found,
                Err(why) => {
                    let why = why.to_string();
                    let why = why.strip_prefix("--device: ").unwrap_or(&why);
                    (cpu(), format!("device: the CPU, because {why}\n"))
                }
            }),
        }
    }
}

#[cfg(not(feature = "cuda"))]
mod gpu {
    use super::*;

    pub(super) fn open(_: usize) -> Result<(Arc<dyn Engines>, String), LabError> {
        let problem =
            "this program was built without GPUs: build it with its feature cuda, or use --device cpu";
        Err(LabError::config("--device", problem))
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use mile_cuda::GpuEngines;

    use super::*;

    pub(super) fn open(number: usize) -> Result<(Arc<dyn Engines>, String), LabError> {
        let gpu = GpuEngines::open(number, |note| eprintln!("note: {note}"))?;
        let line = format!("device: cuda:{number}, {}\n", gpu.name());
        Ok((Arc::new(gpu), line))
    }
}
