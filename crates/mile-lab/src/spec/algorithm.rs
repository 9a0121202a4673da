//! `[[algorithm]]`: a method, its step size and its parameters.

use std::path::Path;
use std::sync::Arc;

use mile::compression::Compression;
use mile::methods::OuterMomentum;
use mile::methods::catalogue::{
    self, Catalogue, Entry, Parameter, ParameterKind, ParameterValue, Parameters,
};
use mile::schedule::{Decay, Schedule, ScheduleChange, Weight};
use mile_theory::weights::WeightChoice;
use toml::{Table, Value};

use super::{exchange, local_steps, method, whole};
use crate::error::LabError;
use crate::objectives::PythonFunction;
use crate::section::{Section, as_number, as_whole, shown};

/// The most updates in a round.
const MOST_STEPS: f64 = 1e6;

/// One algorithm of an experiment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AlgorithmSpec {
    /// The method.
    pub entry: Entry,
    /// The class in a Python file that makes it, if it is not known by its name.
    pub factory: Option<PythonFunction>,
    /// Its label in tables, figures and file names.
    pub label: String,
    /// Its step size schedule. The step size in it has no meaning if a plan chooses it.
    pub schedule: Schedule,
    /// Whether a plan chooses its step size.
    pub auto_step_size: bool,
    /// Its parameters, except for xi and gamma.
    pub parameters: Parameters,
    /// MILE's weight xi of the correction.
    pub xi: Option<WeightChoice>,
    /// MILE's weight gamma of the mixing.
    pub gamma: Option<WeightChoice>,
}

