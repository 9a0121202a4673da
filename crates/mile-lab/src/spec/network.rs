//! `[network]`: the graph, its mixing matrix, and when its edges are down.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mile::graph::{Graph, GraphError, Topology};
use mile::mixing::{MixingMatrix, Rule};
use mile::network::{Network, NetworkError};
use mile::outages::{Bursts, InvalidOutage, Outages};
use mile::varying::{TimeVarying, WeightedGraph, finite};
use toml::{Table, Value};

use crate::error::{DataFileError, LabError};
use crate::room;
use crate::section::{Section, as_number, as_whole, resolve};

/// Memory of a graph and its mixing matrix while they are built: the list of edges, the neighbours of each agent, and a few copies of the
/// rows of weights.
const BYTES_OF_AN_AGENT: f64 = 100.0;
const BYTES_OF_AN_EDGE: f64 = 100.0;
/// Rounds of a finite-time graph, more than there are for any number of agents that fits into memory.
const MOST_TURNS: f64 = 80.0;

/// A network as an experiment file describes it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NetworkSpec {
    /// Number of agents.
    pub agents: usize,
    /// The graph.
    pub graph: GraphSource,
    /// The mixing matrix.
    pub mixing: MixingSource,
    /// How the graph changes from round to round, if it does.
    pub time_varying: Option<VaryingSource>,
    /// Probability that an edge is down in a round.
    pub drop_rate: f64,
    /// Bursts of loss on its edges.
    pub bursts: Option<Bursts>,
    /// When its agents are away.
    pub absence: Option<Outages>,
    /// Seed of a random graph.
    pub seed: u64,
}

/// Where a graph comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GraphSource {
    /// A named topology.
    Topology(Topology),
    /// A file with an edge list.
    File(PathBuf),
    /// The edges themselves.
    Edges(Vec<(usize, usize)>),
    /// The graphs that are used in turn.
    InTurn,
}

/// Where a mixing matrix comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MixingSource {
    /// A mixing rule.
    Rule(Rule),
    /// A file with the matrix.
    File(PathBuf),
    /// The weights of the edges, by their two ends in increasing order; the diagonal makes each row sum to one.
    Weights(BTreeMap<(usize, usize), f64>),
    /// The mean of the graphs that are used in turn.
    InTurn,
}

/// Where the edges of each round come from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum VaryingSource {
    /// A random matching of the graph in each round.
    RandomMatching,
    /// The graph's edges as matchings, one after the other.
    Matchings,
    /// Files with edge lists, one after the other.
    Files(Vec<PathBuf>),
    /// Files with edge lists that have weights, one after the other.
    WeightedFiles(Vec<PathBuf>),
    /// The edges of each round with their weights, by their two ends in increasing order.
    Weighted(Vec<BTreeMap<(usize, usize), f64>>),
    /// A one-peer hypercube.
    OnePeerHypercube,
    /// A Base-(k+1) graph.
    BaseK {
        /// The most neighbours of an agent in a round.
        most: usize,
    },
}

impl VaryingSource {
    /// Whether its graphs set their own weights, and so decide the network.
    fn has_weights(&self) -> bool {
        !matches!(self, Self::RandomMatching | Self::Matchings | Self::Files(_))
    }

    /// The files it refers to.
    pub fn files(&self) -> &[PathBuf] {
        match self {
            Self::Files(paths) | Self::WeightedFiles(paths) => paths,
            _ => &[],
        }
    }

    /// The files it refers to, to be changed.
    pub fn files_mut(&mut self) -> &mut [PathBuf] {
        match self {
            Self::Files(paths) | Self::WeightedFiles(paths) => paths,
            _ => &mut [],
        }
    }

