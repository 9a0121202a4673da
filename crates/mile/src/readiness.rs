//! Who is ready with whom: the pairings of a run by a [model of time](crate::time).
//!
//! An agent makes its local steps and is then ready. As soon as a neighbour is ready too, both send their message and go on when they have the other's:
//!
//! ```text
//! s     = max(t_i, t_j)                                  both are ready
//! t_i   = s + bytes / bandwidth_ji + latency_ji          i has j's message and begins its next local steps
//! ```
//!
//! Who is ready is taken to be known at once. Of several ready neighbours an agent takes the one with which it has exchanged least recently, and of
//! edges that are equal in that the one with the smallest agents. Agents that become ready at the same time are matched together, by the same order.
//!
//! Two agents that have just exchanged go on at nearly the same time. With constant speeds they might always be ready for each other and never for
//! anybody else. So an edge that one of its ends has left out in its last [`PATIENCE`] exchanges for each of its neighbours is waited for: its ends
//! exchange with nobody else until they have used it. An agent that is slower than its neighbours by less than that factor keeps nobody waiting, and
//! every edge is used again and again whatever the speeds.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use crate::graph::Graph;
use crate::pairing::Pairing;
use crate::time::TimeModel;

/// Exchanges for each neighbour of an agent after which it waits for one that was left out in all of them.
pub const PATIENCE: u64 = 25;

/// What decides when agents are ready.
#[derive(Clone, Debug)]
pub struct Speeds {
    /// How long everything takes.
    pub model: TimeModel,
    /// Seed of the run.
    pub seed: u64,
    /// Local steps of each agent between two exchanges.
    pub local_steps: Vec<u64>,
    /// Bytes of a message.
    pub bytes: usize,
}

/// The pairings of agents on a graph, without end if there are edges.
#[derive(Debug)]
pub struct Readiness {
    speeds: Speeds,
    edges: Vec<Edge>,
    /// Edges of each agent.
    of_agent: Vec<Vec<usize>>,
    /// Local steps and exchanges of each agent.
    steps: Vec<u64>,
    exchanges: Vec<u64>,
    /// Agents that make local steps, and when they are ready.
    working: BinaryHeap<Reverse<(Seconds, usize)>>,
    ready: BTreeSet<usize>,
    /// Pairings that begin now.
    due: VecDeque<Pairing>,
    pairings: u64,
}

/// An edge, and its use so far.
#[derive(Debug)]
struct Edge {
    ends: [usize; 2],
    /// After how many exchanges of one end it is waited for.
    patience: u64,
    uses: u64,
    /// The number of its last pairing, from 1; 0 if there was none.
    last: u64,
    /// The exchanges of both ends up to its last use.
    seen: [u64; 2],
}

/// A finite time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seconds(f64);

impl Eq for Seconds {}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Readiness {
    /// Agents that all begin their first local step at zero.
    ///
    /// # Panics
    /// If there is not a number of local steps for each agent.
    pub fn new(graph: &Graph, speeds: Speeds) -> Self {
        let agents = graph.agents();
        assert_eq!(speeds.local_steps.len(), agents, "local steps of each agent");
        let mut of_agent = vec![Vec::new(); agents];
        let edge = |(k, (i, j)): (usize, (usize, usize))| {
            of_agent[i].push(k);
            of_agent[j].push(k);
            let patience = PATIENCE * graph.degree(i).max(graph.degree(j)) as u64;
            Edge { ends: [i, j], patience, uses: 0, last: 0, seen: [0; 2] }
        };
        let edges = graph.edges().enumerate().map(edge).collect();
        let mut all = Self {
            speeds,
            edges,
            of_agent,
            steps: vec![0; agents],
            exchanges: vec![0; agents],
            working: BinaryHeap::new(),
            ready: BTreeSet::new(),
            due: VecDeque::new(),
            pairings: 0,
        };
        (0..agents).for_each(|agent| all.work(agent, 0.0));
        all
    }

    /// The agent begins its local steps.
    fn work(&mut self, agent: usize, from: f64) {
        let Speeds { model, seed, local_steps, .. } = &self.speeds;
        let mut now = from;
        for _ in 0..local_steps[agent] {
            now += model.step_seconds(*seed, agent, self.steps[agent]);
            self.steps[agent] += 1;
        }
        self.working.push(Reverse((Seconds(now), agent)));
    }

    /// Those who are ready next, all at the same time.
    fn become_ready(&mut self) -> Option<f64> {
        let &Reverse((now, _)) = self.working.peek()?;
        while let Some(&Reverse((time, agent))) = self.working.peek()
            && time == now
        {
            self.working.pop();
            self.ready.insert(agent);
        }
        Some(now.0)
    }

    /// Whether one end has left the edge out for too long.
    fn is_overdue(&self, edge: &Edge) -> bool {
        let left_out = |k: usize| self.exchanges[edge.ends[k]] - edge.seen[k];
        left_out(0).max(left_out(1)) >= edge.patience
    }

    /// Matches those who are ready: overdue edges first, then those that were used least recently. An exchange makes nobody ready and
    /// leaves those who wait with no more neighbours to choose from, so each edge is looked at once.
    fn match_ready(&mut self, now: f64) {
        let rank = |k: usize| (!self.is_overdue(&self.edges[k]), self.edges[k].last, k);
        let of_ready = self.ready.iter().flat_map(|agent| &self.of_agent[*agent]).copied();
        let mut edges: Vec<(bool, u64, usize)> = of_ready
            .filter(|k| self.edges[*k].ends.iter().all(|end| self.ready.contains(end)))
            .map(rank)
            .collect();
        edges.sort_unstable();
        edges.dedup();
        for (in_time, _, k) in edges {
            let ends = self.edges[k].ends;
            let waits =
                |agent: &usize| self.of_agent[*agent].iter().any(|k| self.is_overdue(&self.edges[*k]));
            let is_free = !in_time || !ends.iter().any(waits);
            if is_free && ends.iter().all(|end| self.ready.contains(end)) {
                self.exchange(k, now);
            }
        }
    }

