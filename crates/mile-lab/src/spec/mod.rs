//! The one description of an experiment: read from a file into types, completed by a plan, compared, and written again.
//!
//! Every type here that is read from a section can write itself as that section (`to_table`): what is written reads back as an equal
//! value, so that the `config.toml` of a run runs it again.

mod agent;
mod algorithm;
mod attack;
mod events;
mod exchange;
mod local_steps;
mod method;
mod neighbours;
mod network;
pub mod set;
mod stop;
mod time;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::attack::Attack;
use mile::membership::Event;
use mile::methods::catalogue::Catalogue;
use mile::real::Precision;
use toml::{Table, Value};

pub use agent::{AgentSettings, AgentSpec, OnMissing, TransportSpec};
pub use algorithm::AlgorithmSpec;
pub(crate) use attack::to_table as attack_table;
pub use events::to_table as event_table;
pub use neighbours::{NeighbourSpec, is_host_and_port};
pub use network::{GraphSource, MixingSource, NetworkSpec, VaryingSource};
pub use set::apply;
pub use stop::StopRule;
pub use time::TimeSpec;

use crate::error::LabError;
use crate::eval_agents::EvaluatedAgents;
use crate::objectives::{Kinds, Objectives};
use crate::resume;
use crate::section::{Section, as_whole, resolve};

/// The agents' starting points.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartSpec {
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

/// A description of an experiment. Two are equal if the files they write are.
#[derive(Clone)]
pub struct Spec {
    /// Name, used for its run directory.
    pub name: String,
    /// Seeds; each algorithm is run once with each.
    pub seeds: Vec<u64>,
    /// Communication rounds.
    pub rounds: u64,
    /// Rounds between records, if they are given or chosen; see [`eval_every`](Self::eval_every).
    pub eval_every: Option<u64>,
    /// Agents whose own models are measured, if that is given; see [`eval_agents`](Self::eval_agents).
    pub eval_agents: Option<EvaluatedAgents>,
    /// Whether records have the numbers of each evaluated agent's own model.
    pub agent_metrics: bool,
    /// When a run has converged and ends before its last round.
    pub stop: Option<StopRule>,
    /// Precision of states and gradients.
    pub precision: Precision,
    /// The network.
    pub network: NetworkSpec,
    /// The section `[problem]`, with the defaults of its kind. Only its kind knows what its keys mean.
    pub problem: Table,
    /// The objectives that the section describes.
    pub objectives: Arc<dyn Objectives>,
    /// On how many samples models are evaluated, where a plan has chosen it.
    pub samples: Option<EvaluationSamples>,
    /// The starting points.
    pub start: StartSpec,
    /// The algorithms to run.
    pub algorithms: Vec<AlgorithmSpec>,
    /// What happens to agents, in increasing round.
    pub events: Vec<Event>,
    /// How long it would take on other computers and lines, if that is modelled.
    pub time: Option<TimeSpec>,
    /// The logs of an earlier run, whose exchanges in pairs are repeated.
    pub replay: Option<PathBuf>,
    /// Agents that are malicious, if some are: results are those of the others.
    pub attack: Option<Attack>,
}

/// On how many samples models are evaluated: the keys `eval_samples` and `test_samples` of a section `[problem]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvaluationSamples {
    /// Training samples of each agent.
    pub per_agent: usize,
    /// Test samples; `None` if there are none to choose from.
    pub test: Option<usize>,
}

