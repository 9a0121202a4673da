//! What an engine needs from a device: memory, kernels, and a queue in which they run one after the other.
//!
//! There are two devices: [`Cuda`](crate::cuda::Cuda), and [`Emulated`](crate::emulated::Emulated), which runs the same kernel sources on the
//! CPU for tests.

use std::sync::Arc;

use bytemuck::Pod;
use mile::engine::HostError;

/// Why a device cannot be used, or failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no NVIDIA driver on this machine.
    #[error("there is no NVIDIA driver on this machine (libcuda was not found): install one")]
    NoDriver,
    /// There is no device, or none with this number.
    #[error("there is no CUDA device {wanted}: this machine has {found}, numbered from 0")]
    NoDevice {
        /// The number asked for.
        wanted: usize,
        /// The number of devices there are.
        found: usize,
    },
    /// The driver is too old.
    #[error(
        "the NVIDIA driver supports CUDA {}.{} at most, and {} is needed: install a newer driver",
        found / 1000, found % 1000 / 10, "12.0"
    )]
    OldDriver {
        /// The version that the driver supports, in its own numbering: 12040 is 12.4.
        found: i32,
    },
    /// The device is too old for the kernels.
    #[error("{name} has compute capability {}.{}, and 8.0 (Ampere) is needed", capability / 10, capability % 10)]
    OldDevice {
        /// Its name.
        name: String,
        /// Its compute capability, 80 for 8.0.
        capability: u32,
    },
    /// NVRTC, which compiles the kernels, is missing.
    #[error(
        "NVRTC, which compiles the kernels, was not found (libnvrtc): install the CUDA toolkit or its package cuda-nvrtc, and add \
         its folder to LD_LIBRARY_PATH"
    )]
    NoCompiler,
    /// A kernel could not be compiled.
    #[error("the kernels could not be compiled:\n{0}")]
    Compile(String),
    /// There is not enough memory.
    #[error(
        "the device has {} of free memory and {} more are needed{}: use fewer agents or a smaller batch",
        bytes(*available), bytes(*needed), what
    )]
    Memory {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that are free.
        available: u64,
        /// What it was for, appended to the sentence; may be empty.
        what: String,
    },
    /// A call of the driver failed, for example because a device is lost.
    #[error("the GPU failed to {doing}: {problem}")]
    Failed {
        /// What it was to do, after "failed to".
        doing: &'static str,
        /// What the driver says.
        problem: String,
    },
}

impl From<DeviceError> for HostError {
    fn from(error: DeviceError) -> Self {
        Self::Device(Box::new(error))
    }
}

/// A number of bytes in readable form.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..10_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

/// A kernel of a module, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceKernel(pub(crate) usize);

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// Where a buffer begins, or 0 for none.
    Pointer(u64),
    /// A whole number of 32 bits.
    Whole(u32),
    /// A whole number of 64 bits.
    Long(u64),
    /// A number in single precision.
    Single(f32),
    /// A number in double precision.
    Double(f64),
}

impl Argument {
    /// The place `bytes` bytes further on.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        match self {
            Self::Pointer(at) => Self::Pointer(at + bytes as u64),
            other => other,
        }
    }

    /// Its bytes; those of shorter types come first, as on every machine with a CUDA driver.
    pub fn bits(self) -> u64 {
        match self {
            Self::Pointer(value) | Self::Long(value) => value,
            Self::Whole(value) => u64::from(value),
            Self::Single(value) => u64::from(value.to_bits()),
            Self::Double(value) => value.to_bits(),
        }
    }
}

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block, all in x.
    pub threads: u32,
    /// Bytes of shared memory beyond those known when the kernel is compiled.
    pub shared: u32,
}

impl Grid {
    /// A grid of these blocks, each with `threads` threads.
    pub fn new(blocks: [u32; 3], threads: u32) -> Self {
        Self { blocks, threads, shared: 0 }
    }

    /// Threads for `numbers` numbers, in at most `most` blocks; if these are too few, each thread handles several numbers.
    pub fn over(numbers: usize, threads: u32, most: u32) -> Self {
        let blocks = numbers.div_ceil(threads as usize).clamp(1, most as usize);
        Self::new([blocks as u32, 1, 1], threads)
    }
}

/// A sequence of launches that was recorded, to be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording(pub(crate) usize);

/// A device with its own queue. Calls are carried out in the order in which they are made.
pub trait Device: Send + Sync {
    /// Its name, for the user.
    fn name(&self) -> String;

