//! Which problems have a form on the device.

use mile::problems::{Problem, Quadratic, Table};
use mile::real::Real;
use mile_nn::problem::ImageProblem;

use crate::device::DeviceError;
use crate::network::{self, DeviceImages};
use crate::objective::{Needs, Objective};
use crate::quadratic::DeviceQuadratic;
use crate::queue::Queue;
use crate::stack::Shared;
use crate::table::DeviceTable;

/// Whether a problem has a form on the device.
pub(crate) fn is_known<T: Real>(problem: &dyn Problem<T>) -> bool {
    problem.as_any().is_some_and(|any| {
        any.is::<Quadratic<T>>()
            || any.is::<Table<T>>()
            || any.is::<ImageProblem<f32>>()
            || any.is::<ImageProblem<f64>>()
    })
}

/// The device form of the objectives of these agents of a job's problem; none if it has none.
pub(crate) fn on_device<T: Real>(
    shared: &mut Shared,
    queue: &Queue,
    member: usize,
    problem: &dyn Problem<T>,
    hosted: &[usize],
) -> Result<Option<Box<dyn Objective>>, DeviceError> {
    let Some(any) = problem.as_any() else { return Ok(None) };
    if let Some(quadratic) = any.downcast_ref::<Quadratic<T>>() {
        return Ok(Some(Box::new(DeviceQuadratic::new(shared, queue, member, quadratic, hosted)?)));
    }
    if let Some(table) = any.downcast_ref::<Table<T>>() {
        return Ok(Some(Box::new(DeviceTable::new(shared, queue, member, table, hosted)?)));
    }
    if let Some(images) = any.downcast_ref::<ImageProblem<f32>>() {
        return Ok(Some(Box::new(DeviceImages::new(shared, queue, member, images, hosted)?)));
    }
    if let Some(images) = any.downcast_ref::<ImageProblem<f64>>() {
        return Ok(Some(Box::new(DeviceImages::new(shared, queue, member, images, hosted)?)));
    }
    Ok(None)
}

/// What a job with this problem needs.
pub(crate) fn needs<T: Real>(problem: &dyn Problem<T>) -> Needs {
    let Some(any) = problem.as_any() else { return Needs::default() };
    let number = size_of::<T>() as u64;
    if let Some(quadratic) = any.downcast_ref::<Quadratic<T>>() {
        let hosted = quadratic.normals().iter().filter(|normal| !normal.is_empty()).count();
        let numbers = 2 * hosted as u64 * problem.dim() as u64;
        return Needs { own: numbers * number, ..Needs::default() };
    }
    if let Some(table) = any.downcast_ref::<Table<T>>() {
        let rows: usize = table.rows().iter().sum();
        return Needs { own: rows as u64 * (table.columns() as u64 + 1) * number, ..Needs::default() };
    }
    let single = any.downcast_ref::<ImageProblem<f32>>().map(network::needs);
    single.or_else(|| any.downcast_ref::<ImageProblem<f64>>().map(network::needs)).unwrap_or_default()
}

/// The weight decay of a problem with networks, which is no part of its device form; 0 if it has none.
pub(crate) fn weight_decay<T: Real>(problem: &dyn Problem<T>) -> f64 {
    let Some(any) = problem.as_any() else { return 0.0 };
    let single = any.downcast_ref::<ImageProblem<f32>>().map(ImageProblem::weight_decay);
    let double = || any.downcast_ref::<ImageProblem<f64>>().map(ImageProblem::weight_decay);
    single.or_else(double).unwrap_or(0.0)
}
