//! The samples of one agent: features, targets, and perhaps weights and offsets.

use super::{InvalidTable, Loss};
use crate::real::Real;

/// The samples of one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shard<T> {
    /// Features, one row per sample.
    pub features: Vec<T>,
    /// One target per sample: a number, a class -1 or 1, or the number of a class from 0.
    pub targets: Vec<T>,
    /// How much each sample counts, relative to the others of its agent and, for [`AgentWeights::Rows`](super::AgentWeights::Rows), to those of all agents; none:
    /// all count 1.
    pub weights: Vec<T>,
    /// What is added to each sample's product with the variable, except for [`Loss::Softmax`]; none: nothing.
    pub offsets: Vec<T>,
}

impl<T: Real> Shard<T> {
    /// Checks that there are `columns` features for each target, and that the loss accepts the targets.
    pub(super) fn check(&self, agent: usize, columns: usize, loss: Loss) -> Result<(), InvalidTable> {
        let (features, rows) = (self.features.len(), self.targets.len());
        if Some(features) != rows.checked_mul(columns) {
            return Err(InvalidTable::Ragged { agent, features, rows, columns });
        }
        if let Some(row) = self.targets.iter().position(|target| !loss.takes(*target)) {
            let (got, expected) = (self.targets[row].wide(), loss.targets());
            return Err(InvalidTable::Target { agent, row, got, expected });
        }
        let is_weight = |value: f64| value >= 0.0 && value.is_finite();
        check_numbers(agent, rows, "weight", &self.weights, is_weight, "a finite number of at least 0")?;
        match loss {
            Loss::Softmax { .. } => {
                let expected = "none, because it has no effect on softmax";
                check_numbers(agent, rows, "offset", &self.offsets, |_| false, expected)
            }
            _ => {
                let expected = "a finite number, or an exposure above 0";
                check_numbers(agent, rows, "offset", &self.offsets, f64::is_finite, expected)
            }
        }
    }

    /// How much its samples count together.
    pub fn mass(&self) -> f64 {
        match self.weights.is_empty() {
            true => self.targets.len() as f64,
            false => self.weights.iter().map(|weight| weight.wide()).sum(),
        }
    }

    /// Some of its samples, in this order; each has `columns` features.
    pub fn some(&self, columns: usize, rows: impl Iterator<Item = usize>) -> Self {
        let mut some = Self::default();
        for row in rows {
            some.features.extend_from_slice(&self.features[row * columns..(row + 1) * columns]);
            some.targets.push(self.targets[row]);
            some.weights.extend(self.weights.get(row));
            some.offsets.extend(self.offsets.get(row));
        }
        some
    }

    /// Scales the weights, whose sum this is, to mean 1.
    pub(super) fn scale_weights(&mut self, mass: f64) {
        let scale = self.targets.len() as f64 / mass;
        self.weights.iter_mut().for_each(|weight| *weight = T::of(scale * weight.wide()));
    }
}

/// Checks that there is a good number for each row, or none at all.
fn check_numbers<T: Real>(
    agent: usize,
    rows: usize,
    what: &'static str,
    numbers: &[T],
    is_good: impl Fn(f64) -> bool,
    expected: &'static str,
) -> Result<(), InvalidTable> {
    if !numbers.is_empty() && numbers.len() != rows {
        return Err(InvalidTable::Incomplete { agent, what, got: numbers.len(), rows });
    }
    match numbers.iter().position(|number| !is_good(number.wide())) {
        None => Ok(()),
        Some(row) => Err(InvalidTable::RowValue { agent, row, what, got: numbers[row].wide(), expected }),
    }
}