    /// Free bytes of memory.
    fn available(&self) -> Result<u64, DeviceError>;

    /// Number of multiprocessors: a small multiple of this many blocks keeps the device busy.
    fn multiprocessors(&self) -> u32;

    /// Allocates `bytes` bytes, at least one, aligned to 256.
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError>;

    /// Frees what [`allocate`](Self::allocate) returned.
    ///
    /// # Safety
    /// It is not used afterwards.
    unsafe fn free(&self, at: u64);

    /// Copies to the device. The bytes may change as soon as the call returns.
    ///
    /// # Safety
    /// As many bytes there belong to the caller.
    unsafe fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Waits for all work, and copies from the device.
    ///
    /// # Safety
    /// As many bytes there belong to the caller.
    unsafe fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Compiles the kernels with these names.
    fn compile(&self, source: &str, names: &[&str]) -> Result<Vec<DeviceKernel>, DeviceError>;

    /// Runs a kernel with the [bits](Argument::bits) of its arguments.
    ///
    /// # Safety
    /// The arguments have the kernel's types, and what it reads and writes with this grid is in buffers that outlive its
    /// execution.
    unsafe fn launch(&self, kernel: DeviceKernel, grid: Grid, arguments: &[u64]) -> Result<(), DeviceError>;

    /// Whether launches go to a second queue from now on, after everything launched before; those of the first queue do not wait for
    /// it until [`join`](Self::join).
    fn aside(&self, yes: bool) -> Result<(), DeviceError>;

    /// Makes the first queue wait for what was launched aside.
    fn join(&self) -> Result<(), DeviceError>;

    /// Starts recording launches instead of running them. Only launches, aside or not, may follow, and what is aside must be joined.
    fn record(&self) -> Result<(), DeviceError>;

    /// Ends a recording.
    fn recorded(&self) -> Result<Recording, DeviceError>;

    /// Runs what was recorded.
    ///
    /// # Safety
    /// As for the recorded launches, all of whose buffers must still exist.
    unsafe fn replay(&self, recording: Recording) -> Result<(), DeviceError>;

    /// Forgets a recording.
    fn forget(&self, recording: Recording);

    /// Waits for all work.
    fn wait(&self) -> Result<(), DeviceError>;
}

/// Memory on a device, freed when it is dropped.
pub(crate) struct Buffer {
    device: Arc<dyn Device>,
    at: u64,
    bytes: usize,
}

impl Buffer {
    /// Memory for `count` numbers, with unspecified contents.
    pub(crate) fn new<N: Pod>(device: &Arc<dyn Device>, count: usize) -> Result<Self, DeviceError> {
        let bytes = count.saturating_mul(size_of::<N>()).max(16);
        Ok(Self { at: device.allocate(bytes)?, bytes, device: device.clone() })
    }

    /// A copy of these numbers.
    pub(crate) fn of<N: Pod>(device: &Arc<dyn Device>, numbers: &[N]) -> Result<Self, DeviceError> {
        let buffer = Self::new::<N>(device, numbers.len())?;
        buffer.write(0, numbers)?;
        Ok(buffer)
    }

    /// Replaces numbers from index `first` on.
    ///
    /// # Panics
    /// If they are not within the buffer.
    pub(crate) fn write<N: Pod>(&self, first: usize, numbers: &[N]) -> Result<(), DeviceError> {
        let place = first * size_of::<N>();
        assert!(place + size_of_val(numbers) <= self.bytes, "a copy stays within its buffer");
        // SAFETY: the range was just checked to be within the buffer.
        unsafe { self.device.write(self.at + place as u64, bytemuck::cast_slice(numbers)) }
    }

    /// Copies numbers from index `first` on.
    ///
    /// # Panics
    /// If they are not within the buffer.
    pub(crate) fn read<N: Pod>(&self, first: usize, numbers: &mut [N]) -> Result<(), DeviceError> {
        let place = first * size_of::<N>();
        assert!(place + size_of_val(numbers) <= self.bytes, "a copy stays within its buffer");
        // SAFETY: the range was just checked to be within the buffer.
        unsafe { self.device.read(self.at + place as u64, bytemuck::cast_slice_mut(numbers)) }
    }

    /// Where it begins.
    pub(crate) fn at(&self) -> Argument {
        Argument::Pointer(self.at)
    }

    /// Where number `first` is.
    pub(crate) fn from<N>(&self, first: usize) -> Argument {
        Argument::Pointer(self.at + (first * size_of::<N>()) as u64)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { self.device.free(self.at) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}
