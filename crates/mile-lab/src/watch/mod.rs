//! One view of a network of agents: who is at which round, who waits for whom, and which are down.
//!
//! A [`NetworkView`] is what an observer knows at one moment. It is shown as text ([`NetworkView::text`]) and on a page
//! ([`NetworkView::html`], served by [`GuardedPage`](crate::serve::GuardedPage)).

mod graph;
mod page;
mod table;

use mile::graph::Topology;

/// What is known of a network at one moment.
#[derive(Clone, Debug, Default)]
pub struct NetworkView {
    /// Name of the run.
    pub run: String,
    /// The agents that take part, in increasing number.
    pub agents: Vec<AgentView>,
    /// The edges between them.
    pub edges: Vec<EdgeView>,
    /// How the agents are arranged, if that is known.
    pub topology: Option<Topology>,
    /// Rounds to do, over all jobs, where known.
    pub rounds: Option<u64>,
    /// The mean loss of all agents' models and their consensus error, as estimated by gossip.
    pub estimate: Option<(f64, f64)>,
    /// What an operator should know, one line each.
    pub notes: Vec<String>,
}

/// What is known of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentView {
    /// Its number.
    pub id: usize,
    /// Whether it is up, and what it is doing.
    pub state: AgentState,
    /// What it said last.
    pub said: Option<Said>,
}

/// What an agent said about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Seconds ago.
    pub age_s: f64,
    /// Rounds done, over all jobs.
    pub round: u64,
    /// How often it has been started.
    pub starts: u64,
    /// Its own loss.
    pub own_loss: Option<f64>,
    /// Bytes sent and received since this start.
    pub bytes: (u64, u64),
    /// For whom it waits.
    pub waits_for: Vec<usize>,
    /// For how many seconds.
    pub for_s: f64,
}

/// The state of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// It does local steps.
    Computing,
    /// It waits for neighbours in an exchange.
    Waiting,
    /// It has done its work and waits for confirmations.
    Leaving,
    /// It has ended with its work done.
    Finished,
    /// Its model has diverged, and it has ended.
    Diverged,
    /// None of its neighbours that are up is connected with it.
    Down,
    /// Nothing was heard from it for a while, and nobody who is up can tell why.
    Silent,
}

/// An edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeView {
    /// Its two ends, the smaller number first.
    pub ends: (usize, usize),
    /// Whether they are connected; none if neither end can be asked.
    pub linked: Option<bool>,
}

impl AgentState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Computing => "computing",
            Self::Waiting => "waiting",
            Self::Leaving => "leaving",
            Self::Finished => "finished",
            Self::Diverged => "diverged",
            Self::Down => "down",
            Self::Silent => "silent",
        }
    }

    /// Whether the agent runs.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Computing | Self::Waiting | Self::Leaving)
    }

    /// Whether an operator should look at it.
    pub fn is_trouble(self) -> bool {
        matches!(self, Self::Diverged | Self::Down | Self::Silent)
    }
}

impl NetworkView {
    /// How many agents are in which state, and which ones are not up: `6 of 9 agents up; 3 down: 2, 5, 7`.
    pub fn summary(&self) -> String {
        let up = self.agents.iter().filter(|agent| agent.state.is_up()).count();
        let mut text = format!("{up} of {} agents up", self.agents.len());
        for state in [AgentState::Finished, AgentState::Diverged, AgentState::Down, AgentState::Silent] {
            let mut ids =
                self.agents.iter().filter(|agent| agent.state == state).map(|agent| agent.id).peekable();
            if ids.peek().is_some() {
                let ids: Vec<usize> = ids.collect();
                let which = if state == AgentState::Finished && up == 0 && ids.len() == self.agents.len() {
                    String::new()
                } else {
                    format!(": {}", listed(&ids, 12))
                };
                text += &format!("; {} {}{which}", ids.len(), state.name());
            }
        }
        text
    }

    /// The rounds that the agents have done: `rounds 57 to 61 of 200`; none if nothing is known of any agent.
    pub fn progress(&self) -> Option<String> {
        let rounds = || self.agents.iter().filter_map(|agent| Some(agent.said.as_ref()?.round));
        let (least, most) = (rounds().min()?, rounds().max()?);
        let of = self.rounds.map_or(String::new(), |rounds| format!(" of {rounds}"));
        Some(if least == most {
            format!("round {least}{of}")
        } else {
            format!("rounds {least} to {most}{of}")
        })
    }

    /// The mean of the own losses that agents have told, and how many have.
    pub fn mean_loss(&self) -> Option<(f64, usize)> {
        let losses: Vec<f64> = self.agents.iter().filter_map(|agent| agent.said.as_ref()?.own_loss).collect();
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        (!losses.is_empty()).then_some((mean, losses.len()))
    }
}

/// Things with commas, the first of them if there are more than `most`.
fn listed<T: ToString>(things: &[T], most: usize) -> String {
    let first: Vec<String> = things.iter().take(most).map(T::to_string).collect();
    let more = things.len().saturating_sub(most);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    first.join(", ") + &rest
}

/// A time as people say it.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// Bytes in the unit that fits.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, "B");
    for larger in UNITS {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" || value >= 99.95 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn example() -> NetworkView {
        let said = |round, waits_for: &[usize]| {
            Some(Said {
                age_s: 0.4,
                round,
                starts: 1,
                own_loss: Some(0.25 * round as f64),
                bytes: (5_742_000, 123),
                waits_for: waits_for.to_vec(),
                for_s: if waits_for.is_empty() { 0.0 } else { 8.0 },
            })
        };
        let agent = |id, state, said| AgentView { id, state, said };
        let edge = |i, j, linked| EdgeView { ends: (i, j), linked };
        NetworkView {
            run: "field <1>".into(),
            agents: vec![
                agent(0, AgentState::Waiting, said(2, &[3])),
                agent(1, AgentState::Computing, said(3, &[])),
                agent(2, AgentState::Silent, None),
                agent(3, AgentState::Down, said(1, &[])),
            ],
            edges: vec![edge(0, 1, Some(true)), edge(1, 2, None), edge(2, 3, None), edge(0, 3, Some(false))],
            topology: Some(Topology::Ring),
            rounds: Some(30),
            estimate: Some((0.5, 1e-3)),
            notes: vec!["agent 0, edge to agent 3: <refused>".into()],
        }
    }

    #[test]
    fn a_network_is_summed_up_in_words() {
        let view = example();
        assert_eq!(view.summary(), "2 of 4 agents up; 1 down: 3; 1 silent: 2");
        assert_eq!(view.progress().as_deref(), Some("rounds 1 to 3 of 30"));
        assert_eq!(view.mean_loss(), Some((0.5, 3)));
        let nothing = NetworkView::default();
        assert_eq!((nothing.progress(), nothing.mean_loss()), (None, None));
        let mut over = view;
        over.agents.iter_mut().for_each(|agent| agent.state = AgentState::Finished);
        assert_eq!(over.summary(), "0 of 4 agents up; 4 finished");
    }

    #[test]
    fn numbers_have_units_and_long_lists_end() {
        assert_eq!([0, 999, 1000, 5_742_000].map(bytes), ["0 B", "999 B", "1.0 KiB", "5.5 MiB"]);
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!([0.44, 9.95, 130.0, 8000.0, 1e6].map(time), ["0.4 s", "10 s", "2 min", "2.2 h", "11.6 d"]);
        assert_eq!(listed(&[1, 2, 3], 2), "1, 2 and 1 more");
    }
}
