//! `[time]`: how long computing and communicating would take elsewhere. Files are read at once: a spec has their contents.

use std::collections::BTreeMap;
use std::path::Path;

use mile::membership::{Epoch, Membership};
use mile::time::{InvalidTime, Law, Line, TimeModel};
use toml::{Table, Value};

use crate::error::{DataFileError, FilePlace, LabError};
use crate::refused::of_time;
use crate::section::{Section, as_number, as_whole, resolve};

const STEP: &str = "seconds, at least 0: a number, { from, to }, { least, mean } or { trace }, a list of these by agent, or the path of a file";
const LATENCY: &str = "seconds, at least 0: a number, { from, to }, { least, mean } or { trace }";
const BANDWIDTH: &str = "bytes per second, more than 0: a number, { from, to }, { least, mean } or { trace }";
const EDGES: &str = "lines such as [0, 1, 0.02, 1e6] with two agents, seconds and bytes per second, or the path of a file with such lines";

/// How long a run would take on other computers and lines.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimeSpec {
    /// Seconds of a local step, once or for each agent.
    pub step: Vec<Law>,
    /// Seconds from the last byte sent to the last byte received.
    pub latency: Law,
    /// Bytes per second; none if sending takes no time.
    pub bandwidth: Option<Law>,
    /// Edges that differ: two agents, latency and bandwidth. Several for one edge are a trace of it.
    pub edges: Vec<(usize, usize, f64, f64)>,
}

impl TimeSpec {
    /// Reads the contents of a section `[time]`; relative paths in it are relative to `folder`.
    pub(super) fn read(table: &Table, folder: &Path) -> Result<Self, LabError> {
        let reader = Section::new("time", table);
        let law = |key: &'static str, expected: &str| -> Result<Option<Law>, LabError> {
            let read = |value| law_of(value).ok_or_else(|| reader.refuse(key, value, expected));
            reader.value(key).map(read).transpose()
        };
        let step = match reader.value("step") {
            None => vec![Law::Constant(0.0)],
            Some(Value::String(path)) => step_file(&resolve(folder, path))?,
            Some(value) => {
                let laws = match value {
                    Value::Array(list) if !list.is_empty() => list.iter().map(law_of).collect(),
                    one => law_of(one).map(|law| vec![law]),
                };
                laws.ok_or_else(|| reader.refuse("step", value, STEP))?
            }
        };
        let latency = law("latency", LATENCY)?.unwrap_or(Law::Constant(0.0));
        let bandwidth = law("bandwidth", BANDWIDTH)?;
        let edges = match reader.value("edges") {
            None => Vec::new(),
            Some(Value::String(path)) => edge_file(&resolve(folder, path))?,
            Some(value) => {
                let lines = value.as_array().and_then(|list| list.iter().map(edge_of).collect());
                lines.ok_or_else(|| reader.refuse("edges", value, EDGES))?
            }
        };
        reader.finish()?;
        let spec = Self { step, latency, bandwidth, edges };
        spec.model()?;
        Ok(spec)
    }

    /// The contents of the section.
    pub(crate) fn to_table(&self) -> Table {
        let step = match &self.step[..] {
            [one] => value_of(one),
            several => Value::Array(several.iter().map(value_of).collect()),
        };
        let edge = |&(i, j, latency, bandwidth): &(usize, usize, f64, f64)| {
            let agents = [i, j].map(|agent| super::whole(agent as u64));
            Value::Array(agents.into_iter().chain([latency.into(), bandwidth.into()]).collect())
        };
        let edges = (!self.edges.is_empty()).then(|| Value::Array(self.edges.iter().map(edge).collect()));
        super::table([
            ("step", Some(step)),
            ("latency", Some(value_of(&self.latency))),
            ("bandwidth", self.bandwidth.as_ref().map(value_of)),
            ("edges", edges),
        ])
    }

    /// The model for the agents of a membership; an error if it does not fit them.
    pub(crate) fn build(&self, membership: &Membership) -> Result<TimeModel, LabError> {
        let (numbers, given) = (membership.numbers(), self.step.len());
        if given != 1 && given != numbers {
            let expected = format!("1 value, or {numbers}, one for each agent");
            return Err(LabError::expected("time.step", expected, format!("{given} values")));
        }
        let joins = |epoch: &Epoch, i, j| epoch.neighbours(i).any(|(neighbour, _)| neighbour == j);
        for (i, j, ..) in &self.edges {
            if !membership.epochs().iter().any(|epoch| joins(epoch, *i, *j)) {
                let expected = "edges of the network";
                return Err(LabError::expected("time.edges", expected, format!("[{i}, {j}]")));
            }
        }
        self.model()
    }

    fn model(&self) -> Result<TimeModel, LabError> {
        let bandwidth = self.bandwidth.clone().unwrap_or(Law::Constant(f64::INFINITY));
        let line = Line { latency: self.latency.clone(), bandwidth };
        let mut model = TimeModel::new(self.step.clone(), line).map_err(|error| refusal("", error))?;
        let mut lines: BTreeMap<(usize, usize), (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for (i, j, latency, bandwidth) in &self.edges {
            let (latencies, bandwidths) = lines.entry((*i, *j)).or_default();
            latencies.push(*latency);
            bandwidths.push(*bandwidth);
        }
        for (&(i, j), (latencies, bandwidths)) in &lines {
            let line = Line { latency: law_in_turn(latencies), bandwidth: law_in_turn(bandwidths) };
            let in_edges = |error| refusal(&format!("edges: [{i}, {j}], "), error);
            model = model.with_line(i, j, line.clone()).map_err(in_edges)?;
            // An edge that is given once has this line in both directions.
            if !lines.contains_key(&(j, i)) {
                model = model.with_line(j, i, line).map_err(in_edges)?;
            }
        }
        Ok(model)
    }
}

