//! `mile gather`: makes a run directory from the folders of agents, wherever they ran and whether or not they have ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use mile_lab::engines::Scalar;
use mile_lab::error::LabError;
use mile_lab::gather::{Gatherer, agent_folder};
use mile_lab::observer::Observer;
use mile_lab::plan::Plan;
use mile_lab::session::Executed;
use mile_lab::spec::{AgentSpec, Spec};
use mile_lab::store::Outcome;

use crate::output::OutputArguments;
use crate::run::finish;

/// Makes a run directory, with records, table, figures, report and models, from the folders of agents or copies of them.
#[derive(Args)]
pub(crate) struct GatherArguments {
    /// Folders of agents, each with its agent.toml, or folders in which these are agents/0, agents/1, ...
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Run directory to write; one that was gathered before is extended
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Experiment file on a machine that has the data of all agents [default: the agents' own files]
    #[arg(long, value_name = "EXPERIMENT.toml")]
    experiment: Option<PathBuf>,
}

/// An observer that ignores everything.
struct Silent;

impl Observer for Silent {}

pub(crate) fn run(arguments: &GatherArguments) -> anyhow::Result<u8> {
    let (own, folders) = agents(&arguments.folders)?;
    let spec = match &arguments.experiment {
        // By which rule agents stop, they alone know.
        Some(path) => Spec { stop: own.stop, ..Spec::load(path, &[])? },
        None => own,
    };
    let membership = spec.membership()?;
    let agents = membership.numbers();
    // The folder of an agent that was lost, and has left, may be lost too.
    let is_missing = |agent: &usize| !folders.contains_key(agent) && membership.leaves(*agent).is_none();
    let missing: Vec<String> = (0..agents).filter(is_missing).map(|agent| agent.to_string()).collect();
    if !missing.is_empty() {
        let problem = format!(
            "the folders of agents {} are missing ({agents} agents take part); give them too",
            missing.join(", ")
        );
        return Err(LabError::config("DIR", problem).into());
    }
    let plan = Plan::new(spec).map_err(|error| match error {
        LabError::Data(error) => {
            let problem = format!(
                "{error}; records need the data of all agents, so run this where all of it is, with --experiment FILE"
            );
            LabError::config("data", problem)
        }
        other => other,
    })?;
    let folder = |agent: usize| folders.get(&agent).cloned().unwrap_or(agent_folder(&arguments.out, agent));
    let folders: Vec<PathBuf> = (0..agents).map(folder).collect();
    let outcomes =
        mile::with_precision!(plan.spec.precision, T => gather::<T>(&plan, &arguments.out, folders))?;
    if outcomes.is_empty() {
        let problem = "nothing to gather yet; agents write final states when they finish, and models at the recorded rounds with \
                       snapshots = true in [agent]";
        return Err(LabError::Directory { path: arguments.out.clone(), problem: problem.into() }.into());
    }
    let results = Executed::elsewhere(&plan, &arguments.out, outcomes).report(true)?;
    let again = format!("mile gather --out {}", arguments.out.display());
    finish(results, false, &again, &OutputArguments::default())?;
    Ok(0)
}

fn gather<T: Scalar>(plan: &Plan, out: &Path, folders: Vec<PathBuf>) -> Result<Vec<Outcome>, LabError> {
    let mut gatherer = Gatherer::<T>::open_copies(plan, out, folders, &Silent)?;
    gatherer.gather()?;
    gatherer.finish()
}

/// The experiment of the first folder, and the folder of each agent.
fn agents(given: &[PathBuf]) -> Result<(Spec, BTreeMap<usize, PathBuf>), LabError> {
    let inner = |folder: &PathBuf| -> Vec<PathBuf> {
        let swarm = folder.join("agents");
        let Ok(entries) = std::fs::read_dir(&swarm) else { return vec![folder.clone()] };
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<usize>().ok());
        ids.map(|agent| agent_folder(folder, agent)).collect()
    };
    let (mut first, mut found) = (None, BTreeMap::new());
    for folder in given.iter().flat_map(inner) {
        let (experiment, config) = AgentSpec::load(&folder.join("agent.toml"))?;
        if let Some(other) = found.insert(config.id, folder.clone()) {
            let problem = format!(
                "the folder of agent {}, the same agent as in {}; give only one of them",
                config.id,
                other.display()
            );
            return Err(LabError::Directory { path: folder, problem });
        }
        first.get_or_insert(experiment);
    }
    let nothing = || LabError::config("DIR", "no folders of agents found");
    Ok((first.ok_or_else(nothing)?, found))
}
