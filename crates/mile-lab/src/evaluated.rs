//! The agents whose own models are measured in records.

use mile::random::{Permutation, Purpose, stream};

/// Agents whose own models are measured unless more are asked for.
const USUAL: usize = 16;
/// Index of the random stream from which agents are drawn.
const STREAM: u64 = 7;

/// The agents whose own models are measured in records: their losses on the data of all N agents, and their metrics on the held-out
/// rows of all.
///
/// Each such model costs as much as the average model, N local objectives: measuring all of them would cost N^2 local
/// objectives a record. So at most 16 agents are measured unless told otherwise. They are drawn at random without replacement from
/// the seed of the run and N only, once: they are the same agents in all records of a run, for all methods.
///
/// `local_loss`, `local_accuracy` and so on are the mean over *these* agents, an unbiased estimate of the mean over all.
/// `worst_loss`, `worst_accuracy` and so on are of the worst of *these* agents; the worst of all may be worse. Both are exact if all
/// agents are measured. Every other quantity of a record, such as the consensus error, is always of all agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluatedAgents {
    /// All agents.
    All,
    /// This many agents, or all if there are fewer; at least one.
    AtMost(usize),
}

impl Default for EvaluatedAgents {
    fn default() -> Self {
        Self::AtMost(USUAL)
    }
}

impl EvaluatedAgents {
    /// The agents of a run with `agents` agents, in increasing order.
    pub fn choose(self, agents: usize, seed: u64) -> Vec<usize> {
        match self {
            Self::AtMost(most) if most < agents => {
                let order = Permutation::new(agents, stream(seed, Purpose::Probe, STREAM, agents as u64));
                let mut chosen: Vec<usize> = (0..most.max(1)).map(|place| order.at(place)).collect();
                chosen.sort_unstable();
                chosen
            }
            _ => (0..agents).collect(),
        }
    }
}
