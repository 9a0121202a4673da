//! The latest [`Notice`] of every agent, passed on from neighbour to neighbour, so that any agent can show the whole network.
//!
//! Each agent posts a notice about itself at [intervals](interval), and passes on what is new to it. Of two notices about an agent the
//! one with the larger version is the later one. There are no clocks to compare: a notice travels with its age, to which each agent adds
//! the time for which it has kept it. Nothing is decided by notices. What another agent says about a third one may be a lie, and is
//! shown all the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::frame::NOTICES;
use crate::notice::{self, Notice, Unreadable};

/// Milliseconds since any moment that the owner chooses.
type Millis = u64;

/// Agents whose notices cross an edge every second.
const EACH_SECOND: u64 = 64;

/// The time between two notices of an agent, in milliseconds: a second, and more if there are so many agents that their notices would take
/// more than some kilobytes a second on every edge.
pub fn interval(agents: usize) -> u64 {
    (agents as u64).saturating_mul(1000).div_ceil(EACH_SECOND).max(1000)
}

/// A notice that an agent knows, and its age.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Posted {
    /// The notice.
    #[serde(flatten)]
    pub notice: Notice,
    /// Seconds since it was posted, without its time on the way.
    pub age_s: f64,
}

impl Posted {
    /// A notice that was posted just now.
    pub fn now(notice: Notice) -> Self {
        Self { notice, age_s: 0.0 }
    }
}

/// The latest notice of each agent, as far as this agent knows.
#[derive(Clone, Debug)]
pub struct Board {
    me: usize,
    agents: usize,
    /// The largest version of a notice about this agent.
    version: u64,
    latest: BTreeMap<usize, Kept>,
}

/// A notice, with its age when it arrived.
#[derive(Clone, Debug)]
struct Kept {
    notice: Notice,
    age: u32,
    arrived: Millis,
}

impl Kept {
    fn age(&self, now: Millis) -> u32 {
        let kept = u32::try_from(now.saturating_sub(self.arrived)).unwrap_or(u32::MAX);
        self.age.saturating_add(kept)
    }
}

/// What the other end of a connection knows, because it was sent it, or has sent it.
#[derive(Clone, Debug, Default)]
pub struct Known {
    versions: BTreeMap<usize, u64>,
    /// The agent whose notice is sent next, if it is new.
    next: usize,
}

impl Known {
    fn note(&mut self, agent: usize, version: u64) {
        let known = self.versions.entry(agent).or_default();
        *known = version.max(*known);
    }
}

impl Board {
    /// A board of agent `me`, one of `agents`.
    pub fn new(me: usize, agents: usize) -> Self {
        Self { me, agents, version: 0, latest: BTreeMap::new() }
    }

    /// Posts a notice about this agent, which gets its version here: it is later than all before, also than those of earlier starts.
    pub fn post(&mut self, own: Notice, now: Millis) {
        let of_this_start = own.incarnation.min(u32::MAX.into()) << 32;
        self.version = self.version.saturating_add(1).max(of_this_start);
        let notice = Notice { agent: self.me, version: self.version, ..own };
        self.latest.insert(self.me, Kept { notice, age: 0, arrived: now });
    }

    /// Takes in a frame from the other end of a connection. Says whether anything in it was new.
    pub fn hear(&mut self, frame: &[u8], from: &mut Known, now: Millis) -> Result<bool, Unreadable> {
        let mut news = false;
        for (notice, age) in notice::read(frame, self.agents)? {
            let (agent, version) = (notice.agent, notice.version);
            from.note(agent, version);
            if agent == self.me {
                // Of an earlier start, if this agent was restored from a copy.
                self.version = self.version.max(version);
            } else if self.latest.get(&agent).is_none_or(|kept| kept.notice.version < version) {
                self.latest.insert(agent, Kept { notice, age, arrived: now });
                news = true;
            }
        }
        Ok(news)
    }

