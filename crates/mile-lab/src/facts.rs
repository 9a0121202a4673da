//! What all agents of a run must agree on, as plain words: two agents that differ can say in what.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use toml::{Table, Value};

use crate::config::{Precision, ProblemConfig};
use crate::error::LabError;
use crate::plan::Plan;
use crate::tables;

/// Keys that may differ from machine to machine: names of files and folders, and the run's own name.
const PRIVATE: [&str; 5] = ["name", "problem.data", "problem.data_dir", "network.edges", "network.matrix"];

/// Longest value that is told as it is.
const LONGEST: usize = 400;
/// Bytes of all values together that are told one by one: they travel in the first frame of a link.
const MOST: usize = 48 << 10;

impl Plan {
    /// Everything a trajectory depends on, by the names the user gave it, as `agent` knows it.
    pub fn facts(&self, agent: usize) -> Result<BTreeMap<String, String>, LabError> {
        let mut facts = flatten(&self.experiment.resolved);
        PRIVATE.iter().for_each(|key| drop(facts.remove(*key)));
        facts.insert("network.weights".into(), self.weights());
        if let ProblemConfig::Table(config) = &self.experiment.problem {
            facts.extend(tables::facts(config, agent)?);
        }
        facts.values_mut().filter(|value| value.len() > LONGEST).for_each(|value| {
            *value = fingerprint(value.as_bytes());
        });
        if facts.iter().map(|(key, value)| key.len() + value.len() + 8).sum::<usize>() > MOST {
            let all = fingerprint(format!("{facts:?}").as_bytes());
            facts = BTreeMap::from([("the experiment".into(), all)]);
        }
        Ok(facts)
    }

    /// Its precision, as in an experiment file.
    pub fn precision(&self) -> &'static str {
        match self.experiment.precision {
            Precision::F32 => "f32",
            Precision::F64 => "f64",
        }
    }

    /// A fingerprint of graph and mixing matrix.
    fn weights(&self) -> String {
        let rows = self.network.mixing().rows();
        let row = |i: usize| rows.row(i).iter().map(move |(j, w)| (i, *j, w.to_bits()));
        fingerprint(format!("{:?}", (0..rows.rows()).flat_map(row).collect::<Vec<_>>()).as_bytes())
    }
}

/// The first thing in which two resolved experiments differ: its name, the old and the new value.
pub fn difference(old: &Table, new: &Table) -> Option<(String, String, String)> {
    let (old, new) = (flatten(old), flatten(new));
    let key = old.keys().chain(new.keys()).find(|key| old.get(*key) != new.get(*key))?;
    let value = |table: &BTreeMap<String, String>| table.get(key).cloned().unwrap_or("absent".into());
    Some((key.clone(), value(&old), value(&new)))
}

/// A short name of some bytes: other bytes, another name.
pub(crate) fn fingerprint(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// All leaves of a table: `algorithm[0].step_size` is `0.12`.
fn flatten(table: &Table) -> BTreeMap<String, String> {
    fn walk(path: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
        match value {
            Value::Table(table) => {
                let dot = if path.is_empty() { "" } else { "." };
                table.iter().for_each(|(key, value)| walk(&format!("{path}{dot}{key}"), value, leaves));
            }
            Value::Array(list) if list.iter().any(Value::is_table) => {
                let each = list.iter().enumerate();
                each.for_each(|(k, value)| walk(&format!("{path}[{k}]"), value, leaves));
            }
            Value::String(text) => drop(leaves.insert(path.to_owned(), text.clone())),
            other => drop(leaves.insert(path.to_owned(), other.to_string())),
        }
    }
    let mut leaves = BTreeMap::new();
    walk("", &Value::Table(table.clone()), &mut leaves);
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_have_the_names_a_user_gave_them() {
        let table: Table =
            "rounds = 3\nseeds = [0, 1]\n[network]\ntopology = 'ring'\n[[algorithm]]\nstep_size = 0.5"
                .parse()
                .unwrap();
        let leaves = flatten(&table);
        assert_eq!(leaves["seeds"], "[0, 1]");
        assert_eq!(leaves["network.topology"], "ring");
        assert_eq!(leaves["algorithm[0].step_size"], "0.5");
        let mut other = table.clone();
        assert_eq!(difference(&table, &other), None);
        other.insert("rounds".into(), Value::Integer(4));
        assert_eq!(difference(&table, &other), Some(("rounds".into(), "3".into(), "4".into())));
    }
}
