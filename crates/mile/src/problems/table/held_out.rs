//! How good models are on held-out rows. For least squares, agents hand over sums; for other losses, the prediction of each row.

use rayon::prelude::*;

use super::gram::Gram;
use super::rows::Samples;
use super::{Batch, Loss, Shard, Table, has_normal_equations};
use crate::exp::exp_or_infinity;
use crate::isa::Isa;
use crate::problems::{Failure, HeldOut, HeldOutByAgent, Metric};
use crate::real::Real;

/// The held-out rows of an agent.
#[derive(Clone, Debug)]
pub(super) struct HeldOutRows<T> {
    shard: Shard<T>,
    /// The normal equations, where losses are formed from them.
    gram: Option<Gram>,
    /// How much the rows count together, the mean of their targets, and the sum of its squared distances from them.
    targets: [f64; 3],
}

impl<T: Real> HeldOutRows<T> {
    pub(super) fn new(isa: Isa, columns: usize, loss: Loss, batch: Batch, shard: Shard<T>) -> Self {
        let samples = Samples::new(columns, &shard);
        let rows = || shard.targets.iter().enumerate().map(|(row, b)| (samples.weight(row), b.wide()));
        let mass: f64 = rows().map(|(weight, _)| weight).sum();
        let mean = if mass > 0.0 { rows().map(|(weight, b)| weight * b).sum::<f64>() / mass } else { 0.0 };
        let spread = rows().map(|(weight, b)| weight * (b - mean).powi(2)).sum();
        let pays = has_normal_equations(loss, batch, columns, samples.len());
        let gram = pays.then(|| Gram::new(isa, samples));
        Self { gram, targets: [mass, mean, spread], shard }
    }
}

/// The metrics of least squares from the agents' sums: of the losses, and what is known of the targets.
fn of_sums(metric: Metric, agents: &[Vec<f64>]) -> f64 {
    let sum = |of: &dyn Fn(&[f64]) -> f64| {
        agents.iter().filter(|one| one.len() == 4).map(|one| of(one)).sum::<f64>()
    };
    let (loss, rows) = (sum(&|one| one[0]), sum(&|one| one[1]));
    match metric {
        Metric::Rmse => (2.0 * loss / rows).sqrt(),
        Metric::R2 => {
            let mean = sum(&|one| one[1] * one[2]) / rows;
            let spread = sum(&|one| one[3] + one[1] * (one[2] - mean).powi(2));
            if spread > 0.0 { 1.0 - 2.0 * loss / spread } else { f64::NAN }
        }
        Metric::TestLoss => loss / rows,
        Metric::Accuracy | Metric::Auc => f64::NAN,
    }
}

/// The held-out rows of all agents, one after the other.
struct Predictions {
    /// What is compared with the targets: the sign of the score is a class, the number of the class, or the predicted number.
    predicted: Vec<f64>,
    targets: Vec<f64>,
    /// How much each row counts; none: all count 1.
    weights: Vec<f64>,
    /// Sum of the losses.
    loss: f64,
}

impl<T: Real> HeldOut<T> for Table<T> {
    fn metrics(&self) -> &'static [Metric] {
        self.objective.loss.metrics()
    }

    /// The metrics of the loss, in its order. All are NaN if a prediction is.
    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure> {
        let agents: Vec<Vec<f64>> =
            (0..self.test.len()).into_par_iter().map(|k| self.numbers(k, x)).collect::<Result<_, _>>()?;
        Ok(self.combine(&agents))
    }

    fn by_agent(&self) -> Option<&dyn HeldOutByAgent<T>> {
        Some(self)
    }
}

impl<T: Real> HeldOutByAgent<T> for Table<T> {
    /// The sum of the losses over an agent's held-out rows, and for least squares what is known of the targets, otherwise the prediction and
    /// target of each row, with its weight if rows have weights.
    fn numbers(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        let loss = self.objective.loss;
        let Some(HeldOutRows { shard, gram, targets }) = self.test.get(agent) else { return Ok(Vec::new()) };
        let samples = Samples::new(self.columns, shard);
        if loss == Loss::LeastSquares {
            let sum = match gram {
                Some(gram) => samples.len() as f64 * gram.loss(self.isa, x),
                None => samples.loss(self.isa, loss, x),
            };
            return Ok([&[sum], &targets[..]].concat());
        }
        let (is_weighted, predicted) = (self.is_weighted(), samples.predictions(self.isa, loss, x));
        let mut numbers = Vec::with_capacity(1 + 3 * predicted.len());
        numbers.push(samples.loss(self.isa, loss, x));
        for (row, (p, b)) in predicted.into_iter().zip(&shard.targets).enumerate() {
            numbers.extend([p, b.wide()]);
            if is_weighted {
                numbers.push(samples.weight(row));
            }
        }
        Ok(numbers)
    }

