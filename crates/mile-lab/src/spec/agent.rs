//! `[agent]`: the configuration of one agent of a swarm.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mile::membership::{Change, Membership};
use mile::methods::catalogue::Catalogue;
use toml::{Table, Value};

use super::neighbours::{NeighbourSpec, all_listed, neighbours};
use super::{Spec, StopRule, parse_table};
use crate::divergence::DIVERGED;
use crate::error::LabError;
use crate::objectives::Kinds;
use crate::section::{Section, resolve, shown};

/// What to do when a neighbour is unreachable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnMissing {
    /// Wait for it.
    Wait,
    /// Skip its edge, at both ends, after the deadline.
    SkipEdge {
        /// How long the neighbour may be unreachable.
        deadline: Duration,
    },
}

/// The transport between neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportSpec {
    /// QUIC, over UDP.
    Quic,
    /// TLS over TCP.
    Tcp,
}

/// The settings that all agents of a swarm may share.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSettings {
    /// Rounds between checkpoints; `None`: as often as they cost little time, at least every [`MOST_ROUNDS`](Self::MOST_ROUNDS).
    pub checkpoint_every: Option<u64>,
    /// Rounds for which confirmed messages are kept, for neighbours that are restored from a copy.
    pub keep: u64,
    /// Largest number of rounds of messages kept for a neighbour that does not confirm them; `None`: enough for `checkpoint_every`.
    pub outbox: Option<u64>,
    /// How far an element of a neighbour's message may be from the agent's own: this many times the scale of what was seen.
    pub message_range: f64,
    /// What to do when a neighbour is unreachable.
    pub on_missing: OnMissing,
    /// How long to wait for a neighbour before the agent fails; `None`: forever.
    pub timeout: Option<Duration>,
    /// How long to stay after the last round for neighbours that are unreachable.
    pub linger: Duration,
    /// The transport between neighbours; `None`: QUIC, or TCP if all agents are on one machine.
    pub transport: Option<TransportSpec>,
    /// URL of a relay server.
    pub relay: Option<String>,
    /// Address on which Prometheus metrics are served.
    pub metrics: Option<SocketAddr>,
    /// File with the token of the page that shows the network; without it no page is served.
    pub page_token: Option<PathBuf>,
    /// Address on which that page is served; `None`: [`PAGE`](Self::PAGE).
    pub page: Option<SocketAddr>,
    /// When all agents stop before the last round; it takes the place of the experiment's own rule.
    pub stop: Option<StopRule>,
    /// Whether to write the model at every recorded round, for `mile swarm` to gather.
    pub snapshots: bool,
    /// Whether messages carry summaries from which agents estimate the whole network's loss; the same for all agents.
    pub gossip: bool,
}

/// The configuration of one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSpec {
    /// Its number in the experiment.
    pub id: usize,
    /// Its key file.
    pub key: PathBuf,
    /// Address it listens on.
    pub listen: SocketAddr,
    /// Folder for its state.
    pub folder: PathBuf,
    /// Its settings.
    pub settings: AgentSettings,
    /// Its neighbours, by number.
    pub neighbours: BTreeMap<usize, NeighbourSpec>,
}

impl AgentSettings {
    /// Most rounds between two checkpoints where `checkpoint_every` is not given: what neighbours keep by default.
    pub const MOST_ROUNDS: u64 = 30;

