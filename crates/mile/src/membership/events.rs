//! What happens to agents, and the epoch that results from the one before.

use super::{Epoch, Membership};
use crate::graph::{Graph, GraphError};
use crate::mixing::Rule;
use crate::network::{Network, NetworkError};

/// What happens to an agent at the beginning of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The round before which it happens, when this many rounds are done.
    pub round: u64,
    /// What happens.
    pub change: Change,
    /// On a network, the first round in which the agent took no part because it was lost; none if it takes part to the end.
    pub lost: Option<u64>,
}

/// What can happen to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another one with the same objective takes its place, without its state.
    Replace(usize),
    /// It leaves for good.
    Leave {
        /// The agent.
        agent: usize,
        /// Edges that are added, so that the others stay connected.
        edges: Vec<(usize, usize)>,
    },
    /// A new agent joins, with its own objective and the next number.
    Join {
        /// Its number.
        agent: usize,
        /// Its neighbours.
        neighbours: Vec<usize>,
    },
}

impl Change {
    /// The agent.
    pub fn agent(&self) -> usize {
        match self {
            Self::Replace(agent) | Self::Leave { agent, .. } | Self::Join { agent, .. } => *agent,
        }
    }

    /// The name of the change: `replace`, `leave` or `join`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Replace(_) => "replace",
            Self::Leave { .. } => "leave",
            Self::Join { .. } => "join",
        }
    }
}

/// An event that does not fit what precedes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {event}, {key}: {problem}")]
#[non_exhaustive]
pub struct InvalidEvent {
    /// Which event, from 0.
    pub event: usize,
    /// Its key: `round`, `replace`, `leave`, `join`, `lost`, `edges` or `neighbours`.
    pub key: &'static str,
    /// What is wrong, and what was expected.
    pub problem: String,
}

/// The epoch that begins with an event.
pub(super) fn follow(before: &Membership, rule: Option<Rule>, event: &Event) -> Result<Epoch, InvalidEvent> {
    let refuse =
        |key: &'static str, problem: String| InvalidEvent { event: before.events.len(), key, problem };
    let Some(last) = before.epochs.last() else {
        return Err(refuse("round", "expected an epoch before it".into()));
    };
    let Event { round, change, lost } = event;
    let (round, agent) = (*round, change.agent());
    if round <= last.round {
        let least = last.round + 1;
        let problem = format!("expected at least {least}, got {round}; events are in increasing round");
        return Err(refuse("round", problem));
    }
    if let Some(lost) = lost.filter(|lost| *lost > round) {
        return Err(refuse("lost", format!("expected at most {round}, the round of the event, got {lost}")));
    }
    check_agent(before, last, change).map_err(|problem| refuse(change.name(), problem))?;
    if last.network.varies() {
        let problem = "cannot be used with network.drop_rate > 0, bursts, absence or time_varying: agents need the models of all their \
                       neighbours then";
        return Err(refuse(change.name(), problem.into()));
    }
    let mut members = last.members.clone();
    let mut edges: Vec<(usize, usize)> =
        last.network.graph().edges().map(|(i, j)| (members[i], members[j])).collect();
    match change {
        Change::Replace(_) => return Ok(Epoch { round, newcomer: Some(agent), ..last.clone() }),
        Change::Leave { edges: more, .. } => {
            members.retain(|member| *member != agent);
            edges.retain(|(i, j)| *i != agent && *j != agent);
            for (i, j) in more {
                if i == j || [i, j].iter().any(|end| !members.contains(end)) {
                    let problem =
                        format!("expected edges between two of the agents that remain, got {i}-{j}");
                    return Err(refuse("edges", problem));
                }
            }
            edges.extend(more);
        }
        Change::Join { neighbours, .. } => {
            if neighbours.is_empty() {
                return Err(refuse("neighbours", "expected at least one agent, got none".into()));
            }
            if let Some(stranger) = neighbours.iter().find(|id| !members.contains(id)) {
                let problem = format!("expected agents that take part in round {round}, got {stranger}");
                return Err(refuse("neighbours", problem));
            }
            members.push(agent);
            edges.extend(neighbours.iter().map(|id| (*id, agent)));
        }
    }
    let Some(rule) = rule else {
        let problem = "needs a rule in network.mixing, which makes the weights of the changed network";
        return Err(refuse(change.name(), problem.into()));
    };
    let network = network(&members, &edges, rule).map_err(|error| match error {
        NetworkError::Graph(GraphError::Disconnected { components }) => {
            let problem = disconnected(agent, &components, &members);
            refuse(if matches!(change, Change::Leave { .. }) { "edges" } else { "neighbours" }, problem)
        }
        other => refuse(change.name(), other.to_string()),
    })?;
    let newcomer = matches!(change, Change::Join { .. }).then_some(agent);
    Ok(Epoch { round, members, network, newcomer })
}

/// What is wrong with the agent of an event, if anything.
fn check_agent(before: &Membership, last: &Epoch, change: &Change) -> Result<(), String> {
    let agent = change.agent();
    match change {
        Change::Join { .. } if agent != before.numbers => Err(format!(
            "expected {}, the next number, got {agent}; an agent that comes back after it has left is a new one",
            before.numbers
        )),
        Change::Join { .. } => Ok(()),
        _ if last.place(agent).is_none() => {
            Err(format!("expected an agent that takes part, one of {:?}, got {agent}", last.members))
        }
        Change::Leave { .. } if last.members.len() == 1 => {
            Err(format!("agent {agent} is the last one; end the run instead, with fewer rounds"))
        }
        _ => Ok(()),
    }
}

/// The network of some agents, by their places.
fn network(members: &[usize], edges: &[(usize, usize)], rule: Rule) -> Result<Network, NetworkError> {
    let place = |agent: &usize| members.binary_search(agent).unwrap_or(usize::MAX);
    let edges = edges.iter().map(|(i, j)| (place(i), place(j)));
    Network::new(Graph::from_edges(members.len(), edges)?, rule)
}

/// The remedy for a graph that is no longer connected, with the agents' own numbers.
fn disconnected(agent: usize, components: &[Vec<usize>], members: &[usize]) -> String {
    let numbers =
        |component: &Vec<usize>| -> Vec<usize> { component.iter().map(|place| members[*place]).collect() };
    let groups: Vec<Vec<usize>> = components.iter().map(numbers).collect();
    let joined: Vec<[usize; 2]> = groups.windows(2).map(|pair| [pair[0][0], pair[1][0]]).collect();
    format!(
        "without agent {agent} the others are in {} groups without an edge between them, {groups:?}: add edges, for instance edges = {joined:?}",
        groups.len()
    )
}
