//! The files that one agent of a swarm writes, to be gathered into a run directory: its model at the recorded rounds, and
//! its final state of every job.
//!
//! ```text
//! snapshots/JOB-ROUND.safetensors    x, and the model as it was sent in that round; deleted once gathered
//! final/LABEL-seedK.safetensors      the state vectors, as in a run directory, with one row
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use mile::method::Layout;
use mile::real::Real;
use mile::run::Progress;

use crate::error::LabError;
use crate::plan::{Job, Plan};
use crate::state::{self, Header};

/// The snapshots and final states in an agent's folder.
#[derive(Clone, Debug)]
pub struct AgentFiles {
    folder: PathBuf,
}

impl AgentFiles {
    /// The files in an agent's folder, which need not exist yet.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Creates the folders for them.
    pub fn create(&self) -> Result<(), LabError> {
        for part in ["snapshots", "final"] {
            let path = self.folder.join(part);
            fs::create_dir_all(&path).map_err(LabError::io(&path, "create"))?;
        }
        Ok(())
    }

    /// Writes the model after a round, and the model that was sent in that round.
    pub fn write_snapshot<T: Real>(
        &self,
        plan: &Plan,
        index: usize,
        progress: &Progress,
        model: &[T],
        sent: Option<&[T]>,
    ) -> Result<(), LabError> {
        let header = Header::new(plan.facts_of(plan.jobs()[index]), progress, None);
        let vectors: Vec<(&str, &[T])> =
            [("x", Some(model)), ("sent", sent)].into_iter().filter_map(|(n, v)| Some((n, v?))).collect();
        state::save(&self.snapshot(index, progress.round), &header, &vectors, [1, model.len()])
    }

    /// Writes the final state of a job.
    pub fn write_final<T: Real>(
        &self,
        plan: &Plan,
        index: usize,
        progress: &Progress,
        layout: &Layout,
        vectors: &[Vec<T>],
    ) -> Result<(), LabError> {
        let job = plan.jobs()[index];
        let header = Header::new(plan.facts_of(job), progress, None);
        let named: Vec<(&str, &[T])> =
            layout.state_names().zip(vectors).map(|(name, vector)| (name, &vector[..])).collect();
        state::save(&self.last(plan, job), &header, &named, [1, plan.size.dim])
    }

    /// The path of a snapshot.
    pub(crate) fn snapshot(&self, index: usize, round: u64) -> PathBuf {
        self.folder.join("snapshots").join(format!("{index}-{round}.safetensors"))
    }

    /// The path of the final state of a job.
    pub(crate) fn last(&self, plan: &Plan, job: Job) -> PathBuf {
        self.folder.join("final").join(plan.state_file(job))
    }

    /// The existing snapshots, by job and round.
    pub(crate) fn snapshots(&self) -> Result<Vec<(usize, u64)>, LabError> {
        let path = self.folder.join("snapshots");
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(LabError::io(&path, "read"))?,
        };
        let parse = |name: &str| {
            let (job, round) = name.strip_suffix(".safetensors")?.split_once('-')?;
            Some((job.parse().ok()?, round.parse().ok()?))
        };
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        let mut found: Vec<(usize, u64)> = names.filter_map(|name| parse(&name)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Removes the final state of a job that is no longer final.
    pub fn remove_last(&self, plan: &Plan, job: Job) -> Result<(), LabError> {
        let path = self.last(plan, job);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LabError::io(&path, "remove")(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn remove_snapshot(&self, index: usize, round: u64) -> Result<(), LabError> {
        let path = self.snapshot(index, round);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LabError::io(&path, "remove")(error))
            }
            _ => Ok(()),
        }
    }
}
