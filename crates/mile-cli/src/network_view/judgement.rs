//! What the notices that some agents know say about the whole network.

use std::collections::BTreeMap;

use mile_lab::watch::{AgentState, AgentView, EdgeView, NetworkView, Said};
use mile_net::board::{Posted, interval};
use mile_net::notice::{Notice, NoticedEdge};
use mile_net::status::{Activity, Neighbour, Status};
use serde_json::{Value, json};

use super::Layout;

/// After this many intervals without a notice an agent is silent; after half as many it is down, if its neighbours say that they have no
/// connection with it.
const SILENT: f64 = 5.0;
/// Most lines about connections.
const NOTES: usize = 8;

/// The network as seen by the agents that have answered, or left a status behind when they ended.
pub(crate) fn view(answers: &[(Status, bool)], layout: Option<&Layout>) -> NetworkView {
    let latest = latest(answers);
    // The round of an agent that joins is that of its event from the beginning.
    let has_begun = |posted: &&Posted| {
        let joins = layout.and_then(|layout| {
            let event = layout.membership.comes_with(posted.notice.agent)?;
            Some(layout.membership.events()[event].round)
        });
        joins.is_none_or(|round| posted.notice.round > round)
    };
    let round = latest.values().filter(has_begun).map(|posted| posted.notice.round).max().unwrap_or(0);
    let (members, pairs) = network(&latest, layout, round);
    let limit = SILENT * interval(members.len()) as f64 / 1e3;
    let states = States { latest: &latest, limit };
    let agents: Vec<AgentView> = members
        .iter()
        .map(|id| AgentView { id: *id, state: states.of(*id, &pairs), said: latest.get(id).map(said) })
        .collect();
    let edges = pairs.iter().map(|ends| EdgeView { ends: *ends, linked: states.linked(*ends) }).collect();
    let alive = answers.iter().filter(|(_, ended)| !ended).map(|(status, _)| status);
    NetworkView {
        run: answers.first().map_or_else(String::new, |(status, _)| status.run.clone()),
        agents,
        edges,
        topology: layout.and_then(|layout| layout.topology.filter(|_| layout.membership.is_lasting())),
        rounds: latest.values().filter_map(|posted| posted.notice.rounds).max(),
        estimate: alive
            .filter_map(|status| status.estimate)
            .map(|estimate| (estimate.loss, estimate.consensus_error))
            .find(|(loss, consensus)| loss.is_finite() && consensus.is_finite()),
        notes: notes(answers),
    }
}

/// The latest notice of each agent that any of them knows.
fn latest(answers: &[(Status, bool)]) -> BTreeMap<usize, Posted> {
    let mut latest: BTreeMap<usize, Posted> = BTreeMap::new();
    let mut take = |posted: Posted| {
        let later = |known: &Posted| {
            let [new, old] = [&posted, known].map(|posted| (posted.notice.version, -posted.age_s));
            new > old
        };
        if latest.get(&posted.notice.agent).is_none_or(later) {
            latest.insert(posted.notice.agent, posted);
        }
    };
    for (status, ended) in answers {
        let own = status.notices.iter().find(|posted| posted.notice.agent == status.agent);
        let version = own.map_or(0, |posted| posted.notice.version);
        // What it left behind says nothing about the others: they have gone on since.
        if !ended {
            status.notices.iter().cloned().for_each(&mut take);
        }
        // The status is later than the notice, and agents that do not gossip have no notices.
        take(Posted::now(Notice { version: version.saturating_add(1), ..status.notice() }));
    }
    latest
}

/// The agents that take part after this many rounds, and their edges.
fn network(
    latest: &BTreeMap<usize, Posted>,
    layout: Option<&Layout>,
    round: u64,
) -> (Vec<usize>, Vec<(usize, usize)>) {
    if let Some(layout) = layout {
        let epoch = &layout.membership.epochs()[layout.membership.at(round.saturating_add(1))];
        let edges = epoch.network.graph().edges();
        return (epoch.members.clone(), edges.map(|(i, j)| (epoch.members[i], epoch.members[j])).collect());
    }
    let mut members: Vec<usize> = latest.keys().copied().collect();
    let ends =
        latest.iter().flat_map(|(id, posted)| posted.notice.edges.iter().map(move |edge| (*id, edge.id)));
    let mut pairs: Vec<(usize, usize)> = ends.map(|(i, j)| (i.min(j), i.max(j))).collect();
    members.extend(pairs.iter().flat_map(|(i, j)| [*i, *j]));
    members.sort_unstable();
    members.dedup();
    pairs.sort_unstable();
    pairs.dedup();
    (members, pairs)
}