impl Spec {
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
            return Err(LabError::expected("name", "a valid folder name", format!("\"{name}\"")));
        }
        let seeds = seeds(&top)?;
        let rounds = top.whole("rounds", "a whole number of rounds")?.unwrap_or(100);
        let eval_every = top.whole("eval_every", "a whole number of rounds, at least 1")?;
        if eval_every == Some(0) {
            return Err(LabError::expected("eval_every", "a whole number of rounds, at least 1", 0));
        }
        let eval_agents = eval_agents(&top)?;
        let agent_metrics = top.flag("agent_metrics")?.unwrap_or(false);
        let stop = StopRule::read(&top)?;

        let network = NetworkSpec::read(&section(&top, "network")?, folder)?;
        let events = events::read(&top)?;
        let agents = events::numbers(&network, &events);
        let (objectives, problem) = kinds.read(&section(&top, "problem")?, agents, folder)?;
        let choices = [Precision::F32, Precision::F64].map(|precision| (precision.name(), precision));
        // Only asked if it is needed: for an agent's answer objectives in Python would read the data of all.
        let usual = (!table.contains_key("precision")).then(|| objectives.precision().name());
        let precision = top.choice("precision", &choices, usual)?;
        let start = start(&top, folder)?;
        let algorithms = AlgorithmSpec::read_all(&top, folder, catalogue, rounds)?;
        let time = top.value("time").map(|_| TimeSpec::read(&section(&top, "time")?, folder)).transpose()?;
        let replay = top.text("replay", "the path of a log of pairings, or of a run directory")?;
        let replay = replay.map(|path| resolve(folder, path));
        let attacked = top.value("attack").map(|_| section(&top, "attack")).transpose()?;
        let attack = attacked.map(|section| attack::read(&section, agents)).transpose()?;
        if attack.is_some() && !events.is_empty() {
            let problem = "conflicts with events, because malicious agents stay what they are; leave one of the two out";
            return Err(LabError::config("attack", problem));
        }
        top.value("agent"); // settings of `mile swarm` and `mile agent`, ignored here
        top.suggest("sweep"); // which sweeps have taken out
        top.finish()?;
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
            problem,
            objectives,
            samples: None,
            start,
            algorithms,
            events,
            time,
            replay,
            attack,
        })
    }

    /// The experiment as a file: what it was read from, with all defaults and what a plan has chosen.
    pub fn to_table(&self) -> Table {
        let mut problem = self.problem.clone();
        if let Some(EvaluationSamples { per_agent, test }) = self.samples {
            problem.insert("eval_samples".into(), whole(per_agent as u64));
            test.into_iter().for_each(|test| drop(problem.insert("test_samples".into(), whole(test as u64))));
        }
        let all = |tables: Vec<Table>| (!tables.is_empty()).then(|| tables.into());
        table([
            ("name", Some(self.name.as_str().into())),
            ("seeds", Some(self.seeds.iter().map(|seed| whole(*seed)).collect::<Vec<_>>().into())),
            ("rounds", Some(whole(self.rounds))),
            ("eval_every", self.eval_every.map(whole)),
            ("eval_agents", self.eval_agents.map(EvaluatedAgents::to_value)),
            ("agent_metrics", self.agent_metrics.then_some(true.into())),
            ("replay", self.replay.as_ref().map(|path| path.display().to_string().into())),
            ("precision", Some(self.precision.name().into())),
            ("stop", self.stop.map(|stop| stop.to_table().into())),
            ("network", Some(self.network.to_table().into())),
            ("problem", Some(problem.into())),
            ("start", Some(self.start.to_table().into())),
            ("algorithm", all(self.algorithms.iter().map(AlgorithmSpec::to_table).collect())),
            ("event", all(self.events.iter().map(events::to_table).collect())),
            ("time", self.time.as_ref().map(|time| time.to_table().into())),
            ("attack", self.attack.as_ref().map(|attack| attack_table(attack).into())),
        ])
    }

    /// Evaluates models on samples, if the objectives allow it.
    pub(crate) fn evaluate_on(&mut self, samples: EvaluationSamples) {
        let test = samples.test.unwrap_or(0);
        if let Some(objectives) = self.objectives.evaluating(samples.per_agent, test) {
            self.objectives = objectives;
            self.samples = Some(samples);
        }
    }

    /// Takes over what was chosen at the start of an earlier run of this experiment: numbers in place of `"auto"` and
    /// `"adaptive"`, and how it is evaluated.
    pub fn adopt(&mut self, earlier: &Self) {
        self.adopt_numbers(earlier);
        self.adopt_evaluation(earlier);
    }

    /// Takes over numbers in place of `"auto"` and `"adaptive"`, for algorithms of the same label.
    pub(crate) fn adopt_numbers(&mut self, earlier: &Self) {
        for algorithm in &mut self.algorithms {
            let chosen = earlier.algorithms.iter().find(|other| other.label == algorithm.label);
            chosen.into_iter().for_each(|chosen| algorithm.adopt(chosen));
        }
    }

    /// Takes over how another run is evaluated, where this one does not say so.
    pub(crate) fn adopt_evaluation(&mut self, other: &Self) {
        self.eval_every = self.eval_every.or(other.eval_every);
        if let (Some(rule), Some(earlier)) = (&mut self.stop, other.stop)
            && rule.loss_change.is_none()
        {
            rule.every = rule.every.or(earlier.every);
        }
        self.eval_agents = self.eval_agents.or(other.eval_agents);
        let given = |key: &str| self.problem.contains_key(key);
        let number = |key: &str| other.problem.get(key).and_then(as_whole).map(|n| n as usize);
        let chosen = number("eval_samples")
            .map(|per_agent| EvaluationSamples { per_agent, test: number("test_samples") });
        if !given("eval_samples") && !given("test_samples") {
            other.samples.or(chosen).into_iter().for_each(|samples| self.evaluate_on(samples));
        }
    }

    /// The experiment of the run in a folder, as far as it can be read without knowing what kind of problem it has.
    pub fn of_run(folder: &Path) -> Result<Self, LabError> {
        Self::read_with(
            &resume::settings(folder)?,
            folder,
            &Kinds::none().or_any(),
            &Catalogue::default().or_any(),
        )
    }

    /// The same from the text of the run's `config.toml`.
    pub(crate) fn of_settings(text: &str) -> Result<Self, LabError> {
        Self::read_with(
            &parse_table(text, &[])?,
            Path::new(""),
            &Kinds::none().or_any(),
            &Catalogue::default().or_any(),
        )
    }

    /// Those of these agents that are not malicious: they have models.
    pub(crate) fn honest(&self, agents: &[usize]) -> Vec<usize> {
        let attackers = self.attack.as_ref().map(|attack| &attack.agents[..]).unwrap_or_default();
        agents.iter().copied().filter(|agent| !attackers.contains(agent)).collect()
    }

    /// Rounds between records: a twentieth of all, unless they are given or chosen.
    pub fn eval_every(&self) -> u64 {
        self.eval_every.unwrap_or((self.rounds / 20).max(1))
    }

    /// Agents whose own models are measured.
    pub fn eval_agents(&self) -> EvaluatedAgents {
        self.eval_agents.unwrap_or_default()
    }

    /// Reads an experiment file, with `--set` overrides applied.
    pub fn load(
        path: &Path,
        overrides: &[String],
        kinds: &Kinds,
        catalogue: &Catalogue,
    ) -> Result<Self, LabError> {
        let text = crate::reading::text(path).map_err(|source| LabError::Directory {
            path: path.to_owned(),
            problem: format!("cannot read the experiment file: {source}"),
        })?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let read = |table| Self::read_with(&table, &folder, kinds, catalogue);
        let spec = parse_table(&text, overrides).and_then(read);
        spec.map_err(|error| error.in_file(&path.display().to_string()))
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

/// Refuses exchanges in pairs of agents that are not all in one process.
pub(crate) fn refuse_pairs_on_a_network(spec: &Spec) -> Result<(), LabError> {
    let Some(k) = spec.algorithms.iter().position(|algorithm| algorithm.parameters.pairs) else {
        return Ok(());
    };
    let expected = "\"rounds\" for agents on a network; exchanges in pairs are for mile run";
    Err(LabError::expected(format!("algorithm[{k}].exchange"), expected, "\"pairs\""))
}

fn seeds(top: &Section) -> Result<Vec<u64>, LabError> {
    let expected = "a list of distinct whole numbers";
    let default = Value::Array(vec![Value::Integer(0)]);
    let value = top.value("seeds").unwrap_or(&default);
    let list = value.as_array().ok_or_else(|| top.refuse("seeds", value, expected))?;
    let seeds: Option<Vec<u64>> = list.iter().map(as_whole).collect();
    let seeds = seeds.filter(|seeds| {
        let mut sorted = seeds.clone();
        sorted.sort_unstable();
        sorted.dedup();
        !seeds.is_empty() && sorted.len() == seeds.len()
    });
    seeds.ok_or_else(|| top.refuse("seeds", value, expected))
}

fn eval_agents(top: &Section) -> Result<Option<EvaluatedAgents>, LabError> {
    let Some(value) = top.value("eval_agents") else { return Ok(None) };
    match (value.as_str(), as_whole(value)) {
        (Some("all"), _) => Ok(Some(EvaluatedAgents::All)),
        (_, Some(most @ 1..)) => Ok(Some(EvaluatedAgents::AtMost(most as usize))),
        _ => Err(top.refuse("eval_agents", value, "a whole number of agents, at least 1, or \"all\"")),
    }
}

fn section(top: &Section, key: &'static str) -> Result<Table, LabError> {
    match top.value(key) {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table.clone()),
        Some(other) => Err(top.refuse(key, other, format!("a section [{key}]"))),
    }
}

