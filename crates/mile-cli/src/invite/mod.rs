//! `mile invite`: a text with which a new agent joins a run, and accepting the key with which it answers.

mod accept;
pub(crate) mod letter;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use mile::membership::{Change, Edge, Event};
use mile_lab::error::LabError;
use mile_lab::plan::Plan;
use mile_lab::spec::{AgentSettings, AgentSpec, NeighbourSpec, Spec, event_table, is_host_and_port};
use mile_lab::store::write_file;
use mile_net::checkpoint::standing;
use mile_net::keys::{self, PublicKey};
use toml::{Table, Value};

use self::letter::{FORM, Letter};
use crate::agent::check_events;
use crate::experiment_files::ExperimentFiles;
use crate::{CommandLine, output};

/// Most bytes of a file that travels in an invitation.
const ENCLOSED: u64 = 256 << 10;

/// Invites a new agent: writes one text with the experiment, and with the keys and addresses of its neighbours, signed by an agent that
/// takes part. The newcomer opens it with mile join, and sends back an answer, which --accept enters into the agents' files.
#[derive(Args)]
pub(crate) struct InviteArguments {
    /// Folders of agents that take part; the first one signs
    #[arg(value_name = "DIR", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Round from which on the new agent takes part; no agent may have passed it
    #[arg(long, required_unless_present = "accept")]
    round: Option<u64>,
    /// Neighbours of the new agent, among the agents of these folders and their neighbours [default: the agents of these folders]
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    neighbours: Vec<usize>,
    /// Address at which the new agent reaches a neighbour, e.g. 2=south.example.org:7100; may be given several times, and is needed for
    /// agents whose address is in no file here
    #[arg(long, value_name = "ID=HOST:PORT")]
    host: Vec<String>,
    /// File to write; an existing one is never overwritten
    #[arg(long, value_name = "FILE", default_value = "invitation.toml")]
    out: PathBuf,
    /// Enter the answer of a newcomer into the files of these agents: its key, its addresses, and the event with which it joins
    #[arg(long, value_name = "ANSWER", conflicts_with_all = ["round", "neighbours", "host", "out"])]
    accept: Option<PathBuf>,
    /// Accept this public key only (with --accept)
    #[arg(long, value_name = "KEY", requires = "accept")]
    key: Option<String>,
}

pub(crate) fn run(arguments: &InviteArguments, line: &CommandLine) -> anyhow::Result<u8> {
    match (&arguments.accept, arguments.round) {
        (Some(answer), _) => accept::accept(answer, arguments.key.as_deref(), &arguments.folders, line),
        (None, round) => invite(arguments, round.unwrap_or(0), line),
    }
}

/// The agent of a folder.
struct Member {
    folder: PathBuf,
    spec: Spec,
    config: AgentSpec,
}

impl Member {
    fn of(folder: &Path, line: &CommandLine) -> Result<Self, LabError> {
        let (spec, config) = AgentSpec::load(&folder.join("agent.toml"), &line.kinds(), line.catalogue())?;
        Ok(Self { folder: folder.to_owned(), spec, config })
    }

    /// What is in the agent's file.
    fn table(&self) -> Result<Table, LabError> {
        let file = self.folder.join("agent.toml");
        let failed = |problem: String| LabError::Directory { path: file.clone(), problem };
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| failed(format!("cannot read the agent's file: {error}")))?;
        text.parse().map_err(|error| failed(format!("not TOML: {error}")))
    }

    /// The experiment with one more event.
    fn spec_with(&self, event: &Event, line: &CommandLine) -> Result<Spec, LabError> {
        let mut table = self.table()?;
        table.remove("agent");
        push(&mut table, "event", event_table(event));
        let mut spec = Spec::read_with(&table, &self.folder, &line.kinds(), line.catalogue())?;
        self.config.settings.apply(&mut spec)?;
        Ok(spec)
    }

    /// Refuses an event in a round that the agent has passed.
    fn check_round(&self, round: u64) -> Result<(), LabError> {
        let unreadable = |error: mile_net::checkpoint::CheckpointError| LabError::Directory {
            path: self.folder.clone(),
            problem: error.to_string(),
        };
        let stands = standing(&self.folder).map_err(unreadable)?.map_or(0, |mark| mark.round);
        if stands > round {
            let expected =
                format!("a round of at least {stands}, which agent {} has reached", self.config.id);
            return Err(LabError::expected("event.round", expected, round));
        }
        Ok(())
    }
}