    /// Where the page is served if nothing else is said.
    pub const PAGE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7180);

    /// Most rounds between two checkpoints.
    pub fn most_rounds(&self) -> u64 {
        self.checkpoint_every.unwrap_or(Self::MOST_ROUNDS)
    }

    /// Reads the section `[agent]` of an experiment for `mile swarm`: the settings of all agents.
    pub fn of_swarm(table: &Table) -> Result<Self, LabError> {
        let agent = section(table)?.unwrap_or_default();
        if let Some(key) =
            ["id", "key", "listen", "folder", "neighbour"].iter().find(|key| agent.contains_key(**key))
        {
            let problem = "differs from agent to agent; leave it out, mile swarm fills it in";
            return Err(LabError::config(format!("agent.{key}"), problem));
        }
        let reader = Section::new("agent", &agent);
        let settings = Self::read(&reader)?;
        reader.finish()?;
        Ok(settings)
    }

    fn read(reader: &Section) -> Result<Self, LabError> {
        let seconds = |key: &'static str| -> Result<Option<Duration>, LabError> {
            let expected = "a number of seconds, at least 0";
            let Some(number) = reader.number(key, expected)? else { return Ok(None) };
            let problem = |_| LabError::expected(reader.path(key), expected, number);
            Duration::try_from_secs_f64(number).map(Some).map_err(problem)
        };
        let expected = "a whole number of rounds, at least 1";
        let checkpoint_every = reader.whole("checkpoint_every", expected)?;
        if checkpoint_every == Some(0) {
            return Err(LabError::expected("agent.checkpoint_every", expected, 0));
        }
        let keep = reader.whole("keep", "a whole number of rounds, at least 0")?.unwrap_or(0);
        let outbox = reader.whole("outbox", expected)?;
        let least = checkpoint_every.unwrap_or(Self::MOST_ROUNDS).saturating_add(2);
        if let Some(rounds) = outbox.filter(|rounds| *rounds < least) {
            let expected = format!("at least {least} (agent.checkpoint_every + 2)");
            return Err(LabError::expected("agent.outbox", expected, rounds));
        }
        let expected = "a number above 0";
        let message_range = reader.number("message_range", expected)?.unwrap_or(DIVERGED);
        if !(message_range > 0.0 && message_range.is_finite()) {
            return Err(LabError::expected("agent.message_range", expected, message_range));
        }
        let deadline = seconds("deadline")?;
        let on_missing =
            match reader.choice("on_missing", &[("wait", false), ("skip-edge", true)], Some("wait"))? {
                false if deadline.is_some() => {
                    return Err(LabError::config(
                        "agent.deadline",
                        "needs on_missing = \"skip-edge\"; set that, or leave deadline out",
                    ));
                }
                false => OnMissing::Wait,
                true => OnMissing::SkipEdge { deadline: deadline.unwrap_or(Duration::from_secs(30)) },
            };
        if keep > 0 && on_missing != OnMissing::Wait {
            let problem = "conflicts with on_missing = \"skip-edge\", because an old copy does not know which edges were skipped since; leave one of the two out";
            return Err(LabError::config("agent.keep", problem));
        }
        let transports = [("quic", TransportSpec::Quic), ("tcp", TransportSpec::Tcp)];
        let transport = reader.optional_choice("transport", &transports)?;
        let relay = reader.text("relay", "the URL of a relay")?.map(str::to_owned);
        if transport == Some(TransportSpec::Tcp) && relay.is_some() {
            let problem =
                "conflicts with transport = \"tcp\", because a relay carries QUIC; leave one of the two out";
            return Err(LabError::config("agent.relay", problem));
        }
        let page_token = reader.text("page_token", "the path of a file with a token")?.map(PathBuf::from);
        let page = address(reader, "page")?;
        if page.is_some() && page_token.is_none() {
            let problem = "needs agent.page_token, a file with the token of the page (mile keygen --token FILE writes one); add it, or leave page out";
            return Err(LabError::config("agent.page", problem));
        }
        Ok(Self {
            page_token,
            page,
            checkpoint_every,
            keep,
            outbox,
            message_range,
            on_missing,
            transport,
            relay,
            timeout: seconds("timeout")?,
            linger: seconds("linger")?.unwrap_or(Duration::from_secs(600)),
            metrics: address(reader, "metrics")?,
            stop: StopRule::read(reader)?,
            snapshots: reader.flag("snapshots")?.unwrap_or(false),
            gossip: reader.flag("gossip")?.unwrap_or(true),
        })
    }

    /// The settings as entries of a section `[agent]`.
    pub(crate) fn to_table(&self) -> Table {
        let seconds = |time: Duration| Value::Float(time.as_secs_f64());
        let mut table = Table::new();
        let mut put = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
        self.checkpoint_every
            .into_iter()
            .for_each(|rounds| put("checkpoint_every", Value::Integer(rounds as i64)));
        put("keep", Value::Integer(self.keep as i64));
        self.outbox.into_iter().for_each(|rounds| put("outbox", Value::Integer(rounds as i64)));
        if self.message_range != DIVERGED {
            put("message_range", Value::Float(self.message_range));
        }
        match self.on_missing {
            OnMissing::Wait => put("on_missing", "wait".into()),
            OnMissing::SkipEdge { deadline } => {
                put("on_missing", "skip-edge".into());
                put("deadline", seconds(deadline));
            }
        }
        self.timeout.into_iter().for_each(|time| put("timeout", seconds(time)));
        put("linger", seconds(self.linger));
        self.transport.into_iter().for_each(|by| put("transport", by.name().into()));
        self.relay.iter().for_each(|url| put("relay", url.as_str().into()));
        self.metrics.iter().for_each(|at| put("metrics", at.to_string().into()));
        self.page_token.iter().for_each(|path| put("page_token", path.display().to_string().into()));
        self.page.into_iter().for_each(|at| put("page", at.to_string().into()));
        put("snapshots", self.snapshots.into());
        if !self.gossip {
            put("gossip", false.into());
        }
        self.stop.into_iter().for_each(|rule| put("stop", rule.to_table().into()));
        table
    }

    /// Gives the experiment the rule by which the agents stop, and checks whether they can agree on it.
    pub fn apply(&self, spec: &mut Spec) -> Result<(), LabError> {
        crate::spec::refuse_pairs_on_a_network(spec)?;
        let key = if self.stop.is_some() { "agent.stop" } else { "stop" };
        spec.stop = self.stop.or(spec.stop);
        if spec.stop.is_some() && !self.gossip {
            let problem = "conflicts with agent.gossip = false, because agents stop by what they gossip; leave one of the two out";
            return Err(LabError::config(key, problem));
        }
        let why = match self.on_missing {
            _ if spec.stop.is_none() => return Ok(()),
            OnMissing::SkipEdge { .. } => "with on_missing = \"skip-edge\"",
            OnMissing::Wait if spec.network.loses_edges() => {
                "with edges that are down at random (network.drop_rate, bursts, absence)"
            }
            OnMissing::Wait if spec.network.time_varying.is_some() => "with network.time_varying",
            OnMissing::Wait
                if spec.events.iter().any(|event| !matches!(event.change, Change::Replace(_))) =>
            {
                let problem = "conflicts with events in which agents leave or join, because the run could stop before them; leave one of the two out";
                return Err(LabError::config(key, problem));
            }
            OnMissing::Wait => return Ok(()),
        };
        let problem = format!(
            "conflicts {why}, because agents that miss a message could stop at different rounds; leave one of the two out"
        );
        Err(LabError::config(key, problem))
    }
}

