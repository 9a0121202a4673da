//! Logs of pairings: lines of comma-separated values, in the order in which the exchanges began.
//!
//! Numbers are written such that they read back as the same numbers.

use std::fmt;

use super::Pairing;

/// The first line of a log.
pub const HEADER: &str = "ready_s,done_s,agent,neighbour,steps,neighbour_steps";

/// A line of a log that is not a pairing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, got \"{got}\"")]
#[non_exhaustive]
pub struct InvalidLog {
    /// Its number, from 1.
    pub line: usize,
    /// What was expected.
    pub expected: String,
    /// What it is.
    pub got: String,
}

impl fmt::Display for Pairing {
    /// A line of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agents: [i, j], steps: [of_i, of_j], ready_s, done_s } = self;
        write!(f, "{ready_s},{done_s},{i},{j},{of_i},{of_j}")
    }
}

/// The pairings in the text of a log, of agents that `joins` says are neighbours.
///
/// ```
/// use mile::pairing::{HEADER, read_log};
/// let log = format!("{HEADER}\n0.5,0.75,0,2,10,1\n");
/// let pairings = read_log(&log, |_, _| true)?;
/// assert_eq!((pairings[0].agents, pairings[0].to_string()), ([0, 2], "0.5,0.75,0,2,10,1".to_owned()));
/// # Ok::<(), mile::pairing::InvalidLog>(())
/// ```
///
/// # Errors
/// If a line is not a pairing of two neighbours, each with at least one step.
pub fn read_log(text: &str, joins: impl Fn(usize, usize) -> bool) -> Result<Vec<Pairing>, InvalidLog> {
    let mut lines = text.lines().enumerate();
    let refuse = |line: usize, expected: &str, got: &str| InvalidLog {
        line: line + 1,
        expected: expected.to_owned(),
        got: got.to_owned(),
    };
    let (_, header) = lines.next().unwrap_or((0, ""));
    if header.trim_end() != HEADER {
        return Err(refuse(0, HEADER, header));
    }
    let read = |(k, line): (usize, &str)| {
        let expected =
            "two times in seconds, two agents, the smaller first, and the steps of both, at least 1";
        let pairing = parse(line).ok_or_else(|| refuse(k, expected, line))?;
        let [i, j] = pairing.agents;
        if joins(i, j) {
            Ok(pairing)
        } else {
            Err(refuse(k, "two agents that an edge of the network joins", line))
        }
    };
    lines.filter(|(_, line)| !line.trim().is_empty()).map(read).collect()
}

fn parse(line: &str) -> Option<Pairing> {
    let fields: Vec<&str> = line.trim_end().split(',').collect();
    let &[ready, done, i, j, of_i, of_j] = fields.as_slice() else { return None };
    let (ready_s, done_s): (f64, f64) = (ready.parse().ok()?, done.parse().ok()?);
    let (agents, steps) = ([i.parse().ok()?, j.parse().ok()?], [of_i.parse().ok()?, of_j.parse().ok()?]);
    let is_valid = agents[0] < agents[1] && !steps.contains(&0) && ready_s.is_finite() && done_s.is_finite();
    is_valid.then_some(Pairing { agents, steps, ready_s, done_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_to_the_bit() {
        let third = Pairing { agents: [3, 11], steps: [1, 50], ready_s: 1.0 / 3.0, done_s: 0.1 + 0.2 };
        let log = format!("{HEADER}\n{third}\n\n{third}\n");
        assert_eq!(read_log(&log, |i, j| (i, j) == (3, 11)).unwrap(), [third, third]);
    }

    #[test]
    fn lines_that_are_no_pairings_are_named() {
        let line = |text: &str| read_log(text, |_, j| j < 5).unwrap_err().line;
        assert_eq!((line(""), line("0,1,2,3,4,5\n")), (1, 1));
        let good = "0,1,2,3,4,5";
        for bad in [
            "0,1,3,2,4,5",
            "0,1,2,3,0,5",
            "0,1,2,3,4",
            "0,inf,2,3,4,5",
            "0,1,2,5,4,5",
            "a,1,2,3,4,5",
            "0,1,2,2,4,5",
        ] {
            assert_eq!(line(&format!("{HEADER}\n{good}\n{bad}\n")), 3, "{bad}");
        }
    }
}
