//! Step-size schedules: warm-up and decay; and weights that grow during a run.
//!
//! A schedule is a function of the communication rounds done, so the step size is constant between two
//! exchanges. When it changes, corrections in units of x are rescaled with it
//! ([`Unit::StepSize`](crate::method::Unit)): their sum stays zero, and at a stationary point
//! `c_i = alpha grad f_i` holds for the new step size too, so exact methods stay exact.

/// The step size as a function of the communication rounds done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Schedule {
    /// The base step size.
    pub step_size: f64,
    /// Rounds of linear growth: in round r < warmup the factor is (r + 1)/(warmup + 1).
    pub warmup: u64,
    /// The decay after the warm-up.
    pub decay: Decay,
    /// Later schedules, in increasing round.
    pub changes: Vec<ScheduleChange>,
}

/// Another schedule, from some round on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScheduleChange {
    /// The first round it applies to; its own rounds count from there.
    pub round: u64,
    /// Its base step size.
    pub step_size: f64,
    /// Its rounds of linear growth.
    pub warmup: u64,
    /// Its decay after the warm-up.
    pub decay: Decay,
}

/// How the step size decays after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub enum Decay {
    /// No decay.
    None,
    /// Multiplied by `factor` after every `every` rounds.
    Step {
        /// Rounds between two reductions.
        every: u64,
        /// Factor of each reduction, in (0, 1].
        factor: f64,
    },
    /// Cosine decay from factor 1 to `floor` at round `rounds`, constant afterwards.
    Cosine {
        /// Round at which the floor is reached.
        rounds: u64,
        /// The final factor, in (0, 1].
        floor: f64,
    },
}

/// A number of a schedule that is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: expected {expected}, got {got}")]
#[non_exhaustive]
pub struct InvalidSchedule {
    /// Name of the number.
    pub key: &'static str,
    /// The value given.
    pub got: f64,
    /// The values allowed.
    pub expected: &'static str,
}

impl Schedule {
    /// The same step size in every round.
    pub fn constant(step_size: f64) -> Self {
        Self { step_size, warmup: 0, decay: Decay::None, changes: Vec::new() }
    }

    /// Lets the step size grow linearly for `rounds` rounds.
    pub fn with_warmup(mut self, rounds: u64) -> Self {
        self.warmup = rounds;
        self
    }

    /// Lets the step size decay after the warm-up.
    pub fn with_decay(mut self, decay: Decay) -> Self {
        self.decay = decay;
        self
    }

    /// An error if a step size, factor or number of rounds is out of range.
    pub fn validate(&self) -> Result<(), InvalidSchedule> {
        let check = |key, got: f64, ok: bool, expected| {
            if ok && got.is_finite() { Ok(()) } else { Err(InvalidSchedule { key, got, expected }) }
        };
        let pieces = self.changes.iter().map(|change| (change.step_size, &change.decay));
        for (step_size, decay) in std::iter::once((self.step_size, &self.decay)).chain(pieces) {
            check("step_size", step_size, step_size > 0.0, "a positive finite number")?;
            decay.validate()?;
        }
        let mut before = 0;
        for ScheduleChange { round, .. } in &self.changes {
            check(
                "round",
                *round as f64,
                *round > before,
                "later than the change before it, and at least 1",
            )?;
            before = *round;
        }
        Ok(())
    }

    /// The step size after `round` communication rounds.
    pub fn at(&self, round: u64) -> f64 {
        match self.changes.iter().rfind(|change| change.round <= round) {
            Some(change) => piece(change.step_size, change.warmup, &change.decay, round - change.round),
            None => piece(self.step_size, self.warmup, &self.decay, round),
        }
    }
}

impl ScheduleChange {
    /// Another step size from some round on, with its own warm-up and decay.
    pub fn new(round: u64, step_size: f64, warmup: u64, decay: Decay) -> Self {
        Self { round, step_size, warmup, decay }
    }
}

impl Decay {
    fn validate(&self) -> Result<(), InvalidSchedule> {
        let check = |key, got: f64, ok: bool, expected| {
            if ok && got.is_finite() { Ok(()) } else { Err(InvalidSchedule { key, got, expected }) }
        };
        match *self {
            Decay::None => Ok(()),
            Decay::Step { every, factor } => {
                check("every", every as f64, every >= 1, "a whole number of rounds from 1")?;
                check("factor", factor, factor > 0.0 && factor <= 1.0, "a number in (0, 1]")
            }
            Decay::Cosine { rounds, floor } => {
                check("rounds", rounds as f64, rounds >= 1, "a whole number of rounds from 1")?;
                check("floor", floor, floor > 0.0 && floor <= 1.0, "a number in (0, 1]")
            }
        }
    }
}

/// The step size of one schedule after `round` rounds of that schedule.
fn piece(step_size: f64, warmup: u64, decay: &Decay, round: u64) -> f64 {
    if round < warmup {
        return step_size * (round + 1) as f64 / (warmup + 1) as f64;
    }
    let since = round - warmup;
    let factor = match *decay {
        Decay::None => 1.0,
        Decay::Step { every, factor } => factor.powf((since / every.max(1)) as f64),
        Decay::Cosine { rounds, floor } => {
            let end = rounds.saturating_sub(warmup).max(1);
            let done = (since as f64 / end as f64).min(1.0);
            floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
        }
    };
    step_size * factor
}