    fn combine(&self, agents: &[Vec<f64>]) -> Vec<f64> {
        if self.objective.loss == Loss::LeastSquares {
            return self.metrics().iter().map(|metric| of_sums(*metric, agents)).collect();
        }
        let width = if self.is_weighted() { 3 } else { 2 };
        let rows = || agents.iter().flat_map(|one| one.get(1..).unwrap_or_default().chunks_exact(width));
        let predictions = Predictions {
            predicted: rows().map(|row| row[0]).collect(),
            targets: rows().map(|row| row[1]).collect(),
            weights: rows().filter_map(|row| row.get(2).copied()).collect(),
            loss: agents.iter().filter_map(|one| one.first()).sum(),
        };
        let one = |metric: &Metric| predictions.measure(*metric, self.objective.loss);
        self.metrics().iter().map(one).collect()
    }
}

impl<T: Real> Table<T> {
    /// Whether rows have weights.
    fn is_weighted(&self) -> bool {
        let test = self.test.iter().map(|rows| &rows.shard);
        self.shards.iter().chain(test).any(|shard| !shard.weights.is_empty())
    }
}

impl Predictions {
    fn measure(&self, metric: Metric, loss: Loss) -> f64 {
        if self.predicted.iter().any(|p| p.is_nan()) {
            return f64::NAN;
        }
        let rows = self.sum(|_| 1.0);
        match metric {
            Metric::Accuracy => self.correct(loss) / rows,
            Metric::Auc if self.weights.is_empty() => auc(&self.predicted, &self.targets),
            Metric::Auc => weighted_auc(&self.predicted, &self.targets, &self.weights),
            Metric::Rmse => (self.squared_error(loss) / rows).sqrt(),
            Metric::R2 => {
                let mean = self.sum(|row| self.targets[row]) / rows;
                let spread = self.sum(|row| (self.targets[row] - mean).powi(2));
                if spread > 0.0 { 1.0 - self.squared_error(loss) / spread } else { f64::NAN }
            }
            Metric::TestLoss => self.loss / rows,
        }
    }

    /// The sum of values of the rows, each by its weight.
    fn sum(&self, value: impl Fn(usize) -> f64) -> f64 {
        let weight = |row: usize| self.weights.get(row).copied().unwrap_or(1.0);
        (0..self.targets.len()).map(|row| weight(row) * value(row)).sum()
    }

    /// Rows whose class is predicted correctly; a score of 0 predicts the class -1.
    fn correct(&self, loss: Loss) -> f64 {
        let class = |p: f64| match loss {
            Loss::Softmax { .. } => p,
            _ if p > 0.0 => 1.0,
            _ => -1.0,
        };
        self.sum(|row| f64::from(u8::from(class(self.predicted[row]) == self.targets[row])))
    }

    fn squared_error(&self, loss: Loss) -> f64 {
        let number = |p: f64| if loss == Loss::Poisson { exp_or_infinity(p) } else { p };
        self.sum(|row| (number(self.predicted[row]) - self.targets[row]).powi(2))
    }
}

/// The same for rows with weights: a pair counts by the product of its weights.
fn weighted_auc(scores: &[f64], targets: &[f64], weights: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let (mut below, mut above, mut pairs) = (0.0, 0.0, 0.0);
    for tied in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
        let of = |is_positive: bool| {
            let rows = tied.iter().filter(|row| (targets[**row] > 0.0) == is_positive);
            rows.map(|row| weights[*row]).sum::<f64>()
        };
        let (positive, negative) = (of(true), of(false));
        pairs += positive * (below + 0.5 * negative);
        (below, above) = (below + negative, above + positive);
    }
    pairs / (below * above)
}

/// The area under the ROC curve for scores of rows with targets -1 and 1, exactly: pairs are counted in whole numbers.
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

#[cfg(test)]
mod tests {
    use super::super::{AgentWeights, InvalidTable, Shard, TableObjective};
    use super::*;
    use crate::isa::Isa;
    use crate::problems::{Batch, Problem};

    const COLUMNS: usize = 3;

    fn value(k: usize) -> f64 {
        ((k * 7919) % 2003) as f64 / 1000.0 - 1.0
    }

    fn target(loss: Loss, k: usize) -> f64 {
        match loss {
            Loss::Logistic | Loss::NonconvexLogistic => value(3 * k + 1).signum(),
            Loss::Softmax { classes } => (k * 7919 % 2003 % classes) as f64,
            Loss::Poisson => (k * 7919 % 2003 % 6) as f64,
            _ => value(5 * k),
        }
    }

