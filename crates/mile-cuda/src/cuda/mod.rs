//! An NVIDIA GPU. Driver and compiler are loaded when they are first used: a program with this crate runs on machines without them.

mod compile;

use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::driver::{DriverError, result};

use crate::device::{Device, DeviceError, DeviceKernel, Grid, Recording};

/// The lowest version that the driver must support.
const LEAST_DRIVER: i32 = 12_000;
/// The lowest compute capability: asynchronous copies to shared memory, and tensor cores with TF32.
const LEAST_CAPABILITY: u32 = 80;
/// Shared memory of a block beyond which a kernel has to request it.
const PLAIN_SHARED: u32 = 48 << 10;
/// Bytes of host memory through which small copies go to the device.
const STAGING: usize = 1 << 20;

/// A GPU with its own queue.
pub struct Cuda {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// The second queue, and the events with which the two wait for each other.
    side: sys::CUstream,
    fork: sys::CUevent,
    joint: sys::CUevent,
    is_aside: AtomicBool,
    name: String,
    capability: u32,
    multiprocessors: u32,
    cache: Option<PathBuf>,
    /// `STAGING` bytes of page-locked host memory.
    staging: *mut u8,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How much of the staging memory is in use by copies that may be under way.
    staged: usize,
    modules: Vec<sys::CUmodule>,
    kernels: Vec<sys::CUfunction>,
    graphs: Vec<Option<sys::CUgraphExec>>,
}

// SAFETY: handles of the driver may be used from any thread whose current context is theirs; every method makes it current. The
// staging memory is accessed with the state locked.
unsafe impl Send for Cuda {}
// SAFETY: as above, and the driver does its own locking; what is ours is behind a mutex.
unsafe impl Sync for Cuda {}

/// Turns a failure of the driver into an error that says which call failed.
fn while_doing(doing: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| {
        let text = error.error_string().ok().map(|text| text.to_string_lossy().into_owned());
        DeviceError::Failed { doing, problem: text.unwrap_or_else(|| format!("{:?}", error.0)) }
    }
}

