//! When checkpoints are written.

use std::time::{Duration, Instant};

/// What decides about the next checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pace {
    /// Rounds: one after every [`Limits::checkpoint_every`](crate::protocol::Limits).
    #[default]
    Rounds,
    /// Time: one as soon as checkpoints have taken a twentieth of it, at the latest after that many rounds, or when
    /// the messages kept for neighbours need much memory.
    Time,
}

/// The time between two checkpoints is at least this many times that of writing one.
const COST: u32 = 20;
/// Bytes of kept messages from which on a checkpoint is written in any case.
const MUCH: usize = 32 << 20;

/// When the last checkpoint was written, and how long it took.
pub(super) struct Checkpoints {
    pace: Pace,
    every: u64,
    round: u64,
    written: Instant,
    took: Duration,
}

impl Checkpoints {
    /// After a checkpoint of this round, or a start.
    pub(super) fn after(pace: Pace, every: u64, round: u64) -> Self {
        Self { pace, every: every.max(1), round, written: Instant::now(), took: Duration::ZERO }
    }

    /// Whether a checkpoint is due at the end of a round; `kept` is the size in bytes of the messages that are kept.
    pub(super) fn is_due(&self, round: u64, kept: usize) -> bool {
        self.is_due_after(round, kept, self.written.elapsed())
    }

    fn is_due_after(&self, round: u64, kept: usize, passed: Duration) -> bool {
        match self.pace {
            Pace::Rounds => round.is_multiple_of(self.every),
            Pace::Time => {
                round.saturating_sub(self.round) >= self.every || kept >= MUCH || passed >= self.took * COST
            }
        }
    }

    /// One was written, which began then.
    pub(super) fn written(&mut self, round: u64, begun: Instant) {
        (self.round, self.written, self.took) = (round, Instant::now(), begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_written_by_rounds_or_by_what_they_cost() {
        let ms = Duration::from_millis;
        let rounds = Checkpoints::after(Pace::Rounds, 4, 0);
        assert_eq!([3, 4, 5].map(|round| rounds.is_due_after(round, 0, ms(9000))), [false, true, false]);
        let mut time = Checkpoints::after(Pace::Time, 30, 100);
        assert!(time.is_due_after(101, 0, Duration::ZERO), "the first tells what they cost");
        time.took = ms(5);
        assert!(!time.is_due_after(101, 0, ms(99)) && time.is_due_after(101, 0, ms(100)));
        assert!(
            !time.is_due_after(129, 0, ms(1)) && time.is_due_after(130, 0, ms(1)),
            "neighbours keep no more"
        );
        assert!(time.is_due_after(101, MUCH, ms(1)));
    }
}
