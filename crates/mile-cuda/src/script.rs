//! Launches in the order in which they are made, to be run at once or recorded.

use std::collections::HashMap;
use std::sync::Arc;

use crate::device::{Argument, Device, DeviceError, DeviceKernel, Grid, Recording};

/// Most scripts that are remembered: the rounds of a run differ in few ways.
const MOST: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Launch { kernel: DeviceKernel, grid: Grid, arguments: Vec<u64> },
    Aside(bool),
    Join,
}

/// A sequence of launches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Script {
    steps: Vec<Step>,
}

impl Script {
    /// Adds a launch.
    ///
    /// # Safety
    /// As [`Device::launch`], whenever the script is run.
    pub(crate) unsafe fn launch(&mut self, kernel: DeviceKernel, grid: Grid, arguments: &[Argument]) {
        let arguments = arguments.iter().map(|argument| argument.bits()).collect();
        self.steps.push(Step::Launch { kernel, grid, arguments });
    }

    /// As [`Device::aside`].
    pub(crate) fn aside(&mut self, yes: bool) {
        self.steps.push(Step::Aside(yes));
    }

    /// As [`Device::join`].
    pub(crate) fn join(&mut self) {
        self.steps.push(Step::Join);
    }

    /// Runs all launches once.
    ///
    /// # Safety
    /// All buffers of its launches exist until they are done.
    pub(crate) unsafe fn run(&self, device: &dyn Device) -> Result<(), DeviceError> {
        for step in &self.steps {
            match step {
                // SAFETY: promised when the launch was added, and by the caller.
                Step::Launch { kernel, grid, arguments } => unsafe {
                    device.launch(*kernel, *grid, arguments)?;
                },
                Step::Aside(yes) => device.aside(*yes)?,
                Step::Join => device.join()?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Seen {
    Once,
    Recorded(Recording),
}

/// Runs scripts; one that occurs a second time is recorded, and run from the recording from then on.
pub(crate) struct Recordings {
    device: Arc<dyn Device>,
    seen: HashMap<Script, Seen>,
}

impl Recordings {
    pub(crate) fn new(device: &Arc<dyn Device>) -> Self {
        Self { device: device.clone(), seen: HashMap::new() }
    }

    /// # Safety
    /// As [`Script::run`]; whatever frees a buffer [forgets](Self::forget) all recordings.
    pub(crate) unsafe fn run(&mut self, script: Script) -> Result<(), DeviceError> {
        let recording = match self.seen.get(&script) {
            Some(Seen::Recorded(recording)) => *recording,
            Some(Seen::Once) => {
                self.device.record()?;
                // SAFETY: promised by the caller.
                let launched = unsafe { script.run(&*self.device) };
                let recording = self.device.recorded();
                launched?;
                let recording = recording?;
                self.seen.insert(script, Seen::Recorded(recording));
                recording
            }
            None => {
                if self.seen.len() >= MOST {
                    self.forget();
                }
                // SAFETY: promised by the caller.
                let done = unsafe { script.run(&*self.device) };
                self.seen.insert(script, Seen::Once);
                return done;
            }
        };
        // SAFETY: promised by the caller.
        unsafe { self.device.replay(recording) }
    }

    /// Forgets all of them.
    pub(crate) fn forget(&mut self) {
        for (_, seen) in self.seen.drain() {
            if let Seen::Recorded(recording) = seen {
                self.device.forget(recording);
            }
        }
    }
}

impl Drop for Recordings {
    fn drop(&mut self) {
        self.forget();
    }
}