impl TransportSpec {
    /// Its name in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tcp => "tcp",
        }
    }
}

impl AgentSpec {
    /// Reads an agent's file: an experiment with a section `[agent]`. Relative paths in it are relative to the file's
    /// folder.
    pub fn load(path: &Path, kinds: &Kinds, catalogue: &Catalogue) -> Result<(Spec, Self), LabError> {
        let name = path.display().to_string();
        let text = crate::reading::text(path).map_err(|source| LabError::Directory {
            path: path.to_owned(),
            problem: format!("cannot read the agent's file: {source}"),
        })?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Self::parse(&text, &folder, kinds, catalogue).map_err(|error| error.in_file(&name))
    }

    /// Reads the text of an agent's file; relative paths in it are relative to `folder`.
    pub fn parse(
        text: &str,
        folder: &Path,
        kinds: &Kinds,
        catalogue: &Catalogue,
    ) -> Result<(Spec, Self), LabError> {
        let table = parse_table(text, &[])?;
        let mut spec = Spec::read_with(&table, folder, kinds, catalogue)?;
        let expected = "a section [agent], as mile swarm EXPERIMENT.toml --emit writes it";
        let agent = section(&table)?;
        let agent =
            agent.ok_or_else(|| LabError::config("agent", format!("missing; expected {expected}")))?;
        let config = Self::read(&agent, &spec.membership()?, folder)?;
        config.settings.apply(&mut spec)?;
        Ok((spec, config))
    }

