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
    /// agents.
    Rows {
        /// Rows of all agents together, which must be given where only some agents' rows are available; `None`: those available
        /// are all.
        total: Option<u64>,
    },
    /// By these factors, one for each agent, by which means and penalties are multiplied.
    Factors(Vec<f64>),
}

impl AgentWeights {
    /// The factor of each agent, from the numbers of their rows.
    pub fn factors(&self, rows: &[usize]) -> Result<Vec<f64>, InvalidTable> {
        match self {
            Self::Equal => Ok(vec![1.0; rows.len()]),
            Self::Rows { total } => {
                let most = rows.iter().copied().max().unwrap_or(0) as u64;
                let total = total.unwrap_or_else(|| rows.iter().map(|rows| *rows as u64).sum());
                if total < most {
                    return Err(InvalidTable::TotalRows { got: total, least: most });
                }
                Ok(rows.iter().map(|m| rows.len() as f64 * *m as f64 / total as f64).collect())
            }
            Self::Factors(factors) => {
                let good = |factor: &f64| *factor >= 0.0 && factor.is_finite();
                if factors.len() != rows.len() || !factors.iter().all(good) {
                    return Err(InvalidTable::Factors { got: factors.clone(), agents: rows.len() });
                }
                Ok(factors.clone())
            }
        }
    }
}
