//! Exchanges in pairs: which two agents exchange when, and after how many local steps.
//!
//! An agent that has done its local steps exchanges with one neighbour that is ready too, and nobody else waits. What an agent does depends
//! on its own earlier exchanges only, so a run is determined by the list of its [pairings](Pairing), whatever decided them: a
//! [model of time](crate::readiness), or a [log](read_log) of an earlier run. Pairings of different agents can be carried out together or one
//! after the other with the same bits.
//!
//! A round is N/2 pairings of N agents, rounded down in total: on average an agent takes part in one exchange in a round. An agent's local
//! steps are carried out just before its exchange, so after a round the vectors of each agent are those right after its own last exchange: a
//! state consists of whole pairings and needs nothing else.

mod log;

use std::collections::VecDeque;

pub use self::log::{HEADER, InvalidLog, read_log};
use crate::agents::AgentsError;

/// An exchange of two agents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pairing {
    /// The two agents, the smaller first.
    pub agents: [usize; 2],
    /// The local steps that each has made since its exchange before.
    pub steps: [u64; 2],
    /// Seconds at which both were ready, and the exchange began.
    pub ready_s: f64,
    /// Seconds at which both had the other's message.
    pub done_s: f64,
}

/// The local steps of an agent before an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueSteps {
    /// The agent.
    pub agent: usize,
    /// The local steps that it has made before.
    pub before: u64,
    /// How many it makes now.
    pub steps: u64,
}

/// Pairings that have no agent in common, so that they are carried out together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// The two agents of each.
    pub pairs: Vec<[usize; 2]>,
    /// What these agents do before.
    pub work: Vec<DueSteps>,
}

/// The pairings of a run, round by round.
pub struct Pairings {
    agents: u64,
    source: Box<dyn Iterator<Item = Pairing> + Send>,
    rounds: u64,
    /// Local steps that each agent has made.
    made: Vec<u64>,
    latest_s: f64,
    /// The pairings of the last round.
    last: Vec<Pairing>,
}

impl std::fmt::Debug for Pairings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pairings")
            .field("rounds", &self.rounds)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}

/// How many pairings there are in this many rounds.
pub fn pairings_in(rounds: u64, agents: usize) -> u64 {
    (u128::from(rounds) * agents as u128 / 2) as u64
}

impl Pairings {
    /// Pairings of this many agents, in the order in which they begin.
    pub fn new(agents: usize, source: impl Iterator<Item = Pairing> + Send + 'static) -> Self {
        Self {
            agents: agents as u64,
            source: Box::new(source),
            rounds: 0,
            made: vec![0; agents],
            latest_s: 0.0,
            last: Vec::new(),
        }
    }

    /// Rounds that have been taken.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The pairings of the round that was taken last.
    pub fn last_round(&self) -> &[Pairing] {
        &self.last
    }

    /// Seconds until all pairings that have been taken are done.
    pub fn latest_s(&self) -> f64 {
        self.latest_s
    }

    /// Local steps of the agent that has made most.
    pub fn most_steps(&self) -> u64 {
        self.made.iter().copied().max().unwrap_or(0)
    }

    /// Takes the next round.
    ///
    /// # Errors
    /// If there are no more pairings, or one has agents that do not exist.
    pub fn next_round(&mut self) -> Result<VecDeque<Turn>, AgentsError> {
        let agents = self.agents as usize;
        let count = pairings_in(self.rounds + 1, agents) - pairings_in(self.rounds, agents);
        self.last.clear();
        let mut turns: VecDeque<Turn> = VecDeque::new();
        for _ in 0..count {
            let Some(pairing) = self.source.next() else {
                return Err(AgentsError::Method(format!("no pairings are left for round {}", self.rounds)));
            };
            let Pairing { agents: pair @ [i, j], steps, done_s, .. } = pairing;
            if i >= j || j >= agents {
                return Err(AgentsError::Method(format!("agents {i} and {j} cannot exchange")));
            }
            let is_in = |turn: &Turn| turn.pairs.iter().flatten().any(|agent| pair.contains(agent));
            if turns.back().is_none_or(is_in) {
                turns.push_back(Turn::default());
            }
            if let Some(turn) = turns.back_mut() {
                turn.pairs.push(pair);
                for (agent, steps) in pair.into_iter().zip(steps) {
                    turn.work.push(DueSteps { agent, before: self.made[agent], steps });
                    self.made[agent] += steps;
                }
            }
            self.latest_s = self.latest_s.max(done_s);
            self.last.push(pairing);
        }
        self.rounds += 1;
        Ok(turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairing(agents: [usize; 2], steps: [u64; 2], done_s: f64) -> Pairing {
        Pairing { agents, steps, ready_s: 0.0, done_s }
    }

    #[test]
    fn rounds_have_half_as_many_pairings_as_there_are_agents_and_turns_have_nobody_twice() {
        let all = [
            pairing([0, 1], [2, 3], 1.0),
            pairing([3, 4], [1, 1], 5.0),
            pairing([0, 2], [2, 7], 2.0),
            pairing([1, 2], [3, 7], 3.0),
            pairing([0, 4], [2, 1], 4.0),
        ];
        let mut pairings = Pairings::new(5, all.into_iter());
        let turns = pairings.next_round().unwrap();
        assert_eq!(turns.iter().map(|turn| turn.pairs.clone()).collect::<Vec<_>>(), [[[0, 1], [3, 4]]]);
        assert_eq!((pairings.latest_s(), pairings.most_steps()), (5.0, 3));
        let turns = pairings.next_round().unwrap();
        let pairs = turns.iter().map(|turn| turn.pairs.clone()).collect::<Vec<_>>();
        assert_eq!(pairs, [vec![[0, 2]], vec![[1, 2], [0, 4]]]);
        assert_eq!(turns[1].work[0], DueSteps { agent: 1, before: 3, steps: 3 });
        assert_eq!(turns[1].work[2], DueSteps { agent: 0, before: 4, steps: 2 });
        assert_eq!((pairings.last_round(), pairings.rounds()), (&all[2..], 2));
        assert!(pairings.next_round().is_err());
        assert_eq!([1, 2, 3].map(|rounds| pairings_in(rounds, 5)), [2, 5, 7]);
    }

    #[test]
    fn agents_that_do_not_exist_are_refused() {
        for agents in [[1, 0], [1, 1], [0, 2]] {
            let mut pairings = Pairings::new(2, std::iter::once(pairing(agents, [1, 1], 0.0)));
            assert!(matches!(pairings.next_round(), Err(AgentsError::Method(_))));
        }
    }
}