    fn read(table: &Table, membership: &Membership, folder: &Path) -> Result<Self, LabError> {
        let reader = Section::new("agent", table);
        let expected = format!("a whole number below {}, the number of agents", membership.numbers());
        let id = reader.whole("id", &expected)?.ok_or_else(|| reader.missing("id", &expected))?;
        if id >= membership.numbers() as u64 {
            return Err(LabError::expected("agent.id", expected, id));
        }
        let id = id as usize;
        let key = reader.text("key", "the path of a key file")?.unwrap_or("key");
        let at = reader.text("folder", "a folder")?.unwrap_or(".");
        let anywhere = || SocketAddr::from(([0, 0, 0, 0], 7100));
        let listen = address(&reader, "listen")?.unwrap_or_else(anywhere);
        let mut settings = AgentSettings::read(&reader)?;
        let token = settings.page_token.iter_mut();
        token.for_each(|path| *path = resolve(folder, &path.to_string_lossy()));
        let edges = membership.edges_of(id);
        let neighbours = neighbours(&reader, &edges, id)?;
        reader.finish()?;
        all_listed(&neighbours, &edges, id)?;
        let (key, folder) = (resolve(folder, key), resolve(folder, at));
        Ok(Self { id, key, listen, folder, settings, neighbours })
    }

    /// The agent's file: the experiment with this section `[agent]`.
    pub fn to_table(&self, spec: &Spec) -> Table {
        let mut agent = Table::new();
        agent.insert("id".into(), Value::Integer(self.id as i64));
        agent.insert("key".into(), self.key.display().to_string().into());
        agent.insert("listen".into(), self.listen.to_string().into());
        agent.insert("folder".into(), self.folder.display().to_string().into());
        agent.extend(self.settings.to_table());
        // The experiment has it.
        agent.remove("stop");
        let neighbour = |(id, neighbour): (&usize, &NeighbourSpec)| {
            let addresses = neighbour.addresses.iter().map(|address| address.as_str().into()).collect();
            Value::Table(Table::from_iter([
                ("id".to_owned(), Value::Integer(*id as i64)),
                ("key".to_owned(), neighbour.key.as_str().into()),
                ("weight".to_owned(), neighbour.edge.weight.into()),
                ("addresses".to_owned(), Value::Array(addresses)),
            ]))
        };
        agent.insert("neighbour".into(), self.neighbours.iter().map(neighbour).collect::<Vec<_>>().into());
        let mut table = spec.to_table();
        table.insert("agent".into(), Value::Table(agent));
        table
    }
}

fn section(table: &Table) -> Result<Option<Table>, LabError> {
    match table.get("agent") {
        None => Ok(None),
        Some(Value::Table(agent)) => Ok(Some(agent.clone())),
        Some(other) => Err(LabError::expected("agent", "a section [agent]", shown(other))),
    }
}

fn address(reader: &Section, key: &'static str) -> Result<Option<SocketAddr>, LabError> {
    let expected = "an address of this machine with a port, such as \"0.0.0.0:7100\"";
    let Some(text) = reader.text(key, expected)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| reader.refuse(key, &Value::from(text), expected))
}
