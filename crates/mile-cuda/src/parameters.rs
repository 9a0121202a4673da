//! What kernels need and what changes from round to round: coefficients, weights, samples. It is copied to the device once, before
//! the kernels of a round, which find it at fixed places: so a recorded round can be run again with other numbers.

use std::sync::Arc;

use bytemuck::Pod;

use crate::device::{Argument, Buffer, Device, DeviceError};

/// Places are multiples of this many bytes.
const ALIGNMENT: usize = 16;

/// The parameters of the next round, on the host.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    bytes: Vec<u8>,
}

impl Parameters {
    /// Adds numbers; returns their place.
    pub(crate) fn add<N: Pod>(&mut self, numbers: &[N]) -> usize {
        let place = self.bytes.len();
        self.bytes.extend_from_slice(bytemuck::cast_slice(numbers));
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        place
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Parameters on the device.
#[derive(Debug)]
pub(crate) struct OnDevice {
    buffer: Buffer,
    room: usize,
}

impl OnDevice {
    pub(crate) fn new(device: &Arc<dyn Device>) -> Result<Self, DeviceError> {
        let room = 1 << 16;
        Ok(Self { buffer: Buffer::new::<u8>(device, room)?, room })
    }

    /// Copies parameters to the device; true if they have moved, so that recordings are void.
    pub(crate) fn write(
        &mut self,
        device: &Arc<dyn Device>,
        parameters: &Parameters,
    ) -> Result<bool, DeviceError> {
        let needed = parameters.bytes.len();
        let moves = needed > self.room;
        if moves {
            self.room = needed.next_power_of_two();
            device.wait()?;
            self.buffer = Buffer::new::<u8>(device, self.room)?;
        }
        self.buffer.write(0, &parameters.bytes)?;
        Ok(moves)
    }

    /// Where a place is.
    pub(crate) fn at(&self, place: usize) -> Argument {
        self.buffer.from::<u8>(place)
    }
}