impl AlgorithmSpec {
    pub(super) fn read_all(
        top: &Section,
        folder: &Path,
        catalogue: &Catalogue,
        rounds: u64,
    ) -> Result<Vec<Self>, LabError> {
        let expected = "at least one section [[algorithm]]";
        let value = top.value("algorithm").ok_or_else(|| top.missing("algorithm", expected))?;
        if value.is_table() {
            return Err(LabError::expected(
                "algorithm",
                expected,
                "[algorithm]; write two brackets on each side",
            ));
        }
        let list = value.as_array().filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| top.refuse("algorithm", value, expected))?;
        let mut algorithms: Vec<Self> = Vec::new();
        for (k, value) in list.iter().enumerate() {
            let table = value.as_table().ok_or_else(|| top.refuse("algorithm", value, expected))?;
            let section = Section::new(format!("algorithm[{k}]"), table);
            let algorithm = Self::read(section, folder, catalogue, rounds)?;
            let twin = |other: &Self| other.file_name() == algorithm.file_name();
            if let Some(other) = algorithms.iter().position(twin) {
                let problem = format!(
                    "\"{}\" is also the label of algorithm[{other}]; give each its own label",
                    algorithm.label
                );
                return Err(LabError::config(format!("algorithm[{k}].label"), problem));
            }
            algorithms.push(algorithm);
        }
        Ok(algorithms)
    }

    fn read(reader: Section, folder: &Path, catalogue: &Catalogue, rounds: u64) -> Result<Self, LabError> {
        let (entry, factory) = method::read(&reader, folder, catalogue)?;
        let label = reader.text("label", "a name")?.unwrap_or(&entry.name).to_owned();
        let expected = "a positive number, or \"auto\"";
        let value =
            reader.value_or("step_size", &["lr"])?.ok_or_else(|| reader.missing("step_size", expected))?;
        let auto_step_size = value.as_str() == Some("auto");
        let step_size = match auto_step_size {
            true => 1.0,
            false => as_number(value).ok_or_else(|| reader.refuse("step_size", value, expected))?,
        };
        let mut schedule = schedule(&reader, step_size, rounds)?;
        schedule.changes = changes(&reader, rounds)?;
        schedule.validate().map_err(|error| {
            LabError::expected(
                reader.path("change"),
                format!("{} to be {}", error.key, error.expected),
                error.got,
            )
        })?;
        let (parameters, xi, gamma) = parameters(&reader, &entry)?;
        let key = if parameters.number("probability").is_some() { "probability" } else { "local_steps" };
        let key = reader.path(key);
        reader.finish()?;
        let algorithm = Self { entry, factory, label, schedule, auto_step_size, parameters, xi, gamma };
        let steps = algorithm.steps_per_round();
        if steps > MOST_STEPS {
            let expected =
                format!("at most {MOST_STEPS} steps in a round; nothing is sent or recorded before its end");
            return Err(LabError::expected(key, expected, steps));
        }
        Ok(algorithm)
    }

    /// The contents of the section.
    pub fn to_table(&self) -> Table {
        let Schedule { step_size, warmup, decay, changes, .. } = &self.schedule;
        let step_size = if self.auto_step_size { "auto".into() } else { Value::Float(*step_size) };
        let changes: Vec<Value> = changes.iter().map(|change| change_table(change).into()).collect();
        let head = [
            ("name", Some(Value::from(&*self.entry.name))),
            ("label", Some(self.label.as_str().into())),
            ("step_size", Some(step_size)),
            ("schedule", Some(schedule_table(*warmup, decay).into())),
            ("change", (!changes.is_empty()).then_some(Value::Array(changes))),
        ];
        let weights = [("xi", self.xi.map(weight_value)), ("gamma", self.gamma.map(weight_value))];
        let mut table =
            super::table(head.into_iter().chain(parameter_values(&self.parameters)).chain(weights));
        table.extend(self.factory.iter().flat_map(PythonFunction::to_table));
        table
    }

    /// The expected number of gradients that an agent evaluates in a round, on average over the agents.
    pub fn gradients_per_round(&self) -> f64 {
        match &self.parameters.own_steps {
            Some(own) => own.iter().map(|steps| *steps as f64).sum::<f64>() / own.len() as f64,
            None => self.steps_per_round(),
        }
    }

    /// The expected number of updates in a round, of the agent that makes most.
    pub fn steps_per_round(&self) -> f64 {
        match self.parameters.number("probability") {
            Some(probability) if probability > 0.0 => 1.0 / probability,
            _ => self.parameters.local_steps.unwrap_or(1) as f64,
        }
    }

    /// Takes over the numbers that were chosen for the same algorithm, where it has `"auto"` or `"adaptive"` itself.
    pub(super) fn adopt(&mut self, chosen: &Self) {
        if self.auto_step_size && !chosen.auto_step_size {
            self.schedule.step_size = chosen.schedule.step_size;
            self.auto_step_size = false;
        }
        let is_word = |weight| matches!(weight, Some(WeightChoice::Auto | WeightChoice::Adaptive));
        // If one of the weights is chosen, both are, except for a gamma that is given.
        if is_word(self.xi) || is_word(self.gamma) {
            self.xi = chosen.xi;
            if self.gamma.is_none() || is_word(self.gamma) {
                self.gamma = chosen.gamma;
            }
        }
    }

    /// Replaces words, or missing values, by the weights that a plan has chosen.
    pub(crate) fn settle_weights(&mut self, found: &Parameters) {
        let tau = self.parameters.local_steps.unwrap_or(1);
        if self.xi.and_then(|xi| xi.weight(tau)) != found.xi {
            self.xi = found.xi.map(WeightChoice::from);
        }
        if self.gamma == Some(WeightChoice::Auto)
            || self.gamma.and_then(|gamma| gamma.number(tau)) != found.gamma
        {
            self.gamma = found.gamma.map(WeightChoice::Number);
        }
    }

    /// Whether xi or gamma is `"auto"`.
    pub fn has_auto(&self) -> bool {
        [self.xi, self.gamma].contains(&Some(WeightChoice::Auto))
    }

    /// Whether xi is adaptive.
    pub fn is_adaptive(&self) -> bool {
        matches!(self.xi, Some(WeightChoice::Adaptive | WeightChoice::Changing(Weight::Adaptive(_))))
    }

    /// The label with characters that are not safe in file names replaced.
    pub fn file_name(&self) -> String {
        let safe = |c: char| if c.is_alphanumeric() || "-_.,+= ".contains(c) { c } else { '_' };
        self.label.chars().map(safe).collect()
    }
}