/// Judges what is known.
struct States<'a> {
    latest: &'a BTreeMap<usize, Posted>,
    /// Seconds after which an agent is silent.
    limit: f64,
}

impl States<'_> {
    fn of(&self, id: usize, pairs: &[(usize, usize)]) -> AgentState {
        let posted = self.latest.get(&id);
        if let Some(Posted { notice, .. }) = posted {
            if notice.diverged.is_some() {
                return AgentState::Diverged;
            }
            if notice.activity == Activity::Done {
                return AgentState::Finished;
            }
        }
        let age = posted.map_or(f64::INFINITY, |posted| posted.age_s);
        let neighbours = pairs.iter().filter_map(|(i, j)| match id {
            _ if *i == id => Some(*j),
            _ if *j == id => Some(*i),
            _ => None,
        });
        let mut said = neighbours.filter_map(|other| self.end(other, id)).map(|edge| edge.linked).peekable();
        let left = said.peek().is_some() && said.all(|linked| !linked);
        match posted {
            _ if left && 2.0 * age > self.limit => AgentState::Down,
            Some(posted) if age <= self.limit => match posted.notice.activity {
                Activity::Computing => AgentState::Computing,
                Activity::Waiting => AgentState::Waiting,
                Activity::Leaving | Activity::Done => AgentState::Leaving,
            },
            _ => AgentState::Silent,
        }
    }

    /// What an agent says about its end of an edge, if it runs.
    fn end(&self, agent: usize, other: usize) -> Option<NoticedEdge> {
        let posted = self.latest.get(&agent).filter(|posted| posted.age_s <= self.limit)?;
        let runs = posted.notice.activity != Activity::Done;
        posted.notice.edges.iter().find(|edge| edge.id == other).copied().filter(|_| runs)
    }

    fn linked(&self, (i, j): (usize, usize)) -> Option<bool> {
        let ends = [self.end(i, j), self.end(j, i)];
        let mut said = ends.into_iter().flatten().map(|edge| edge.linked).peekable();
        said.peek()?;
        // An end whose neighbour has been killed learns of it a moment later.
        Some(said.all(|linked| linked))
    }
}

fn said(posted: &Posted) -> Said {
    let Posted { notice, age_s, .. } = posted;
    let waits_for: Vec<usize> =
        notice.edges.iter().filter(|edge| edge.waiting.is_some()).map(|edge| edge.id).collect();
    let for_s = if waits_for.is_empty() { 0.0 } else { f64::from(notice.activity_ms) / 1e3 + age_s };
    Said {
        age_s: *age_s,
        round: notice.round,
        starts: notice.incarnation,
        own_loss: notice.own_loss,
        bytes: (notice.sent, notice.received),
        waits_for,
        for_s,
    }
}

/// Why the agents that have answered have no connection with a neighbour.
fn notes(answers: &[(Status, bool)]) -> Vec<String> {
    let alive = answers.iter().filter(|(_, ended)| !ended).map(|(status, _)| status);
    let edges = alive.flat_map(|status| status.neighbours.iter().map(move |edge| (status.agent, edge)));
    let line = |(agent, edge): (usize, &Neighbour)| {
        let why = edge.refusal.as_ref().or(edge.trouble.as_ref())?;
        Some(format!("agent {agent}, edge to agent {}: {why}", edge.id))
    };
    edges.filter_map(line).take(NOTES).collect()
}

