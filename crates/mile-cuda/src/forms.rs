//! Which problems have a form on the device.

use mile::problems::{Problem, Quadratic, Table};
use mile::real::Real;
use mile_nn::problem::ImageProblem;

use crate::device::DeviceError;
use crate::network::DeviceImages;
use crate::objective::Objective;
use crate::quadratic::DeviceQuadratic;
use crate::queue::Queue;
use crate::table::DeviceTable;

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

/// The weight decay of a problem with networks, which is no part of its device form; 0 if it has none.
pub(crate) fn weight_decay<T: Real>(problem: &dyn Problem<T>) -> f64 {
    let Some(any) = problem.as_any() else { return 0.0 };
    let single = any.downcast_ref::<ImageProblem<f32>>().map(ImageProblem::weight_decay);
    let double = || any.downcast_ref::<ImageProblem<f64>>().map(ImageProblem::weight_decay);
    single.or_else(double).unwrap_or(0.0)
}
