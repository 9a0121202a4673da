//! Opens engines on one GPU for the jobs of an experiment.

use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};

use mile::engine::{Engine, HostError};
use mile::real::Real;
use mile_lab::engines::{EngineSetup, Engines, EnginesIn, Jobs};

use crate::cuda::Cuda;
use crate::device::{Device, DeviceError};
use crate::engine::GpuAgents;
use crate::stack::Stack;

/// Engines on one GPU, which compute together.
pub struct GpuEngines {
    open: Box<Open>,
    name: String,
    /// What the jobs of one precision share: a [`Stack`] for each precision, created with its first job.
    stacks: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    said: Once,
    say: fn(&str),
}

/// Opens the device.
type Open = dyn Fn() -> Result<Arc<dyn Device>, DeviceError> + Send + Sync;

/// Where compiled kernels are kept: next to the data sets.
fn cache() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("MILE_HOME")
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("mile")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache").join("mile")));
    folder.map(|folder| folder.join("kernels"))
}

impl GpuEngines {
    /// Engines on the GPU with this number. `say` gets notes for the user.
    ///
    /// # Errors
    /// If there is no such GPU, or it cannot be used.
    pub fn open(number: usize, say: fn(&str)) -> Result<Self, HostError> {
        let open = move || Ok(Arc::new(Cuda::open(number, cache())?) as Arc<dyn Device>);
        Self::on(open, say)
    }

    /// Engines on a device opened this way, such as an [emulated](crate::emulated) one.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn on(
        open: impl Fn() -> Result<Arc<dyn Device>, DeviceError> + Send + Sync + 'static,
        say: fn(&str),
    ) -> Result<Self, HostError> {
        let name = open()?.name();
        Ok(Self { open: Box::new(open), name, stacks: Mutex::default(), said: Once::new(), say })
    }

    /// The name of the GPU.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stack of all jobs in this precision.
    pub(crate) fn stack<T: Real>(&self) -> Result<Arc<Stack<T>>, HostError> {
        let mut stacks = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stack) = stacks.iter().find_map(|stack| stack.clone().downcast().ok()) {
            return Ok(stack);
        }
        let stack = (self.open)().and_then(Stack::new)?;
        stacks.push(stack.clone());
        Ok(stack)
    }

    /// Says once that gradients are not computed on the GPU, if they are not.
    pub(crate) fn note(&self, computes_gradients: bool) {
        if !computes_gradients {
            self.said.call_once(|| {
                (self.say)("this kind of problem is not computed on the GPU: its gradients are computed on the CPU, slowly; all on the CPU is faster");
            });
        }
    }
}

impl Engines for GpuEngines {
    fn computes_together(&self) -> bool {
        true
    }
}

impl<T: Real> EnginesIn<T> for GpuEngines {
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError> {
        let EngineSetup { problem, network, method, start, seed, .. } = setup;
        let agents = GpuAgents::within(&self.stack()?, problem, network, method, start, seed)?;
        self.note(agents.computes_gradients());
        Ok(Box::new(agents))
    }

    fn fitting(&self, jobs: Jobs<'_, T>) -> Result<usize, HostError> {
        let found = self.stack()?.fitting(jobs.problem, jobs.vectors, jobs.count)?;
        if found.jobs < jobs.count {
            (self.say)(&found.to_string());
        }
        Ok(found.jobs)
    }
}