    fn shard<T: Real>(from: usize, rows: usize, loss: Loss) -> Shard<T> {
        Shard {
            features: (from * COLUMNS..(from + rows) * COLUMNS).map(|k| T::of(value(k))).collect(),
            targets: (from..from + rows).map(|k| T::of(target(loss, k))).collect(),
            ..Shard::default()
        }
    }

    /// Three agents, one of which has no held-out rows; agents' weights have no effect on metrics.
    fn table<T: Real>(loss: Loss) -> Table<T> {
        with_test(loss, vec![shard(10, 70, loss), shard(0, 0, loss), shard(90, 9, loss)])
    }

    fn with_test<T: Real>(loss: Loss, test: Vec<Shard<T>>) -> Table<T> {
        let weights = AgentWeights::Factors(vec![1.0, 5.0, 0.0]);
        let objective = TableObjective { weights, ..TableObjective::new(loss, 0.7) };
        let train = vec![shard(0, 4, loss); 3];
        Table::new(COLUMNS, train, objective, Batch::Full).unwrap().with_test(test).unwrap()
    }

    /// Products and target of every held-out row.
    fn rows<T: Real>(table: &Table<T>, x: &[T]) -> Vec<(Vec<f64>, f64)> {
        let mut all = Vec::new();
        for HeldOutRows { shard, .. } in &table.test {
            for (a, b) in shard.features.chunks(COLUMNS).zip(&shard.targets) {
                let product = |x: &[T]| a.iter().zip(x).map(|(a, x)| a.wide() * x.wide()).sum();
                all.push((x.chunks(COLUMNS).map(product).collect(), b.wide()));
            }
        }
        all
    }

    /// Metrics of rows by their definitions, pair by pair.
    fn literally(metric: Metric, loss: Loss, rows: &[(Vec<f64>, f64)]) -> f64 {
        let count = rows.len() as f64;
        let error = |(p, b): &(Vec<f64>, f64)| if loss == Loss::Poisson { p[0].exp() - b } else { p[0] - b };
        let squares = rows.iter().map(|row| error(row).powi(2)).sum::<f64>();
        match metric {
            Metric::Accuracy => {
                let right = |(p, b): &&(Vec<f64>, f64)| match loss {
                    Loss::Softmax { .. } => {
                        let own = *b as usize;
                        (0..p.len()).all(|c| if c < own { p[c] < p[own] } else { p[c] <= p[own] })
                    }
                    _ => (p[0] > 0.0) == (*b == 1.0),
                };
                rows.iter().filter(right).count() as f64 / count
            }
            Metric::Auc => {
                let (mut right, mut pairs) = (0.0, 0.0);
                for (p, _) in rows.iter().filter(|(_, b)| *b == 1.0) {
                    for (q, _) in rows.iter().filter(|(_, b)| *b == -1.0) {
                        right += if p[0] > q[0] {
                            1.0
                        } else if p[0] == q[0] {
                            0.5
                        } else {
                            0.0
                        };
                        pairs += 1.0;
                    }
                }
                right / pairs
            }
            Metric::Rmse => (squares / count).sqrt(),
            Metric::R2 => {
                // The spread about the mean is half the mean squared distance of pairs.
                let pairs = rows.iter().flat_map(|(_, a)| rows.iter().map(move |(_, b)| (a - b).powi(2)));
                1.0 - squares / (pairs.sum::<f64>() / (2.0 * count))
            }
            Metric::TestLoss => {
                let one = |(p, b): &(Vec<f64>, f64)| match loss {
                    Loss::Logistic | Loss::NonconvexLogistic => (1.0 + (-b * p[0]).exp()).ln(),
                    Loss::Softmax { .. } => p.iter().map(|q| (q - p[*b as usize]).exp()).sum::<f64>().ln(),
                    Loss::LeastSquares => (p[0] - b).powi(2) / 2.0,
                    Loss::Poisson => p[0].exp() - b * p[0],
                    Loss::Huber { delta } => {
                        let r = (p[0] - b).abs();
                        if r <= delta { r * r / 2.0 } else { delta * r - delta * delta / 2.0 }
                    }
                    Loss::Welsch { c } => c * c / 2.0 * (1.0 - (-((p[0] - b) / c).powi(2)).exp()),
                };
                rows.iter().map(one).sum::<f64>() / count
            }
        }
    }