    /// The next frame for the other end of a connection, if there is something that it does not know.
    pub fn frame(&self, to: &mut Known, now: Millis) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let first = to.next;
        let in_turn = self.latest.range(first..).chain(self.latest.range(..first));
        for (agent, kept) in in_turn {
            if to.versions.get(agent).is_some_and(|version| *version >= kept.notice.version) {
                continue;
            }
            if bytes.len() + notice::length(&kept.notice) > NOTICES {
                to.next = *agent;
                break;
            }
            notice::write(&kept.notice, kept.age(now), &mut bytes);
            to.note(*agent, kept.notice.version);
        }
        (!bytes.is_empty()).then_some(bytes)
    }

    /// All notices, in increasing agent.
    pub fn all(&self, now: Millis) -> Vec<Posted> {
        let posted =
            |kept: &Kept| Posted { notice: kept.notice.clone(), age_s: f64::from(kept.age(now)) / 1e3 };
        self.latest.values().map(posted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Activity;
    use crate::notice::NoticedEdge;

    fn at(round: u64, incarnation: u64, edges: &[usize]) -> Notice {
        Notice {
            agent: 0,
            version: 0,
            incarnation,
            round,
            rounds: Some(100),
            activity: Activity::Computing,
            activity_ms: 0,
            own_loss: None,
            sent: 0,
            received: 0,
            diverged: None,
            edges: edges.iter().map(|id| NoticedEdge { id: *id, linked: true, waiting: None }).collect(),
        }
    }

    /// Agents on a ring, with what each knows of what its neighbours know.
    struct Ring {
        boards: Vec<Board>,
        known: BTreeMap<(usize, usize), Known>,
        frames: usize,
    }

    impl Ring {
        fn of(agents: usize) -> Self {
            let boards = (0..agents).map(|k| Board::new(k, agents)).collect();
            Self { boards, known: BTreeMap::new(), frames: 0 }
        }

        /// Sends what is new along the edges between agents that are up, until nothing is. Returns the number of frames.
        fn settle(&mut self, up: &dyn Fn(usize) -> bool, now: Millis) -> usize {
            let (n, before) = (self.boards.len(), self.frames);
            loop {
                let mut quiet = true;
                for (from, to) in (0..n).flat_map(|k| [(k, (k + 1) % n), ((k + 1) % n, k)]) {
                    if !up(from) || !up(to) {
                        continue;
                    }
                    let sent = self.boards[from].frame(self.known.entry((from, to)).or_default(), now);
                    let Some(frame) = sent else { continue };
                    assert!(frame.len() <= NOTICES);
                    quiet = false;
                    self.frames += 1;
                    let from = self.known.entry((to, from)).or_default();
                    self.boards[to].hear(&frame, from, now).unwrap();
                }
                if quiet {
                    return self.frames - before;
                }
            }
        }

        fn rounds(&self, agent: usize, now: Millis) -> Vec<(usize, u64, f64)> {
            let all = self.boards[agent].all(now);
            all.iter().map(|posted| (posted.notice.agent, posted.notice.round, posted.age_s)).collect()
        }
    }

    #[test]
    fn every_agent_learns_of_all_others_and_then_there_is_silence() {
        let mut ring = Ring::of(9);
        (0..9).for_each(|k| ring.boards[k].post(at(k as u64, 1, &[]), 1000));
        let frames = ring.settle(&|_| true, 1000);
        for k in 0..9 {
            let all: Vec<_> = (0..9).map(|agent| (agent, agent as u64, 0.5)).collect();
            assert_eq!(ring.rounds(k, 1500), all);
        }
        assert!(frames <= 2 * 9 * 9, "each notice crosses an edge once in each direction at most: {frames}");
        assert_eq!(ring.settle(&|_| true, 2000), 0, "nothing is new");
    }

    #[test]
    fn with_a_third_of_the_agents_down_the_others_still_hear_of_each_other_and_old_notices_age() {
        let mut ring = Ring::of(6);
        (0..6).for_each(|k| ring.boards[k].post(at(1, 1, &[]), 0));
        ring.settle(&|_| true, 0);
        let up = |k: usize| k != 2 && k != 3;
        for second in 1..=8 {
            (0..6)
                .filter(|k| up(*k))
                .for_each(|k| ring.boards[k].post(at(1 + second, 1, &[]), second * 1000));
            ring.settle(&up, second * 1000);
        }
        let seen = ring.rounds(4, 8200);
        let fresh = |k| (k, 9, 0.2);
        assert_eq!(seen, [fresh(0), fresh(1), (2, 1, 8.2), (3, 1, 8.2), fresh(4), fresh(5)]);
    }

    #[test]
    fn the_age_grows_at_every_agent_that_keeps_a_notice_before_it_passes_it_on() {
        let mut boards = [0, 1, 2].map(|k| Board::new(k, 3));
        boards[0].post(at(7, 1, &[]), 50_000);
        let first = boards[0].frame(&mut Known::default(), 51_000).unwrap();
        // The clock of each agent begins when it likes.
        boards[1].hear(&first, &mut Known::default(), 10).unwrap();
        let second = boards[1].frame(&mut Known::default(), 2010).unwrap();
        boards[2].hear(&second, &mut Known::default(), 0).unwrap();
        assert_eq!(boards[2].all(500)[0].age_s, 3.5);
    }

    #[test]
    fn a_restarted_agent_is_heard_also_if_it_was_restored_from_an_old_copy() {
        let mut ring = Ring::of(3);
        for k in 0..3 {
            (0..5).for_each(|round| ring.boards[k].post(at(round, 4, &[]), 0));
        }
        ring.settle(&|_| true, 0);
        for (incarnation, round) in [(5, 6), (2, 3)] {
            ring.boards[1] = Board::new(1, 3);
            ring.known.retain(|(from, to), _| *from != 1 && *to != 1);
            ring.boards[1].post(at(round, incarnation, &[]), 0);
            ring.settle(&|_| true, 0);
            // What it hears about itself tells it how far it had been.
            ring.boards[1].post(at(round, incarnation, &[]), 0);
            ring.settle(&|_| true, 0);
            assert_eq!(ring.rounds(0, 0)[1], (1, round, 0.0));
            assert_eq!(ring.rounds(2, 0)[1], (1, round, 0.0));
        }
    }

    #[test]
    fn what_does_not_fit_into_a_frame_comes_with_the_next_and_nobody_is_forgotten() {
        let agents = 400;
        let mut hub = Board::new(0, agents);
        let mut source = Known::default();
        for k in 1..agents {
            let mut bytes = Vec::new();
            notice::write(&Notice { agent: k, version: 1, ..at(3, 1, &[0]) }, 0, &mut bytes);
            assert!(hub.hear(&bytes, &mut source, 0).unwrap());
            assert!(!hub.hear(&bytes, &mut source, 0).unwrap(), "the same again is no news");
        }
        assert_eq!(hub.frame(&mut source, 0), None, "it knows what it has said");
        let (mut other, mut known) = (Board::new(1, agents), Known::default());
        let mut frames = 0;
        while let Some(frame) = hub.frame(&mut known, 0) {
            other.hear(&frame, &mut Known::default(), 0).unwrap();
            frames += 1;
        }
        assert!(frames > 3, "{frames}");
        assert_eq!(other.all(0).len(), agents - 2, "all but itself and the hub, which has posted nothing");
        assert!(other.hear(&[0; 3], &mut Known::default(), 0).is_err());
    }

    #[test]
    fn notices_come_more_rarely_where_there_are_very_many_agents() {
        assert_eq!([1, 4, 64, 128, 6400].map(interval), [1000, 1000, 1000, 2000, 100_000]);
    }
}
