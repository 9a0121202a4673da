//! What `[[algorithm]]` says about exchanges: `exchange`.

use mile::methods::catalogue::Entry;
use mile::robust::Robust;
use toml::{Table, Value};

use super::{table, whole};
use crate::error::LabError;
use crate::section::Section;

/// How exchanges are protected, if the method has the key: `{ robust = "clip", byzantine = 1 }`.
pub(super) fn read(reader: &Section, entry: &Entry) -> Result<Option<Robust>, LabError> {
    if !entry.takes("exchange") {
        return Ok(None);
    }
    let expected = "a table such as { robust = \"clip\", byzantine = 1 }";
    let Some(value) = reader.value("exchange") else { return Ok(None) };
    let found = value.as_table().ok_or_else(|| reader.refuse("exchange", value, expected))?;
    let inner = Section::new(reader.path("exchange"), found);
    let trims = inner.choice("robust", &[("clip", false), ("trimmed-mean", true)], None)?;
    let byzantine = inner.whole("byzantine", "a whole number of malicious neighbours")?;
    let threshold = inner.number("threshold", "a positive number")?;
    if let (true, Some(threshold)) = (trims, threshold) {
        let expected = "none with \"trimmed-mean\", which compares elements and no distances";
        return Err(LabError::expected(inner.path("threshold"), expected, threshold));
    }
    let found = match (byzantine, threshold) {
        (Some(_), Some(_)) => Err(LabError::config(
            inner.path("threshold"),
            "conflicts with byzantine, from which each agent finds its own threshold; leave one of the two out",
        )),
        (None, Some(most)) => Ok(Some(Robust::Threshold(most))),
        (Some(byzantine), None) => {
            let byzantine = usize::try_from(byzantine).unwrap_or(usize::MAX);
            Ok(Some(if trims { Robust::TrimmedMean { byzantine } } else { Robust::Clip { byzantine } }))
        }
        (None, None) => Err(inner.missing("byzantine", "a whole number of malicious neighbours")),
    }?;
    inner.finish()?;
    Ok(found)
}

/// The key as it is written.
pub(super) fn value(by: Robust) -> Value {
    let (rule, byzantine, threshold) = match by {
        Robust::TrimmedMean { byzantine } => ("trimmed-mean", Some(byzantine), None),
        Robust::Threshold(most) => ("clip", None, Some(most)),
        by => ("clip", by.byzantine(), None),
    };
    let written: Table = table([
        ("robust", Some(rule.into())),
        ("byzantine", byzantine.map(|byzantine| whole(byzantine as u64))),
        ("threshold", threshold.map(Value::Float)),
    ]);
    written.into()
}
