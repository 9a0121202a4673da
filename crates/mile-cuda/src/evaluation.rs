//! Losses and metrics of networks, computed on the device.

use std::sync::Arc;

use mile::problems::{Draw, Failure, Metric, Penalty, Problem, Tensor};
use mile_nn::Scalar;
use mile_nn::problem::ImageProblem;

use crate::device::{Device, DeviceError};
use crate::network::{Of, Score, Scorer};
use crate::queue::Queue;

/// A problem with the numbers of another, whose losses and metrics are computed on the device; all else is that of the other.
struct Evaluated<'p, T> {
    problem: &'p ImageProblem<T>,
    scorer: Scorer<T>,
}

/// The same problem, with losses and metrics computed on the device; none if it has no form there.
pub fn evaluated<'p, T: Scalar>(
    device: Arc<dyn Device>,
    problem: &'p dyn Problem<T>,
) -> Result<Option<Box<dyn Problem<T> + 'p>>, DeviceError> {
    let images = problem.as_any().and_then(|any| any.downcast_ref::<ImageProblem<T>>());
    let Some(problem) = images else { return Ok(None) };
    let scorer = Scorer::new(&Queue { device }, problem)?;
    Ok(Some(Box::new(Evaluated { problem, scorer })))
}

impl<T: Scalar> Evaluated<'_, T> {
    fn mean_loss(&self, score: Score, agent: usize) -> f64 {
        score.loss / self.problem.evaluated()[agent].len() as f64
    }
}

impl<T: Scalar> Problem<T> for Evaluated<'_, T> {
    fn agents(&self) -> usize {
        self.problem.agents()
    }

    fn dim(&self) -> usize {
        self.problem.dim()
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        let scores = self.scorer.scores(x, Of::Train, &[&self.problem.evaluated()[agent]])?;
        Ok(self.mean_loss(scores[0], agent) + self.problem.decay_loss(x))
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        self.problem.gradient(agent, x, gradient)
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        self.problem.sample_gradient(agent, x, draw, gradient)
    }

    fn penalty(&self) -> Option<&Penalty> {
        self.problem.penalty()
    }

    fn objective(&self, x: &[T]) -> Result<f64, Failure> {
        let sets: Vec<&[u32]> = self.problem.evaluated().iter().map(Vec::as_slice).collect();
        let scores = self.scorer.scores(x, Of::Train, &sets)?;
        let sum: f64 =
            scores.into_iter().enumerate().map(|(agent, score)| self.mean_loss(score, agent)).sum();
        Ok(sum / self.agents() as f64 + self.problem.decay_loss(x))
    }

    fn records_gradient_norm(&self) -> bool {
        self.problem.records_gradient_norm()
    }

    fn metrics(&self) -> &'static [Metric] {
        self.problem.metrics()
    }

    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure> {
        if self.metrics().is_empty() {
            return Ok(Vec::new());
        }
        let (samples, _) = self.problem.measured();
        let Score { loss, correct } = self.scorer.scores(x, Of::Test, &[samples])?[0];
        let (count, outputs) = (samples.len() as f64, self.problem.model().classes() as f64);
        let metric = |metric: &Metric| match metric {
            Metric::Accuracy => correct as f64 / count,
            // The loss is half of the squared error, summed over the numbers of a target.
            _ => (2.0 * loss / (count * outputs)).sqrt(),
        };
        Ok(self.metrics().iter().map(metric).collect())
    }

    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        self.problem.initial(seed)
    }

    fn tensors(&self, x: &[T]) -> Vec<Tensor> {
        self.problem.tensors(x)
    }

    fn class_counts(&self) -> Vec<Vec<usize>> {
        self.problem.class_counts()
    }
}