/// Loads the driver and returns the number of devices.
pub fn devices() -> Result<usize, DeviceError> {
    // SAFETY: loading the driver's library runs NVIDIA's own initialisation, which any CUDA program runs.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    match result::init() {
        Ok(()) => {}
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        Err(error) => return Err(while_doing("start the driver")(error)),
    }
    let mut found = 0;
    // SAFETY: it writes one number.
    unsafe { sys::cuDriverGetVersion(&mut found) }
        .result()
        .map_err(while_doing("ask for the driver's version"))?;
    if found < LEAST_DRIVER {
        return Err(DeviceError::OldDriver { found });
    }
    let count = result::device::get_count().map_err(while_doing("count the devices"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

impl Cuda {
    /// The device with this number. Compiled kernels are kept in `cache`, if it is given.
    pub fn open(number: usize, cache: Option<PathBuf>) -> Result<Self, DeviceError> {
        let found = devices()?;
        if number >= found {
            return Err(DeviceError::NoDevice { wanted: number, found });
        }
        compile::check()?;
        let open = while_doing("open the device");
        let device = result::device::get(number as i32).map_err(&open)?;
        let name = result::device::get_name(device).map_err(&open)?;
        // SAFETY: the device has just been obtained from the driver.
        let attribute = |attribute| unsafe { result::device::get_attribute(device, attribute) };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).map_err(&open)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).map_err(&open)?;
        let multiprocessors =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).map_err(&open)? as u32;
        let capability = (major * 10 + minor) as u32;
        if capability < LEAST_CAPABILITY {
            return Err(DeviceError::OldDevice { name, capability });
        }
        // SAFETY: the device is valid; the context is released in `drop`.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(&open)?;
        // SAFETY: the context has just been retained.
        unsafe { result::ctx::set_current(context) }.map_err(&open)?;
        // SAFETY: an allocation has no preconditions; it is freed in `drop`.
        let staging = unsafe { result::malloc_host(STAGING, 0) }.map_err(&open)?.cast();
        let stream = || result::stream::create(result::stream::StreamKind::NonBlocking).map_err(&open);
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(&open);
        let (stream, side, fork, joint) = (stream()?, stream()?, event()?, event()?);
        let (state, is_aside) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self {
            device,
            context,
            stream,
            side,
            fork,
            joint,
            is_aside,
            name,
            capability,
            multiprocessors,
            cache,
            staging,
            state,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one queue wait for what another has been given so far.
    fn order(
        &self,
        first: sys::CUstream,
        event: sys::CUevent,
        second: sys::CUstream,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: streams and events are valid until `drop`.
        unsafe {
            result::event::record(event, first).and_then(|()| {
                result::stream::wait_event(second, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
            })
        }
        .map_err(while_doing("order its queues"))
    }

    /// Makes the context current in this thread.
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is valid until `drop`.
        unsafe { result::ctx::set_current(self.context) }.map_err(while_doing("use the device"))
    }
}

impl Device for Cuda {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn available(&self) -> Result<u64, DeviceError> {
        self.enter()?;
        let (free, _) = result::mem_get_info().map_err(while_doing("ask for free memory"))?;
        Ok(free as u64)
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.enter()?;
        // SAFETY: an allocation has no preconditions; it is freed in `free`.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(at) => Ok(at),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let available = self.available()?;
                Err(DeviceError::Memory { needed: bytes as u64, available, what: String::new() })
            }
            Err(error) => Err(while_doing("allocate memory")(error)),
        }
    }

    unsafe fn free(&self, at: u64) {
        if self.enter().is_ok() {
            // A failure means that the device is lost, and its memory with it.
            // SAFETY: promised by the caller; the driver waits for work that uses it.
            let _ = unsafe { result::free_sync(at) };
        }
    }

    unsafe fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.enter()?;
        let doing = while_doing("copy to the device");
        if bytes.len() > STAGING {
            // SAFETY: promised by the caller; the copy is over once the stream has been waited for, while `bytes` are borrowed.
            unsafe { result::memcpy_htod_async(at, bytes, self.stream) }.map_err(doing)?;
            return self.wait();
        }
        let mut state = self.state();
        if state.staged + bytes.len() > STAGING {
            self.wait()?;
            state.staged = 0;
        }
        // SAFETY: the place has room for the bytes, and no copy that may be under way reads there; it is not overwritten until the stream has
        // been waited for, because `staged` only grows until then. The target is promised by the caller.
        unsafe {
            let place = self.staging.add(state.staged);
            place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            let staged = std::slice::from_raw_parts(place, bytes.len());
            result::memcpy_htod_async(at, staged, self.stream).map_err(doing)?;
        }
        state.staged += bytes.len();
        Ok(())
    }

    unsafe fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: promised by the caller; the copy is over once the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(bytes, at, self.stream) }
            .map_err(while_doing("copy from the device"))?;
        self.wait()
    }

    fn compile(&self, source: &str, names: &[&str]) -> Result<Vec<DeviceKernel>, DeviceError> {
        self.enter()?;
        let image = compile::image(source, self.capability, self.cache.as_deref())?;
        let load = while_doing("load kernels");
        // SAFETY: the image is a compiled module, intact (the cache has a checksum), and outlives the call.
        let module = unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) }.map_err(&load)?;
        let mut state = self.state();
        state.modules.push(module);
        let mut kernels = Vec::new();
        for name in names {
            let text = CString::new(*name).map_err(|e| DeviceError::Compile(e.to_string()))?;
            // SAFETY: the module is loaded until `drop`.
            let function = unsafe { result::module::get_function(module, text) }.map_err(&load)?;
            kernels.push(DeviceKernel(state.kernels.len()));
            state.kernels.push(function);
        }
        Ok(kernels)
    }

    unsafe fn launch(&self, kernel: DeviceKernel, grid: Grid, arguments: &[u64]) -> Result<(), DeviceError> {
        self.enter()?;
        let function = self.state().kernels[kernel.0];
        let doing = while_doing("run a kernel");
        if grid.shared > PLAIN_SHARED {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function belongs to a loaded module.
            unsafe { result::function::set_function_attribute(function, attribute, grid.shared as i32) }
                .map_err(&doing)?;
        }
        let mut bits = arguments.to_vec();
        let mut pointers: Vec<*mut c_void> =
            bits.iter_mut().map(|bits| std::ptr::from_mut(bits).cast()).collect();
        let [x, y, z] = grid.blocks;
        let stream = if self.is_aside.load(Ordering::Relaxed) { self.side } else { self.stream };
        // SAFETY: promised by the caller; the arguments are copied by the call.
        unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                (grid.threads, 1, 1),
                grid.shared,
                stream,
                &mut pointers,
            )
        }
        .map_err(doing)
    }

    fn aside(&self, yes: bool) -> Result<(), DeviceError> {
        self.is_aside.store(yes, Ordering::Relaxed);
        if yes { self.order(self.stream, self.fork, self.side) } else { Ok(()) }
    }

    fn join(&self) -> Result<(), DeviceError> {
        self.order(self.side, self.joint, self.stream)
    }

    fn record(&self) -> Result<(), DeviceError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is valid until `drop`.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(while_doing("record a graph"))
    }

    fn recorded(&self) -> Result<Recording, DeviceError> {
        self.enter()?;
        let doing = while_doing("record a graph");
        // SAFETY: the stream is valid; the graph is destroyed after it was instantiated.
        let executable = unsafe {
            let graph = result::stream::end_capture(self.stream).map_err(&doing)?;
            let executable = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags_enum(0));
            result::graph::destroy(graph).map_err(&doing)?;
            executable.map_err(&doing)?
        };
        let mut state = self.state();
        state.graphs.push(Some(executable));
        Ok(Recording(state.graphs.len() - 1))
    }

    unsafe fn replay(&self, recording: Recording) -> Result<(), DeviceError> {
        self.enter()?;
        let Some(graph) = self.state().graphs[recording.0] else { return Ok(()) };
        // SAFETY: the graph was instantiated and not destroyed; the caller vouches for its buffers.
        unsafe { result::graph::launch(graph, self.stream) }.map_err(while_doing("run a graph"))
    }

    fn forget(&self, recording: Recording) {
        let graph = self.state().graphs[recording.0].take();
        if let (Some(graph), Ok(())) = (graph, self.enter()) {
            // SAFETY: it was instantiated, and nobody can run it any more. A failure means that the device is lost.
            let _ = unsafe { result::graph::exec_destroy(graph) };
        }
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the stream is valid until `drop`.
        unsafe { result::stream::synchronize(self.stream) }.map_err(while_doing("compute"))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        let graphs = self.state().graphs.len();
        (0..graphs).for_each(|k| self.forget(Recording(k)));
        let modules = std::mem::take(&mut self.state().modules);
        // Failures mean that the device is lost, and all of this with it.
        // SAFETY: none of these can be used any more; the driver waits for work that is under way.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            for module in modules {
                let _ = result::module::unload(module);
            }
            let _ = result::free_host(self.staging.cast());
            let _ = result::stream::destroy(self.stream);
            let _ = result::stream::destroy(self.side);
            let _ = result::event::destroy(self.fork);
            let _ = result::event::destroy(self.joint);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cuda({})", self.name)
    }
}
