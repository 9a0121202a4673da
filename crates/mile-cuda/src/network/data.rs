//! Images and what is to be predicted of them, in the device's memory.

use std::sync::Arc;

use mile::real::Real;
use mile_nn::data::{Images, Targets, Values};

use super::memory::maybe;
use crate::device::{Argument, Buffer, Device, DeviceError};

/// Images on the device.
#[derive(Debug)]
pub(super) struct DeviceData {
    pixels: Buffer,
    /// The value of each byte, if pixels are bytes.
    values: Option<Buffer>,
    labels: Option<Buffer>,
    targets: Option<Buffer>,
    /// The kernel that loads them.
    pub(super) load: &'static str,
}

impl DeviceData {
    pub(super) fn new<T: Real>(device: &Arc<dyn Device>, images: &Images) -> Result<Self, DeviceError> {
        let table: Vec<T> = (0..256).map(|byte| T::of(f64::from(byte) / 255.0)).collect();
        let (pixels, values, load) = match &images.pixels {
            Values::Bytes(bytes) => {
                (Buffer::of(device, bytes)?, Some(Buffer::of(device, &table)?), "load_bytes")
            }
            Values::Singles(values) => (Buffer::of(device, values)?, None, "load_singles"),
            Values::Doubles(values) => (Buffer::of(device, values)?, None, "load_doubles"),
        };
        let (labels, targets) = match &images.targets {
            Targets::Labels(labels) => (Some(Buffer::of(device, labels)?), None),
            Targets::Numbers { values, .. } => (None, Some(Buffer::of(device, values)?)),
        };
        Ok(Self { pixels, values, labels, targets, load })
    }

    /// Pixels, and the value of each byte.
    pub(super) fn pixels(&self) -> [Argument; 2] {
        [self.pixels.at(), maybe(&self.values)]
    }

    /// Labels and numbers to be predicted, of which one is there.
    pub(super) fn targets(&self) -> [Argument; 2] {
        [maybe(&self.labels), maybe(&self.targets)]
    }
}
