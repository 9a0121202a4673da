//! `mile join`: opening an invitation. It becomes the folder of an agent, with a key made here, and an answer.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use mile_lab::error::LabError;
use mile_lab::own_data::check_own_data;
use mile_lab::plan::Plan;
use mile_lab::spec::{AgentSpec, Spec, is_host_and_port};
use mile_lab::store::write_file;
use mile_net::keys::{self, SecretKey};
use toml::{Table, Value};

use crate::agent::{check_events, check_stop};
use crate::experiment_files::ExperimentFiles;
use crate::invite::letter::{FORM, Letter};
use crate::invite::printable;
use crate::{CommandLine, output};

/// Opens an invitation that mile invite has written: makes the folder of the new agent, with its own key, checks its data, and writes
/// the answer to be sent back. When it has been accepted, start the agent with mile agent.
#[derive(Args)]
pub(crate) struct JoinArguments {
    /// The invitation
    #[arg(value_name = "INVITATION.toml")]
    invitation: PathBuf,
    /// Your data: a file, or a folder with the files that the experiment names; may be given several times. They are copied
    #[arg(long, value_name = "PATH")]
    data: Vec<PathBuf>,
    /// Folder of the new agent [default: agent-ID]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Address at which its neighbours reach the new agent, e.g. west.example.org:7100; without it, it connects to them
    #[arg(long, value_name = "HOST:PORT")]
    host: Option<String>,
    /// Address on which it listens [default: 0.0.0.0 with the port of --host, or 7100]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Open the invitation only if it is signed with this public key, which you know from elsewhere
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

pub(crate) fn run(arguments: &JoinArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let (mut table, signer) = Letter::Invitation.read(&arguments.invitation)?;
    if let Some(expected) = arguments.key.as_ref().filter(|expected| **expected != signer.to_string()) {
        let is = format!("the key with which the invitation is signed, {signer}");
        return Err(LabError::expected("--key", is, expected).into());
    }
    let mut section = |name: &str| match table.remove(name) {
        Some(Value::Table(section)) => section,
        _ => Table::new(),
    };
    let (facts, enclosed) = (section(Letter::Invitation.name()), section("enclosed"));
    let id = facts.get("agent").and_then(Value::as_integer).and_then(|id| usize::try_from(id).ok());
    let id = id.ok_or_else(|| damaged(&arguments.invitation, "invitation.agent"))?;
    let folder = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("agent-{id}")));
    let file = folder.join("agent.toml");
    if file.exists() {
        let problem = "already has the file of an agent; choose another folder with --out";
        return Err(LabError::Directory { path: folder, problem: problem.into() }.into());
    }
    let address = address(arguments, &table)?;
    localise(&mut table, arguments, id);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    furnish(&folder, id, &table, &enclosed, arguments, line)?;
    let path = folder.join("key");
    let key = if path.exists() { keys::read(&path)? } else { generated(&path)? };
    write_file(&file, table.to_string().as_bytes())?;
    let name = check(&file, id, line).inspect_err(|_| {
        // So that the command can be given again.
        let _ = std::fs::remove_file(&file);
    })?;
    let answer = folder.join("answer.toml");
    write_file(&answer, answer_text(&arguments.invitation, &facts, &key, address.as_deref())?.as_bytes())?;
    output::print(&format!(
        "{}: agent {id} of the run {}, invited by the owner of the key {signer}\n\
         its own key: {}\n\
         Send {} to whoever invited you, and tell them your key in another way. When they have accepted it, run: mile agent {}\n",
        folder.display(),
        printable(&name),
        key.public(),
        answer.display(),
        file.display()
    ))?;
    Ok(0)
}

fn generated(path: &Path) -> anyhow::Result<SecretKey> {
    keys::generate(path)?;
    Ok(keys::read(path)?)
}

/// Puts the files of the experiment into the folder: those that came with the invitation, and the user's own.
fn furnish(
    folder: &Path,
    id: usize,
    table: &Table,
    enclosed: &Table,
    arguments: &JoinArguments,
    line: &CommandLine,
) -> anyhow::Result<()> {
    // Readers make paths absolute.
    let folder = &std::path::absolute(folder).context("cannot find the folder")?;
    let spec = Spec::read_with(&without_agent(table), folder, &line.kinds(), line.catalogue())?;
    let files = ExperimentFiles::of(&spec)?;
    files.check_within(folder)?;
    write_enclosed(&files, enclosed, folder)?;
    let missing = files.take_in(id, folder, &arguments.data)?;
    if missing.is_empty() {
        return Ok(());
    }
    let got = if arguments.data.is_empty() { "none" } else { "others" };
    let expected =
        format!("the files of this agent and of the experiment: {}", printable(&missing.join(", ")));
    Err(LabError::expected("--data", expected, got).into())
}

