//! Rows that are copied between a device and the host.

use mile::real::Real;

use crate::device::{Buffer, DeviceError};
use crate::stack::Stack;

/// Rows on the device, and room for them in the host's memory.
pub(super) struct Copied<T> {
    there: Option<Buffer>,
    pub(super) here: Vec<T>,
}

impl<T: Real> Copied<T> {
    pub(super) fn new() -> Self {
        Self { there: None, here: Vec::new() }
    }

    /// Makes room for so many numbers; returns where they are on the device.
    pub(super) fn reserve(&mut self, stack: &Stack<T>, numbers: usize) -> Result<u64, DeviceError> {
        if self.there.is_none() || numbers > self.here.len() {
            self.there = Some(Buffer::new::<T>(stack.device(), numbers)?);
            self.here.resize(numbers, T::zero());
        }
        Ok(self.there.as_ref().map_or(0, |buffer| buffer.at().bits()))
    }

    /// Copies the first numbers from the device.
    pub(super) fn fetch(&mut self, stack: &Stack<T>, numbers: usize) -> Result<(), DeviceError> {
        let _queue = stack.lock();
        self.there.as_ref().map_or(Ok(()), |there| there.read(0, &mut self.here[..numbers]))
    }

    /// Copies the first numbers to the device.
    pub(super) fn put(&self, stack: &Stack<T>, numbers: usize) -> Result<(), DeviceError> {
        let _queue = stack.lock();
        self.there.as_ref().map_or(Ok(()), |there| there.write(0, &self.here[..numbers]))
    }
}
