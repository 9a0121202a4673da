//! Accepting a newcomer: its answer becomes an event in the files of all agents, and a neighbour in those of its neighbours.

use std::path::{Path, PathBuf};

use mile::membership::{Change, Event};
use mile_lab::error::LabError;
use mile_lab::spec::{AgentSpec, event_table};
use mile_lab::store::write_file;
use mile_net::keys::PublicKey;
use toml::{Table, Value};

use super::letter::Letter;
use super::{Member, members, printable, push};
use crate::{CommandLine, output};

/// What a newcomer answers.
struct Answer {
    run: String,
    event: Event,
    key: PublicKey,
    addresses: Vec<String>,
}

impl Answer {
    fn read(path: &Path) -> Result<Self, LabError> {
        let (table, key) = Letter::Answer.read(path)?;
        let section = table.get(Letter::Answer.name()).and_then(Value::as_table).cloned().unwrap_or_default();
        let missing = |name: &str| LabError::Directory {
            path: path.to_owned(),
            problem: format!(
                "answer.{name}: expected a value, got none or another kind; ask for the answer again"
            ),
        };
        let whole = |name: &str| {
            let number =
                section.get(name).and_then(Value::as_integer).and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| missing(name))
        };
        let list = |name: &str| section.get(name).and_then(Value::as_array).ok_or_else(|| missing(name));
        let neighbours: Option<Vec<usize>> =
            list("neighbours")?.iter().map(|id| usize::try_from(id.as_integer()?).ok()).collect();
        let addresses: Option<Vec<String>> =
            list("addresses")?.iter().map(|address| address.as_str().map(str::to_owned)).collect();
        let run = section.get("run").and_then(Value::as_str).ok_or_else(|| missing("run"))?;
        let change = Change::Join {
            agent: whole("agent")? as usize,
            neighbours: neighbours.ok_or_else(|| missing("neighbours"))?,
        };
        Ok(Self {
            run: run.to_owned(),
            event: Event { round: whole("round")?, change, lost: None },
            key,
            addresses: addresses.ok_or_else(|| missing("addresses"))?,
        })
    }

    fn neighbours(&self) -> &[usize] {
        match &self.event.change {
            Change::Join { neighbours, .. } => neighbours,
            Change::Replace(_) | Change::Leave { .. } => &[],
        }
    }
}

/// Enters an answer into the files of these agents: all of them, or none if it does not fit one of them.
pub(super) fn accept(
    path: &Path,
    expected: Option<&str>,
    folders: &[PathBuf],
    line: &CommandLine,
) -> anyhow::Result<u8> {
    let answer = Answer::read(path)?;
    if let Some(expected) = expected.filter(|expected| *expected != answer.key.to_string()) {
        return Err(
            LabError::expected("--key", format!("the key of the answer, {}", answer.key), expected).into()
        );
    }
    let members = members(folders, line)?;
    let texts: Vec<String> =
        members.iter().map(|member| edited(member, &answer, line)).collect::<Result<_, _>>()?;
    let agent = answer.event.change.agent();
    let mut said =
        format!("agent {agent} joins in round {} with the key {}\n", answer.event.round, answer.key);
    for (member, text) in members.iter().zip(texts) {
        write_file(&member.folder.join("agent.toml"), text.as_bytes())?;
        let what = if answer.neighbours().contains(&member.config.id) {
            "the event and the neighbour"
        } else {
            "the event"
        };
        said += &format!("{}: agent {} has {what}\n", member.folder.display(), member.config.id);
    }
    said += "Enter the answer into the files of all other agents, too; then stop all agents, and start them again.\n";
    output::print(&said)?;
    Ok(0)
}

/// The agent's file with the newcomer in it.
fn edited(member: &Member, answer: &Answer, line: &CommandLine) -> Result<String, LabError> {
    let file = member.folder.join("agent.toml");
    let failed = |problem: String| LabError::Directory { path: file.clone(), problem };
    if member.spec.name != answer.run {
        let runs = (printable(&answer.run), &member.spec.name);
        return Err(failed(format!(
            "the answer is for the run {}, but this agent belongs to {}",
            runs.0, runs.1
        )));
    }
    let me = member.config.id;
    let mut table = member.table()?;
    if !member.spec.events.contains(&answer.event) {
        member.check_round(answer.event.round)?;
        push(&mut table, "event", event_table(&answer.event));
    }
    let agent = answer.event.change.agent();
    let key = answer.key.to_string();
    match member.config.neighbours.get(&agent) {
        Some(known) if known.key != key => {
            return Err(failed(format!(
                "agent {agent} is already listed with the key {}, and the answer has another one; if the new one is right, replace the old one by hand",
                known.key
            )));
        }
        None if answer.neighbours().contains(&me) => {
            let addresses = answer.addresses.iter().map(|address| address.as_str().into()).collect();
            let neighbour = Table::from_iter([
                ("id".to_owned(), Value::Integer(agent as i64)),
                ("key".to_owned(), key.into()),
                ("addresses".to_owned(), Value::Array(addresses)),
            ]);
            let section = table.entry("agent").or_insert_with(|| Value::Table(Table::new()));
            let sections = section.as_table_mut().into_iter();
            sections.for_each(|section| push(section, "neighbour", neighbour.clone()));
        }
        _ => {}
    }
    let text = table.to_string();
    let (spec, config) = AgentSpec::parse(&text, &member.folder, &line.kinds(), line.catalogue())
        .map_err(|error| error.in_file(&file.display().to_string()))?;
    crate::agent::check_event_settings(&spec, &config)?;
    Ok(text)
}
