//! Losses, metrics and the gradient of f for records, computed where the models are.

use mile::agents::Vector;
use mile::engine::EvaluatedModels;
use mile::real::Real;

use super::GpuAgents;
use crate::device::{Buffer, DeviceError};
use crate::objective::{Model, Place};
use crate::work::Work;

/// For each model, the losses of the agents that are hosted here, and the metrics, if they are computed on the device and the model is
/// measured here.
pub(super) type LossesAndMetrics = Vec<(Vec<f64>, Option<Vec<f64>>)>;

/// The value of f, without a penalty, from the losses of all agents.
pub(super) fn value(losses: &[f64]) -> f64 {
    losses.iter().fold(0.0, |sum, loss| sum + loss) / losses.len() as f64
}

impl<T: Real> GpuAgents<'_, T> {
    /// The mean of a vector and the rows of these agents as models.
    pub(super) fn evaluated(
        &mut self,
        v: Vector,
        agents: &[usize],
    ) -> Result<Option<EvaluatedModels>, DeviceError> {
        let rows = self.vectors.place(v);
        let model = |at: u64| Model { at, is_measured: true };
        let mut models = vec![model(self.vectors.rounded().at)];
        models.extend(agents.iter().map(|agent| model(rows.row(*agent))));
        let mut work = Work::default();
        self.vectors.mean(rows.at, &mut work);
        let Some(found) = self.losses_and_metrics(&models, work)? else { return Ok(None) };
        let mut losses: Vec<f64> = found.iter().map(|(losses, _)| value(losses)).collect();
        let metrics: Option<Vec<Vec<f64>>> = found.into_iter().map(|(_, metrics)| metrics).collect();
        if self.weight_decay.factor().is_some() || self.problem.penalty().is_some() {
            let (dim, rows) = (self.vectors.dim(), self.read(v)?);
            let mean: Vec<T> = self.mean_of(self.vectors.place(v).at)?.into_iter().map(T::of).collect();
            let own = agents.iter().map(|agent| &rows[agent * dim..][..dim]);
            for (loss, x) in losses.iter_mut().zip([&mean[..]].into_iter().chain(own)) {
                *loss += self.beside(x);
            }
        }
        Ok(Some(EvaluatedModels { losses, metrics }))
    }

    /// Losses and metrics of models on the device, after this work; none if the problem is computed on the CPU.
    pub(super) fn losses_and_metrics(
        &mut self,
        models: &[Model],
        mut work: Work,
    ) -> Result<Option<LossesAndMetrics>, DeviceError> {
        let Some(objective) = &self.objective else { return Ok(None) };
        let each = objective.numbers();
        let needed = models.len() * each;
        if self.numbers.as_ref().is_none_or(|(room, _)| *room < needed) {
            self.numbers = Some((needed, Buffer::new::<f64>(self.stack.device(), needed)?));
        }
        let Some((_, numbers)) = &self.numbers else { return Ok(None) };
        objective.evaluate(models, numbers.at().bits(), &mut work);
        self.stack.alone(&work)?;
        let mut found = vec![0.0; needed];
        let queue = self.stack.lock();
        numbers.read(0, &mut found)?;
        drop(queue);
        let one = |(numbers, model): (&[f64], &Model)| {
            let measured = model.is_measured.then(|| objective.metrics(numbers));
            (objective.losses(numbers), measured.flatten())
        };
        Ok(Some(found.chunks_exact(each.max(1)).zip(models).map(one).collect()))
    }

    /// What the loss of a model has besides those of samples: the weight decay and the penalty.
    pub(super) fn beside(&self, x: &[T]) -> f64 {
        let decay = self.weight_decay.loss(x);
        self.problem.penalty().map_or(decay, |penalty| decay + penalty.value(x))
    }

    /// The mean over agents of the exact gradients at the mean of a vector.
    pub(super) fn gradient_at_mean(&mut self, v: Vector) -> Result<Option<Vec<f64>>, DeviceError> {
        let rows = self.vectors.place(v);
        let mut work = Work::default();
        self.vectors.mean(rows.at, &mut work);
        if !self.compute_exact_gradients(work)? {
            return Ok(None);
        }
        let at = self.spare.as_ref().map_or(0, |spare| spare.at().bits());
        let average = if self.weight_decay.factor().is_none() { Vec::new() } else { self.mean_of(rows.at)? };
        let mut gradient = self.mean_of(at)?;
        self.weight_decay.add_gradient::<T>(&mut gradient, &average);
        Ok(Some(gradient))
    }

    /// The exact gradients of the agents that are hosted here at the rounded mean; none if the problem is computed on the CPU.
    pub(super) fn exact_gradients(&mut self) -> Result<Option<Vec<T>>, DeviceError> {
        if !self.compute_exact_gradients(Work::default())? {
            return Ok(None);
        }
        let _queue = self.stack.lock();
        self.spare.as_ref().map(|spare| self.vectors.rows_in(spare)).transpose()
    }

    /// Computes them after this work, into the spare rows, unless the problem is computed on the CPU.
    fn compute_exact_gradients(&mut self, mut work: Work) -> Result<bool, DeviceError> {
        let Some(objective) = &self.objective else { return Ok(false) };
        if self.spare.is_none() {
            self.spare = Some(self.vectors.spare(&self.stack.queue)?);
        }
        let Some(spare) = &self.spare else { return Ok(false) };
        let rows = Place { at: spare.at().bits(), ..self.vectors.place(Vector(0)) };
        let all: Vec<usize> = (0..self.vectors.agents()).collect();
        objective.gradients(&all, self.vectors.rounded(), rows, None, &mut work);
        self.stack.alone(&work)?;
        Ok(true)
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
