//! `--device`: where the agents of a run compute.

use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use mile_lab::engines::{Engines, InProcess};
use mile_lab::error::LabError;

/// Where agents compute.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DeviceArguments {
    /// Where the agents compute: cpu, cuda or cuda:K for an NVIDIA GPU, auto for a GPU if there is one
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Choice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Auto,
    Cpu,
    Cuda(usize),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number
                    .map(Self::Cuda)
                    .ok_or_else(|| "takes auto, cpu, cuda, or cuda:K for GPU number K from 0".into())
            }
        }
    }
}

impl DeviceArguments {
    /// Whether the CPU was asked for, or nothing.
    #[cfg(feature = "mpi")]
    pub(crate) fn is_cpu(&self) -> bool {
        self.device == Choice::Cpu
    }

    /// The engines of a run, and a line for the user if a choice was made.
    pub(crate) fn engines(&self) -> Result<(Arc<dyn Engines>, String), LabError> {
        let cpu = || -> Arc<dyn Engines> { Arc::new(InProcess) };
        match self.device {
            Choice::Cpu => Ok((cpu(), String::new())),
            Choice::Cuda(number) => gpu::open(number),
            Choice::Auto => Ok(match gpu::open(0) {
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
    use std::path::PathBuf;
    use std::sync::{Mutex, Once, PoisonError};

    use mile::engine::Engine;
    use mile::real::Real;
    use mile_cuda::cuda::Cuda;
    use mile_cuda::device::{Device, DeviceError};
    use mile_cuda::{GpuAgents, GpuError, Stack};
    use mile_lab::engines::{EngineSetup, Jobs};

    use super::*;

    /// Engines on one GPU, which compute together.
    struct Gpu {
        number: usize,
        cache: Option<PathBuf>,
        single: Kept<f32>,
        double: Kept<f64>,
        said: Once,
    }

    /// What the jobs of one precision share, once there is a job.
    type Kept<T> = Mutex<Option<Arc<Stack<T>>>>;

    pub(super) fn open(number: usize) -> Result<(Arc<dyn Engines>, String), LabError> {
        let (single, double) = (Mutex::default(), Mutex::default());
        let gpu = Gpu { number, cache: cache(), single, double, said: Once::new() };
        let name = gpu.device().map_err(failed)?.name();
        Ok((Arc::new(gpu), format!("device: cuda:{number}, {name}\n")))
    }

    /// Where compiled kernels are kept: beside the data sets.
    fn cache() -> Option<PathBuf> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = variable("MILE_HOME")
            .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("mile")))
            .or_else(|| variable("HOME").map(|home| home.join(".cache").join("mile")));
        folder.map(|folder| folder.join("kernels"))
    }

    fn failed(error: DeviceError) -> LabError {
        LabError::config("--device", error)
    }

    impl Gpu {
        fn device(&self) -> Result<Arc<dyn Device>, DeviceError> {
            Ok(Arc::new(Cuda::open(self.number, self.cache.clone())?))
        }

        fn stack<T: Real>(&self, kept: &Kept<T>) -> Result<Arc<Stack<T>>, LabError> {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(stack) = &*kept {
                return Ok(stack.clone());
            }
            let stack = self.device().and_then(Stack::new).map_err(failed)?;
            *kept = Some(stack.clone());
            Ok(stack)
        }

        fn agents<'a, T: Real>(
            &self,
            kept: &Kept<T>,
            setup: EngineSetup<'a, T>,
        ) -> Result<Box<dyn Engine<T> + 'a>, LabError> {
            let EngineSetup { problem, network, method, start, seed, .. } = setup;
            let agents = GpuAgents::within(&self.stack(kept)?, problem, network, method, start, seed);
            let agents = agents.map_err(|error| match error {
                GpuError::Agents(error) => error.into(),
                GpuError::Device(error) => failed(error),
                error => LabError::Engine(Box::new(error)),
            })?;
            if !agents.computes_gradients() {
                self.said.call_once(|| {
                    eprintln!("note: this kind of problem is not computed on the GPU: its gradients are, slowly, on the CPU; --device cpu is faster");
                });
            }
            Ok(Box::new(agents))
        }

        fn fitting<T: Real>(&self, kept: &Kept<T>, jobs: Jobs<'_, T>) -> Result<usize, LabError> {
            let found = self.stack(kept)?.fitting(jobs.problem, jobs.vectors, jobs.count).map_err(failed)?;
            if found.jobs < jobs.count {
                eprintln!("note: {found}");
            }
            Ok(found.jobs)
        }
    }

    impl Engines for Gpu {
        fn single<'a>(&self, agents: EngineSetup<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError> {
            self.agents(&self.single, agents)
        }

        fn double<'a>(&self, agents: EngineSetup<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError> {
            self.agents(&self.double, agents)
        }

        fn computes_together(&self) -> bool {
            true
        }

        fn fitting_single(&self, jobs: Jobs<'_, f32>) -> Result<usize, LabError> {
            self.fitting(&self.single, jobs)
        }

        fn fitting_double(&self, jobs: Jobs<'_, f64>) -> Result<usize, LabError> {
            self.fitting(&self.double, jobs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_and_what_is_no_device_is_refused() {
        assert_eq!("cuda".parse(), Ok(Choice::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(Choice::Cuda(3)));
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        for wrong in ["gpu", "cuda:", "cuda:-1", "cuda:x", ""] {
            assert!(wrong.parse::<Choice>().unwrap_err().contains("cuda:K"), "{wrong}");
        }
    }
}
