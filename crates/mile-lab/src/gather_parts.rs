//! Gathers what there is of a swarm where some agents' folders or data are missing: final states with their models, and
//! the losses that agents have measured on their own data. Records need the models and data of all.
//!
//! ```text
//! final/LABEL-seedK.safetensors    the state vectors, one row for each agent that has brought its own
//! own_losses.csv                   f_i(x_i) at the recorded rounds, and their mean where all agents have brought theirs
//! gathered.json                    which agents these are, and who is missing
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::agent_files::{AgentFiles, OwnLoss};
use crate::engines::Scalar;
use crate::error::LabError;
use crate::identity;
use crate::objectives::remembering::Memories;
use crate::state;
use crate::store::write_file;

/// What was gathered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GatheredParts {
    /// The agents whose final state of a job is in its file, in the order of rows, by the name of the file.
    pub states: BTreeMap<String, Vec<usize>>,
    /// The agents whose losses are in the table.
    pub losses: Vec<usize>,
    /// The agents whose folders were not given.
    pub missing: Vec<usize>,
}

impl GatheredParts {
    /// Whether there was nothing at all.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.losses.is_empty()
    }
}

/// Gathers the parts in the folders of some agents, out of `agents` in all, into a folder without a run.
///
/// # Errors
/// If a file is damaged, or if the folders are of different experiments.
pub fn gather_parts<T: Scalar>(
    folders: &BTreeMap<usize, PathBuf>,
    agents: usize,
    out: &Path,
) -> Result<GatheredParts, LabError> {
    if out.join("config.toml").exists() {
        let problem = "holds a run that was gathered from all agents; choose another --out".into();
        return Err(LabError::Directory { path: out.to_owned(), problem });
    }
    let missing = (0..agents).filter(|agent| !folders.contains_key(agent)).collect();
    let mut found = GatheredParts { states: BTreeMap::new(), losses: Vec::new(), missing };
    for name in state_names(folders)? {
        let rows = gather_state::<T>(folders, &name, out)?;
        found.states.insert(name, rows);
    }
    let mut losses: BTreeMap<usize, Vec<OwnLoss>> = BTreeMap::new();
    for (agent, folder) in folders {
        let own = AgentFiles::of(folder).own_losses();
        if !own.is_empty() {
            losses.insert(*agent, own);
        }
    }
    found.losses = losses.keys().copied().collect();
    if found.is_empty() {
        return Ok(found);
    }
    if !losses.is_empty() {
        write_file(&out.join("own_losses.csv"), loss_table(&losses, agents).as_bytes())?;
    }
    let path = out.join("gathered.json");
    let text =
        serde_json::to_vec_pretty(&found).map_err(|error| LabError::io(&path, "write")(error.into()))?;
    write_file(&path, &text)?;
    Ok(found)
}

/// The names of the final states that some agent has.
fn state_names(folders: &BTreeMap<usize, PathBuf>) -> Result<BTreeSet<String>, LabError> {
    let mut names = BTreeSet::new();
    for folder in folders.values() {
        let path = folder.join("final");
        let entries = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(LabError::io(&path, "read"))?,
        };
        let found = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.extend(found.filter(|name| name.ends_with(".safetensors")));
    }
    Ok(names)
}

/// Puts the final states of one job into one file. Returns the agents that had one.
fn gather_state<T: Scalar>(
    folders: &BTreeMap<usize, PathBuf>,
    name: &str,
    out: &Path,
) -> Result<Vec<usize>, LabError> {
    let (mut first, mut rows, mut memories) = (None, Vec::new(), Memories::new());
    let mut vectors: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for (agent, folder) in folders {
        let path = folder.join("final").join(name);
        let Some(mut file) = state::open(&path)? else { continue };
        let header = first.get_or_insert_with(|| file.header.clone());
        let differs = identity::difference_between_agents(&file.header.facts, &header.facts);
        state::refuse_difference(&path, differs)?;
        memories.extend(state::memories::<T>(&mut file, &path)?);
        for name in state::vector_names(&file) {
            let dim = file.shape(&name).and_then(|shape| shape.get(1)).copied().unwrap_or_default();
            let row: Vec<T> = state::vector(&mut file, &path, &name, [1, dim])?;
            vectors.entry(name).or_default().extend(row);
        }
        rows.push(*agent);
    }
    let Some(header) = first else { return Ok(rows) };
    let dim = vectors.values().next().map_or(0, |all| all.len() / rows.len());
    let named: Vec<(&str, &[T])> = vectors.iter().map(|(name, all)| (&name[..], &all[..])).collect();
    let folder = out.join("final");
    std::fs::create_dir_all(&folder).map_err(LabError::io(&folder, "create"))?;
    state::save(&folder.join(name), &header, &named, [rows.len(), dim], &memories)?;
    Ok(rows)
}

/// The losses of all agents as a table, one line for each round of a job.
fn loss_table(losses: &BTreeMap<usize, Vec<OwnLoss>>, agents: usize) -> String {
    let mut lines: BTreeMap<(&str, u64, u64), BTreeMap<usize, f64>> = BTreeMap::new();
    for (agent, own) in losses {
        for OwnLoss { label, seed, round, loss } in own {
            lines.entry((label, *seed, *round)).or_default().insert(*agent, *loss);
        }
    }
    let named: String = losses.keys().map(|agent| format!(",agent {agent}")).collect();
    let mut text = format!("algorithm,seed,round,mean{named}\n");
    for ((label, seed, round), of) in lines {
        let mean = match of.len() == agents {
            true => (of.values().sum::<f64>() / agents as f64).to_string(),
            false => String::new(),
        };
        let own = losses.keys().map(|agent| of.get(agent).map(f64::to_string).unwrap_or_default());
        let own: String = own.map(|loss| format!(",{loss}")).collect();
        text += &format!("\"{}\",{seed},{round},{mean}{own}\n", label.replace('"', "\"\""));
    }
    text
}