fn refusal(place: &str, error: InvalidTime) -> LabError {
    match (place, error) {
        ("", error) => of_time(error),
        (place, error) => LabError::config("time.edges", format!("{place}{error}")),
    }
}

fn law_in_turn(values: &[f64]) -> Law {
    if let [one] = values { Law::Constant(*one) } else { Law::Trace(values.to_vec()) }
}

fn law_of(value: &Value) -> Option<Law> {
    let Value::Table(table) = value else { return as_number(value).map(Law::Constant) };
    let number = |key: &str| table.get(key).and_then(as_number);
    let keys: Vec<&str> = table.keys().map(String::as_str).collect();
    match keys[..] {
        ["from", "to"] => Some(Law::Uniform { from: number("from")?, to: number("to")? }),
        ["least", "mean"] => Some(Law::Exponential { least: number("least")?, mean: number("mean")? }),
        ["trace"] => table["trace"].as_array()?.iter().map(as_number).collect::<Option<_>>().map(Law::Trace),
        _ => None,
    }
}

fn value_of(law: &Law) -> Value {
    let table = |entries: [(&str, f64); 2]| {
        Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect())
    };
    match law {
        Law::Constant(value) => (*value).into(),
        Law::Uniform { from, to } => table([("from", *from), ("to", *to)]),
        Law::Exponential { least, mean } => table([("least", *least), ("mean", *mean)]),
        Law::Trace(values) => {
            let values = values.iter().map(|value| Value::from(*value)).collect();
            Value::Table(Table::from_iter([("trace".to_owned(), Value::Array(values))]))
        }
    }
}

fn edge_of(value: &Value) -> Option<(usize, usize, f64, f64)> {
    let [i, j, latency, bandwidth] = value.as_array()?.as_slice() else { return None };
    Some((as_whole(i)? as usize, as_whole(j)? as usize, as_number(latency)?, as_number(bandwidth)?))
}

/// The lines of a file with a fixed number of numbers on each; `#` begins a comment.
fn lines<const COUNT: usize>(path: &Path, expected: &str) -> Result<Vec<(usize, [f64; COUNT])>, LabError> {
    let bad = |place, problem: String| bad_file(path, place, problem);
    let text = crate::reading::text(path).map_err(|error| bad(None, format!("cannot read it: {error}")))?;
    let mut found = Vec::new();
    for (k, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let numbers: Option<Vec<f64>> = content.split_whitespace().map(|word| word.parse().ok()).collect();
        let numbers = numbers.and_then(|numbers| <[f64; COUNT]>::try_from(numbers).ok());
        let problem = || bad(Some(k), format!("expected {expected}, got \"{content}\""));
        found.push((k, numbers.ok_or_else(problem)?));
    }
    if found.is_empty() {
        Err(bad(None, format!("expected lines with {expected}, got none")))
    } else {
        Ok(found)
    }
}

/// The number of an agent that is written as a number of any kind.
fn agent_of(path: &Path, line: usize, number: f64) -> Result<usize, LabError> {
    if number >= 0.0 && number.fract() == 0.0 && number < 1e9 {
        return Ok(number as usize);
    }
    Err(bad_file(path, Some(line), format!("expected the number of an agent, got {number}")))
}

/// An error in a file, on a line counted from 0 or in all of it.
fn bad_file(path: &Path, line: Option<usize>, problem: String) -> LabError {
    let place = line.map(|line| FilePlace::Line(line as u64 + 1));
    DataFileError { file: path.to_owned(), place, column: None, problem }.into()
}

/// A file with the seconds of local steps: those of one agent are its steps one after the other.
fn step_file(path: &Path) -> Result<Vec<Law>, LabError> {
    let mut traces: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (line, [agent, seconds]) in lines(path, "an agent and seconds")? {
        traces.entry(agent_of(path, line, agent)?).or_default().push(seconds);
    }
    if let Some((missing, _)) = traces.keys().enumerate().find(|(k, agent)| k != *agent) {
        return Err(bad_file(
            path,
            None,
            format!("expected lines of every agent, got none of agent {missing}"),
        ));
    }
    Ok(traces.values().map(|values| law_in_turn(values)).collect())
}

fn edge_file(path: &Path) -> Result<Vec<(usize, usize, f64, f64)>, LabError> {
    let expected = "two agents, seconds, and bytes per second";
    let edge = |(line, [i, j, latency, bandwidth]): (usize, [f64; 4])| {
        Ok((agent_of(path, line, i)?, agent_of(path, line, j)?, latency, bandwidth))
    };
    lines(path, expected)?.into_iter().map(edge).collect()
}
