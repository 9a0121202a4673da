//! Reads experiment files into types. Every error names the key, the value it got and the values it takes.

mod agent;
mod algorithm;
mod events;
mod neighbours;
mod network;
pub mod set;
mod stop;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::membership::Event;
use mile::methods::catalogue::Catalogue;
use mile::real::Precision;
use toml::{Table, Value};

pub use agent::{AgentConfig, AgentSettings, OnMissing, Stop, Transport};
pub use algorithm::AlgorithmConfig;
pub use neighbours::{NeighbourConfig, is_host_and_port};
pub use network::{GraphSource, MixingSource, NetworkConfig};
pub use set::apply;
pub use stop::StopRule;

use crate::error::LabError;
use crate::evaluated::EvaluatedAgents;
use crate::objectives::{Kinds, Objectives, Setting};
use crate::section::{Section, as_whole, resolve};

/// The agents' starting points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The problem's own initialisation, one point for all; zeros if it has none.
    Model,
    /// The origin.
    Zeros,
    /// One random point for all agents.
    Common,
    /// A random point for each agent.
    Random,
    /// The models in a file: those of an earlier run's state, one for each agent, or one for all.
    File(PathBuf),
}

/// An experiment with all defaults filled in.
#[derive(Clone)]
pub struct Experiment {
    /// Name, used for its run directory.
    pub name: String,
    /// Seeds; each algorithm is run once with each.
    pub seeds: Vec<u64>,
    /// Communication rounds.
    pub rounds: u64,
    /// Rounds between records; a twentieth of all if the file does not say it, until a plan chooses.
    pub eval_every: u64,
    /// Agents whose own models are measured.
    pub eval_agents: EvaluatedAgents,
    /// Whether records have the numbers of each evaluated agent's own model.
    pub agent_metrics: bool,
    /// When a run has converged and ends before its last round.
    pub stop: Option<StopRule>,
    /// Precision of states and gradients.
    pub precision: Precision,
    /// The network.
    pub network: NetworkConfig,
    /// The objectives.
    pub objectives: Arc<dyn Objectives>,
    /// The starting points.
    pub start: Start,
    /// The algorithms to run.
    pub algorithms: Vec<AlgorithmConfig>,
    /// What happens to agents, in increasing round.
    pub events: Vec<Event>,
    /// The resolved experiment file, which runs the same experiment again.
    pub resolved: Table,
}

impl Experiment {
    /// Reads an experiment with a built-in kind of problem and built-in methods; relative paths in it are relative to `folder`.
    pub fn read(table: &Table, folder: &Path) -> Result<Self, LabError> {
        Self::read_with(table, folder, &Kinds::default(), &Catalogue::default())
    }

    /// Reads an experiment with a problem of one of the given kinds and methods of the catalogue; relative paths in it are
    /// relative to `folder`.
    pub fn read_with(
        table: &Table,
        folder: &Path,
        kinds: &Kinds,
        catalogue: &Catalogue,
    ) -> Result<Self, LabError> {
        let top = Section::new("", table);
        let name = top.text("name", "a name")?.unwrap_or("experiment").to_owned();
        if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
            return Err(LabError::config(
                "name",
                format!("got \"{name}\", takes a name that is valid as a folder name"),
            ));
        }
        top.keep("name", name.as_str());
        let seeds = seeds(&top)?;
        let rounds = top.whole("rounds", "a whole number of rounds")?.unwrap_or(100);
        top.keep("rounds", rounds as i64);
        let eval_every = top.whole("eval_every", "a whole number of rounds from 1")?;
        if eval_every == Some(0) {
            return Err(LabError::config("eval_every", "got 0, takes a whole number of rounds from 1"));
        }
        let eval_every = eval_every.unwrap_or((rounds / 20).max(1));
        let eval_agents = eval_agents(&top)?;
        let agent_metrics = top.flag("agent_metrics")?.unwrap_or(false);
        let stop = StopRule::read(&top)?;