/// The view for programs.
pub(crate) fn json(view: &NetworkView) -> Value {
    let agent = |agent: &AgentView| {
        let said = agent.said.as_ref().map(|said| {
            json!({
                "age_s": said.age_s, "round": said.round, "starts": said.starts, "own_loss": said.own_loss,
                "sent_bytes": said.bytes.0, "received_bytes": said.bytes.1,
                "waits_for": said.waits_for, "waits_s": said.for_s,
            })
        });
        json!({ "agent": agent.id, "state": agent.state.name(), "said": said })
    };
    let edge = |edge: &EdgeView| json!({ "ends": [edge.ends.0, edge.ends.1], "linked": edge.linked });
    json!({
        "run": view.run,
        "rounds": view.rounds,
        "agents": view.agents.iter().map(agent).collect::<Vec<_>>(),
        "edges": view.edges.iter().map(edge).collect::<Vec<_>>(),
        "estimated_loss": view.estimate.map(|(loss, _)| loss),
        "estimated_consensus_error": view.estimate.map(|(_, consensus)| consensus),
        "notes": view.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mile_net::status::Awaited;

    fn posted(agent: usize, age_s: f64, edges: &[(usize, bool)]) -> Posted {
        let edge = |(id, linked): &(usize, bool)| NoticedEdge {
            id: *id,
            linked: *linked,
            waiting: (!linked).then_some(Awaited::Message),
        };
        let mut posted = Posted::now(Notice {
            agent,
            version: 1,
            incarnation: 1,
            round: 5,
            rounds: Some(9),
            activity: Activity::Waiting,
            activity_ms: 1500,
            own_loss: None,
            sent: 0,
            received: 0,
            diverged: None,
            edges: edges.iter().map(edge).collect(),
        });
        posted.age_s = age_s;
        posted
    }

    fn state(all: &[Posted], id: usize) -> AgentState {
        let latest: BTreeMap<usize, Posted> =
            all.iter().map(|posted| (posted.notice.agent, posted.clone())).collect();
        let (_, pairs) = network(&latest, None, 0);
        States { latest: &latest, limit: 5.0 }.of(id, &pairs)
    }

    #[test]
    fn an_agent_is_down_if_its_neighbours_that_run_say_so_and_silent_if_nobody_can_tell() {
        let one = posted(1, 0.5, &[(0, true), (2, false)]);
        let three = posted(3, 0.5, &[(2, false), (4, false)]);
        let two = |age| posted(2, age, &[(1, true), (3, true)]);
        assert_eq!(
            state(&[one.clone(), two(1.0), three.clone()], 2),
            AgentState::Waiting,
            "a moment ago it was up"
        );
        assert_eq!(state(&[one.clone(), two(3.0), three.clone()], 2), AgentState::Down);
        assert_eq!(state(&[one.clone(), three.clone()], 2), AgentState::Down, "it was never heard");
        let linked = posted(1, 0.5, &[(2, true)]);
        assert_eq!(state(&[linked.clone(), two(3.0), three], 2), AgentState::Waiting);
        assert_eq!(state(&[linked, two(60.0)], 2), AgentState::Silent);
        let old = posted(1, 60.0, &[(2, false)]);
        assert_eq!(state(&[old, two(60.0)], 2), AgentState::Silent, "nobody is up who could tell");
    }

    #[test]
    fn an_agent_that_has_ended_is_not_down_however_long_ago_that_was() {
        let mut two = posted(2, 600.0, &[(1, true)]);
        two.notice.activity = Activity::Done;
        let one = posted(1, 0.5, &[(2, false)]);
        assert_eq!(state(&[one.clone(), two.clone()], 2), AgentState::Finished);
        two.notice.diverged = Some(4);
        assert_eq!(state(&[one, two], 2), AgentState::Diverged);
    }

    #[test]
    fn an_edge_is_connected_if_both_ends_say_so_that_can_be_asked() {
        let linked = |all: &[Posted]| {
            let latest = all.iter().map(|posted| (posted.notice.agent, posted.clone())).collect();
            States { latest: &latest, limit: 5.0 }.linked((1, 2))
        };
        let end = |agent, other, age, up| posted(agent, age, &[(other, up)]);
        assert_eq!(linked(&[end(1, 2, 0.1, true), end(2, 1, 0.1, true)]), Some(true));
        assert_eq!(linked(&[end(1, 2, 0.1, true), end(2, 1, 0.1, false)]), Some(false));
        assert_eq!(linked(&[end(1, 2, 0.1, true), end(2, 1, 9.0, false)]), Some(true));
        assert_eq!(linked(&[end(1, 2, 9.0, true)]), None);
    }

    #[test]
    fn what_an_agent_waits_for_is_as_old_as_its_notice_and_the_wait_before() {
        let said = said(&posted(1, 3.0, &[(0, true), (2, false)]));
        assert_eq!((said.waits_for, said.for_s), (vec![2], 4.5));
    }
}
