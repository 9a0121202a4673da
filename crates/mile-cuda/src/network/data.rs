//! Images and their targets, in the device's memory.

use std::sync::Arc;

use mile::problems::device::{Images, Targets, Values};
use mile::real::Real;

use super::memory::maybe;
use crate::device::{Argument, Buffer, Device, DeviceError};

/// Images on the device.
#[derive(Debug)]
pub(super) struct DeviceData {
    pixels: Buffer,
    labels: Option<Buffer>,
    targets: Option<Buffer>,
}

/// The kernel that loads images.
pub(super) fn load(images: &Images) -> &'static str {
    match images.pixels {
        Values::Bytes(_) => "load_bytes",
        Values::Singles(_) => "load_singles",
        Values::Doubles(_) => "load_doubles",
    }
}

/// The value of each byte.
pub(super) fn values<T: Real>(device: &Arc<dyn Device>) -> Result<Buffer, DeviceError> {
    let table: Vec<T> = (0..256).map(|byte| T::of(f64::from(byte) / 255.0)).collect();
    Buffer::of(device, &table)
}

impl DeviceData {
    pub(super) fn new(device: &Arc<dyn Device>, images: &Images) -> Result<Self, DeviceError> {
        let pixels = match &images.pixels {
            Values::Bytes(bytes) => Buffer::of(device, bytes)?,
            Values::Singles(values) => Buffer::of(device, values)?,
            Values::Doubles(values) => Buffer::of(device, values)?,
        };
        let (labels, targets) = match &images.targets {
            Targets::Labels(labels) => (Some(Buffer::of(device, labels)?), None),
            Targets::Numbers { values, .. } => (None, Some(Buffer::of(device, values)?)),
        };
        Ok(Self { pixels, labels, targets })
    }

    /// Pixels, labels and target numbers; only one of the latter two is present.
    pub(super) fn addresses(&self) -> [u64; 3] {
        [self.pixels.at(), maybe(&self.labels), maybe(&self.targets)].map(Argument::bits)
    }
}