    /// The graphs of a period.
    fn turns(&self, agents: usize) -> Result<Vec<WeightedGraph>, LabError> {
        let turns = match self {
            Self::WeightedFiles(paths) => {
                let read = |path: &PathBuf| in_text_file(path, |text| WeightedGraph::parse(text, agents));
                paths.iter().map(read).collect::<Result<_, _>>()?
            }
            Self::Weighted(rounds) => {
                let graph = |(round, weights): (usize, &BTreeMap<(usize, usize), f64>)| {
                    WeightedGraph::new(agents, weights.iter().map(|(&(i, j), &weight)| (i, j, weight)))
                        .map_err(|error| {
                            LabError::config(format!("network.time_varying.weights[{round}]"), error)
                        })
                };
                rounds.iter().enumerate().map(graph).collect::<Result<_, _>>()?
            }
            Self::OnePeerHypercube => finite::one_peer_hypercube(agents).ok_or_else(|| {
                let expected =
                    "a power of two with time_varying = \"one-peer-hypercube\" (\"base-k\" takes any number)";
                LabError::expected("network.agents", expected, agents)
            })?,
            Self::BaseK { most } => finite::base_k(agents, *most),
            Self::RandomMatching | Self::Matchings | Self::Files(_) => Vec::new(),
        };
        // An agent alone has no rounds.
        let none =
            || WeightedGraph::new(agents, []).map_err(|error| LabError::config("network.agents", error));
        if turns.is_empty() { Ok(vec![none()?]) } else { Ok(turns) }
    }
}

const TOPOLOGIES: [&str; 12] = [
    "ring",
    "path",
    "star",
    "complete",
    "grid",
    "torus",
    "hypercube",
    "exponential",
    "erdos-renyi",
    "random-regular",
    "small-world",
    "file",
];

impl NetworkSpec {
    /// The named topology of its graph, if it has one.
    pub fn topology(&self) -> Option<Topology> {
        match self.graph {
            GraphSource::Topology(topology) => Some(topology),
            GraphSource::File(_) | GraphSource::Edges(_) | GraphSource::InTurn => None,
        }
    }

    /// Reads the contents of a section `[network]`; relative paths in it are relative to `folder`.
    pub fn read(table: &Table, folder: &Path) -> Result<Self, LabError> {
        let reader = Section::new("network", table);
        let agents = reader.whole("agents", "a whole number of at least 1")?.unwrap_or(10);
        if agents == 0 {
            return Err(LabError::expected("network.agents", "a whole number of at least 1", 0));
        }
        let time_varying = time_varying(&reader, folder)?;
        let (graph, mixing) = match time_varying.as_ref().is_some_and(VaryingSource::has_weights) {
            true => {
                let expected = "no value, because this time_varying sets the weights";
                let given =
                    |key: &'static str| reader.value(key).map(|value| reader.refuse(key, value, expected));
                ["topology", "mixing"].into_iter().find_map(given).map_or(Ok(()), Err)?;
                (GraphSource::InTurn, MixingSource::InTurn)
            }
            false => (graph(&reader, folder)?, mixing(&reader, folder)?),
        };
        let expected = "a probability in [0, 1)";
        let drop_rate = reader.number("drop_rate", expected)?.unwrap_or(0.0);
        if !(0.0..1.0).contains(&drop_rate) {
            return Err(LabError::expected("network.drop_rate", expected, drop_rate));
        }
        let (bursts, absence) = (bursts(&reader)?, absence(&reader)?);
        let seed = reader.whole("seed", "a whole number")?.unwrap_or(0);
        reader.finish()?;
        let agents = agents as usize;
        Ok(Self { agents, graph, mixing, time_varying, drop_rate, bursts, absence, seed })
    }

