//! A device that runs the kernel sources on the CPU: they are compiled as plain C++, and the threads of a block take turns.
//!
//! It is for tests on machines without a GPU. Every thread of every block does what it would do on a GPU, with the same index
//! arithmetic, shared memory and exchanges within a warp; only its speed means nothing.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::Library;

use crate::device::{Device, DeviceError, DeviceKernel, Grid, Recording};
use crate::kernels::PRELUDE;

/// What was compiled in this process, by source: libraries stay loaded until it ends.
static COMPILED: Mutex<BTreeMap<String, &'static Library>> = Mutex::new(BTreeMap::new());

type Launch = unsafe extern "C" fn(*const *const u64, *const u32, i32) -> i32;

/// The order in which the threads of a block take turns. Results do not depend on it, unless a barrier is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// The first thread runs first.
    Forwards,
    /// The last thread runs first.
    Backwards,
}

/// The CPU, as a device for kernels.
pub struct Emulated {
    compiler: String,
    order: Order,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kernels: Vec<Launch>,
    /// Bytes of each allocation, by its address.
    memory: HashMap<u64, usize>,
    recording: Option<Vec<Launched>>,
    recorded: Vec<Vec<Launched>>,
}

#[derive(Clone)]
struct Launched {
    kernel: DeviceKernel,
    grid: Grid,
    arguments: Vec<u64>,
}

impl Emulated {
    /// The CPU, if a C++ compiler is found: `$CXX`, or `c++`.
    pub fn new(order: Order) -> Option<Self> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let found = Command::new(&compiler).arg("--version").output().is_ok_and(|out| out.status.success());
        found.then(|| Self { compiler, order, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build(&self, source: &str) -> Result<Library, DeviceError> {
        let failed = |doing: &'static str| {
            move |error: std::io::Error| DeviceError::Failed { doing, problem: error.to_string() }
        };
        // A different name for each, because a library that is already loaded is found again by its path.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("mile-emulated-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(failed("make a folder"))?;
        let (text, library) = (folder.join("kernels.cpp"), folder.join("kernels.so"));
        std::fs::write(&text, format!("{PRELUDE}\n{source}")).map_err(failed("write the sources"))?;
        // Fortified jumps may not switch from one stack to another, as jumps between the threads of a block do.
        let fortify = "-U_FORTIFY_SOURCE";
        let arguments =
            ["-std=c++17", "-O1", fortify, "-shared", "-fPIC", "-ffp-contract=off", "-DEMULATED", "-w", "-o"];
        let out = Command::new(&self.compiler).args(arguments).arg(&library).arg(&text).output();
        let out = out.map_err(failed("run the C++ compiler"))?;
        if !out.status.success() {
            return Err(DeviceError::Compile(String::from_utf8_lossy(&out.stderr).into_owned()));
        }
        // SAFETY: the library was just compiled from our own sources and has no code that runs when it is loaded.
        let loaded = unsafe { Library::new(&library) };
        let loaded =
            loaded.map_err(|e| DeviceError::Failed { doing: "load kernels", problem: e.to_string() });
        std::fs::remove_dir_all(&folder).map_err(failed("remove a folder"))?;
        loaded
    }

    /// # Safety
    /// As [`Device::launch`].
    unsafe fn run(&self, launched: &Launched) -> Result<(), DeviceError> {
        let launch = self.state().kernels[launched.kernel.0];
        let pointers: Vec<*const u64> = launched.arguments.iter().map(std::ptr::from_ref).collect();
        let [x, y, z] = launched.grid.blocks;
        let dims = [x, y, z, launched.grid.threads, 1, 1];
        let backwards = i32::from(self.order == Order::Backwards);
        // SAFETY: promised by the caller; there are as many pointers and dims as the launcher reads.
        if unsafe { launch(pointers.as_ptr(), dims.as_ptr(), backwards) } != 0 {
            let problem = "threads of a block did not all wait equally often".into();
            return Err(DeviceError::Failed { doing: "run a kernel", problem });
        }
        Ok(())
    }
}

impl Device for Emulated {
    fn name(&self) -> String {
        "the CPU, emulating a GPU".into()
    }

