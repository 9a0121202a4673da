//! Losses, metrics and the gradient of f for records, computed where the models are.

use mile::agents::Vector;
use mile::block;
use mile::engine::Evaluated;
use mile::real::Real;

use super::GpuAgents;
use crate::device::{Buffer, DeviceError};
use crate::objective::{Model, Place};
use crate::work::Work;

/// Losses of models, and their metrics if they are computed.
type Worths = Vec<(f64, Option<Vec<f64>>)>;

impl<T: Real> GpuAgents<'_, T> {
    /// The mean of a vector and the rows of these agents as models.
    pub(super) fn evaluated(
        &mut self,
        v: Vector,
        agents: &[usize],
    ) -> Result<Option<Evaluated>, DeviceError> {
        let Some(worths) = self.worths(v, agents)? else { return Ok(None) };
        let (mut losses, metrics): (Vec<f64>, Vec<Option<Vec<f64>>>) = worths.into_iter().unzip();
        if self.weight_decay != 0.0 || self.problem.penalty().is_some() {
            let (dim, rows) = (self.vectors.dim(), self.read(v)?);
            let mean: Vec<T> = self.mean_of(self.vectors.place(v).at)?.into_iter().map(T::of).collect();
            let own = agents.iter().map(|agent| &rows[agent * dim..][..dim]);
            for (loss, x) in losses.iter_mut().zip([&mean[..]].into_iter().chain(own)) {
                *loss += self.beside(x);
            }
        }
        Ok(Some(Evaluated { losses, metrics: metrics.into_iter().collect() }))
    }

    /// Losses of models, and metrics if they are computed on the device: those of the mean of a vector and of some of its rows.
    fn worths(&mut self, v: Vector, agents: &[usize]) -> Result<Option<Worths>, DeviceError> {
        let Some(objective) = &self.objective else { return Ok(None) };
        let (each, rows) = (objective.numbers(), self.vectors.place(v));
        let mut models = vec![Model { at: self.vectors.rounded().at }];
        models.extend(agents.iter().map(|agent| Model { at: rows.row(*agent) }));
        let needed = models.len() * each;
        if self.numbers.as_ref().is_none_or(|(room, _)| *room < needed) {
            self.numbers = Some((needed, Buffer::new::<f64>(self.stack.device(), needed)?));
        }
        let Some((_, numbers)) = &self.numbers else { return Ok(None) };
        let mut work = Work::default();
        self.vectors.mean(rows.at, &mut work);
        objective.evaluate(&models, numbers.at().bits(), &mut work);
        self.stack.alone(&work)?;
        let mut found = vec![0.0; needed];
        let queue = self.stack.lock();
        numbers.read(0, &mut found)?;
        drop(queue);
        Ok(Some(found.chunks_exact(each).map(|numbers| objective.worth(numbers)).collect()))
    }

    /// What the loss of a model has besides those of samples: the weight decay and the penalty.
    fn beside(&self, x: &[T]) -> f64 {
        let decay = if self.weight_decay == 0.0 { 0.0 } else { 0.5 * self.weight_decay * block::norm_sq(x) };
        self.problem.penalty().map_or(decay, |penalty| decay + penalty.value(x))
    }

    /// The mean over agents of the exact gradients at the mean of a vector.
    pub(super) fn gradient_at_mean(&mut self, v: Vector) -> Result<Option<Vec<f64>>, DeviceError> {
        let Some(objective) = &self.objective else { return Ok(None) };
        if self.spare.is_none() {
            self.spare = Some(self.vectors.spare(&self.stack.queue)?);
        }
        let Some(spare) = &self.spare else { return Ok(None) };
        let (rows, at) = (self.vectors.place(v), spare.at().bits());
        let mut work = Work::default();
        self.vectors.mean(rows.at, &mut work);
        objective.gradients(self.vectors.rounded(), Place { at, ..rows }, None, &mut work);
        self.stack.alone(&work)?;
        let decay = self.weight_decay;
        let average = if decay == 0.0 { Vec::new() } else { self.mean_of(rows.at)? };
        let mut gradient = self.mean_of(at)?;
        gradient.iter_mut().zip(&average).for_each(|(g, x)| *g += decay * T::of(*x).wide());
        Ok(Some(gradient))
    }

    /// The mean of rows on the device.
    pub(super) fn mean_of(&self, rows: u64) -> Result<Vec<f64>, DeviceError> {
        let mut work = Work::default();
        self.vectors.mean(rows, &mut work);
        self.stack.alone(&work)?;
        let _queue = self.stack.lock();
        self.vectors.read_mean()
    }
}
