//! Keys that problems with samples share: batch size, partition, and number of samples for evaluation.

use mile::problems::Batch;
use mile_nn::partition::Partition;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::error::LabError;
use crate::section::Section;

/// The number of samples for evaluation; `None`: all.
pub(super) fn count(section: &Section, key: &'static str) -> Result<Option<usize>, LabError> {
    let takes = "a whole number from 1, or \"all\"";
    let samples = match section.value(key) {
        None => None,
        Some(value) if value.as_str() == Some("all") => None,
        Some(value) => match value.as_integer() {
            Some(n @ 1..) => Some(n as usize),
            _ => return Err(section.refuse(key, value, takes)),
        },
    };
    samples.into_iter().for_each(|n| section.keep(key, n as i64));
    Ok(samples)
}

/// A value deserialized by serde, with an error message of the usual form.
pub(super) fn typed<T: DeserializeOwned>(
    section: &Section,
    key: &'static str,
    value: &Value,
    takes: &str,
) -> Result<T, LabError> {
    section.keep(key, value.clone());
    value.clone().try_into().map_err(|error: toml::de::Error| {
        section.refuse(key, value, format!("{takes} ({})", error.message()))
    })
}

pub(super) fn batch(section: &Section, default: Batch) -> Result<Batch, LabError> {
    let takes = "a whole number from 1, { epoch = NUMBER }, or \"full\"";
    let Some(value) = section.value("batch") else {
        let shown = match default {
            Batch::Size(n) => Value::from(n as i64),
            _ => Value::from("full"),
        };
        section.keep("batch", shown);
        return Ok(default);
    };
    let size = |value: &Value| value.as_integer().and_then(|n| usize::try_from(n).ok());
    let epoch = || value.as_table().filter(|table| table.len() == 1).and_then(|table| table.get("epoch"));
    let batch = match value {
        Value::String(word) if word == "full" => Some(Batch::Full),
        Value::Table(_) => epoch().and_then(size).map(Batch::Epoch),
        other => size(other).map(Batch::Size),
    };
    section.keep("batch", value.clone());
    batch.filter(|batch| batch.is_valid()).ok_or_else(|| section.refuse("batch", value, takes))
}

pub(super) fn partition(section: &Section) -> Result<Partition, LabError> {
    let takes = "{ kind = \"iid\" | \"dirichlet\" | \"shards\" | \"label-quantity\", ... }";
    let iid = Value::Table(Table::from_iter([("kind".to_owned(), Value::from("iid"))]));
    let value = match section.value("partition") {
        Some(Value::String(kind)) => {
            &Value::Table(Table::from_iter([("kind".to_owned(), Value::from(kind.as_str()))]))
        }
        Some(value) => value,
        None => &iid,
    };
    let partition: Partition = typed(section, "partition", value, takes)?;
    partition.validate().map_err(|error| LabError::config(section.path("partition"), error))?;
    Ok(partition)
}
