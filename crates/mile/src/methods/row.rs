//! The building blocks of the lists of built-in methods: an entry as a row, and the parameters that several methods have.

use std::borrow::Cow;

use super::entry::{Build, Builder, Entry, Parameter};
use super::parameters::Parameters;
use super::parts;
use crate::method::InvalidParameter;
use crate::network::Network;

/// An entry in the form in which the lists have it.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) reference: &'static str,
    pub(super) exact: bool,
    pub(super) parameters: &'static [Parameter],
    pub(super) note: &'static str,
    pub(super) build: &'static Build,
}

/// The entry of a row.
pub(super) const fn built_in(row: Row) -> Entry {
    Entry {
        name: Cow::Borrowed(row.name),
        title: Cow::Borrowed(row.title),
        reference: row.reference,
        exact: row.exact,
        parameters: row.parameters,
        note: row.note,
        facts: Vec::new(),
        build: Builder::BuiltIn(row.build),
    }
}

pub(super) const LOCAL_STEPS: Parameter = Parameter::part(
    "local_steps",
    "a whole number of at least 1, or a list of them, one for each agent",
    "10",
);
/// The expected number of a method that draws its numbers of steps.
pub(super) const EXPECTED_STEPS: Parameter =
    Parameter::part("local_steps", "a whole number of at least 1", "10");
pub(super) const ETA_S: Parameter = Parameter::number("eta_s", "a positive number", "1");
pub(super) const COMMUNICATIONS: Parameter = Parameter::whole("communications", "1");
pub(super) const MOMENTUM: Parameter = Parameter::part("momentum", "a number in [0, 1)", "0");
pub(super) const USUAL_MOMENTUM: Parameter = Parameter::part("momentum", "a number in [0, 1)", "0.9");
pub(super) const NESTEROV: Parameter = Parameter::part("nesterov", "true or false", "false");
pub(super) const COMPRESSION: Parameter = Parameter::part(
    "compression",
    "\"none\", \"bf16\", \"fp16\", \"8-bit\" or { top_k = a share in (0, 1) }",
    "\"none\"",
);
/// That of a method with corrections, whose edges are to be treated alike at both ends.
pub(super) const EXCHANGE: Parameter =
    Parameter::part("exchange", "\"rounds\", \"pairs\" or { robust = \"clip\", threshold }", "\"rounds\"");
/// That of a method without corrections, which has rounds.
pub(super) const PROTECTION: Parameter = Parameter::part(
    "exchange",
    "\"rounds\", { robust = \"clip\", byzantine }, { robust = \"trimmed-mean\", byzantine } or { robust = \"clip\", threshold }",
    "\"rounds\"",
);
pub(super) const OUTER: Parameter =
    Parameter::part("outer", "a table such as { momentum = 0.5, step_size = 0.7 }", "none");
pub(super) const OPTIMIZER: Parameter = Parameter::part(
    "optimizer",
    "\"sgd\", \"adamw\", \"amsgrad\", \"muon\", or a table with name and its numbers",
    "\"sgd\"",
);
pub(super) const CORRECTION: Parameter = Parameter::part(
    "correction",
    "\"step\", \"gradient\" or { kind = \"gradient\", scale }",
    "\"gradient\" with sgd and amsgrad, \"step\" with adamw and muon",
);
pub(super) const CLIP: Parameter = Parameter::part("clip", "a positive number", "none");
pub(super) const SHARE_MOMENTS: Parameter =
    Parameter::part("share_moments", "a whole number of rounds", "none");
pub(super) const PROBABILITY: Parameter =
    Parameter::number("probability", "a number in (0, 1]", "1/local_steps");

/// Parameters whose compression is possible on the network.
pub(super) fn checked_compression(
    method: &str,
    parameters: &Parameters,
    network: &Network,
) -> Result<Parameters, InvalidParameter> {
    if let Some(by) = parameters.compression {
        parts::check_compression(method, by, network)?;
    }
    Ok(parameters.clone())
}
