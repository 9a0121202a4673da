//! Opens engines on one GPU for the jobs of an experiment.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};

use mile::engine::Engine;
use mile::real::Real;
use mile_lab::engines::{EngineSetup, Engines, Jobs};
use mile_lab::error::LabError;

use crate::cuda::Cuda;
use crate::device::{Device, DeviceError};
use crate::engine::{GpuAgents, GpuError};
use crate::stack::Stack;

/// Engines on one GPU, which compute together.
pub struct GpuEngines {
    open: Box<Open>,
    name: String,
    single: Kept<f32>,
    double: Kept<f64>,
    said: Once,
    say: fn(&str),
}

/// Opens the device.
type Open = dyn Fn() -> Result<Arc<dyn Device>, DeviceError> + Send + Sync;

/// What the jobs of one precision share, once there is a job.
type Kept<T> = Mutex<Option<Arc<Stack<T>>>>;

/// Where compiled kernels are kept: beside the data sets.
fn cache() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("MILE_HOME")
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("mile")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache").join("mile")));
    folder.map(|folder| folder.join("kernels"))
}

pub(crate) fn failed(error: DeviceError) -> LabError {
    LabError::config("--device", error)
}

/// An error of an engine that is opened.
pub(crate) fn refused(error: GpuError) -> LabError {
    match error {
        GpuError::Agents(error) => error.into(),
        GpuError::Device(error) => failed(error),
    }
}

impl GpuEngines {
    /// On the GPU of this number. `say` gets notes for the user.
    ///
    /// # Errors
    /// If there is no such GPU, or it cannot be used.
    pub fn open(number: usize, say: fn(&str)) -> Result<Self, LabError> {
        let open = move || Ok(Arc::new(Cuda::open(number, cache())?) as Arc<dyn Device>);
        Self::on(open, say)
    }

    /// On a device that is opened so, such as an [emulated](crate::emulated) one.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn on(
        open: impl Fn() -> Result<Arc<dyn Device>, DeviceError> + Send + Sync + 'static,
        say: fn(&str),
    ) -> Result<Self, LabError> {
        let name = open().map_err(failed)?.name();
        let (single, double) = (Mutex::default(), Mutex::default());
        Ok(Self { open: Box::new(open), name, single, double, said: Once::new(), say })
    }

    /// The name of the GPU.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stack of all jobs in single precision.
    pub(crate) fn stack_of_singles(&self) -> Result<Arc<Stack<f32>>, LabError> {
        self.stack(&self.single)
    }

    /// The same in double precision.
    pub(crate) fn stack_of_doubles(&self) -> Result<Arc<Stack<f64>>, LabError> {
        self.stack(&self.double)
    }

    fn stack<T: Real>(&self, kept: &Kept<T>) -> Result<Arc<Stack<T>>, LabError> {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stack) = &*kept {
            return Ok(stack.clone());
        }
        let stack = (self.open)().and_then(Stack::new).map_err(failed)?;
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
        let agents = agents.map_err(refused)?;
        self.note(agents.computes_gradients());
        Ok(Box::new(agents))
    }

    /// Says once that gradients are not computed on the GPU, if they are not.
    pub(crate) fn note(&self, computes_gradients: bool) {
        if !computes_gradients {
            self.said.call_once(|| {
                (self.say)("this kind of problem is not computed on the GPU: its gradients are, slowly, on the CPU; --device cpu is faster");
            });
        }
    }

    fn fitting<T: Real>(&self, kept: &Kept<T>, jobs: Jobs<'_, T>) -> Result<usize, LabError> {
        let found = self.stack(kept)?.fitting(jobs.problem, jobs.vectors, jobs.count).map_err(failed)?;
        if found.jobs < jobs.count {
            (self.say)(&found.to_string());
        }
        Ok(found.jobs)
    }
}

impl Engines for GpuEngines {
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