    /// The two ends of an edge exchange and go on.
    fn exchange(&mut self, k: usize, now: f64) {
        let Edge { ends: [i, j], uses, .. } = self.edges[k];
        let Speeds { model, seed, bytes, local_steps } = &self.speeds;
        let after = |from, to| now + model.transit(*seed, (from, to), uses).seconds(*bytes as f64);
        let (at_i, at_j) = (after(j, i), after(i, j));
        let steps = [local_steps[i], local_steps[j]];
        self.pairings += 1;
        for agent in [i, j] {
            self.ready.remove(&agent);
            self.exchanges[agent] += 1;
        }
        let edge = &mut self.edges[k];
        (edge.uses, edge.last) = (uses + 1, self.pairings);
        edge.seen = [self.exchanges[i], self.exchanges[j]];
        self.due.push_back(Pairing { agents: [i, j], steps, ready_s: now, done_s: at_i.max(at_j) });
        self.work(i, at_i);
        self.work(j, at_j);
    }
}

impl Iterator for Readiness {
    type Item = Pairing;

    fn next(&mut self) -> Option<Pairing> {
        loop {
            if let Some(pairing) = self.due.pop_front() {
                return Some(pairing);
            }
            let now = self.become_ready()?;
            self.match_ready(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Topology;
    use crate::time::{Law, Line};

    fn readiness(topology: Topology, steps: &[f64], local_steps: u64, line: Line) -> Readiness {
        let graph = topology.build(steps.len(), 0).unwrap();
        let model = TimeModel::new(steps.iter().map(|step| Law::Constant(*step)).collect(), line).unwrap();
        let local_steps = vec![local_steps; steps.len()];
        Readiness::new(&graph, Speeds { model, seed: 0, local_steps, bytes: 100 })
    }

    fn at_once() -> Line {
        Line::constant(0.0, f64::INFINITY)
    }

    #[test]
    fn messages_take_their_time_and_a_slow_agent_keeps_nobody_waiting() {
        let line = Line::constant(0.5, 100.0);
        let all: Vec<Pairing> = readiness(Topology::Path, &[1.0, 1.0, 10.0], 2, line).take(8).collect();
        let begun = |agents| all.iter().filter(|p| p.agents == agents).map(|p| p.ready_s).collect::<Vec<_>>();
        // Two steps, and one and a half seconds for the messages. The slow agent is ready at 20, when agent 1 has just begun with agent 0;
        // after that agent 1 takes the neighbour that it has not met for longest, and agent 0 waits for it.
        assert_eq!(begun([0, 1]), [2.0, 5.5, 9.0, 12.5, 16.0, 19.5, 26.5]);
        assert_eq!(begun([1, 2]), [23.0]);
        assert!(all.iter().all(|p| p.done_s == p.ready_s + 1.5 && p.steps == [2, 2]));
    }

    #[test]
    fn agents_that_are_ready_together_take_edges_in_turn() {
        let all: Vec<[usize; 2]> =
            readiness(Topology::Ring, &[1.0; 4], 3, at_once()).take(6).map(|p| p.agents).collect();
        assert_eq!(all, [[0, 1], [2, 3], [0, 3], [1, 2], [0, 1], [2, 3]]);
    }

    #[test]
    fn every_edge_is_used_again_and_again() {
        for (topology, steps) in [
            // Two pairs that would always find each other first, and a path on which some would never meet.
            (Topology::Ring, vec![1.0, 1.0, 0.99, 0.99]),
            (Topology::Path, vec![1.0, 10.0, 3.0, 7.0, 2.0, 5.0, 10.0, 10.0, 4.0, 2.0]),
            (Topology::Star, vec![1.0, 1.0, 1000.0, 0.5, 2.0]),
            (Topology::Complete, vec![1.0; 7]),
        ] {
            let graph = topology.build(steps.len(), 0).unwrap();
            let patience = PATIENCE * graph.max_degree() as u64;
            let mut exchanges = vec![0; steps.len()];
            let mut seen = std::collections::BTreeMap::new();
            let mut most = 0;
            for pairing in readiness(topology, &steps, 1, at_once()).take(20_000) {
                let [i, j] = pairing.agents;
                exchanges[i] += 1;
                exchanges[j] += 1;
                let before = seen.insert((i, j), [exchanges[i], exchanges[j]]).unwrap_or_default();
                most = most.max((exchanges[i] - before[0]).max(exchanges[j] - before[1]));
            }
            assert_eq!(seen.len(), graph.edges().count(), "{topology:?}");
            // Several edges of an agent may be overdue at once.
            assert!(most <= patience + graph.max_degree() as u64, "{topology:?}: {most}");
        }
    }

    #[test]
    fn steps_that_take_no_time_are_matched_for_ever() {
        let all: Vec<Pairing> = readiness(Topology::Ring, &[0.0; 5], 1, at_once()).take(1000).collect();
        let used = |i, j| all.iter().filter(|p| p.agents == [i, j]).count();
        assert!(all.iter().all(|p| p.ready_s == 0.0) && used(0, 1).abs_diff(used(3, 4)) < 10);
    }
}