fn invite(arguments: &InviteArguments, round: u64, line: &CommandLine) -> anyhow::Result<u8> {
    let members = members(&arguments.folders, line)?;
    let Some(first) = members.first() else {
        return Err(LabError::config("DIR", "give the folder of an agent").into());
    };
    let (spec, joining) = with_event(&arguments.neighbours, round, &members, line)?;
    members.iter().try_for_each(|member| member.check_round(joining.round))?;
    let edges = spec.membership()?.edges_of(joining.agent);
    let relayed = first.config.settings.relay.is_some();
    let listed = Known::of(&members, &arguments.host)?.neighbours(&edges, relayed)?;
    let plan = Plan::for_agent(spec.clone(), first.config.id)?;
    check_events(&plan, &first.config)?;
    let key = keys::read(&first.config.key)?;
    let body = body(&spec, &joining, &first.config, listed, &key.public())?;
    write_new(&arguments.out, &Letter::Invitation.signed(&body, &key))?;
    let Joining { round, agent, neighbours } = &joining;
    output::print(&format!(
        "{}: an invitation for agent {agent}, from round {round} on, with the neighbours {neighbours:?}\n\
         signed by agent {} with the key {}\n\
         The newcomer opens it with mile join; enter its answer into the files of all agents with mile invite DIR --accept ANSWER.\n",
        arguments.out.display(),
        first.config.id,
        key.public()
    ))?;
    Ok(0)
}

/// The agents of these folders, which must be of one run.
fn members(folders: &[PathBuf], line: &CommandLine) -> Result<Vec<Member>, LabError> {
    let members: Vec<Member> =
        folders.iter().map(|folder| Member::of(folder, line)).collect::<Result<_, _>>()?;
    let run = members.first().map(|first| first.spec.name.clone()).unwrap_or_default();
    match members.iter().find(|member| member.spec.name != run) {
        None => Ok(members),
        Some(other) => {
            let problem =
                format!("belongs to the run {}, not to {run}; give folders of one run", other.spec.name);
            Err(LabError::Directory { path: other.folder.clone(), problem })
        }
    }
}

/// What is signed: the file of the new agent, with what the invitation says of itself, and the texts that the experiment needs.
fn body(
    spec: &Spec,
    joining: &Joining,
    inviting: &AgentSpec,
    neighbours: BTreeMap<usize, NeighbourSpec>,
    key: &PublicKey,
) -> Result<String, LabError> {
    let Joining { round, agent, neighbours: ids } = joining;
    let own = AgentSettings { metrics: None, page: None, page_token: None, ..inviting.settings.clone() };
    let config = AgentSpec {
        id: *agent,
        key: "key".into(),
        listen: inviting.listen,
        folder: ".".into(),
        settings: own,
        neighbours,
    };
    let files = ExperimentFiles::of(spec)?;
    let mut table = config.to_table(&files.relative(spec));
    let number = |number: usize| Value::Integer(number as i64);
    let facts = [
        ("form", Value::Integer(FORM)),
        ("run", spec.name.as_str().into()),
        ("agent", number(*agent)),
        ("round", Value::Integer(*round as i64)),
        ("neighbours", Value::Array(ids.iter().map(|id| number(*id)).collect())),
        ("from", number(inviting.id)),
        ("key", key.to_string().into()),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value));
    table.insert(Letter::Invitation.name().into(), Value::Table(Table::from_iter(facts)));
    // Each machine has its own.
    table.get_mut("agent").and_then(Value::as_table_mut).and_then(|own| own.remove("listen"));
    let enclosed = files.enclosed(ENCLOSED)?;
    if !enclosed.is_empty() {
        table.insert("enclosed".into(), Value::Table(enclosed));
    }
    Ok(format!(
        "# An invitation to the run \"{}\", as agent {agent} from round {round} on, signed by agent {}. Open it with\n\
         #     mile join FILE --data YOUR-DATA --host YOUR-ADDRESS:PORT\n\
         {table}",
        printable(&spec.name),
        inviting.id
    ))
}

