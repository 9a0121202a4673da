//! `mile gather`: makes a run directory from the folders of agents, wherever they ran and whether or not they have ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use mile_lab::agent_files::Divergence;
use mile_lab::engines::Scalar;
use mile_lab::error::LabError;
use mile_lab::gather::{Gatherer, agent_folder};
use mile_lab::gather_parts::{GatheredParts, gather_parts};
use mile_lab::observer::Observer;
use mile_lab::plan::{Job, Plan};
use mile_lab::session::Executed;
use mile_lab::spec::{AgentSpec, Spec};
use mile_lab::store::Outcome;

use crate::CommandLine;
use crate::output::{self, OutputArguments};
use crate::paths::moved;
use crate::run::finish;
use crate::status::refused_in;

/// What stands for the agent's number in the name of a file.
const AGENT: &str = "{agent}";

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

pub(crate) fn run(arguments: &GatherArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let (own, folders) = agents(&arguments.folders, line)?;
    let out = &arguments.out;
    refused_in(&folders.values().cloned().collect::<Vec<_>>()).iter().for_each(|line| eprintln!("{line}"));
    let spec = match &arguments.experiment {
        // By which rule agents stop, they alone know.
        Some(path) => Spec { stop: own.stop, ..Spec::load(path, &[], &line.kinds(), line.catalogue())? },
        None => with_data_of_all(own, &folders, out, line)?,
    };
    let (membership, precision) = (spec.membership()?, spec.precision);
    let agents = membership.numbers();
    // The folder of an agent that was lost, and has left, may be lost too.
    let is_missing = |agent: &usize| !folders.contains_key(agent) && membership.leaves(*agent).is_none();
    let missing: Vec<String> = (0..agents).filter(is_missing).map(|agent| agent.to_string()).collect();
    let parts = |why: String| -> anyhow::Result<u8> {
        let found = mile::with_precision!(precision, T => gather_parts::<T>(&folders, agents, out))?;
        if found.is_empty() {
            return Err(nothing(out).into());
        }
        output::print(&format!("{}\n{}\n", describe(&found), out.display()))?;
        eprintln!("no records: {why}");
        Ok(0)
    };
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return parts(format!("the folders of agents {missing} are missing, of {agents} that take part"));
    }
    let plan = match Plan::new(spec) {
        Err(LabError::Data(error)) => {
            return parts(format!(
                "they need the data of all agents, and some are not here ({error}); where all of them are, give \
                 --experiment FILE"
            ));
        }
        plan => plan?,
    };
    let folder = |agent: usize| folders.get(&agent).cloned().unwrap_or(agent_folder(out, agent));
    let folders: Vec<PathBuf> = (0..agents).map(folder).collect();
    let (outcomes, diverged) =
        mile::with_precision!(plan.spec.precision, T => gather::<T>(&plan, out, folders))?;
    for (job, found) in &diverged {
        let Divergence { agent, round, .. } = found;
        eprintln!("{}: the model of agent {agent} diverged in round {round}", plan.job_name(*job));
    }
    if outcomes.is_empty() {
        return Err(nothing(out).into());
    }
    let results = Executed::elsewhere(&plan, out, outcomes).report(true)?;
    let again = format!("mile gather --out {}", out.display());
    finish(results, false, &again, &OutputArguments::default())?;
    Ok(0)
}

fn nothing(out: &Path) -> LabError {
    let problem = "nothing to gather yet; agents write final states when they finish, and models at the recorded rounds with \
                   snapshots = true in [agent]";
    LabError::Directory { path: out.to_owned(), problem: problem.into() }
}

/// What was gathered from some agents, in words.
fn describe(found: &GatheredParts) -> String {
    let list = |agents: &[usize]| agents.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let state = |(name, agents): (&String, &Vec<usize>)| format!("final/{name}: agents {}", list(agents));
    let mut lines: Vec<String> = found.states.iter().map(state).collect();
    if !found.losses.is_empty() {
        lines.push(format!("own_losses.csv: agents {}", list(&found.losses)));
    }
    lines.join("\n")
}