    fn available(&self) -> Result<u64, DeviceError> {
        Ok(4 << 30)
    }

    fn multiprocessors(&self) -> u32 {
        3
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let lines = bytes.div_ceil(256);
        let available = self.available()?;
        if bytes as u64 > available {
            return Err(DeviceError::Memory { needed: bytes as u64, available, what: String::new() });
        }
        // Numbers that are read before they are written are NaN.
        let memory: Box<[Line]> = vec![Line([u8::MAX; 256]); lines].into_boxed_slice();
        let at = Box::into_raw(memory).cast::<c_void>() as u64;
        self.state().memory.insert(at, lines);
        Ok(at)
    }

    unsafe fn free(&self, at: u64) {
        if let Some(lines) = self.state().memory.remove(&at) {
            let memory = std::ptr::slice_from_raw_parts_mut(at as *mut Line, lines);
            // SAFETY: it came from a box of this many lines in `allocate`, and the caller does not use it any more.
            drop(unsafe { Box::from_raw(memory) });
        }
    }

    unsafe fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: as many bytes there belong to the caller.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        Ok(())
    }

    unsafe fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: as many bytes there belong to the caller.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn compile(&self, source: &str, names: &[&str]) -> Result<Vec<DeviceKernel>, DeviceError> {
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match compiled.get(source) {
            Some(library) => library,
            None => {
                let library: &'static Library = Box::leak(Box::new(self.build(source)?));
                compiled.insert(source.to_owned(), library);
                library
            }
        };
        let mut state = self.state();
        let mut found = Vec::new();
        for name in names {
            // SAFETY: all functions with this name prefix are made by one macro and have this type.
            let launch = unsafe { library.get::<Launch>(format!("launch_{name}")) };
            let launch = launch.map_err(|e| DeviceError::Compile(format!("kernel {name}: {e}")))?;
            found.push(DeviceKernel(state.kernels.len()));
            state.kernels.push(*launch);
        }
        Ok(found)
    }

    unsafe fn launch(&self, kernel: DeviceKernel, grid: Grid, arguments: &[u64]) -> Result<(), DeviceError> {
        let launched = Launched { kernel, grid, arguments: arguments.to_vec() };
        if let Some(recording) = &mut self.state().recording {
            recording.push(launched);
            return Ok(());
        }
        // SAFETY: promised by the caller.
        unsafe { self.run(&launched) }
    }

    /// Running one after the other is a valid way to run side by side.
    fn aside(&self, _: bool) -> Result<(), DeviceError> {
        Ok(())
    }

    fn join(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn record(&self) -> Result<(), DeviceError> {
        self.state().recording = Some(Vec::new());
        Ok(())
    }

    fn recorded(&self) -> Result<Recording, DeviceError> {
        let mut state = self.state();
        let launches = state.recording.take().unwrap_or_default();
        state.recorded.push(launches);
        Ok(Recording(state.recorded.len() - 1))
    }

    unsafe fn replay(&self, recording: Recording) -> Result<(), DeviceError> {
        let launches = self.state().recorded[recording.0].clone();
        // SAFETY: promised by the caller.
        launches.iter().try_for_each(|launched| unsafe { self.run(launched) })
    }

    fn forget(&self, recording: Recording) {
        self.state().recorded[recording.0].clear();
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Memory aligned as it is on a device.
#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Line([u8; 256]);

impl Drop for Emulated {
    fn drop(&mut self) {
        let left: Vec<u64> = self.state().memory.keys().copied().collect();
        for at in left {
            // SAFETY: the device is being dropped, so no buffer can be used any more.
            unsafe { self.free(at) };
        }
    }
}
