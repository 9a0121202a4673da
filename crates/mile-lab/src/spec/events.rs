//! `[[event]]`: what happens to agents during a run.

use mile::membership::{Change, Event, InvalidEvent, Membership};
use toml::{Table, Value};

use super::Spec;
use super::network::{MixingSource, NetworkSpec};
use crate::error::LabError;
use crate::section::{Section, as_whole};

/// Reads the sections `[[event]]`. Whether they fit the network is checked when it is built ([`membership`]).
pub(super) fn read(top: &Section) -> Result<Vec<Event>, LabError> {
    let expected = "sections [[event]], for instance with round = 100 and leave = 3";
    let Some(value) = top.value("event") else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| top.refuse("event", value, expected))?;
    let mut events = Vec::new();
    for (k, value) in list.iter().enumerate() {
        let table: &Table = value.as_table().ok_or_else(|| top.refuse("event", value, expected))?;
        let reader = Section::new(format!("event[{k}]"), table);
        events.push(event(&reader)?);
        reader.finish()?;
    }
    Ok(events)
}

/// The contents of a section `[[event]]`.
pub fn to_table(event: &Event) -> Table {
    let number = |number: usize| super::whole(number as u64);
    let edge = |&(i, j): &(usize, usize)| Value::Array(vec![number(i), number(j)]);
    let (key, agent, more) = match &event.change {
        Change::Replace(agent) => ("replace", agent, None),
        Change::Leave { agent, edges } => {
            let edges = (!edges.is_empty()).then(|| Value::Array(edges.iter().map(edge).collect()));
            ("leave", agent, edges.map(|edges| ("edges", edges)))
        }
        Change::Join { agent, neighbours } => {
            let neighbours = neighbours.iter().map(|agent| number(*agent)).collect();
            ("join", agent, Some(("neighbours", Value::Array(neighbours))))
        }
    };
    let entries = [("round", Some(super::whole(event.round))), (key, Some(number(*agent)))];
    let more = more.map(|(key, value)| (key, Some(value)));
    super::table(entries.into_iter().chain(more).chain([("lost", event.lost.map(super::whole))]))
}

fn event(reader: &Section) -> Result<Event, LabError> {
    let number = |key: &'static str, expected: &str| reader.whole(key, expected);
    let expected = "a whole number of rounds, at least 1 and increasing";
    let round = number("round", expected)?.ok_or_else(|| reader.missing("round", expected))?;
    let agent = |key: &'static str, expected: &str| -> Result<Option<usize>, LabError> {
        Ok(number(key, expected)?.map(|agent| agent as usize))
    };
    let replace = agent("replace", "the number of an agent")?;
    let leave = agent("leave", "the number of an agent")?;
    let join = agent("join", "the next free agent number, starting at network.agents")?;
    let change = match (replace, leave, join) {
        (Some(agent), None, None) => Change::Replace(agent),
        (None, Some(agent), None) => Change::Leave { agent, edges: edges(reader)? },
        (None, None, Some(agent)) => Change::Join { agent, neighbours: neighbours(reader)? },
        _ => {
            let problem = "expected exactly one of replace, leave and join, with the number of an agent";
            return Err(LabError::config(reader.path("round"), problem));
        }
    };
    let lost = match change {
        Change::Join { .. } => None,
        _ => number("lost", "a whole number of rounds, at most that of the event")?,
    };
    Ok(Event { round, change, lost })
}

/// The edges that are added when an agent leaves.
fn edges(reader: &Section) -> Result<Vec<(usize, usize)>, LabError> {
    let expected = "edges between agents that remain, such as [[2, 4]]";
    let Some(value) = reader.value("edges") else { return Ok(Vec::new()) };
    let edge = |pair: &Value| match pair.as_array()?.as_slice() {
        [i, j] => Some((as_whole(i)? as usize, as_whole(j)? as usize)),
        _ => None,
    };
    let list = value.as_array().and_then(|list| list.iter().map(edge).collect());
    list.ok_or_else(|| reader.refuse("edges", value, expected))
}

/// The neighbours of an agent that joins.
fn neighbours(reader: &Section) -> Result<Vec<usize>, LabError> {
    let expected = "agents taking part in that round, such as [0, 4]";
    let value = reader.value("neighbours").ok_or_else(|| reader.missing("neighbours", expected))?;
    let number = |value: &Value| as_whole(value).map(|id| id as usize);
    let list = value.as_array().and_then(|list| list.iter().map(number).collect());
    list.ok_or_else(|| reader.refuse("neighbours", value, expected))
}

/// How many agents take part at one time or another.
pub(super) fn numbers(network: &NetworkSpec, events: &[Event]) -> usize {
    let joins = events.iter().filter(|event| matches!(event.change, Change::Join { .. }));
    network.agents.saturating_add(joins.count())
}

impl Spec {
    /// Builds the network, and the networks that events turn it into.
    pub fn membership(&self) -> Result<Membership, LabError> {
        let rule = match self.network.mixing {
            MixingSource::Rule(rule) => Some(rule),
            MixingSource::File(_) | MixingSource::Weights(_) | MixingSource::InTurn => None,
        };
        Membership::new(self.network.build()?, rule, &self.events).map_err(invalid)
    }
}

fn invalid(error: InvalidEvent) -> LabError {
    let InvalidEvent { event, key, problem, .. } = error;
    LabError::config(format!("event[{event}].{key}"), problem)
}
