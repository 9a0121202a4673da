//! The files that one agent of a swarm writes, to be gathered into a run directory: its model at the recorded rounds, and
//! its final state of every job.
//!
//! ```text
//! snapshots/JOB-ROUND.safetensors    x, and the model as it was sent in that round, with what the agent remembers; deleted once gathered
//! final/LABEL-seedK.safetensors      the state vectors, as in a run directory, with one row
//! final/LABEL-seedK.diverged.json    in its place, if the agent's model has diverged: when, and which checkpoint is kept
//! own_losses.jsonl                   the agent's own loss at the recorded rounds, measured where its data are
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use mile::method::Layout;
use mile::real::Real;
use mile::run::Progress;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::objectives::remembering::Memories;
use crate::plan::{Job, Plan};
use crate::state::{self, Header};
use crate::store::write_file;

/// How the model of an agent diverged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// The agent.
    pub agent: usize,
    /// The round of the job in which its model was found to have diverged.
    pub round: u64,
    /// The root mean square of the model then; none if it was not finite.
    pub size: Option<f64>,
    /// The round of its last checkpoint, which is from before, if it has one.
    pub checkpoint_round: Option<u64>,
}

/// The loss of an agent's model on its own data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnLoss {
    /// Label of the algorithm.
    pub label: String,
    /// Seed of the job.
    pub seed: u64,
    /// Round of the job.
    pub round: u64,
    /// `f_i(x_i)`.
    pub loss: f64,
}

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

    /// Writes the model after a round, the model that was sent in that round, and what the agent remembers.
    pub fn write_snapshot<T: Real>(
        &self,
        plan: &Plan,
        index: usize,
        progress: &Progress,
        model: &[T],
        sent: Option<&[T]>,
        memories: &Memories,
    ) -> Result<(), LabError> {
        let header = Header::new(plan.facts_of(plan.jobs()[index]), progress, None);
        let vectors: Vec<(&str, &[T])> =
            [("x", Some(model)), ("sent", sent)].into_iter().filter_map(|(n, v)| Some((n, v?))).collect();
        state::save(&self.snapshot(index, progress.round), &header, &vectors, [1, model.len()], memories)
    }

    /// Writes the final state of a job, with what the agent remembers.
    pub fn write_final<T: Real>(
        &self,
        plan: &Plan,
        index: usize,
        progress: &Progress,
        layout: &Layout,
        vectors: &[Vec<T>],
        memories: &Memories,
    ) -> Result<(), LabError> {
        let job = plan.jobs()[index];
        let header = Header::new(plan.facts_of(job), progress, None);
        let named: Vec<(&str, &[T])> =
            layout.state_names().zip(vectors).map(|(name, vector)| (name, &vector[..])).collect();
        state::save(&self.last(plan, job), &header, &named, [1, plan.size.dim], memories)
    }

    /// Notes that the agent's model has diverged in a job.
    pub fn write_divergence(&self, plan: &Plan, job: Job, found: &Divergence) -> Result<(), LabError> {
        write_divergence(&self.divergence(plan, job), found)
    }

    /// Whether the agent's model has diverged in a job.
    pub fn read_divergence(&self, plan: &Plan, job: Job) -> Option<Divergence> {
        serde_json::from_slice(&fs::read(self.divergence(plan, job)).ok()?).ok()
    }

    fn divergence(&self, plan: &Plan, job: Job) -> PathBuf {
        self.folder.join("final").join(plan.divergence_file(job))
    }

    /// Notes the agent's own loss. A round that is repeated after a restart is noted again.
    pub fn append_own_loss(&self, own: &OwnLoss) -> Result<(), LabError> {
        let path = self.own_losses_path();
        let line = serde_json::to_string(own).map_err(|error| LabError::io(&path, "write")(error.into()))?;
        let file = fs::File::options().create(true).append(true).open(&path);
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(LabError::io(&path, "write"))
    }

    /// The losses that were noted; a line that was cut off is left out.
    pub(crate) fn own_losses(&self) -> Vec<OwnLoss> {
        let text = fs::read_to_string(self.own_losses_path()).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Forgets the losses of an earlier run.
    pub fn remove_own_losses(&self) -> Result<(), LabError> {
        remove(&self.own_losses_path())
    }

    fn own_losses_path(&self) -> PathBuf {
        self.folder.join("own_losses.jsonl")
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
        remove(&self.last(plan, job))
    }

    /// Removes the note that a job has diverged, which is run again.
    pub fn remove_divergence(&self, plan: &Plan, job: Job) -> Result<(), LabError> {
        remove(&self.divergence(plan, job))
    }

    pub(crate) fn remove_snapshot(&self, index: usize, round: u64) -> Result<(), LabError> {
        remove(&self.snapshot(index, round))
    }
}

/// Writes how a model has diverged.
pub(crate) fn write_divergence(path: &Path, found: &Divergence) -> Result<(), LabError> {
    let text = serde_json::to_vec(found).map_err(|error| LabError::io(path, "write")(error.into()))?;
    write_file(path, &text)
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::io(path, "remove")(error))
        }
        _ => Ok(()),
    }
}