    /// The contents of the section.
    pub fn to_table(&self) -> Table {
        let path = |path: &PathBuf| Value::from(path.display().to_string());
        let number = |number: usize| super::whole(number as u64);
        let (mut p, mut degree, mut rewire, mut edges) = (None, None, None, None);
        match &self.graph {
            GraphSource::Topology(topology) => match *topology {
                Topology::ErdosRenyi { p: probability } => p = Some(probability.into()),
                Topology::RandomRegular { degree: of } => degree = Some(number(of)),
                Topology::SmallWorld { degree: of, rewire: share } => {
                    (degree, rewire) = (Some(number(of)), Some(share.into()));
                }
                _ => {}
            },
            GraphSource::File(file) => edges = Some(path(file)),
            GraphSource::Edges(list) => {
                let edge = |&(i, j): &(usize, usize)| Value::Array(vec![number(i), number(j)]);
                edges = Some(Value::Array(list.iter().map(edge).collect()));
            }
            GraphSource::InTurn => {}
        }
        let (mixing, matrix) = match &self.mixing {
            MixingSource::Rule(rule) => (Some(rule.name()), None),
            MixingSource::InTurn => (None, None),
            MixingSource::File(file) => (Some("file"), Some(path(file))),
            MixingSource::Weights(weights) => (Some("file"), Some(of_weights(weights))),
        };
        let own_weights = |rounds: Vec<Value>| super::table([("weights", Some(Value::Array(rounds)))]).into();
        let time_varying = self.time_varying.as_ref().map(|source| match source {
            VaryingSource::RandomMatching => "random-matching".into(),
            VaryingSource::Matchings => "matchings".into(),
            VaryingSource::Files(files) => Value::Array(files.iter().map(path).collect()),
            VaryingSource::WeightedFiles(files) => own_weights(files.iter().map(path).collect()),
            VaryingSource::Weighted(rounds) => own_weights(rounds.iter().map(of_weights).collect()),
            VaryingSource::OnePeerHypercube => "one-peer-hypercube".into(),
            VaryingSource::BaseK { most } => {
                degree = Some(number(*most));
                "base-k".into()
            }
        });
        let topology = match &self.graph {
            GraphSource::InTurn => None,
            _ => Some(self.topology().map_or("file", |topology| topology.name())),
        };
        super::table([
            ("agents", Some(number(self.agents))),
            ("topology", topology.map(Value::from)),
            ("p", p),
            ("degree", degree),
            ("rewire", rewire),
            ("edges", edges),
            ("mixing", mixing.map(Value::from)),
            ("matrix", matrix),
            ("time_varying", time_varying),
            ("drop_rate", Some(self.drop_rate.into())),
            ("bursts", self.bursts.map(|bursts| outages(&bursts.during, Some(bursts.loss)))),
            ("absence", self.absence.map(|absence| outages(&absence, None))),
            ("seed", Some(super::whole(self.seed))),
        ])
    }

    /// Whether edges are down at random.
    pub fn loses_edges(&self) -> bool {
        self.drop_rate > 0.0 || self.bursts.is_some() || self.absence.is_some()
    }

