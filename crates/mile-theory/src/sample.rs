//! What an estimate was made from, and how to say it.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

/// What an estimate was made from, where that is not everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Agents used, and all.
    pub agents: (usize, usize),
    /// Rows used of each of them, and all rows of the agent that has most; `None` if all were used, or if there are no rows.
    pub rows: Option<(u64, u64)>,
    /// Whether it was made at the starting point only.
    pub one_point: bool,
}

/// For instance `up to 2,000 of 50,000 rows of each agent, at the starting point only`.
impl Display for Sample {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some((used, all)) = self.rows {
            write!(f, "up to {} of {} rows of ", grouped(used), grouped(all))?;
        }
        match (self.agents, self.rows) {
            ((used, all), _) if used < all => write!(f, "{used} of {} agents", grouped(all as u64))?,
            (_, Some(_)) => write!(f, "each agent")?,
            (_, None) => write!(f, "all agents")?,
        }
        if self.one_point { write!(f, ", at the starting point only") } else { Ok(()) }
    }
}

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}
