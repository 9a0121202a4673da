//! A device with the kernels of one source.

use std::collections::HashMap;
use std::sync::Arc;

use crate::device::{Argument, Device, DeviceError, DeviceKernel, Grid};
use crate::script::Script;

/// A device, shared by everything that uses its queue.
#[derive(Clone)]
pub(crate) struct Queue {
    pub(crate) device: Arc<dyn Device>,
}

/// The kernels of a source, by name.
pub(crate) struct Kernels {
    by_name: HashMap<String, DeviceKernel>,
}

impl Queue {
    /// Compiles the kernels with these names.
    pub(crate) fn kernels<N: AsRef<str>>(&self, source: &str, names: &[N]) -> Result<Kernels, DeviceError> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let kernels = self.device.compile(source, &names)?;
        Ok(Kernels { by_name: names.iter().map(|name| (*name).to_owned()).zip(kernels).collect() })
    }

    /// How many blocks keep the device busy.
    pub(crate) fn busy(&self) -> u32 {
        self.device.multiprocessors() * 16
    }
}

impl Kernels {
    /// Adds the launch of a kernel to a script.
    ///
    /// # Safety
    /// As [`Script::launch`].
    ///
    /// # Panics
    /// If there is no kernel with this name.
    pub(crate) unsafe fn launch(&self, script: &mut Script, name: &str, grid: Grid, arguments: &[Argument]) {
        // SAFETY: promised by the caller.
        unsafe { script.launch(self.by_name[name], grid, arguments) }
    }
}