/// Adds to a list of tables.
fn push(table: &mut Table, key: &str, entry: Table) {
    let list = table.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    list.as_array_mut().into_iter().for_each(|list| list.push(Value::Table(entry.clone())));
}

/// How the newcomer joins.
struct Joining {
    round: u64,
    agent: usize,
    neighbours: Vec<usize>,
}

/// The experiment of the first of these agents with the event with which the newcomer joins, and what it says.
fn with_event(
    neighbours: &[usize],
    round: u64,
    members: &[Member],
    line: &CommandLine,
) -> Result<(Spec, Joining), LabError> {
    let Some(first) = members.first() else {
        return Err(LabError::config("DIR", "give the folder of an agent"));
    };
    let given: BTreeSet<usize> = match neighbours.is_empty() {
        true => members.iter().map(|member| member.config.id).collect(),
        false => neighbours.iter().copied().collect(),
    };
    let (agent, neighbours) = (first.spec.membership()?.numbers(), Vec::from_iter(given));
    let change = Change::Join { agent, neighbours: neighbours.clone() };
    let spec = first.spec_with(&Event { round, change, lost: None }, line)?;
    Ok((spec, Joining { round, agent, neighbours }))
}

/// Keys and addresses of agents, as far as they are in the files here.
struct Known {
    keys: BTreeMap<usize, String>,
    addresses: BTreeMap<usize, BTreeSet<String>>,
}

impl Known {
    fn of(members: &[Member], hosts: &[String]) -> Result<Self, LabError> {
        let (mut keys, mut addresses) = (BTreeMap::new(), BTreeMap::<usize, BTreeSet<String>>::new());
        for Member { folder, config, .. } in members {
            let unusable = |error: keys::KeyError| LabError::Directory {
                path: folder.clone(),
                problem: error.to_string(),
            };
            keys.insert(config.id, keys::read(&config.key).map_err(unusable)?.public().to_string());
            for (id, neighbour) in &config.neighbours {
                keys.entry(*id).or_insert_with(|| neighbour.key.clone());
                addresses.entry(*id).or_default().extend(neighbour.addresses.iter().cloned());
            }
        }
        for text in hosts {
            let parts = text
                .split_once('=')
                .and_then(|(id, address)| Some((id.trim().parse().ok()?, address.trim())));
            let (id, address): (usize, &str) =
                parts.filter(|(_, address)| is_host_and_port(address)).ok_or_else(|| {
                    LabError::expected("--host", "ID=HOST:PORT, such as 0=node0.example.org:7100", text)
                })?;
            // It takes the place of those in the files.
            addresses.insert(id, BTreeSet::from([address.to_owned()]));
        }
        Ok(Self { keys, addresses })
    }

    /// The neighbours of the newcomer.
    fn neighbours(
        &self,
        edges: &BTreeMap<usize, Edge>,
        relayed: bool,
    ) -> Result<BTreeMap<usize, NeighbourSpec>, LabError> {
        let neighbour = |(id, edge): (&usize, &Edge)| {
            let unknown = || {
                let problem = format!(
                    "no file here has the key of agent {id}; give its folder or that of one of its neighbours too, or choose other neighbours"
                );
                LabError::config("--neighbours", problem)
            };
            let key = self.keys.get(id).cloned().ok_or_else(unknown)?;
            let addresses: Vec<String> =
                self.addresses.get(id).map(|all| all.iter().cloned().collect()).unwrap_or_default();
            if addresses.is_empty() && !relayed {
                eprintln!(
                    "note: no address of agent {id} is known here, so the newcomer must have one (mile join --host); or add --host {id}=HOST:PORT"
                );
            }
            Ok((*id, NeighbourSpec { key, edge: edge.clone(), addresses }))
        };
        edges.iter().map(neighbour).collect()
    }
}

/// Writes a text to a file that does not exist yet.
fn write_new(path: &Path, text: &str) -> Result<(), LabError> {
    if path.exists() {
        let problem = "already exists, and is not overwritten; choose another name with --out, or remove it";
        return Err(LabError::Directory { path: path.to_owned(), problem: problem.into() });
    }
    write_file(path, text.as_bytes())
}

/// A text without characters that end a line or change what a terminal shows.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