fn schedule(reader: &Section, step_size: f64, rounds: u64) -> Result<Schedule, LabError> {
    let table = match reader.value("schedule") {
        None => Table::new(),
        Some(Value::Table(table)) => table.clone(),
        Some(Value::String(kind)) => Table::from_iter([("kind".to_owned(), Value::from(kind.as_str()))]),
        Some(other) => {
            return Err(reader.refuse(
                "schedule",
                other,
                "a table such as { kind = \"cosine\", warmup = 10 }",
            ));
        }
    };
    let inner = Section::new(reader.path("schedule"), &table);
    let kind = inner.choice("kind", &[("constant", 0), ("step", 1), ("cosine", 2)], Some("constant"))?;
    let expected = "a whole number of rounds";
    let whole = |key: &'static str, default: u64| -> Result<u64, LabError> {
        Ok(inner.whole(key, expected)?.unwrap_or(default))
    };
    let number = |key: &'static str, default: f64| -> Result<f64, LabError> {
        Ok(inner.number(key, "a number in (0, 1]")?.unwrap_or(default))
    };
    let warmup = whole("warmup", 0)?;
    let decay = match kind {
        1 => Decay::Step { every: whole("every", (rounds / 3).max(1))?, factor: number("factor", 0.1)? },
        2 => Decay::Cosine { rounds: whole("rounds", rounds)?, floor: number("floor", 0.01)? },
        _ => Decay::None,
    };
    let schedule = Schedule::constant(step_size).with_warmup(warmup).with_decay(decay);
    schedule.validate().map_err(|error| {
        let key =
            if error.key == "step_size" { "step_size".into() } else { format!("schedule.{}", error.key) };
        LabError::expected(reader.path(&key), error.expected, error.got)
    })?;
    inner.finish()?;
    Ok(schedule)
}

fn schedule_table(warmup: u64, decay: &Decay) -> Table {
    let (kind, [first, second]) = match *decay {
        Decay::None => ("constant", [("every", None), ("factor", None)]),
        Decay::Step { every, factor } => {
            ("step", [("every", Some(whole(every))), ("factor", Some(factor.into()))])
        }
        Decay::Cosine { rounds, floor } => {
            ("cosine", [("rounds", Some(whole(rounds))), ("floor", Some(floor.into()))])
        }
    };
    super::table([("kind", Some(kind.into())), ("warmup", Some(whole(warmup))), first, second])
}

fn change_table(change: &ScheduleChange) -> Table {
    super::table([
        ("round", Some(whole(change.round))),
        ("step_size", Some(change.step_size.into())),
        ("schedule", Some(schedule_table(change.warmup, &change.decay).into())),
    ])
}

/// All parameters but xi and gamma, as they are written.
fn parameter_values(parameters: &Parameters) -> impl Iterator<Item = (&'static str, Option<Value>)> {
    let own = parameters.own.iter().map(|(name, value)| (*name, Some(own_value(*value))));
    let compression = parameters.compression.map(|by| match by {
        Compression::TopK(share) => super::table([("top_k", Some(share.into()))]).into(),
        by => Value::from(by.to_string()),
    });
    let outer = parameters.outer.map(|OuterMomentum { momentum, step_size }| {
        super::table([("momentum", Some(momentum.into())), ("step_size", Some(step_size.into()))]).into()
    });
    let parts = [
        ("momentum", parameters.momentum.map(Value::Float)),
        ("nesterov", parameters.nesterov.map(Value::Boolean)),
        ("outer", outer),
        ("compression", compression),
        ("exchange", exchange::value(parameters)),
    ];
    let own_steps = |own: &Arc<[u64]>| Value::Array(own.iter().copied().map(whole).collect());
    let steps = parameters.own_steps.as_ref().map(own_steps).or(parameters.local_steps.map(whole));
    let steps = [("local_steps", steps)];
    steps.into_iter().chain(own).chain(local_steps::values(&parameters.local)).chain(parts)
}

fn own_value(value: ParameterValue) -> Value {
    match value {
        ParameterValue::Number(number) => number.into(),
        ParameterValue::Whole(number) => whole(number),
        other => other.to_string().into(),
    }
}

fn weight_value(weight: WeightChoice) -> Value {
    match weight {
        WeightChoice::Paper => "paper".into(),
        WeightChoice::Auto => "auto".into(),
        WeightChoice::Adaptive => "adaptive".into(),
        WeightChoice::Number(number) | WeightChoice::Changing(Weight::Constant(number)) => number.into(),
        WeightChoice::Changing(Weight::Adaptive(most)) => {
            super::table([("adaptive", Some(most.into()))]).into()
        }
        WeightChoice::Changing(Weight::Geometric { from, to, rounds }) => super::table([
            ("from", Some(from.into())),
            ("to", Some(to.into())),
            ("rounds", Some(whole(rounds))),
        ])
        .into(),
    }
}