fn damaged(path: &Path, key: &str) -> LabError {
    let problem = format!("{key}: expected a value, got none or another kind; ask for the invitation again");
    LabError::Directory { path: path.to_owned(), problem }
}

/// The address of the new agent; one is needed if a neighbour has none, unless there is a relay.
fn address(arguments: &JoinArguments, table: &Table) -> Result<Option<String>, LabError> {
    if let Some(host) = &arguments.host {
        if !is_host_and_port(host) {
            return Err(LabError::expected("--host", "HOST:PORT, such as west.example.org:7100", host));
        }
        return Ok(Some(host.clone()));
    }
    let agent = table.get("agent").and_then(Value::as_table);
    let neighbours = agent.and_then(|agent| agent.get("neighbour")).and_then(Value::as_array);
    let lonely =
        |neighbour: &&Value| neighbour.get("addresses").and_then(Value::as_array).is_none_or(Vec::is_empty);
    let relayed = agent.is_some_and(|agent| agent.contains_key("relay"));
    match neighbours.into_iter().flatten().find(lonely).filter(|_| !relayed) {
        Some(neighbour) => {
            let id = neighbour.get("id").map(ToString::to_string).unwrap_or_default();
            let problem = format!(
                "expected an address at which agent {id} reaches the new agent, because the invitation has no address of agent {id}; add --host HOST:PORT"
            );
            Err(LabError::config("--host", problem))
        }
        None => Ok(None),
    }
}

/// What an agent's file says of its own machine.
fn localise(table: &mut Table, arguments: &JoinArguments, id: usize) {
    let port = arguments.host.as_ref().and_then(|host| host.rsplit_once(':')?.1.parse().ok()).unwrap_or(7100);
    let listen = arguments.listen.unwrap_or(SocketAddr::from(([0, 0, 0, 0], port)));
    let agent = table.entry("agent").or_insert_with(|| Value::Table(Table::new()));
    let Some(agent) = agent.as_table_mut() else { return };
    for key in ["metrics", "page", "page_token"] {
        agent.remove(key);
    }
    agent.insert("id".into(), Value::Integer(id as i64));
    agent.insert("key".into(), "key".into());
    agent.insert("folder".into(), ".".into());
    agent.insert("listen".into(), listen.to_string().into());
}

fn without_agent(table: &Table) -> Table {
    let mut table = table.clone();
    table.remove("agent");
    table
}

/// Writes what came with the invitation, as far as the experiment names it.
fn write_enclosed(files: &ExperimentFiles, enclosed: &Table, folder: &Path) -> Result<(), LabError> {
    for (name, text) in enclosed {
        let path = folder.join(name);
        match text.as_str().filter(|_| files.may_enclose(&path)) {
            Some(text) => write_file(&path, text.as_bytes())?,
            None => {
                let problem =
                    format!("names no file of the experiment: {}; do not trust it", printable(name));
                return Err(LabError::config("enclosed", problem));
            }
        }
    }
    Ok(())
}

/// Checks all that an agent checks when it starts. Returns the name of the run.
fn check(file: &Path, id: usize, line: &CommandLine) -> Result<String, LabError> {
    let name = file.display().to_string();
    let (spec, config) = AgentSpec::load(file, &line.kinds(), line.catalogue())?;
    let plan = Plan::for_agent(spec, id).map_err(|error| error.in_file(&name))?;
    check_stop(&plan).map_err(|error| error.in_file(&name))?;
    check_events(&plan, &config).map_err(|error| error.in_file(&name))?;
    check_own_data(&plan, id).map_err(|error| error.in_file(&name))?;
    Ok(plan.spec.name.clone())
}

fn answer_text(
    invitation: &Path,
    facts: &Table,
    key: &SecretKey,
    address: Option<&str>,
) -> Result<String, LabError> {
    let mut answer = Table::new();
    for name in ["run", "agent", "round", "neighbours"] {
        let value = facts.get(name).cloned();
        answer.insert(name.into(), value.ok_or_else(|| damaged(invitation, name))?);
    }
    let addresses = address.into_iter().map(Value::from).collect();
    answer.insert("form".into(), Value::Integer(FORM));
    answer.insert("key".into(), key.public().to_string().into());
    answer.insert("addresses".into(), Value::Array(addresses));
    let table = Table::from_iter([(Letter::Answer.name().to_owned(), Value::Table(answer))]);
    let body =
        format!("# The answer to an invitation. Enter it with: mile invite DIR --accept FILE\n{table}");
    Ok(Letter::Answer.signed(&body, key))
}
