//! The environment of a run: version, machine, problem and label distribution, kept in `context.json` so that reports
//! need neither the data nor the machine.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::plan::Plan;
use crate::store::Store;

const FILE: &str = "context.json";

/// The contents of `context.json` in a run directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Context {
    /// Version of this library.
    pub version: String,
    /// Versions of what else took part, by name, such as that of PyTorch where the objectives are its models.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, String>,
    /// When the run was started, in seconds since 1970.
    pub started: u64,
    /// The machine.
    pub machine: Machine,
    /// Threads of each job, which its computing time depends on; not for agents in separate processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads_per_job: Option<usize>,
    /// Title of the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Dimension of the problem.
    pub dim: usize,
    /// Number of training samples of each class at each agent, for every seed of an image problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<SeedLabels>,
}

/// The machine on which a run was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Machine {
    /// Operating system and architecture.
    pub system: String,
    /// Model name of the processor, if known.
    pub processor: String,
    /// Number of threads used.
    pub threads: usize,
    /// Bytes of memory, if known.
    pub memory: Option<u64>,
}

/// The label distribution of one seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
    /// The context of a plan that is run on this machine now, with this many threads for each job.
    pub(crate) fn of(plan: &Plan, threads_per_job: Option<usize>) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let counts = plan.size.class_counts.iter();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            others: plan.spec.objectives.versions(),
            started: now.map_or(0, |since| since.as_secs()),
            machine: Machine::here(),
            threads_per_job,
            problem: Some(plan.spec.objectives.title()),
            dim: plan.size.dim,
            labels: counts.map(|(seed, counts)| SeedLabels { seed: *seed, counts: counts.clone() }).collect(),
        }
    }

    /// Writes it to a run directory. An existing file describes the process that started the run and is kept; only the
    /// labels of added seeds are appended.
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

    /// Reads it from a run directory; `None` if it is missing or unreadable.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(folder.join(FILE)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_of_the_first_process_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), false).unwrap();
        let context = |started: u64, seeds: &[u64]| Context {
            version: "0.1.0".into(),
            others: BTreeMap::from([("torch".into(), "2.9".into())]),
            started,
            machine: Machine::here(),
            threads_per_job: None,
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
