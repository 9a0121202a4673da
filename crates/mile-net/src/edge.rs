//! Which rounds an edge is used in, if it may be skipped while a neighbour is away.
//!
//! The end with the smaller id decides. It writes its decision to disk before it tells the other end, which waits for it. So
//! an edge is used by both ends or by neither, whatever is lost in between.

use serde::{Deserialize, Serialize};

/// Decisions about one edge, as ranges of rounds in increasing order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions(Vec<RoundRange>);

/// Rounds `from..=to`, all used or all skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RoundRange {
    /// First round.
    pub from: u64,
    /// Last round.
    pub to: u64,
    /// Whether the edge is used in them.
    pub used: bool,
}

/// Most ranges that are kept for an edge. An end that decides is ahead of the other by rounds that it skipped, which are one range,
/// and by those that the other end repeats after a restart.
pub const MOST_RANGES: usize = 10_000;

/// Why a decision is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedDecision {
    /// It covers no rounds.
    #[error("a decision about the edge covers no rounds")]
    NoRange,
    /// It says the opposite of an earlier one.
    #[error("a decision about the edge contradicts an earlier one")]
    Contradiction,
    /// There are too many about rounds that this end has not yet run.
    #[error("more than {MOST_RANGES} decisions about rounds not yet run here")]
    TooMany,
}

impl Decisions {
    /// What was decided for a round, if anything.
    pub fn get(&self, round: u64) -> Option<bool> {
        let place = self.0.partition_point(|range| range.to < round);
        self.0.get(place).filter(|range| range.from <= round).map(|range| range.used)
    }

    /// Adds a decision.
    ///
    /// # Errors
    /// If it contradicts an earlier one, or would be one of more than [`MOST_RANGES`]; then nothing is changed.
    pub fn add(&mut self, range: RoundRange) -> Result<(), RefusedDecision> {
        if range.from > range.to || range.to == u64::MAX {
            return Err(RefusedDecision::NoRange);
        }
        // Ranges are in increasing order and do not overlap.
        let first = self.0.partition_point(|known| known.to < range.from);
        let overlapping = self.0[first..].iter().take_while(|known| known.from <= range.to);
        if overlapping.into_iter().any(|known| known.used != range.used) {
            return Err(RefusedDecision::Contradiction);
        }
        let rest = self.0.last().map_or(range.from, |last| range.from.max(last.to + 1));
        let count = self.0.len();
        match self.0.last_mut() {
            _ if rest > range.to => {}
            Some(last) if rest == last.to + 1 && range.used == last.used => last.to = range.to,
            _ if count >= MOST_RANGES => return Err(RefusedDecision::TooMany),
            _ => self.0.push(RoundRange { from: rest, ..range }),
        }
        Ok(())
    }

    /// Forgets decisions about rounds before this one.
    pub fn forget(&mut self, before: u64) {
        self.0.retain(|range| range.to >= before);
        if let Some(first) = self.0.first_mut() {
            first.from = first.from.max(before);
        }
    }

    /// All of them.
    pub fn ranges(&self) -> &[RoundRange] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_kept_as_ranges_and_never_contradicted() {
        let mut decisions = Decisions::default();
        let one = |round, used| RoundRange { from: round, to: round, used };
        for round in 3..6 {
            decisions.add(one(round, true)).unwrap();
        }
        decisions.add(RoundRange { from: 6, to: 9, used: false }).unwrap();
        assert_eq!(decisions.ranges().len(), 2);
        assert_eq!([2, 3, 5, 6, 9, 10].map(|round| decisions.get(round)), {
            [None, Some(true), Some(true), Some(false), Some(false), None]
        });
        decisions.add(RoundRange { from: 4, to: 5, used: true }).expect("told again");
        assert_eq!(decisions.add(one(5, false)), Err(RefusedDecision::Contradiction));
        decisions.add(RoundRange { from: 8, to: 12, used: false }).expect("told again, and more");
        assert_eq!(decisions.ranges()[1], RoundRange { from: 6, to: 12, used: false });
        let endless = RoundRange { from: 14, to: u64::MAX, used: true };
        assert_eq!(decisions.add(endless), Err(RefusedDecision::NoRange), "no run is that long");
        let mixed = RoundRange { from: 3, to: 13, used: true };
        assert_eq!(decisions.add(mixed), Err(RefusedDecision::Contradiction));
        decisions.forget(5);
        assert_eq!(decisions.ranges()[0], one(5, true));
        decisions.add(one(4, false)).expect("long forgotten: of no consequence");
        decisions.forget(100);
        assert_eq!(decisions, Decisions::default());
    }

    #[test]
    fn decisions_for_far_rounds_are_limited() {
        let mut decisions = Decisions::default();
        let taken = (0..200_000u64)
            .filter(|round| {
                let one = RoundRange { from: *round, to: *round, used: round.is_multiple_of(2) };
                decisions.add(one).is_ok()
            })
            .count();
        assert_eq!(taken, MOST_RANGES);
        assert_eq!(decisions.ranges().len(), MOST_RANGES);
        decisions.forget(9_000);
        let next = RoundRange { from: 10_000, to: 10_000, used: true };
        decisions.add(next).expect("there is room again");
    }
}