fn start(top: &Section, folder: &Path) -> Result<StartSpec, LabError> {
    let table = section(top, "start")?;
    let reader = Section::new("start", &table);
    let file =
        reader.text("file", "the path of a state, such as \"runs/first/final/mile-seed0.safetensors\"")?;
    if let Some(file) = file {
        if reader.value("value").is_some() {
            return Err(LabError::config("start.value", "conflicts with start.file; leave one of them out"));
        }
        let path = resolve(folder, file);
        reader.finish()?;
        return Ok(StartSpec::File(path));
    }
    let start = reader.choice("value", &StartSpec::WORDS, Some("model"))?;
    reader.finish()?;
    Ok(start)
}

impl StartSpec {
    const WORDS: [(&'static str, Self); 4] =
        [("model", Self::Model), ("zeros", Self::Zeros), ("common", Self::Common), ("random", Self::Random)];

    pub(crate) fn to_table(&self) -> Table {
        let word = Self::WORDS.iter().find(|(_, start)| start == self).map(|(word, _)| Value::from(*word));
        let file = match self {
            Self::File(path) => Some(path.display().to_string().into()),
            _ => None,
        };
        table([("value", word), ("file", file)])
    }
}

/// The entries that have a value.
fn table<'k>(entries: impl IntoIterator<Item = (&'k str, Option<Value>)>) -> Table {
    entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// A whole number as a value.
fn whole(number: u64) -> Value {
    Value::Integer(number as i64)
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.to_table() == other.to_table()
    }
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Experiment").field("name", &self.name).finish_non_exhaustive()
    }
}