/// The experiment with everybody's data in one folder, as links to the files that agents have brought in their own folders, beside the
/// files that all of them have.
fn with_data_of_all(
    spec: Spec,
    folders: &BTreeMap<usize, PathBuf>,
    out: &Path,
    line: &CommandLine,
) -> Result<Spec, LabError> {
    let files = spec.objectives.files();
    let is_brought = |(_, path): &(&'static str, PathBuf)| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains(AGENT))
    };
    let (Some(first), true) = (folders.values().next(), files.iter().any(is_brought)) else {
        return Ok(spec);
    };
    let first = std::path::absolute(first).map_err(LabError::io(first, "find"))?;
    let data = std::path::absolute(out.join("data")).map_err(LabError::io(out, "find"))?;
    std::fs::create_dir_all(&data).map_err(LabError::io(&data, "create"))?;
    let mut table = spec.to_table();
    for (key, written) in files {
        let path = std::path::absolute(&written).map_err(LabError::io(&written, "find"))?;
        let own = path.strip_prefix(&first).unwrap_or(&path);
        for (agent, folder) in folders {
            let number =
                |path: &Path| PathBuf::from(path.to_string_lossy().replace(AGENT, &agent.to_string()));
            let from = number(&folder.join(own));
            let link = data.join(number(Path::new(own.file_name().unwrap_or_default())));
            if let Ok(from) = from.canonicalize() {
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(&from, &link).map_err(LabError::io(&link, "create"))?;
            }
        }
        let all = data.join(own.file_name().unwrap_or_default()).display().to_string();
        if let Some(toml::Value::Table(problem)) = table.get_mut("problem") {
            let value =
                problem.get(key).map_or_else(|| all.as_str().into(), |value| moved(value, &written, &all));
            problem.insert(key.to_owned(), value);
        }
    }
    Spec::read_with(&table, Path::new(""), &line.kinds(), line.catalogue())
}

/// The outcomes of the jobs, and those that have diverged.
type Gathered = (Vec<Outcome>, Vec<(Job, Divergence)>);

fn gather<T: Scalar>(plan: &Plan, out: &Path, folders: Vec<PathBuf>) -> Result<Gathered, LabError> {
    let mut gatherer = Gatherer::<T>::open_copies(plan, out, folders, &Silent)?;
    gatherer.gather()?;
    let diverged = gatherer.divergences();
    Ok((gatherer.finish()?, diverged))
}

/// The experiment of the first agent, and the folder of each.
fn agents(given: &[PathBuf], line: &CommandLine) -> Result<(Spec, BTreeMap<usize, PathBuf>), LabError> {
    let inner = |folder: &PathBuf| -> Vec<PathBuf> {
        let swarm = folder.join("agents");
        let Ok(entries) = std::fs::read_dir(&swarm) else { return vec![folder.clone()] };
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<usize>().ok());
        ids.map(|agent| agent_folder(folder, agent)).collect()
    };
    let (mut first, mut found) = (None::<(usize, Spec)>, BTreeMap::new());
    for folder in given.iter().flat_map(inner) {
        let (experiment, config) =
            AgentSpec::load(&folder.join("agent.toml"), &line.kinds(), line.catalogue())?;
        if let Some(other) = found.insert(config.id, folder.clone()) {
            let problem = format!(
                "the folder of agent {}, the same agent as in {}; give only one of them",
                config.id,
                other.display()
            );
            return Err(LabError::Directory { path: folder, problem });
        }
        if first.as_ref().is_none_or(|(agent, _)| config.id < *agent) {
            first = Some((config.id, experiment));
        }
    }
    let nothing = || LabError::config("DIR", "no folders of agents found");
    Ok((first.ok_or_else(nothing)?.1, found))
}
