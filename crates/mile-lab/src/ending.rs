//! How near a job came to a solution, judged from its records.
//!
//! * The gradient norm at the end is compared with that at the start. It is measured on all rows, so it is exact with stochastic
//!   gradients too: at their noise floor it stays far from zero, and so it does for a method with a bias.
//! * The loss is falling or rising if every record of the last quarter of the rounds is below, or above, every record of the
//!   quarter before. Under noise alone that is a matter of chance, with probability 1/20 for three records in each quarter and
//!   1/252 for five; with fewer than three records, nothing is said about a loss that is noisy.
//! * Changes of up to a thousandth of the loss's whole range in the run are ignored.
//! * The gradient norm is still falling if its last quarter is, in the same way, below the quarter before, by a tenth or more: a run that
//!   converges slowly, with a loss whose changes are too small to count, is told from one that has come to rest beside the solution.
//! * The agents disagree ever more if the root of the consensus error is, in the same way, above the quarter before, by a tenth or more,
//!   and above a tenth of the largest recorded: rounding errors may grow. Whatever their trend, agents are far from their average if the
//!   mean loss of their own models is nearer to the largest recorded loss of the average than to the smallest.

use serde::{Deserialize, Serialize};

use crate::record::Record;

/// The smallest number of records in each quarter from which a trend of a noisy loss is read.
const LEAST_NOISY: usize = 3;
/// A change of the loss smaller than this share of its whole range does not count, and a job has settled once its loss stays so
/// close to its last one.
const SETTLED: f64 = 1e-3;
/// A gradient norm whose mean over the last quarter is above this share of that over the quarter before counts as level, and so does the
/// root of a consensus error.
const SHRINKS: f64 = 0.9;
/// A job whose gradient norm is still above this share of its start is far from converged.
const FAR: f64 = 0.1;
/// Own models whose loss is above that of their average by this share of its range in the run are far from it.
const APART: f64 = 0.5;

/// Where the loss was going at the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Trend {
    /// It was still falling.
    Falling,
    /// It was rising.
    Rising,
    /// Neither, or not by more than its noise.
    Level,
}

/// What the records of a job show of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// Whether the experiment's `stop` was reached; none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reached: Option<bool>,
    /// The norm of the gradient at the average model, divided by its norm at the start; none if it is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_left: Option<f64>,
    /// Where that norm was going; none if it is not recorded, or if there are too few records to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient: Option<Trend>,
    /// The root of the consensus error, divided by that of the largest recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement_left: Option<f64>,
    /// Where that root was going; none if there are too few records to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<Trend>,
    /// By how much the mean loss of the agents' own models is above that of their average, divided by the latter's range in the run;
    /// none if it did not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_excess: Option<f64>,
    /// Where the loss of the average model was going; none if there are too few records to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Trend>,
    /// The first recorded round from which the loss of the average model stayed within a thousandth of its whole range of the
    /// last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<u64>,
}

impl Ending {
    /// Whether gradient and disagreement have both shrunk to this share.
    pub(crate) fn is_within(&self, share: f64) -> bool {
        let small = |left: Option<f64>| left.is_some_and(|left| left <= share);
        small(self.gradient_left) && small(self.disagreement_left)
    }

    /// Whether the agents were still moving away from each other.
    pub(crate) fn disagree_ever_more(&self) -> bool {
        self.disagreement == Some(Trend::Rising) && self.disagreement_left.is_some_and(|left| left > FAR)
    }

    /// Whether the agents' own models are far worse than their average.
    pub(crate) fn are_apart(&self) -> bool {
        self.own_excess.is_some_and(|excess| excess > APART)
    }

    /// What shows that a job was far from converged when it ended, in a few words.
    pub fn far(&self) -> Option<String> {
        match (self.loss, self.gradient_left) {
            (Some(Trend::Falling), _) => Some("loss still falling".into()),
            (Some(Trend::Rising), _) => Some("loss rising".into()),
            (_, Some(left)) if left > FAR => Some(format!("|\u{2207}f| {} of its start", share(left))),
            _ if self.disagree_ever_more() => Some("consensus error rising".into()),
            _ if self.are_apart() => Some("own models far from their average".into()),
            _ if self.stop_reached == Some(false) => Some("stop not reached".into()),
            _ => None,
        }
    }
}

