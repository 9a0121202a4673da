//! What the features of one agent need to know about the data of all: means, standard deviations, categories and classes.
//!
//! Agents whose data must not leave their machine exchange only these. Statistics of single agents are merged agent by agent, in
//! the order of their numbers, so that the result has the same bits wherever it was computed.

use std::collections::BTreeMap;
use std::path::Path;

use mile_store::write_file;
use serde::{Deserialize, Serialize};

use super::words::sort;
use crate::error::LabError;

/// Statistics of the data of some agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Statistics {
    /// The agents, in increasing order.
    pub agents: Vec<usize>,
    /// Number of training rows.
    pub rows: u64,
    /// Sum of the weights of the training rows, if they have weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The numeric features.
    pub columns: Vec<ColumnStatistics>,
    /// The categories of each categorical feature, sorted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<String, Vec<String>>,
    /// The classes of the target, sorted; none if it is a number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

/// Statistics of a numeric feature over training rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ColumnStatistics {
    /// Its name.
    pub name: String,
    /// Number of values that are not missing.
    pub count: u64,
    /// Their mean; 0 if there are none.
    pub mean: f64,
    /// Sum of their squared differences from the mean.
    pub squares: f64,
}

impl ColumnStatistics {
    /// The standard deviation, `sqrt(squares/count)`.
    pub fn deviation(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64).sqrt() }
    }

    /// Adds the values of another agent (Chan, Golub & LeVeque 1979).
    fn add(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                *self = other.clone();
            }
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let difference = other.mean - self.mean;
        self.count += other.count;
        self.mean += difference * (b / (a + b));
        self.squares += other.squares + difference * difference * (a * b / (a + b));
    }
}

/// Counts, means and sums of squared differences from them, of the columns of some rows.
pub(super) struct Sums {
    /// Values that are not missing, which NaN is.
    pub(super) counts: Vec<u64>,
    /// Their means; 0 if there are none.
    pub(super) means: Vec<f64>,
    pub(super) squares: Vec<f64>,
}

impl Sums {
    /// Of the first columns of rows, which are gone through two or three times. Loops over columns have no branches, so that they are
    /// vectorized; each column is summed in the order of the rows.
    pub(super) fn of<'r, R: Iterator<Item = &'r [f64]>>(columns: usize, rows: impl Fn() -> R) -> Self {
        let firsts = first_values(columns, rows());
        let (mut counts, mut sums) = (vec![0; columns], vec![0.0; columns]);
        for row in rows() {
            for (((count, sum), first), value) in counts.iter_mut().zip(&mut sums).zip(&firsts).zip(row) {
                let is_missing = value.is_nan();
                *count += u64::from(!is_missing);
                // Differences from the first value, so that equal values have exactly their mean and no deviation.
                *sum += if is_missing { 0.0 } else { value - first };
            }
        }
        let mean = |k: usize| firsts[k] + sums[k] / counts[k].max(1) as f64;
        let means: Vec<f64> = (0..columns).map(mean).collect();
        let mut squares = vec![0.0; columns];
        for row in rows() {
            for ((square, mean), value) in squares.iter_mut().zip(&means).zip(row) {
                *square += if value.is_nan() { 0.0 } else { (value - mean) * (value - mean) };
            }
        }
        Self { counts, means, squares }
    }
}

/// The first value in each column that is not missing; 0 for a column without values.
fn first_values<'r>(columns: usize, rows: impl Iterator<Item = &'r [f64]>) -> Vec<f64> {
    let mut firsts = vec![f64::NAN; columns];
    for row in rows {
        for (first, value) in firsts.iter_mut().zip(row) {
            *first = if first.is_nan() { *value } else { *first };
        }
        if !firsts.iter().any(|first| first.is_nan()) {
            break;
        }
    }
    firsts.into_iter().map(|first| if first.is_nan() { 0.0 } else { first }).collect()
}