    /// Builds the network; an error if its graph is disconnected or its matrix is not admissible.
    pub fn build(&self) -> Result<Network, LabError> {
        let edges = match &self.graph {
            GraphSource::Topology(topology) => topology.mean_edges(self.agents),
            GraphSource::File(_) => 0.0,
            GraphSource::Edges(edges) => edges.len() as f64,
            GraphSource::InTurn => match &self.time_varying {
                Some(VaryingSource::WeightedFiles(_)) => 0.0,
                Some(VaryingSource::Weighted(rounds)) => {
                    rounds.iter().map(BTreeMap::len).sum::<usize>() as f64
                }
                _ => self.agents as f64 * MOST_TURNS,
            },
        };
        let bytes = self.agents as f64 * BYTES_OF_AN_AGENT + edges * BYTES_OF_AN_EDGE;
        room::check("network.agents", "fewer agents", self.agents, "the graph and its weights", bytes)?;
        let in_config = |key: &'static str| move |error: NetworkError| LabError::config(key, error);
        let graph = match &self.graph {
            GraphSource::Topology(topology) => {
                topology.build(self.agents, self.seed).map_err(|error| match error {
                    GraphError::Parameter { parameter, got, expected, .. } => {
                        LabError::expected(format!("network.{parameter}"), expected, got)
                    }
                    error => LabError::config("network.topology", error),
                })?
            }
            GraphSource::File(path) => in_text_file(path, |text| Graph::parse_edges(text, self.agents))?,
            GraphSource::Edges(edges) => Graph::from_edges(self.agents, edges.iter().copied())
                .map_err(|error| LabError::config("network.edges", error))?,
            GraphSource::InTurn => return self.build_in_turn(),
        };
        let graph = graph.connected().map_err(|error| LabError::config("network.topology", error))?;
        let network = match &self.mixing {
            MixingSource::Rule(rule) => Network::new(graph, *rule).map_err(in_config("network.mixing"))?,
            MixingSource::InTurn => return self.build_in_turn(),
            MixingSource::File(path) => {
                let matrix = in_text_file(path, |text| MixingMatrix::parse(&graph, text))?;
                Network::with_matrix(graph, matrix).map_err(in_config("network.matrix"))?
            }
            MixingSource::Weights(weights) => {
                if let Some((i, j)) =
                    weights.keys().find(|(i, j)| *j >= graph.agents() || !graph.has_edge(*i, *j))
                {
                    let problem = format!("a weight is given for agents {i} and {j}, but no edge joins them");
                    return Err(LabError::config("network.matrix", problem));
                }
                let weight = |i: usize, j: usize| weights.get(&(i.min(j), i.max(j))).copied().unwrap_or(0.0);
                let matrix = MixingMatrix::from_edges(&graph, weight)
                    .map_err(|error| LabError::config("network.matrix", error))?;
                Network::with_matrix(graph, matrix).map_err(in_config("network.matrix"))?
            }
        };
        let varying = match &self.time_varying {
            None => None,
            Some(VaryingSource::RandomMatching) => Some(TimeVarying::RandomMatching),
            Some(VaryingSource::Matchings) => Some(TimeVarying::matchings(network.graph())),
            Some(VaryingSource::Files(paths)) => {
                let read = |path: &PathBuf| in_text_file(path, |text| Graph::parse_edges(text, self.agents));
                Some(TimeVarying::InTurn(paths.iter().map(read).collect::<Result<_, _>>()?))
            }
            Some(_) => return self.build_in_turn(),
        };
        let network = match varying {
            Some(varying) => network.with_time_varying(varying).map_err(in_config("network.time_varying"))?,
            None => network,
        };
        self.with_losses(network)
    }

    /// Builds a network whose graphs set their own weights.
    fn build_in_turn(&self) -> Result<Network, LabError> {
        let in_config = |key: &'static str| move |error: NetworkError| LabError::config(key, error);
        let turns =
            self.time_varying.as_ref().map_or(Ok(Vec::new()), |varying| varying.turns(self.agents))?;
        self.with_losses(Network::in_turn(turns).map_err(in_config("network.time_varying"))?)
    }

    /// The network whose edges are down as this says.
    fn with_losses(&self, network: Network) -> Result<Network, LabError> {
        let dropping = network.with_drop_rate(self.drop_rate);
        let network = dropping.map_err(|error| LabError::config("network.drop_rate", error))?;
        let network = self.bursts.into_iter().fold(network, Network::with_bursts);
        Ok(self.absence.into_iter().fold(network, Network::with_absence))
    }
}

/// A table such as `{ begin = 0.01, end = 0.2 }`.
fn outages(outages: &Outages, loss: Option<f64>) -> Value {
    let (begin, end) = (Some(outages.begin().into()), Some(outages.end().into()));
    super::table([("begin", begin), ("end", end), ("loss", loss.map(Value::Float))]).into()
}

/// A list such as `[[0, 1, 0.3], [1, 2, 0.3]]`.
fn of_weights(weights: &BTreeMap<(usize, usize), f64>) -> Value {
    let number = |agent: usize| super::whole(agent as u64);
    let weight =
        |(&(i, j), w): (&(usize, usize), &f64)| Value::Array(vec![number(i), number(j), Value::Float(*w)]);
    Value::Array(weights.iter().map(weight).collect())
}

fn bursts(reader: &Section) -> Result<Option<Bursts>, LabError> {
    let Some(table) = outage(reader, "bursts")? else { return Ok(None) };
    let inner = Section::new(reader.path("bursts"), table);
    let during = begin_and_end(&inner)?;
    let loss = inner.number("loss", "a probability in (0, 1]")?.unwrap_or(1.0);
    let bursts = Bursts::new(during, loss).map_err(|error| out_of_range(&inner, error))?;
    inner.finish()?;
    Ok(Some(bursts))
}

