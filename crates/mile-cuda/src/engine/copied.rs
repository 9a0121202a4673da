//! Rows that are copied between a device and the host.

use mile::real::Real;

use crate::device::{Buffer, DeviceError};
use crate::stack::Stack;

/// Rows on the device, and room for them in the host's memory once they are copied.
pub(super) struct Copied<T> {
    there: Option<Buffer>,
    /// How many numbers fit on the device.
    room: usize,
    here: Vec<T>,
}

impl<T: Real> Copied<T> {
    pub(super) fn new() -> Self {
        Self { there: None, room: 0, here: Vec::new() }
    }

    /// Makes room for `numbers` numbers on the device; returns where they are.
    pub(super) fn reserve(&mut self, stack: &Stack<T>, numbers: usize) -> Result<u64, DeviceError> {
        if self.there.is_none() || numbers > self.room {
            self.there = Some(Buffer::new::<T>(stack.device(), numbers)?);
            self.room = numbers;
        }
        Ok(self.there.as_ref().map_or(0, |buffer| buffer.at().bits()))
    }

    /// The first numbers in the host's memory.
    pub(super) fn here(&mut self, numbers: usize) -> &mut [T] {
        if self.here.len() < numbers {
            self.here.resize(numbers, T::zero());
        }
        &mut self.here[..numbers]
    }

    /// Copies the first numbers from the device.
    pub(super) fn fetch(&mut self, stack: &Stack<T>, numbers: usize) -> Result<&[T], DeviceError> {
        self.here(numbers);
        let _queue = stack.lock();
        let here = &mut self.here[..numbers];
        self.there.as_ref().map_or(Ok(()), |there| there.read(0, here))?;
        Ok(here)
    }

    /// Copies the first numbers to the device.
    pub(super) fn put(&self, stack: &Stack<T>, numbers: usize) -> Result<(), DeviceError> {
        let _queue = stack.lock();
        self.there.as_ref().map_or(Ok(()), |there| there.write(0, &self.here[..numbers]))
    }
}
