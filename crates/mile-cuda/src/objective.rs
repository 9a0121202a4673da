//! Objectives whose gradients are computed on the device.

use mile::problems::{Draw, Problem, Quadratic, Table};
use mile::real::Real;
use mile_nn::problem::ImageProblem;

use crate::device::{Argument, Buffer, DeviceError};
use crate::network::DeviceImages;
use crate::parameters::Parameters;
use crate::quadratic::DeviceQuadratic;
use crate::queue::Queue;
use crate::table::DeviceTable;

/// The agents' objectives, on the device.
pub(crate) trait Objective: Send {
    /// Adds what is different from draw to draw, such as the samples of mini-batches, always as many bytes; returns its place.
    fn draw(&self, draw: Draw, parameters: &mut Parameters) -> usize;

    /// `g_i <- grad f_i(x_i)` for all agents. `draw` is where [`draw`](Self::draw) put what it added.
    fn gradient(&self, x: &Buffer, g: &Buffer, draw: Argument) -> Result<(), DeviceError>;
}

/// The device form of a problem whose rows have a distance of `stride` numbers; none if it has none.
pub(crate) fn on_device<T: Real>(
    queue: &Queue,
    problem: &dyn Problem<T>,
    stride: usize,
) -> Result<Option<Box<dyn Objective>>, DeviceError> {
    let Some(any) = problem.as_any() else { return Ok(None) };
    if let Some(quadratic) = any.downcast_ref::<Quadratic<T>>() {
        return Ok(Some(Box::new(DeviceQuadratic::new(queue, quadratic, stride)?)));
    }
    if let Some(table) = any.downcast_ref::<Table<T>>() {
        return Ok(Some(Box::new(DeviceTable::new(queue, table, stride)?)));
    }
    if let Some(images) = any.downcast_ref::<ImageProblem<f32>>() {
        return Ok(Some(Box::new(DeviceImages::new(queue, images, stride)?)));
    }
    if let Some(images) = any.downcast_ref::<ImageProblem<f64>>() {
        return Ok(Some(Box::new(DeviceImages::new(queue, images, stride)?)));
    }
    Ok(None)
}
