//! What is minimised on a table.

use super::{InvalidTable, Loss};

/// What is minimised: the mean of a loss over an agent's rows, plus penalties.
#[derive(Clone, Debug, PartialEq)]
pub struct TableObjective {
    /// The loss of a row.
    pub loss: Loss,
    /// Weight of the smooth penalty, which is part of each f_i.
    pub l2: f64,
    /// Weight of the nonsmooth penalty `l1 |x|_1`, which all agents share ([`Penalty`](crate::problems::Penalty)).
    pub l1: f64,
    /// Whether the last column is the constant 1. Its coefficients are then not penalised.
    pub intercept: bool,
    /// How much each agent counts.
    pub weights: AgentWeights,
}

impl TableObjective {
    /// A loss and the weight of its smooth penalty; without intercept, with agents of equal weight.
    pub fn new(loss: Loss, l2: f64) -> Self {
        Self { loss, l2, l1: 0.0, intercept: false, weights: AgentWeights::Equal }
    }
}

/// How much each agent's mean over its rows counts in `f = (1/N) sum_i f_i`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentWeights {
    /// All agents count equally, however many rows they have.
    Equal,
    /// By rows: agent i's mean, with its penalty, is multiplied by `N m_i/total`, so that f is the mean over all rows of all
    /// agents. Where rows have weights, m_i and the total are sums of weights.
    Rows {
        /// Rows of all agents together, which must be given where only some agents' rows are available; `None`: those available
        /// are all.
        total: Option<f64>,
    },
    /// By these factors, one for each agent, by which means and penalties are multiplied.
    Factors(Vec<f64>),
}

impl AgentWeights {
    /// The factor of each agent, from the numbers of their rows, or the sums of their rows' weights ([`Shard::mass`](super::Shard::mass)).
    pub fn factors(&self, masses: &[f64]) -> Result<Vec<f64>, InvalidTable> {
        let agents = masses.len();
        match self {
            Self::Equal => Ok(vec![1.0; agents]),
            Self::Rows { total } => {
                let least = masses.iter().copied().fold(0.0, f64::max);
                let total = total.unwrap_or_else(|| masses.iter().sum());
                // Sums of weights may differ in their last digits where they were formed in another order or precision.
                if total < least * (1.0 - 1e-6) {
                    return Err(InvalidTable::TotalRows { got: total, least });
                }
                Ok(masses.iter().map(|mass| agents as f64 * mass / total).collect())
            }
            Self::Factors(factors) => {
                let good = |factor: &f64| *factor >= 0.0 && factor.is_finite();
                if factors.len() != agents || !factors.iter().all(good) {
                    return Err(InvalidTable::Factors { got: factors.clone(), agents });
                }
                Ok(factors.clone())
            }
        }
    }
}
