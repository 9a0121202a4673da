//! `agents.csv`: which rows each agent has.

use std::fmt::Write;
use std::sync::Arc;

/// The rows of an agent: their places, from 0, in its own file or in that of all agents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentRows {
    pub(super) agent: usize,
    /// Its file, or its value in the column `by`.
    pub(super) source: String,
    pub(super) training: Vec<u32>,
    /// Held-out rows; with a file of test rows, their places there.
    pub(super) test: Vec<u32>,
}

/// The rows of all agents as a CSV file, with a column for the seed if that decides who has which.
pub(super) fn to_csv(divisions: &[(Option<u64>, Arc<Vec<AgentRows>>)]) -> String {
    let has_seed = divisions.iter().any(|(seed, _)| seed.is_some());
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = ["agent", "source", "training_rows", "test_rows", "training", "test"].map(str::to_owned);
    let _ = writer.write_record(has_seed.then(|| "seed".to_owned()).into_iter().chain(header));
    for (seed, agents) in divisions {
        for AgentRows { agent, source, training, test } in &**agents {
            let counts = [training, test].map(|rows| rows.len().to_string());
            let lists = [training, test].map(|rows| ranges(rows));
            let cells = [agent.to_string(), source.clone()].into_iter().chain(counts).chain(lists);
            let _ = writer.write_record(seed.map(|seed| seed.to_string()).into_iter().chain(cells));
        }
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Numbers of rows, counted from 1, with `4-7` for 4, 5, 6 and 7; `rows` increase.
fn ranges(rows: &[u32]) -> String {
    let mut text = String::new();
    for run in rows.chunk_by(|a, b| a + 1 == *b) {
        let (first, last) = (u64::from(run[0]) + 1, u64::from(run[run.len() - 1]) + 1);
        let space = if text.is_empty() { "" } else { " " };
        let _ = match last - first {
            0 => write!(text, "{space}{first}"),
            _ => write!(text, "{space}{first}-{last}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_from_one_and_neighbours_are_a_range() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7]), "1-3 5 7-8");
        assert_eq!(ranges(&[u32::MAX]), "4294967296");
    }
}
