//! Where and with what a run was made: kept beside it, so that a report of it needs neither the data nor
//! the machine.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::plan::Plan;
use crate::store::Store;

const FILE: &str = "context.json";

/// What `context.json` of a run directory says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Version of this program.
    pub version: String,
    /// When the run was begun, in seconds since 1970.
    pub started: u64,
    /// The machine.
    pub machine: Machine,
    /// What was minimised, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Dimension of the variable.
    pub dim: usize,
    /// Training samples of each class at each agent, for every seed of an image problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<SeedLabels>,
}

/// A machine, as far as a reader of results cares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and architecture.
    pub system: String,
    /// The processor's own name, where the system tells it.
    pub processor: String,
    /// Threads that were used.
    pub threads: usize,
    /// Bytes of memory, where the system tells them.
    pub memory: Option<u64>,
}

/// How one seed divides the labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedLabels {
    /// The seed.
    pub seed: u64,
    /// `counts[agent][class]`.
    pub counts: Vec<Vec<usize>>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let field = |file: &str, key: &str| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kilobytes =
            field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into()),
            threads: rayon::current_num_threads(),
            memory: kilobytes.map(|k| k * 1024),
        }
    }
}

impl Context {
    /// The context of a plan that is run here and now.
    pub fn of(plan: &Plan) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let counts = plan.size.class_counts.iter();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: now.map_or(0, |since| since.as_secs()),
            machine: Machine::here(),
            problem: Some(plan.experiment.objectives.title()),
            dim: plan.size.dim,
            labels: counts.map(|(seed, counts)| SeedLabels { seed: *seed, counts: counts.clone() }).collect(),
        }
    }

    /// Writes it into the run directory of a run that begins. What is there already tells of the process that
    /// began it, and is kept; only labels of seeds that were added since are put to it.
    pub(crate) fn write(&self, store: &Store) -> Result<(), LabError> {
        let mut kept = self.clone();
        if let Some(before) = Self::read(store.folder()) {
            let known = |seed: u64| before.labels.iter().any(|labels| labels.seed == seed);
            let added: Vec<SeedLabels> =
                self.labels.iter().filter(|labels| !known(labels.seed)).cloned().collect();
            if added.is_empty() {
                return Ok(());
            }
            kept = Self { labels: [before.labels, added].concat(), ..before };
        }
        store.write(FILE, serde_json::to_string_pretty(&kept).unwrap_or_default().as_bytes())
    }

    /// Reads it from a run directory; a missing or foreign one is no context.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(folder.join(FILE)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_the_beginning_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), false).unwrap();
        let context = |started: u64, seeds: &[u64]| Context {
            version: "0.1.0".into(),
            started,
            machine: Machine::here(),
            problem: None,
            dim: 3,
            labels: seeds.iter().map(|seed| SeedLabels { seed: *seed, counts: Vec::new() }).collect(),
        };
        let kept = || Context::read(folder.path()).unwrap();
        context(1, &[0]).write(&store).unwrap();
        context(2, &[0]).write(&store).unwrap();
        assert_eq!(kept(), context(1, &[0]));
        context(3, &[0, 1]).write(&store).unwrap();
        assert_eq!(kept(), context(1, &[0, 1]));
    }
}