impl Statistics {
    /// Merges the statistics of single agents, in the order of their numbers.
    ///
    /// # Errors
    /// If there are none, an agent occurs twice, one is already merged, or their columns differ.
    pub fn merge(mut agents: Vec<Self>) -> Result<Self, LabError> {
        let refuse = |problem: String| LabError::config("statistics", problem);
        if let Some(merged) = agents.iter().find(|one| one.agents.len() != 1) {
            let problem =
                format!("those of agents {:?} are already merged; give those of each agent", merged.agents);
            return Err(refuse(problem));
        }
        agents.sort_by_key(|one| one.agents[0]);
        let mut all = agents.into_iter();
        let mut sum = all.next().ok_or_else(|| refuse("missing; give those of each agent".into()))?;
        for one in all {
            let agent = one.agents[0];
            if sum.agents.contains(&agent) {
                return Err(refuse(format!("those of agent {agent} are given twice")));
            }
            let names = |some: &Self| -> (Vec<String>, Vec<String>) {
                let columns = some.columns.iter().map(|column| column.name.clone()).collect();
                (columns, some.categories.keys().cloned().collect())
            };
            if names(&sum) != names(&one) {
                let first = sum.agents[0];
                return Err(refuse(format!(
                    "those of agent {agent} have other columns than those of agent {first}: expected {:?}, got {:?}",
                    names(&sum),
                    names(&one)
                )));
            }
            sum.agents.push(agent);
            sum.rows += one.rows;
            sum.weight = sum.weight.zip(one.weight).map(|(sum, one)| sum + one);
            sum.columns.iter_mut().zip(&one.columns).for_each(|(sum, one)| sum.add(one));
            for (name, categories) in one.categories {
                let all = sum.categories.entry(name).or_default();
                all.extend(categories);
                sort(all);
            }
            sum.classes.extend(one.classes);
            sort(&mut sum.classes);
        }
        Ok(sum)
    }

    /// Reads them from a JSON file.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let refuse = |problem: String| LabError::Directory { path: path.to_owned(), problem };
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(format!("cannot read the agents' statistics: {error}")))?;
        serde_json::from_str(&text)
            .map_err(|error| refuse(format!("not the statistics of agents' data: {error}")))
    }

    /// Writes them to a JSON file.
    pub fn write(&self, path: &Path) -> Result<(), LabError> {
        write_file(path, self.to_json().as_bytes()).map_err(LabError::io(path, "write"))
    }

    /// Their JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, column by column.
    fn literal(rows: &[Vec<f64>], k: usize) -> (u64, f64, f64) {
        let values: Vec<f64> = rows.iter().map(|row| row[k]).filter(|value| !value.is_nan()).collect();
        let first = values.first().copied().unwrap_or(0.0);
        let sum = values.iter().fold(0.0, |sum, value| sum + (value - first));
        let mean = first + sum / values.len().max(1) as f64;
        (
            values.len() as u64,
            mean,
            values.iter().fold(0.0, |sum, value| sum + (value - mean) * (value - mean)),
        )
    }

    #[test]
    fn sums_have_the_bits_of_their_definition() {
        let value = |row: usize, k: usize| match (row * 7 + k * 3) % 11 {
            0 | 5 => f64::NAN,
            n if k == 2 => -0.0 * n as f64,
            n => (n as f64 - 4.3) * 1e3f64.powi(k as i32 - 2),
        };
        let mut rows: Vec<Vec<f64>> = (0..40).map(|row| (0..6).map(|k| value(row, k)).collect()).collect();
        rows.iter_mut().for_each(|row| row[4] = f64::NAN);
        // The last column is not among the five.
        let found = Sums::of(5, || rows.iter().map(Vec::as_slice));
        for k in 0..5 {
            let bits = |(count, mean, squares): (u64, f64, f64)| (count, mean.to_bits(), squares.to_bits());
            let sums = (found.counts[k], found.means[k], found.squares[k]);
            assert_eq!(bits(sums), bits(literal(&rows, k)), "column {k}");
        }
    }
}
