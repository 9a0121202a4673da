//! What `[[algorithm]]` says about exchanges: `exchange`.

use mile::methods::catalogue::{Entry, Parameters};
use mile::robust::Robust;
use toml::{Table, Value};

use super::{table, whole};
use crate::error::LabError;
use crate::section::Section;

/// The word for exchanges of all agents at once, which is the default.
const ROUNDS: &str = "rounds";
/// The word for exchanges of one neighbour with one other.
const PAIRS: &str = "pairs";

/// Whether agents exchange in pairs, and how exchanges are protected, if the method has the key: `"rounds"`, `"pairs"` or
/// `{ robust = "clip", byzantine = 1 }`. A method takes the words that its parameter names.
pub(super) fn read(reader: &Section, entry: &Entry) -> Result<(bool, Option<Robust>), LabError> {
    let parameter = entry.parameters.iter().find(|parameter| parameter.name == "exchange");
    let Some(parameter) = parameter else { return Ok((false, None)) };
    let Some(value) = reader.value("exchange") else { return Ok((false, None)) };
    let in_pairs = parameter.expected.contains(PAIRS);
    match value {
        Value::Table(found) => Ok((false, Some(robust(Section::new(reader.path("exchange"), found))?))),
        Value::String(word) if word == ROUNDS => Ok((false, None)),
        Value::String(word) if word == PAIRS && in_pairs => Ok((true, None)),
        _ => Err(reader.refuse("exchange", value, parameter.expected)),
    }
}

/// `{ robust = "clip", byzantine = 1 }`.
fn robust(inner: Section) -> Result<Robust, LabError> {
    let trims = inner.choice("robust", &[("clip", false), ("trimmed-mean", true)], None)?;
    let byzantine = inner.whole("byzantine", "a whole number of malicious neighbours")?;
    let threshold = inner.number("threshold", "a positive number")?;
    if let (true, Some(threshold)) = (trims, threshold) {
        let expected = "none with \"trimmed-mean\", which compares elements, not distances";
        return Err(LabError::expected(inner.path("threshold"), expected, threshold));
    }
    let found = match (byzantine, threshold) {
        (Some(_), Some(_)) => Err(LabError::config(
            inner.path("threshold"),
            "conflicts with byzantine, from which each agent finds its own threshold; leave one of the two out",
        )),
        (None, Some(most)) => Ok(Robust::Threshold(most)),
        (Some(byzantine), None) => {
            let byzantine = usize::try_from(byzantine).unwrap_or(usize::MAX);
            Ok(if trims { Robust::TrimmedMean { byzantine } } else { Robust::Clip { byzantine } })
        }
        (None, None) => Err(inner.missing("byzantine", "a whole number of malicious neighbours")),
    }?;
    inner.finish()?;
    Ok(found)
}

/// The key as it is written; it is left out if it has its default.
pub(super) fn value(parameters: &Parameters) -> Option<Value> {
    match parameters.robust {
        Some(by) => Some(protection(by).into()),
        None => parameters.pairs.then(|| PAIRS.into()),
    }
}

fn protection(by: Robust) -> Table {
    let (rule, byzantine, threshold) = match by {
        Robust::TrimmedMean { byzantine } => ("trimmed-mean", Some(byzantine), None),
        Robust::Threshold(most) => ("clip", None, Some(most)),
        by => ("clip", by.byzantine(), None),
    };
    table([
        ("robust", Some(rule.into())),
        ("byzantine", byzantine.map(|byzantine| whole(byzantine as u64))),
        ("threshold", threshold.map(Value::Float)),
    ])
}
