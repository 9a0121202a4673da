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
    use std::sync::Once;

    use mile::engine::Engine;
    use mile::problems::Problem;
    use mile_cuda::cuda::Cuda;
    use mile_cuda::device::{Device, DeviceError};
    use mile_cuda::{GpuAgents, GpuError, evaluated};
    use mile_lab::engines::{EngineSetup, Evaluated};
    use mile_nn::Scalar;

    use super::*;

    /// Engines on one GPU; each has a queue of its own.
    struct Gpu {
        number: usize,
        cache: Option<PathBuf>,
        said: Once,
    }

    pub(super) fn open(number: usize) -> Result<(Arc<dyn Engines>, String), LabError> {
        let gpu = Gpu { number, cache: cache(), said: Once::new() };
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

        fn agents<'a, T: Scalar>(
            &self,
            setup: EngineSetup<'a, T>,
        ) -> Result<Box<dyn Engine<T> + 'a>, LabError> {
            let EngineSetup { problem, network, method, start, seed, .. } = setup;
            let device = self.device().map_err(failed)?;
            let agents = GpuAgents::new(device, problem, network, method, start, seed);
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

        fn problem<'a, T: Scalar>(&self, problem: &'a dyn Problem<T>) -> Result<Evaluated<'a, T>, LabError> {
            evaluated(self.device().map_err(failed)?, problem).map_err(failed)
        }
    }

    impl Engines for Gpu {
        fn single<'a>(&self, agents: EngineSetup<'a, f32>) -> Result<Box<dyn Engine<f32> + 'a>, LabError> {
            self.agents(agents)
        }

        fn double<'a>(&self, agents: EngineSetup<'a, f64>) -> Result<Box<dyn Engine<f64> + 'a>, LabError> {
            self.agents(agents)
        }

        fn evaluated_single<'a>(
            &self,
            problem: &'a dyn Problem<f32>,
        ) -> Result<Evaluated<'a, f32>, LabError> {
            self.problem(problem)
        }

        fn evaluated_double<'a>(
            &self,
            problem: &'a dyn Problem<f64>,
        ) -> Result<Evaluated<'a, f64>, LabError> {
            self.problem(problem)
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
