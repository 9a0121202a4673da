//! `[[agent.neighbour]]`: the neighbours of an agent.

use std::collections::BTreeMap;

use mile::membership::Edge;
use toml::Value;

use crate::error::LabError;
use crate::section::{Section, as_number};

/// A neighbour of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourSpec {
    /// Its public key.
    pub key: String,
    /// The edge to it.
    pub edge: Edge,
    /// Addresses at which it can be reached, as `host:port`.
    pub addresses: Vec<String>,
}

/// The neighbours, checked against the experiment's graph and mixing matrix.
pub(super) fn neighbours(
    reader: &Section,
    edges: &BTreeMap<usize, Edge>,
    me: usize,
) -> Result<BTreeMap<usize, NeighbourSpec>, LabError> {
    let expected = "a section [[agent.neighbour]] for each neighbour";
    let empty = Vec::new();
    let list = match reader.value("neighbour") {
        None => &empty,
        Some(Value::Array(list)) => list,
        Some(other) => return Err(reader.refuse("neighbour", other, expected)),
    };
    let mut found = BTreeMap::new();
    for (k, value) in list.iter().enumerate() {
        let path = format!("agent.neighbour[{k}]");
        let table = value.as_table().ok_or_else(|| reader.refuse("neighbour", value, expected))?;
        let (id, neighbour) = neighbour(&Section::new(path.clone(), table), edges, me)?;
        if found.insert(id, neighbour).is_some() {
            return Err(LabError::config(format!("{path}.id"), format!("agent {id} is listed twice")));
        }
    }
    Ok(found)
}

/// Checks that all neighbours are listed.
pub(super) fn all_listed(
    found: &BTreeMap<usize, NeighbourSpec>,
    edges: &BTreeMap<usize, Edge>,
    me: usize,
) -> Result<(), LabError> {
    match edges.keys().find(|id| !found.contains_key(id)) {
        None => Ok(()),
        Some(id) => {
            let problem = format!(
                "agent {id} is a neighbour of agent {me} in the experiment's graph, but is not listed; add a section [[agent.neighbour]]"
            );
            Err(LabError::config("agent.neighbour", problem))
        }
    }
}

fn neighbour(
    reader: &Section,
    edges: &BTreeMap<usize, Edge>,
    me: usize,
) -> Result<(usize, NeighbourSpec), LabError> {
    let ids: Vec<usize> = edges.keys().copied().collect();
    let expected = format!("a neighbour of agent {me} in the experiment's graph (one of {ids:?})");
    let id = reader.whole("id", &expected)?.ok_or_else(|| reader.missing("id", &expected))? as usize;
    let Some(edge) = edges.get(&id) else {
        return Err(reader.refuse("id", &Value::Integer(id as i64), expected));
    };
    let expected = "the public key that mile keygen printed for it";
    let key = reader.text("key", expected)?.ok_or_else(|| reader.missing("key", expected))?.to_owned();
    let weight = edge.weight;
    if let Some(value) = reader.value("weight")
        && as_number(value) != Some(weight)
    {
        let expected = format!("{weight}, the weight of edge {me}-{id} in the experiment's mixing matrix");
        return Err(reader.refuse("weight", value, expected));
    }
    let expected = "a list such as [\"host:7100\"]";
    let words = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let addresses = match reader.value("addresses") {
        None => Vec::new(),
        Some(value) => words(value).ok_or_else(|| reader.refuse("addresses", value, expected))?,
    };
    if let Some(bad) = addresses.iter().find(|address| !is_host_and_port(address)) {
        return Err(reader.refuse("addresses", &Value::from(bad.as_str()), expected));
    }
    Ok((id, NeighbourSpec { key, edge: edge.clone(), addresses }))
}

/// Whether a text has the form `host:port`; an IPv6 address has brackets, `[2001:db8::1]:7100`.
pub fn is_host_and_port(text: &str) -> bool {
    let is_host = |host: &str| match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(':'),
    };
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
}
