//! What models are worth on held-out rows.

use rayon::prelude::*;

use super::rows::Samples;
use super::{Loss, Metric, Shard, Table};
use crate::exp::exp_or_infinity;
use crate::real::Real;

/// The held-out rows of all agents, one after the other.
struct Predictions {
    /// What is compared with the targets: the sign of the score is a class, the number of the class, or the predicted number.
    predicted: Vec<f64>,
    targets: Vec<f64>,
    /// Sum of the losses.
    loss: f64,
}

impl<T: Real> Table<T> {
    /// The metrics of the loss, in its order. All are NaN if a prediction is.
    pub(super) fn measure_on_test(&self, x: &[T]) -> Vec<f64> {
        let predictions = self.predict(x);
        let one = |metric: &Metric| predictions.measure(*metric, self.objective.loss);
        self.metrics_on_test().iter().map(one).collect()
    }

    /// What is measured: nothing without held-out rows.
    pub(super) fn metrics_on_test(&self) -> &'static [Metric] {
        if self.test.is_empty() { &[] } else { self.objective.loss.metrics() }
    }

    fn predict(&self, x: &[T]) -> Predictions {
        let loss = self.objective.loss;
        let one = |shard: &Shard<T>| {
            let samples = Samples::new(self.columns, &shard.features, &shard.targets);
            (samples.predictions(self.isa, loss, x), samples.loss(self.isa, loss, x))
        };
        let parts: Vec<(Vec<f64>, f64)> = self.test.par_iter().map(one).collect();
        Predictions {
            predicted: parts.iter().flat_map(|(predicted, _)| predicted).copied().collect(),
            targets: self.test.iter().flat_map(|shard| &shard.targets).map(|b| b.wide()).collect(),
            loss: parts.iter().map(|(_, loss)| loss).sum(),
        }
    }
}

impl Predictions {
    fn measure(&self, metric: Metric, loss: Loss) -> f64 {
        if self.predicted.iter().any(|p| p.is_nan()) {
            return f64::NAN;
        }
        let rows = self.targets.len() as f64;
        match metric {
            Metric::Accuracy => self.correct(loss) as f64 / rows,
            Metric::Auc => auc(&self.predicted, &self.targets),
            Metric::Rmse => (self.squared_error(loss) / rows).sqrt(),
            Metric::R2 => {
                let mean = self.targets.iter().sum::<f64>() / rows;
                let spread: f64 = self.targets.iter().map(|b| (b - mean).powi(2)).sum();
                if spread > 0.0 { 1.0 - self.squared_error(loss) / spread } else { f64::NAN }
            }
            Metric::TestLoss => self.loss / rows,
        }
    }

    /// Rows whose class is predicted; a score of 0 predicts the class -1.
    fn correct(&self, loss: Loss) -> usize {
        let class = |p: f64| match loss {
            Loss::Softmax { .. } => p,
            _ if p > 0.0 => 1.0,
            _ => -1.0,
        };
        self.predicted.iter().zip(&self.targets).filter(|(p, b)| class(**p) == **b).count()
    }

    fn squared_error(&self, loss: Loss) -> f64 {
        let number = |p: f64| if loss == Loss::Poisson { exp_or_infinity(p) } else { p };
        self.predicted.iter().zip(&self.targets).map(|(p, b)| (number(*p) - b).powi(2)).sum()
    }
}

/// The area under the ROC curve of scores of rows with targets -1 and 1, exactly: pairs are counted in whole numbers.
fn auc(scores: &[f64], targets: &[f64]) -> f64 {
    let mut order: Vec<(f64, bool)> = scores.iter().copied().zip(targets.iter().map(|b| *b > 0.0)).collect();
    order.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
    // Rows of each class so far, and twice the pairs in the right order.
    let (mut below, mut above, mut pairs) = (0u128, 0u128, 0u128);
    for tied in order.chunk_by(|(a, _), (b, _)| a == b) {
        let positive = tied.iter().filter(|(_, positive)| *positive).count() as u128;
        let negative = tied.len() as u128 - positive;
        pairs += positive * (2 * below + negative);
        (below, above) = (below + negative, above + positive);
    }
    pairs as f64 / (2 * below * above) as f64
}