fn absence(reader: &Section) -> Result<Option<Outages>, LabError> {
    let Some(table) = outage(reader, "absence")? else { return Ok(None) };
    let inner = Section::new(reader.path("absence"), table);
    let absence = begin_and_end(&inner)?;
    inner.finish()?;
    Ok(Some(absence))
}

fn outage<'a>(reader: &Section<'a>, key: &'static str) -> Result<Option<&'a Table>, LabError> {
    let expected = "a table with begin and end, such as { begin = 0.01, end = 0.2 }";
    let table = |value: &'a Value| value.as_table().ok_or_else(|| reader.refuse(key, value, expected));
    reader.value(key).map(table).transpose()
}

fn begin_and_end(inner: &Section) -> Result<Outages, LabError> {
    let number = |key: &'static str, expected: &str| -> Result<f64, LabError> {
        inner.number(key, expected)?.ok_or_else(|| inner.missing(key, expected))
    };
    let (begin, end) =
        (number("begin", "a probability in (0, 1)")?, number("end", "a probability in (0, 1]")?);
    Outages::new(begin, end).map_err(|error| out_of_range(inner, error))
}

fn out_of_range(inner: &Section, error: InvalidOutage) -> LabError {
    let InvalidOutage { key, got, expected, .. } = error;
    LabError::expected(inner.path(key), expected, got)
}

fn in_text_file<T, E: std::fmt::Display>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, LabError> {
    let bad = |problem: String| DataFileError { file: path.to_owned(), place: None, column: None, problem };
    let text = crate::reading::text(path).map_err(|error| bad(format!("cannot read it: {error}")))?;
    Ok(parse(&text).map_err(|error| bad(error.to_string()))?)
}

fn graph(reader: &Section, folder: &Path) -> Result<GraphSource, LabError> {
    let choices: Vec<(&'static str, &'static str)> = TOPOLOGIES.iter().map(|name| (*name, *name)).collect();
    let name = reader.choice("topology", &choices, Some("ring"))?;
    let degree = |default: u64| -> Result<usize, LabError> {
        Ok(reader.whole("degree", "a whole number")?.unwrap_or(default) as usize)
    };
    let probability = |key: &'static str, default: f64| -> Result<f64, LabError> {
        Ok(reader.number(key, "a probability")?.unwrap_or(default))
    };
    Ok(GraphSource::Topology(match name {
        "ring" => Topology::Ring,
        "path" => Topology::Path,
        "star" => Topology::Star,
        "complete" => Topology::Complete,
        "grid" => Topology::Grid,
        "torus" => Topology::Torus,
        "hypercube" => Topology::Hypercube,
        "exponential" => Topology::Exponential,
        "erdos-renyi" => Topology::ErdosRenyi { p: probability("p", 0.3)? },
        "random-regular" => Topology::RandomRegular { degree: degree(4)? },
        "small-world" => Topology::SmallWorld { degree: degree(4)?, rewire: probability("rewire", 0.1)? },
        _ => {
            let expected = "the path of an edge list, or the edges themselves, such as [[0, 1], [1, 2]]";
            let edges = reader.value("edges").ok_or_else(|| reader.missing("edges", expected))?;
            if let Value::Array(list) = edges {
                let edge = |pair: &Value| match pair.as_array()?.as_slice() {
                    [i, j] => Some((as_whole(i)? as usize, as_whole(j)? as usize)),
                    _ => None,
                };
                let found = list.iter().map(edge).collect::<Option<Vec<_>>>();
                return found.map(GraphSource::Edges).ok_or_else(|| reader.refuse("edges", edges, expected));
            }
            let edges = edges.as_str().ok_or_else(|| reader.refuse("edges", edges, expected))?;
            return Ok(GraphSource::File(resolve(folder, edges)));
        }
    }))
}

