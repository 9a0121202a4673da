//! The times at which all agents have done their steps and exchanges.
//!
//! An exchange waits for the neighbours and for nobody else: an agent has finished it when it has reached it itself and the messages of its
//! neighbours have arrived. A message leaves when its agent has reached the exchange and the one before it on the same line has left:
//!
//! ```text
//! e_ij = max(t_i, e_ij) + bytes / bandwidth_ij        the last byte of i's message to j is sent
//! t_j  = max(t_j, max over neighbours i of e_ij + latency_ij)
//! ```
//!
//! That is the discrete-event simulation of the run, written as a recurrence: nothing is approximated.

use super::TimeModel;
use crate::sparse::SparseRows;

/// The clocks of all agents of a network.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The agents' numbers, by place.
    members: Vec<usize>,
    /// When each is ready for what it does next.
    now: Vec<f64>,
    /// The local steps of each.
    steps: Vec<u64>,
    exchanges: u64,
    /// When the last message of each line was sent, for each entry of the rows of weights.
    sent: Vec<f64>,
    arrived: Vec<f64>,
}

impl Clock {
    /// Clocks at zero, of agents with these numbers.
    pub fn new(members: Vec<usize>) -> Self {
        let count = members.len();
        Self {
            members,
            now: vec![0.0; count],
            steps: vec![0; count],
            exchanges: 0,
            sent: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// The same clocks for other members, in increasing order; those who come have been waiting for it.
    pub fn with_members(&self, members: Vec<usize>) -> Self {
        let place = |agent: &usize| self.members.binary_search(agent).ok();
        let now = members.iter().map(|agent| place(agent).map_or(0.0, |place| self.now[place])).collect();
        let steps = members.iter().map(|agent| place(agent).map_or(0, |place| self.steps[place])).collect();
        // What the network before had still to deliver is no longer waited for.
        Self { now, steps, exchanges: self.exchanges, ..Self::new(members) }
    }

    /// When each agent is ready, by place.
    pub fn ready(&self) -> &[f64] {
        &self.now
    }

    /// When all agents are ready.
    pub fn latest(&self) -> f64 {
        self.now.iter().copied().fold(0.0, f64::max)
    }

    /// The agent at a place does local steps.
    pub fn work(&mut self, model: &TimeModel, seed: u64, place: usize, steps: u64) {
        for _ in 0..steps {
            self.now[place] += model.step_seconds(seed, self.members[place], self.steps[place]);
            self.steps[place] += 1;
        }
    }

    /// All agents send a message of this length to the neighbours to which their row of weights, by place, has an entry that is not 0,
    /// and wait for theirs.
    pub fn exchange(&mut self, model: &TimeModel, seed: u64, weights: &SparseRows, bytes: usize) {
        self.sent.resize(weights.entries.len(), 0.0);
        self.arrived.clone_from(&self.now);
        for (place, agent) in self.members.iter().enumerate() {
            for entry in weights.starts[place]..weights.starts[place + 1] {
                let (to, weight) = weights.entries[entry];
                if to == place || weight == 0.0 {
                    continue;
                }
                let transit = model.transit(seed, (*agent, self.members[to]), self.exchanges);
                self.sent[entry] = self.sent[entry].max(self.now[place]) + transit.sending(bytes as f64);
                self.arrived[to] = self.arrived[to].max(self.sent[entry] + transit.latency);
            }
        }
        std::mem::swap(&mut self.now, &mut self.arrived);
        self.exchanges += 1;
    }
}