/// A share in two digits.
pub(crate) fn share(value: f64) -> String {
    match value {
        0.01..0.1 => format!("{value:.3}"),
        0.1..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

/// What is kept of the records of a job to judge its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Vec<Glance>);

#[derive(Clone, Copy, Debug)]
struct Glance {
    round: u64,
    loss: f64,
    own_loss: f64,
    gradient: Option<f64>,
    disagreement: f64,
}

impl History {
    /// The history of a job with these records.
    pub(crate) fn of<'r>(records: impl IntoIterator<Item = &'r Record>) -> Self {
        let mut history = Self::default();
        records.into_iter().for_each(|record| history.push(record));
        history
    }

    pub(crate) fn push(&mut self, record: &Record) {
        self.0.push(Glance {
            round: record.round,
            loss: record.loss,
            own_loss: record.local_loss,
            gradient: record.grad_norm_sq.map(f64::sqrt),
            disagreement: record.consensus_error.sqrt(),
        });
    }

    /// What the records from a round on show of the end. The members of that round have one objective; before, it was another.
    pub(crate) fn ending(&self, since: u64, is_noisy: bool) -> Ending {
        let kept: Vec<Glance> = self.0.iter().copied().filter(|glance| glance.round >= since).collect();
        let (Some(first), Some(last)) = (kept.first(), kept.last()) else { return Ending::default() };
        let most = kept.iter().map(|glance| glance.disagreement).fold(0.0, f64::max);
        let gradients = first.gradient.zip(last.gradient);
        Ending {
            stop_reached: None,
            gradient_left: gradients.and_then(|(first, last)| left(last, first)),
            gradient: root_trend(&kept, is_noisy, |glance| glance.gradient),
            disagreement_left: left(last.disagreement, most),
            disagreement: root_trend(&kept, is_noisy, |glance| Some(glance.disagreement)),
            own_excess: Some((last.own_loss - last.loss) / range(&kept)).filter(|excess| excess.is_finite()),
            loss: loss_trend(&kept, is_noisy),
            settled: settled(&kept),
        }
    }
}

/// What is left of a value; nothing is left of zero.
fn left(now: f64, before: f64) -> Option<f64> {
    let ratio = if now == 0.0 { 0.0 } else { now / before };
    ratio.is_finite().then_some(ratio)
}

/// The smallest and the largest of some values.
fn extremes(values: &[f64]) -> (f64, f64) {
    let wider = |(low, high): (f64, f64), value: &f64| (low.min(*value), high.max(*value));
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), wider)
}

/// The difference of the largest and the smallest loss.
fn range(records: &[Glance]) -> f64 {
    let (low, high) = extremes(&records.iter().map(|glance| glance.loss).collect::<Vec<_>>());
    high - low
}

fn loss_trend(kept: &[Glance], is_noisy: bool) -> Option<Trend> {
    let least = SETTLED * range(kept);
    trend(kept, is_noisy, |glance| Some(glance.loss), |before, after| (before - after).abs() > least)
}

/// The trend of a norm, or of the root of a mean square.
fn root_trend(kept: &[Glance], is_noisy: bool, root: fn(&Glance) -> Option<f64>) -> Option<Trend> {
    let counts = |before: f64, after: f64| before.min(after) < SHRINKS * before.max(after);
    trend(kept, is_noisy, root, counts)
}

