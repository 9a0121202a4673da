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
