//! `--device`: where the agents of a run compute.

use std::sync::Arc;

use clap::Args;
use mile_lab::device::DeviceChoice;
use mile_lab::engines::Engines;
use mile_lab::error::LabError;

/// Where agents compute.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DeviceArguments {
    /// Where the agents compute: cpu, cuda or cuda:K for an NVIDIA GPU, auto for a GPU if there is one
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: DeviceChoice,
}

impl DeviceArguments {
    /// The engines of a run, of which `cpu` are those on the CPU, and a line for the user if a choice was made.
    pub(crate) fn engines(&self, cpu: Arc<dyn Engines>) -> Result<(Arc<dyn Engines>, String), LabError> {
        match self.device {
            DeviceChoice::Cpu => Ok((cpu, String::new())),
            DeviceChoice::Cuda(number) => gpu::open(number),
            DeviceChoice::Auto => Ok(gpu::open(0).unwrap_or_else(|why| (cpu, without_gpu(&why)))),
        }
    }

    /// The engines of this rank of a job with several, each with its own GPU, and a line for the user if a choice was made.
    #[cfg(feature = "mpi")]
    pub(crate) fn engines_of_rank(
        &self,
        job: &Arc<mile_ranks::mpi::Mpi>,
    ) -> Result<(Arc<dyn Engines>, String), LabError> {
        let cpu = || -> Arc<dyn Engines> { Arc::new(mile_ranks::RankEngines::new(job.clone())) };
        match self.device {
            DeviceChoice::Cpu => Ok((cpu(), String::new())),
            DeviceChoice::Cuda(first) => gpu::open_of_rank(job, first),
            DeviceChoice::Auto => {
                Ok(gpu::open_of_rank(job, 0).unwrap_or_else(|why| (cpu(), without_gpu(&why))))
            }
        }
    }
}

/// Why the CPU was chosen, for the user.
fn without_gpu(why: &LabError) -> String {
    format!("device: the CPU, because {why}\n")
}

#[cfg(not(feature = "cuda"))]
mod gpu {
    use super::*;

    pub(super) fn open(_: usize) -> Result<(Arc<dyn Engines>, String), LabError> {
        let problem =
            "this program was built without GPU support; build it with the feature cuda, or use --device cpu";
        Err(LabError::config("--device", problem))
    }

    #[cfg(feature = "mpi")]
    pub(super) fn open_of_rank(
        job: &Arc<mile_ranks::mpi::Mpi>,
        first: usize,
    ) -> Result<(Arc<dyn Engines>, String), LabError> {
        mile_lab::ranks::agree(mile::ranks::Together::of(&**job), open(first))
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use mile_cuda::GpuEngines;

    use super::*;

    fn note(note: &str) {
        eprintln!("note: {note}");
    }

    #[cfg(feature = "mpi")]
    pub(super) fn open_of_rank(
        job: &Arc<mile_ranks::mpi::Mpi>,
        first: usize,
    ) -> Result<(Arc<dyn Engines>, String), LabError> {
        let (engines, line) = mile_cuda::GpuRankEngines::open(job.clone(), first, note)?;
        Ok((Arc::new(engines), line))
    }

    pub(super) fn open(number: usize) -> Result<(Arc<dyn Engines>, String), LabError> {
        let gpu = GpuEngines::open(number, note)?;
        let line = format!("device: cuda:{number}, {}\n", gpu.name());
        Ok((Arc::new(gpu), line))
    }
}
