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
pub struct RoundRange {
    /// First round.
    pub from: u64,
    /// Last round.
    pub to: u64,
    /// Whether the edge is used in them.
    pub used: bool,
}

impl Decisions {
    /// What was decided for a round, if anything.
    pub fn get(&self, round: u64) -> Option<bool> {
        self.0.iter().rfind(|range| range.from <= round && round <= range.to).map(|range| range.used)
    }

    /// Adds a decision. Returns `false`, and changes nothing, if it contradicts an earlier one.
    #[must_use]
    pub fn add(&mut self, range: RoundRange) -> bool {
        if range.from > range.to || range.to == u64::MAX {
            return false;
        }
        let overlaps = |known: &&RoundRange| known.from <= range.to && range.from <= known.to;
        if self.0.iter().filter(overlaps).any(|known| known.used != range.used) {
            return false;
        }
        let rest = self.0.last().map_or(range.from, |last| range.from.max(last.to + 1));
        match self.0.last_mut() {
            _ if rest > range.to => {}
            Some(last) if rest == last.to + 1 && range.used == last.used => last.to = range.to,
            _ => self.0.push(RoundRange { from: rest, ..range }),
        }
        true
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
            assert!(decisions.add(one(round, true)));
        }
        assert!(decisions.add(RoundRange { from: 6, to: 9, used: false }));
        assert_eq!(decisions.ranges().len(), 2);
        assert_eq!([2, 3, 5, 6, 9, 10].map(|round| decisions.get(round)), {
            [None, Some(true), Some(true), Some(false), Some(false), None]
        });
        assert!(decisions.add(RoundRange { from: 4, to: 5, used: true }), "told again");
        assert!(!decisions.add(one(5, false)), "a contradiction");
        assert!(decisions.add(RoundRange { from: 8, to: 12, used: false }), "told again, and more");
        assert_eq!(decisions.ranges()[1], RoundRange { from: 6, to: 12, used: false });
        assert!(!decisions.add(RoundRange { from: 14, to: u64::MAX, used: true }), "no run is that long");
        assert!(!decisions.add(RoundRange { from: 3, to: 13, used: true }));
        decisions.forget(5);
        assert_eq!(decisions.ranges()[0], one(5, true));
        assert!(decisions.add(one(4, false)), "long forgotten: of no consequence");
        decisions.forget(100);
        assert_eq!(decisions, Decisions::default());
    }
}
