//! What an objective does on the device.

use mile::problems::Draw;

use crate::device::{Argument, Buffer, DeviceError};
use crate::parameters::Parameters;

/// The agents' objectives, on the device.
pub(crate) trait Objective: Send {
    /// Adds what is different from draw to draw, such as the samples of mini-batches, always as many bytes; returns its place.
    fn draw(&self, draw: Draw, parameters: &mut Parameters) -> usize;

    /// `g_i <- grad f_i(x_i)` for all agents. `draw` is where [`draw`](Self::draw) put what it added.
    fn gradient(&self, x: &Buffer, g: &Buffer, draw: Argument) -> Result<(), DeviceError>;
}