/// A weight such as MILE's xi as a function of the communication rounds done, or as determined by the edges. It is the same at both
/// ends of an edge, so that they add opposite numbers to their corrections and the sum stays zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    /// The same in every round.
    Constant(f64),
    /// `from (to/from)^(r/rounds)` after r < rounds rounds, `to` afterwards.
    Geometric {
        /// The weight in the first round.
        from: f64,
        /// The weight from round `rounds` on.
        to: f64,
        /// Rounds until `to` is reached.
        rounds: u64,
    },
    /// At most this, and less on edges along which differences are not [steady](crate::steady).
    Adaptive(f64),
}

impl Weight {
    /// The weight after `round` communication rounds; the largest one if the edges determine it.
    pub fn at(self, round: u64) -> f64 {
        match self {
            Self::Constant(weight) | Self::Adaptive(weight) => weight,
            Self::Geometric { to, rounds, .. } if round >= rounds => to,
            Self::Geometric { from, to, rounds } => from * libm::pow(to / from, round as f64 / rounds as f64),
        }
    }

    /// The weight in the first round and the one it ends with; all others lie between.
    pub fn ends(self) -> [f64; 2] {
        match self {
            Self::Constant(weight) | Self::Adaptive(weight) => [weight; 2],
            Self::Geometric { from, to, .. } => [from, to],
        }
    }

    /// The weight it ends with; the largest one if the edges determine it.
    pub fn last(self) -> f64 {
        self.ends()[1]
    }
}

impl From<f64> for Weight {
    fn from(weight: f64) -> Self {
        Self::Constant(weight)
    }
}

/// A number, `from 0.001 to 0.03 in 600 rounds` or `adaptive, at most 0.03`; different weights have different texts.
impl std::fmt::Display for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Constant(weight) => weight.fmt(f),
            Self::Adaptive(most) => write!(f, "adaptive, at most {most}"),
            Self::Geometric { from, to, rounds } => write!(f, "from {from} to {to} in {rounds} rounds"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_grows_by_the_same_factor_in_every_round_and_then_stays() {
        let grows = Weight::Geometric { from: 0.001, to: 0.016, rounds: 4 };
        for (round, expected) in [0.001, 0.002, 0.004, 0.008, 0.016, 0.016].into_iter().enumerate() {
            let found = grows.at(round as u64);
            assert!((found / expected - 1.0).abs() < 1e-15, "{round}: {found}");
        }
        assert_eq!((grows.at(0), grows.at(4), grows.at(u64::MAX)), (0.001, 0.016, 0.016));
        let falls = Weight::Geometric { from: 0.5, to: 0.125, rounds: 2 };
        assert_eq!([0, 1, 2].map(|round| falls.at(round)), [0.5, 0.25, 0.125]);
        assert_eq!((falls.ends(), falls.last()), ([0.5, 0.125], 0.125));
        let constant = Weight::from(0.3);
        assert_eq!((constant.at(0), constant.at(9), constant.ends()), (0.3, 0.3, [0.3; 2]));
        let adaptive = Weight::Adaptive(0.25);
        assert_eq!((adaptive.at(0), adaptive.ends(), adaptive.last()), (0.25, [0.25; 2], 0.25));
        assert_eq!(
            [grows, constant, adaptive].map(|w| w.to_string()),
            ["from 0.001 to 0.016 in 4 rounds", "0.3", "adaptive, at most 0.25"]
        );
    }

    #[test]
    fn schedules_go_through_their_corners() {
        let constant = Schedule::constant(0.5);
        assert_eq!((constant.at(0), constant.at(1000)), (0.5, 0.5));

        let warm = Schedule { warmup: 3, ..constant.clone() };
        assert_eq!([0, 1, 2, 3, 9].map(|r| warm.at(r)), [0.125, 0.25, 0.375, 0.5, 0.5]);

        let stairs = Schedule { decay: Decay::Step { every: 2, factor: 0.5 }, ..constant.clone() };
        assert_eq!([0, 1, 2, 3, 4].map(|r| stairs.at(r)), [0.5, 0.5, 0.25, 0.25, 0.125]);

        let cosine = Schedule { warmup: 2, decay: Decay::Cosine { rounds: 12, floor: 0.1 }, ..constant };
        assert_eq!(cosine.at(2), 0.5);
        assert!((cosine.at(7) - 0.275).abs() < 1e-12);
        assert!((cosine.at(12) - 0.05).abs() < 1e-12 && cosine.at(50) == cosine.at(12));
    }

    #[test]
    fn a_step_size_that_is_not_positive_is_refused_with_its_range() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let refusal = Schedule::constant(bad).validate().unwrap_err();
            assert_eq!((refusal.key, refusal.expected), ("step_size", "a positive finite number"));
        }
        let decay = Decay::Cosine { rounds: 3, floor: 0.0 };
        assert!(Schedule { decay, ..Schedule::constant(1.0) }.validate().is_err());
    }

    #[test]
    fn a_change_begins_in_its_round_with_its_own_schedule() {
        let decay = Decay::Step { every: 2, factor: 0.5 };
        let changes =
            vec![ScheduleChange::new(3, 0.8, 1, decay), ScheduleChange::new(8, 0.1, 0, Decay::None)];
        let schedule = Schedule { changes, ..Schedule::constant(1.0) };
        schedule.validate().unwrap();
        let steps: Vec<f64> = (0..10).map(|round| schedule.at(round)).collect();
        assert_eq!(steps, [1.0, 1.0, 1.0, 0.4, 0.8, 0.8, 0.4, 0.4, 0.1, 0.1]);
        let twice =
            Schedule { changes: vec![schedule.changes[0].clone(), schedule.changes[0].clone()], ..schedule };
        assert_eq!(twice.validate().unwrap_err().key, "round");
    }
}