    fn is_literal<T: Real>() {
        for loss in [
            Loss::LeastSquares,
            Loss::Logistic,
            Loss::NonconvexLogistic,
            Loss::Softmax { classes: 4 },
            Loss::Poisson,
            Loss::Huber { delta: 0.5 },
            Loss::Welsch { c: 0.8 },
        ] {
            let table = table::<T>(loss);
            let x: Vec<T> = (0..table.dim()).map(|k| T::of(value(31 * k + 5))).collect();
            let found = table.measure(&x).unwrap();
            assert_eq!(table.metrics(), loss.metrics());
            assert_eq!(found.len(), loss.metrics().len());
            for (metric, found) in loss.metrics().iter().zip(&found) {
                let expected = literally(*metric, loss, &rows(&table, &x));
                assert!((found - expected).abs() < 1e-13, "{metric:?}, {loss:?}: {found} {expected}");
            }
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let other = Table { isa, ..table.clone() };
                assert_eq!(other.measure(&x).unwrap(), found, "{isa:?}, {loss:?}: the same bits");
            }
            let lost = table.measure(&vec![T::nan(); x.len()]).unwrap();
            assert!(lost.iter().all(|value| value.is_nan()), "{loss:?}: {lost:?}");
        }
    }

    #[test]
    fn metrics_are_their_definitions_on_all_rows_of_all_agents() {
        is_literal::<f64>();
        is_literal::<f32>();
    }

    #[test]
    fn ties_count_half_and_a_missing_class_leaves_the_auc_undefined() {
        // Scores in quarters have many ties; -0 and 0 are equal.
        let scores: Vec<f64> = (0..200).map(|k| (value(k) * 4.0).round() / 4.0).collect();
        assert!(scores.iter().any(|s| s.to_bits() == (-0.0f64).to_bits()) && scores.contains(&0.0));
        let targets: Vec<f64> = (0..200).map(|k| target(Loss::Logistic, k)).collect();
        let rows: Vec<(Vec<f64>, f64)> = scores.iter().zip(&targets).map(|(s, b)| (vec![*s], *b)).collect();
        assert_eq!(auc(&scores, &targets), literally(Metric::Auc, Loss::Logistic, &rows));
        assert_eq!(auc(&[1.0, 2.0, 3.0], &[-1.0, 1.0, 1.0]), 1.0);
        assert_eq!(auc(&[1.0, 2.0, 3.0], &[1.0, -1.0, -1.0]), 0.0);
        assert_eq!(auc(&[7.0; 5], &[1.0, -1.0, 1.0, 1.0, -1.0]), 0.5);
        assert!(auc(&[1.0, 2.0], &[1.0, 1.0]).is_nan() && auc(&[1.0], &[-1.0]).is_nan());
    }

    #[test]
    fn at_zero_a_class_is_predicted_and_equal_targets_have_no_r2() {
        let zero = vec![0.0; COLUMNS];
        let logistic = table::<f64>(Loss::Logistic);
        let negative = rows(&logistic, &zero).iter().filter(|(_, b)| *b == -1.0).count();
        let found = logistic.measure(&zero).unwrap();
        assert_eq!(found[..2], [negative as f64 / 79.0, 0.5]);
        // So few that there are no normal equations, and no rounding.
        let mut test: Vec<Shard<f64>> = [4, 0, 5].map(|rows| shard(10, rows, Loss::LeastSquares)).into();
        test.iter_mut().for_each(|shard| shard.targets.fill(2.0));
        let flat = with_test(Loss::LeastSquares, test);
        let found = flat.measure(&zero).unwrap();
        assert!(found[0] == 2.0 && found[1].is_nan() && found[2] == 2.0, "{found:?}");
    }

    #[test]
    fn held_out_rows_must_fit_and_without_any_nothing_is_measured() {
        let loss = Loss::Logistic;
        let train = || {
            let objective = TableObjective::new(loss, 0.0);
            Table::<f64>::new(COLUMNS, vec![shard(0, 4, loss); 2], objective, Batch::Full).unwrap()
        };
        let none = train().with_test(vec![shard(0, 0, loss); 2]).unwrap();
        assert!(train().held_out().is_none() && none.held_out().is_none());
        let refused = |test| train().with_test(test).unwrap_err();
        assert_eq!(refused(vec![shard(0, 1, loss)]), InvalidTable::TestAgents { got: 1, agents: 2 });
        let counts = vec![shard(0, 0, loss), shard(0, 5, Loss::Poisson)];
        assert!(matches!(refused(counts), InvalidTable::Target { agent: 1, .. }));
        let ragged = Shard { features: vec![1.0], targets: vec![1.0], ..Shard::default() };
        assert!(matches!(refused(vec![ragged; 2]), InvalidTable::Ragged { agent: 0, .. }));
    }
}