fn time_varying(reader: &Section, folder: &Path) -> Result<Option<VaryingSource>, LabError> {
    let expected = "random-matching, matchings, one-peer-hypercube, base-k, a list of files with edge lists to use in turn, or { weights = [...] } with a list of files whose edges have weights";
    let Some(value) = reader.value("time_varying") else { return Ok(None) };
    Ok(Some(match value {
        Value::String(name) if name == "random-matching" => VaryingSource::RandomMatching,
        Value::String(name) if name == "matchings" => VaryingSource::Matchings,
        Value::String(name) if name == "one-peer-hypercube" => VaryingSource::OnePeerHypercube,
        Value::String(name) if name == "base-k" => {
            let expected = "a whole number of at least 1: the most neighbours of an agent in a round";
            match reader.whole("degree", expected)?.unwrap_or(1) {
                0 => return Err(LabError::expected("network.degree", expected, 0)),
                most => VaryingSource::BaseK { most: most as usize },
            }
        }
        Value::Array(list) if !list.is_empty() => VaryingSource::Files(
            files(list, folder).ok_or_else(|| reader.refuse("time_varying", value, expected))?,
        ),
        Value::Table(table) => own_weights(Section::new(reader.path("time_varying"), table), folder)?,
        _ => return Err(reader.refuse("time_varying", value, expected)),
    }))
}

fn files(list: &[Value], folder: &Path) -> Option<Vec<PathBuf>> {
    list.iter().map(|path| path.as_str().map(|path| resolve(folder, path))).collect()
}

/// A table such as `{ weights = ["even.txt", "odd.txt"] }`.
fn own_weights(inner: Section, folder: &Path) -> Result<VaryingSource, LabError> {
    let expected = "a list of files with edges and weights, one for each round of a period, or of the edges themselves, such as [[[0, 1, 0.5]], [[1, 2, 0.5]]]";
    let value = inner.value("weights").ok_or_else(|| inner.missing("weights", expected))?;
    let rounds = |list: &Vec<Value>| -> Option<Vec<_>> {
        list.iter().map(|round| weights(round.as_array()?)).collect()
    };
    let list = value.as_array().filter(|list| !list.is_empty());
    let found = list.and_then(|list| {
        let from_files = files(list, folder).map(VaryingSource::WeightedFiles);
        from_files.or_else(|| rounds(list).map(VaryingSource::Weighted))
    });
    let found = found.ok_or_else(|| inner.refuse("weights", value, expected))?;
    inner.finish()?;
    Ok(found)
}

fn mixing(reader: &Section, folder: &Path) -> Result<MixingSource, LabError> {
    let rules = Rule::ALL.map(|rule| (rule.name(), Some(rule)));
    let choices: Vec<_> = rules.into_iter().chain([("file", None)]).collect();
    match reader.choice("mixing", &choices, Some("metropolis"))? {
        Some(rule) => Ok(MixingSource::Rule(rule)),
        None => {
            let expected = "the path of a matrix, one row per line, or the weights of the edges, such as [[0, 1, 0.3], [1, 2, 0.3]]";
            let matrix = reader.value("matrix").ok_or_else(|| reader.missing("matrix", expected))?;
            if let Value::Array(list) = matrix {
                return weights(list)
                    .map(MixingSource::Weights)
                    .ok_or_else(|| reader.refuse("matrix", matrix, expected));
            }
            let matrix = matrix.as_str().ok_or_else(|| reader.refuse("matrix", matrix, expected))?;
            Ok(MixingSource::File(resolve(folder, matrix)))
        }
    }
}

/// The weights of edges, each given once as `[i, j, weight]`; `None` if the list has another form.
fn weights(list: &[Value]) -> Option<BTreeMap<(usize, usize), f64>> {
    let mut found = BTreeMap::new();
    for entry in list {
        let [i, j, weight] = entry.as_array()?.as_slice() else { return None };
        let (i, j) = (as_whole(i)? as usize, as_whole(j)? as usize);
        if i == j || found.insert((i.min(j), i.max(j)), as_number(weight)?).is_some() {
            return None;
        }
    }
    Some(found)
}