/// Later step sizes: `change = [{ round = 500, step_size = 0.01 }]`.
fn changes(reader: &Section, rounds: u64) -> Result<Vec<ScheduleChange>, LabError> {
    let expected = "a list such as [{ round = 500, step_size = 0.01 }]";
    let Some(value) = reader.value("change") else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| reader.refuse("change", value, expected))?;
    let mut changes = Vec::new();
    for (k, value) in list.iter().enumerate() {
        let table = value.as_table().ok_or_else(|| reader.refuse("change", value, expected))?;
        let inner = Section::new(format!("{}[{k}]", reader.path("change")), table);
        let expected = "a whole number of rounds, at least 1";
        let round = inner.whole("round", expected)?.ok_or_else(|| inner.missing("round", expected))?;
        let expected = "a positive number";
        let step_size =
            inner.number("step_size", expected)?.ok_or_else(|| inner.missing("step_size", expected))?;
        let Schedule { warmup, decay, .. } =
            schedule(&inner, step_size, rounds.saturating_sub(round).max(1))?;
        changes.push(ScheduleChange::new(round, step_size, warmup, decay));
        inner.finish()?;
    }
    Ok(changes)
}

type Weights = (Parameters, Option<WeightChoice>, Option<WeightChoice>);

fn parameters(reader: &Section, entry: &Entry) -> Result<Weights, LabError> {
    let takes = |key: &str| entry.parameters.iter().find(|p| p.name == key).map(|p| p.expected);
    let number = |key: &'static str| match takes(key) {
        Some(expected) => reader.number(key, expected),
        None => Ok(None),
    };
    let (steps, own_steps) = steps(reader, entry)?;
    let (pairs, robust) = exchange::read(reader, entry)?;
    let parameters = Parameters {
        local_steps: steps,
        own_steps,
        own: own_values(reader, entry)?,
        momentum: number("momentum")?,
        nesterov: if takes("nesterov").is_some() { reader.flag("nesterov")? } else { None },
        local: local_steps::read(reader, entry)?,
        outer: if takes("outer").is_some() { outer(reader)? } else { None },
        compression: if takes("compression").is_some() { compression(reader)? } else { None },
        pairs,
        robust,
        ..Parameters::default()
    };
    let weight = |key: &'static str, words: &[(&str, WeightChoice)]| match takes(key) {
        Some(expected) => weight(reader, key, words, expected),
        None => Ok(None),
    };
    let words =
        [("paper", WeightChoice::Paper), ("auto", WeightChoice::Auto), ("adaptive", WeightChoice::Adaptive)];
    let xi = weight("xi", &words)?;
    let auto = [("auto", WeightChoice::Auto)];
    let gamma = weight("gamma", if takes("xi").is_some() { &auto } else { &[] })?;
    if let (Some(value), None, None) =
        (reader.value("gamma").filter(|_| gamma.is_some()), takes("xi"), parameters.compression)
        && takes("compression").is_some()
    {
        let problem = format!("got {}, but applies only with compression; leave it out", shown(value));
        return Err(LabError::config(reader.path("gamma"), problem));
    }
    if let Some(Compression::TopK(_)) = parameters.compression
        && [xi, gamma].contains(&Some(WeightChoice::Auto))
    {
        let problem = "\"auto\" does not support top_k; give xi and gamma as numbers, or leave them out";
        return Err(LabError::config(reader.path("compression"), problem));
    }
    if let (Some(WeightChoice::Changing(_) | WeightChoice::Adaptive), Some(WeightChoice::Auto)) = (xi, gamma)
    {
        let expected =
            "a number in (0, 1] with this xi (or none if xi is adaptive), since \"auto\" would choose both";
        return Err(reader.refuse("gamma", &Value::from("auto"), expected));
    }
    Ok((parameters, xi, gamma))
}

/// The local steps of a round, and those of each agent if they have their own.
type Steps = (Option<u64>, Option<Arc<[u64]>>);

/// `10`, or a list of numbers, one for each agent, of which the largest is the length of a round.
fn steps(reader: &Section, entry: &Entry) -> Result<Steps, LabError> {
    let usual = || entry.has_local_steps().then_some(catalogue::DEFAULT_LOCAL_STEPS);
    let Some(value) = reader.value_or("local_steps", &["tau", "num_local_steps"])? else {
        return Ok((usual(), None));
    };
    let expected = "a whole number of at least 1, or a list of them, one for each agent";
    let refused = || reader.refuse("local_steps", value, expected);
    let Value::Array(list) = value else { return Ok((Some(as_whole(value).ok_or_else(refused)?), None)) };
    let own: Option<Arc<[u64]>> =
        list.iter().map(|steps| as_whole(steps).filter(|steps| *steps > 0)).collect();
    let own = own.filter(|own| !own.is_empty()).ok_or_else(refused)?;
    Ok((own.iter().max().copied(), Some(own)))
}

