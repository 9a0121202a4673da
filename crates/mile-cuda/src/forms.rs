//! From the form of a problem to objectives on the device.

use mile::problems::{DeviceForm, Problem, Shard};
use mile::real::Real;

use crate::device::DeviceError;
use crate::network::{self, DeviceImages};
use crate::objective::{Needs, Objective};
use crate::quadratic::DeviceQuadratic;
use crate::queue::Queue;
use crate::stack::Shared;
use crate::table::DeviceTable;

/// The objectives of these agents of a job's problem on the device; none if it has no device form that is known here.
pub(crate) fn on_device<T: Real>(
    shared: &mut Shared,
    queue: &Queue,
    member: usize,
    problem: &dyn Problem<T>,
    hosted: &[usize],
) -> Result<Option<Box<dyn Objective>>, DeviceError> {
    Ok(Some(match problem.device_form() {
        Some(DeviceForm::Quadratic(form)) => {
            Box::new(DeviceQuadratic::new(shared, queue, member, form, hosted)?)
        }
        Some(DeviceForm::Table(form)) => Box::new(DeviceTable::new(shared, queue, member, form, hosted)?),
        Some(DeviceForm::Network(form)) => {
            Box::new(DeviceImages::<T>::new(shared, queue, member, &form, hosted)?)
        }
        _ => return Ok(None),
    }))
}

/// What a job with this problem needs.
pub(crate) fn needs<T: Real>(problem: &dyn Problem<T>) -> Needs {
    let number = size_of::<T>() as u64;
    match problem.device_form() {
        Some(DeviceForm::Quadratic(form)) => {
            let hosted = form.normals().iter().filter(|normal| !normal.is_empty()).count();
            let numbers = 2 * hosted as u64 * problem.dim() as u64;
            Needs { own: numbers * number, ..Needs::default() }
        }
        Some(DeviceForm::Table(form)) => {
            let rows: usize = form.rows().iter().sum();
            // Features and target of each row, and at most a weight and an offset.
            let has = |part: fn(&Shard<T>) -> &[T]| {
                u64::from(form.shards().iter().any(|one| !part(one).is_empty()))
            };
            let columns = form.columns() as u64 + 1 + has(|one| &one.weights) + has(|one| &one.offsets);
            Needs { own: rows as u64 * columns * number, ..Needs::default() }
        }
        Some(DeviceForm::Network(form)) => network::needs::<T>(&form),
        _ => Needs::default(),
    }
}