        let network = section(&top, "network")?;
        let network = NetworkConfig::read(&top, &network, folder)?;
        let events = events::read(&top)?;
        let setting = Setting { agents: events::numbers(&network, &events), folder };
        let (objectives, problem) = kinds.read(&section(&top, "problem")?, setting)?;
        top.keep("problem", problem);
        let choices = [Precision::F32, Precision::F64].map(|precision| (precision.name(), precision));
        let precision = top.choice("precision", &choices, Some(objectives.precision().name()))?;
        let start = start(&top, folder)?;
        let algorithms = AlgorithmConfig::read_all(&top, catalogue, rounds)?;
        top.value("agent"); // settings of `mile swarm` and `mile agent`, ignored here
        let resolved = in_order(top.finish()?);
        Ok(Self {
            name,
            seeds,
            rounds,
            eval_every,
            eval_agents,
            agent_metrics,
            stop,
            precision,
            network,
            objectives,
            start,
            algorithms,
            events,
            resolved,
        })
    }

    /// Reads an experiment file, with `--set` overrides applied.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self, LabError> {
        let text = std::fs::read_to_string(path).map_err(|source| LabError::Directory {
            path: path.to_owned(),
            problem: format!("cannot read the experiment file: {source}"),
        })?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Self::parse(&text, &folder, overrides).map_err(|error| error.in_file(&path.display().to_string()))
    }

    /// The value of a key in a section of the resolved experiment.
    pub fn resolved_value(&self, section: &str, key: &str) -> Option<&Value> {
        self.resolved.get(section)?.as_table()?.get(key)
    }

    /// Reads an experiment from text, with `--set` overrides applied.
    pub fn parse(text: &str, folder: &Path, overrides: &[String]) -> Result<Self, LabError> {
        Self::read(&parse_table(text, overrides)?, folder)
    }
}

/// Parses the text of an experiment file, with `--set` overrides applied.
pub fn parse_table(text: &str, overrides: &[String]) -> Result<Table, LabError> {
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        LabError::config(format!("line {line}"), error.message())
    })?;
    for assignment in overrides {
        apply(&mut table, assignment)?;
    }
    Ok(table)
}

fn seeds(top: &Section) -> Result<Vec<u64>, LabError> {
    let takes = "a list of whole numbers, each once";
    let default = Value::Array(vec![Value::Integer(0)]);
    let value = top.value("seeds").unwrap_or(&default);
    let list = value.as_array().ok_or_else(|| top.refuse("seeds", value, takes))?;
    let seeds: Option<Vec<u64>> = list.iter().map(as_whole).collect();
    let seeds = seeds.filter(|seeds| {
        let mut sorted = seeds.clone();
        sorted.sort_unstable();
        sorted.dedup();
        !seeds.is_empty() && sorted.len() == seeds.len()
    });
    top.keep("seeds", value.clone());
    seeds.ok_or_else(|| top.refuse("seeds", value, takes))
}

fn eval_agents(top: &Section) -> Result<EvaluatedAgents, LabError> {
    let Some(value) = top.value("eval_agents") else { return Ok(EvaluatedAgents::default()) };
    top.keep("eval_agents", value.clone());
    match (value.as_str(), as_whole(value)) {
        (Some("all"), _) => Ok(EvaluatedAgents::All),
        (_, Some(most @ 1..)) => Ok(EvaluatedAgents::AtMost(most as usize)),
        _ => Err(top.refuse("eval_agents", value, "a whole number of agents from 1, or \"all\"")),
    }
}

fn section(top: &Section, key: &'static str) -> Result<Table, LabError> {
    match top.value(key) {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table.clone()),
        Some(other) => Err(top.refuse(key, other, format!("a section [{key}]"))),
    }
}

fn start(top: &Section, folder: &Path) -> Result<Start, LabError> {
    let table = section(top, "start")?;
    let reader = Section::new("start", &table);
    let file =
        reader.text("file", "the path of a state, such as \"runs/first/final/mile-seed0.safetensors\"")?;
    if let Some(file) = file {
        if reader.value("value").is_some() {
            return Err(LabError::config(
                "start.value",
                "cannot be given together with start.file: leave one of them out",
            ));
        }
        let path = resolve(folder, file);
        reader.keep("file", path.display().to_string());
        top.keep("start", reader.finish()?);
        return Ok(Start::File(path));
    }
    let choices = [
        ("model", Start::Model),
        ("zeros", Start::Zeros),
        ("common", Start::Common),
        ("random", Start::Random),
    ];
    let start = reader.choice("value", &choices, Some("model"))?;
    top.keep("start", reader.finish()?);
    Ok(start)
}

/// Plain keys before sections, as TOML requires.
pub(crate) fn in_order(table: Table) -> Table {
    let is_section = |value: &Value| {
        value.is_table() || value.as_array().is_some_and(|list| list.first().is_some_and(Value::is_table))
    };
    let (sections, plain): (Vec<_>, Vec<_>) = table.into_iter().partition(|(_, value)| is_section(value));
    plain.into_iter().chain(sections).collect()
}

impl std::fmt::Debug for Experiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Experiment").field("name", &self.name).finish_non_exhaustive()
    }
}