/// The values of the method's own parameters.
fn own_values(reader: &Section, entry: &Entry) -> Result<Vec<(&'static str, ParameterValue)>, LabError> {
    let mut values = Vec::new();
    for Parameter { name, expected, kind, .. } in entry.parameters {
        let value = match kind {
            ParameterKind::Number => reader.number(name, expected)?.map(ParameterValue::Number),
            ParameterKind::Whole => reader.whole(name, expected)?.map(ParameterValue::Whole),
            ParameterKind::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
                Some(ParameterValue::Word(reader.choice(name, &words, words.first().map(|word| word.0))?))
            }
            _ => None,
        };
        values.extend(value.map(|value| (*name, value)));
    }
    Ok(values)
}

/// `{ momentum = 0.5, step_size = 0.7 }`.
fn outer(reader: &Section) -> Result<Option<OuterMomentum>, LabError> {
    let expected = "a table such as { momentum = 0.5, step_size = 0.7 }";
    let Some(value) = reader.value("outer") else { return Ok(None) };
    let table = value.as_table().filter(|table| !table.is_empty());
    let inner =
        Section::new(reader.path("outer"), table.ok_or_else(|| reader.refuse("outer", value, expected))?);
    let momentum = inner.number("momentum", "a number in [0, 1)")?.unwrap_or(0.0);
    let step_size = inner.number("step_size", "a positive number")?.unwrap_or(1.0);
    inner.finish()?;
    Ok(Some(OuterMomentum { momentum, step_size }))
}

/// `"bf16"`, `"fp16"`, `"8-bit"`, `{ top_k = 0.01 }`, or `"none"`.
fn compression(reader: &Section) -> Result<Option<Compression>, LabError> {
    let expected = "\"none\", \"bf16\", \"fp16\", \"8-bit\", or a table such as { top_k = 0.01 }";
    let Some(value) = reader.value("compression") else { return Ok(None) };
    if value.as_str() == Some("none") {
        return Ok(None);
    }
    let words = [Compression::Bf16, Compression::Fp16, Compression::EightBit];
    match value {
        Value::String(word) if let Some(by) = words.into_iter().find(|by| by.to_string() == *word) => {
            Ok(Some(by))
        }
        Value::Table(table) => {
            let inner = Section::new(reader.path("compression"), table);
            let expected = "a share of the elements in (0, 1)";
            let share = inner.number("top_k", expected)?.ok_or_else(|| inner.missing("top_k", expected))?;
            inner.finish()?;
            Ok(Some(Compression::TopK(share)))
        }
        _ => Err(reader.refuse("compression", value, expected)),
    }
}

fn weight(
    reader: &Section,
    key: &'static str,
    words: &[(&str, WeightChoice)],
    expected: &str,
) -> Result<Option<WeightChoice>, LabError> {
    let Some(value) = reader.value(key) else { return Ok(None) };
    if let (Value::Table(table), "xi") = (value, key) {
        return changing_weight(reader, key, table).map(Some);
    }
    let word = value.as_str().and_then(|word| words.iter().find(|(known, _)| *known == word));
    let weight = word.map(|(_, weight)| *weight).or_else(|| as_number(value).map(WeightChoice::Number));
    weight.map(Some).ok_or_else(|| reader.refuse(key, value, expected))
}

/// A weight that changes from round to round, or is adaptive up to a largest one. Its rounds have no default, so that an extended run
/// keeps its weights.
fn changing_weight(reader: &Section, key: &str, table: &Table) -> Result<WeightChoice, LabError> {
    let inner = Section::new(reader.path(key), table);
    let expected = "a number in (0, 1]";
    if let Some(most) = inner.number("adaptive", expected)? {
        inner.finish()?;
        return Ok(WeightChoice::Changing(Weight::Adaptive(most)));
    }
    let end = |key: &'static str| inner.number(key, expected)?.ok_or_else(|| inner.missing(key, expected));
    let (from, to) = (end("from")?, end("to")?);
    let expected = "a whole number of rounds, at least 1";
    let rounds = inner.whole("rounds", expected)?.ok_or_else(|| inner.missing("rounds", expected))?;
    inner.finish()?;
    Ok(WeightChoice::Changing(Weight::Geometric { from, to, rounds }))
}
