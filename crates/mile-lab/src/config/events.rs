//! `[[event]]`: what happens to agents during a run.

use mile::run::Replacement;
use toml::{Table, Value};

use crate::error::LabError;
use crate::section::Section;

/// Reads the sections `[[event]]`.
pub(super) fn read(top: &Section, agents: usize) -> Result<Vec<Replacement>, LabError> {
    let takes = "sections [[event]], such as round = 100 and replace = 3";
    let Some(value) = top.value("event") else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| top.refuse("event", value, takes))?;
    let (mut events, mut resolved): (Vec<Replacement>, Vec<Value>) = (Vec::new(), Vec::new());
    for (k, value) in list.iter().enumerate() {
        let table: &Table = value.as_table().ok_or_else(|| top.refuse("event", value, takes))?;
        let reader = Section::new(format!("event[{k}]"), table);
        let least = events.last().map_or(1, |before| before.round + 1);
        let takes = format!("a whole number of rounds from {least}: events are in increasing round");
        let round = reader.whole("round", &takes)?.ok_or_else(|| reader.missing("round", &takes))?;
        let bad = |key: &str, got: u64, takes: &str| {
            LabError::config(format!("event[{k}].{key}"), format!("got {got}, takes {takes}"))
        };
        if round < least {
            return Err(bad("round", round, &takes));
        }
        let takes = format!("the number of an agent, below network.agents = {agents}");
        let agent = reader.whole("replace", &takes)?.ok_or_else(|| reader.missing("replace", &takes))?;
        if agent >= agents as u64 {
            return Err(bad("replace", agent, &takes));
        }
        let takes = "a whole number of rounds, at most that of the event";
        let lost = reader.whole("lost", takes)?;
        if let Some(lost) = lost.filter(|lost| *lost > round) {
            return Err(bad("lost", lost, takes));
        }
        for (key, number) in [("round", Some(round)), ("replace", Some(agent)), ("lost", lost)] {
            number.into_iter().for_each(|number| reader.keep(key, number as i64));
        }
        events.push(Replacement { round, agent: agent as usize, lost });
        resolved.push(Value::Table(reader.finish()?));
    }
    top.keep("event", Value::Array(resolved));
    Ok(events)
}