/// Where a value was going in the last quarter of the rounds; `counts`: whether the difference of the means of two quarters does.
fn trend(
    kept: &[Glance],
    is_noisy: bool,
    value: impl Fn(&Glance) -> Option<f64>,
    counts: impl Fn(f64, f64) -> bool,
) -> Option<Trend> {
    let (first, last) = (kept.first()?.round, kept.last()?.round);
    let at = |quarter: u64| first + ((last - first) / 4 * quarter + (last - first) % 4 * quarter / 4);
    let all: Vec<(u64, f64)> =
        kept.iter().map(|glance| Some((glance.round, value(glance)?))).collect::<Option<_>>()?;
    let within = |from: u64, to: u64| -> Vec<f64> {
        all.iter().filter(|(round, _)| *round > from && *round <= to).map(|(_, value)| *value).collect()
    };
    let (before, after) = (within(at(2), at(3)), within(at(3), last));
    let least = if is_noisy { LEAST_NOISY } else { 1 };
    if before.len() < least || after.len() < least || all.iter().any(|(_, value)| !value.is_finite()) {
        return None;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let ((low, high), (later_low, later_high)) = (extremes(&before), extremes(&after));
    Some(match counts(mean(&before), mean(&after)) {
        true if later_high < low => Trend::Falling,
        true if later_low > high => Trend::Rising,
        _ => Trend::Level,
    })
}

fn settled(kept: &[Glance]) -> Option<u64> {
    let last = kept.last().filter(|last| last.loss.is_finite())?;
    let tolerance = SETTLED * range(kept);
    let near = |glance: &&Glance| (glance.loss - last.loss).abs() <= tolerance;
    kept.iter().rev().take_while(near).last().map(|glance| glance.round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn history(rounds: u64, every: u64, loss: impl Fn(u64) -> f64) -> History {
        let at = |k: u64| Record {
            grad_norm_sq: Some(loss(k * every)),
            ..record("a", 0, k * every, loss(k * every))
        };
        History::of(&(0..=rounds / every).map(at).collect::<Vec<_>>())
    }

    #[test]
    fn a_loss_that_still_falls_or_rises_is_told_from_one_that_has_settled() {
        let of = |loss: fn(u64) -> f64| history(100, 5, loss).ending(0, true);
        assert_eq!(of(|round| 1.0 - 0.005 * round as f64).loss, Some(Trend::Falling));
        assert_eq!(of(|round| 1.0 + 0.005 * round as f64).loss, Some(Trend::Rising));
        let settled = of(|round| 1.0 + 0.5f64.powi(round as i32));
        assert_eq!((settled.loss, settled.settled), (Some(Trend::Level), Some(10)));
        // Noise around a floor, and a fall that is hidden by it.
        assert_eq!(of(|round| 0.1 * ((round * round) as f64).sin() + 1.0).loss, Some(Trend::Level));
        assert_eq!(of(|round| if round == 0 { 1.0 } else { f64::NAN }).loss, None);
    }

    #[test]
    fn a_gradient_that_still_falls_is_told_from_one_that_has_settled() {
        let of = |gradient: fn(u64) -> f64| {
            let at =
                |round| Record { grad_norm_sq: Some(gradient(round).powi(2)), ..record("a", 0, round, 1.0) };
            let ending = History::of(&(0..=100).step_by(5).map(at).collect::<Vec<_>>()).ending(0, false);
            assert_eq!(ending.loss, Some(Trend::Level));
            ending.gradient
        };
        assert_eq!(of(|round| 0.98f64.powi(round as i32)), Some(Trend::Falling));
        assert_eq!(of(|round| 0.999f64.powi(round as i32)), Some(Trend::Level), "too slowly to count");
        assert_eq!(of(|round| 0.3 + 0.5f64.powi(round as i32)), Some(Trend::Level));
        assert_eq!(of(|round| 1.02f64.powi(round as i32)), Some(Trend::Rising));
        assert_eq!(of(|round| if round == 50 { f64::NAN } else { 1.0 }), None);
        let unknown: Vec<Record> = (0..9).map(|round| record("a", 0, round, 1.0)).collect();
        assert_eq!(History::of(&unknown).ending(0, false).gradient, None);
    }

    #[test]
    fn agents_that_move_away_from_each_other_are_far_from_converged() {
        // The loss of the average has settled, and its gradient has vanished.
        let of = |error: fn(u64) -> f64| {
            let at = |round| {
                let loss = if round == 0 { 2.0 } else { 1.0 };
                Record {
                    grad_norm_sq: Some(if round == 0 { 1.0 } else { 1e-6 }),
                    consensus_error: error(round),
                    ..record("a", 0, round, loss)
                }
            };
            History::of(&(0..=100).step_by(5).map(at).collect::<Vec<_>>()).ending(0, true)
        };
        let growing = of(|round| 1.05f64.powi(round as i32));
        assert_eq!(growing.disagreement, Some(Trend::Rising));
        assert_eq!(growing.far().unwrap(), "consensus error rising");
        for (name, harmless) in [
            ("falling", of(|round| 0.9f64.powi(round as i32))),
            ("level", of(|round| 1.0 - 0.5f64.powi(round as i32))),
            ("noise", of(|round| 2.0 + ((round * round) as f64).sin())),
            (
                "rounding errors",
                of(|round| if round == 5 { 1.0 } else { 1e-30 * 1.05f64.powi(round as i32) }),
            ),
        ] {
            assert_eq!(harmless.far(), None, "{name}: {harmless:?}");
        }
    }

    #[test]
    fn own_models_far_worse_than_their_average_are_far_from_converged() {
        let of = |own_loss: f64| {
            let start = record("a", 0, 0, 2.0);
            let end = Record { local_loss: own_loss, ..record("a", 0, 10, 1.0) };
            History::of(&[start, end]).ending(0, false)
        };
        let (near, apart) = (of(1.25), of(1.75));
        assert_eq!((near.own_excess, near.far()), (Some(0.25), None));
        assert_eq!(apart.far().unwrap(), "own models far from their average");
        let still = [0, 1].map(|round| Record { local_loss: 3.0, ..record("a", 0, round, 1.0) });
        assert_eq!(History::of(&still).ending(0, false).own_excess, None, "no measure");
    }

    #[test]
    fn few_records_say_nothing_about_a_noisy_loss() {
        let of =
            |every: u64, noisy: bool| history(12, every, |round| 12.0 - round as f64).ending(0, noisy).loss;
        assert_eq!([of(1, true), of(1, false)], [Some(Trend::Falling); 2]);
        assert_eq!([of(3, true), of(3, false)], [None, Some(Trend::Falling)]);
        assert_eq!([of(12, true), of(12, false)], [None, None]);
        let alone = history(0, 1, |_| 2.0).ending(0, false);
        assert_eq!((alone.loss, alone.gradient_left, alone.settled), (None, Some(1.0), Some(0)));
        assert_eq!(History::default().ending(0, false), Ending::default());
    }

    #[test]
    fn what_is_left_is_relative_to_the_start_and_to_the_largest_disagreement() {
        let ending = history(20, 1, |round| 0.25f64.powi(round as i32)).ending(0, false);
        assert!((ending.gradient_left.unwrap() - 0.5f64.powi(20)).abs() < 1e-12);
        assert!(ending.is_within(1e-5) && !ending.is_within(1e-8));
        let later = history(20, 1, |round| 0.25f64.powi(round as i32)).ending(10, false);
        assert!(
            (later.gradient_left.unwrap() - 0.5f64.powi(10)).abs() < 1e-9,
            "other members, another start"
        );
        let (nothing, lost) = (history(4, 1, |_| 0.0).ending(0, false), history(4, 1, |round| round as f64));
        assert_eq!((nothing.gradient_left, nothing.disagreement_left), (Some(0.0), Some(0.0)));
        assert_eq!(lost.ending(0, false).gradient_left, None, "a start without a gradient is no measure");
        let unknown = History::of(&[record("a", 0, 0, 1.0), record("a", 0, 1, 1.0)]).ending(0, false);
        assert!(unknown.gradient_left.is_none() && !unknown.is_within(1.0));
    }

    #[test]
    fn what_is_far_from_converged_is_said_in_words() {
        let far = |loss, gradient_left, stop_reached| {
            Ending { loss, gradient_left, stop_reached, ..Ending::default() }.far()
        };
        assert_eq!(far(Some(Trend::Level), Some(0.05), None), None);
        assert_eq!(far(None, None, None), None);
        assert!(far(Some(Trend::Falling), Some(1e-9), None).unwrap().contains("falling"));
        assert!(far(Some(Trend::Rising), None, Some(true)).unwrap().contains("rising"));
        assert_eq!(far(Some(Trend::Level), Some(0.624), None).unwrap(), "|\u{2207}f| 0.62 of its start");
        assert_eq!(far(Some(Trend::Level), Some(1e-3), Some(false)).unwrap(), "stop not reached");
        assert_eq!([0.031, 0.5, 42.0, 1e-7].map(share), ["0.031", "0.50", "42", "1.0e-7"]);
    }
}
