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
/// objectives per record. So at most 16 agents are measured unless told otherwise. They are drawn once, at random without replacement, from
/// the seed of the run and N only: they are the same agents in all records of a run, for all methods.
///
/// `local_loss`, `local_accuracy` and so on are the mean over *these* agents, an unbiased estimate of the mean over all.
/// `worst_loss`, `worst_accuracy` and so on are those of the worst of *these* agents; the worst of all may be worse. Both are exact if all
/// agents are measured. Every other quantity of a record, such as the consensus error, is always of all agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// As it is written in an experiment file.
    pub(crate) fn to_value(self) -> toml::Value {
        match self {
            Self::All => "all".into(),
            Self::AtMost(most) => toml::Value::Integer(most as i64),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_agents_are_all_measured_and_many_by_a_draw_from_the_seed() {
        let usual = EvaluatedAgents::default();
        assert_eq!(usual.choose(16, 3), (0..16).collect::<Vec<_>>());
        assert_eq!(usual.choose(1, 3), [0]);
        assert_eq!(EvaluatedAgents::All.choose(500, 3), (0..500).collect::<Vec<_>>());
        assert_eq!(EvaluatedAgents::AtMost(0).choose(9, 3).len(), 1);
        for agents in [17, 18, 1_000, 100_000] {
            let chosen = usual.choose(agents, 3);
            assert!(chosen.len() == 16 && chosen.is_sorted_by(|a, b| a < b) && chosen[15] < agents);
            assert_eq!(chosen, usual.choose(agents, 3));
            assert_ne!(chosen, usual.choose(agents, 4), "{agents} agents");
        }
    }

    #[test]
    fn every_agent_is_as_likely_as_any_other() {
        let (agents, seeds) = (20, 4_000);
        let mut counts = vec![0.0; agents];
        for seed in 0..seeds {
            EvaluatedAgents::AtMost(4)
                .choose(agents, seed)
                .into_iter()
                .for_each(|agent| counts[agent] += 1.0);
        }
        // Each is expected 800 times, with a standard deviation of 25.
        assert!(counts.iter().all(|count: &f64| (count - 800.0).abs() < 5.0 * 25.3), "{counts:?}");
    }
}
