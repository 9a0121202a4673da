//! The best trial of a sweep for each algorithm, with what decided between equal ones and values at the edge of the search range.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use toml::Value;

use super::points::description;
use crate::quantity::Quantity;
use crate::store::{JobStatus, Outcome, distinct};
use crate::table::{TextTable, far_from_converged, number, status_of};

/// A trial: one algorithm with one combination of values, with all seeds and folds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trial {
    /// Label of the algorithm.
    pub label: String,
    /// The values of the point.
    pub settings: Vec<(String, Value)>,
    /// The name of the point's folder, in which each fold of a cross-validation has a subfolder.
    pub point: String,
    /// The outcome of each seed, fold after fold.
    pub outcomes: Vec<Outcome>,
    /// The fold of each outcome, in a cross-validation; otherwise none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folds: Vec<u64>,
}

/// The score of a trial; smaller is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Score {
    /// Mean, smallest and largest value over the seeds and folds.
    Value { mean: f64, low: f64, high: f64 },
    /// A seed diverged, or has no finite value.
    Diverged,
}

impl Trial {
    /// Its score by a criterion; the sign is reversed where larger values are better.
    pub(crate) fn score(&self, criterion: Quantity) -> Score {
        let sign = if criterion.larger_is_better() { -1.0 } else { 1.0 };
        let value = |outcome: &Outcome| sign * criterion.of(&outcome.last).unwrap_or(f64::NAN);
        let values: Vec<f64> = self.outcomes.iter().map(value).collect();
        let diverged = self.outcomes.iter().any(|outcome| outcome.status == JobStatus::Diverged);
        if diverged || values.iter().any(|value| !value.is_finite()) {
            return Score::Diverged;
        }
        Score::Value {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// The standard error of its mean: the standard deviation over the folds, divided by the root of their number. `None` without several
    /// folds, or if it diverged.
    pub fn standard_error(&self, criterion: Quantity) -> Option<f64> {
        let value = |outcome: &Outcome| criterion.of(&outcome.last).unwrap_or(f64::NAN);
        let pairs: Vec<(u64, f64)> =
            self.folds.iter().copied().zip(self.outcomes.iter().map(value)).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let of_fold = |fold: &[(u64, f64)]| mean(&fold.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        let means: Vec<f64> = pairs.chunk_by(|a, b| a.0 == b.0).map(of_fold).collect();
        let (center, count) = (mean(&means), means.len() as f64);
        let variance = means.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (count - 1.0);
        Some((variance / count).sqrt()).filter(|error| means.len() > 1 && error.is_finite())
    }

    /// The outcomes of its first fold; all without folds.
    pub(super) fn of_first_fold(&self) -> impl Iterator<Item = &Outcome> {
        let first = self.folds.first();
        self.outcomes.iter().enumerate().filter(move |(k, _)| self.folds.get(*k) == first).map(|(_, one)| one)
    }

    /// How its jobs ended.
    fn status(&self) -> String {
        status_of(&self.outcomes.iter().collect::<Vec<_>>(), self.outcomes.len())
    }

    /// Its values as text, such as `step_size=0.1, mile.xi=0.05`.
    pub fn description(&self) -> String {
        description(&self.settings)
    }
}

/// The result of a sweep for one algorithm.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Best<'a> {
    /// Label of the algorithm.
    pub label: &'a str,
    /// The best trial; `None` if all diverged.
    pub trial: Option<&'a Trial>,
    /// Trials equal to the best in the four digits that are shown, in their order by what decides then: rounds until the loss
    /// had settled, and the gradient norm.
    pub tied: Vec<&'a Trial>,
    /// Other trials that are at least as good for some seed: with the same seed, trials have the same data and batches. In a
    /// cross-validation, those within one standard error of the best.
    pub close: Vec<&'a Trial>,
    /// Numeric keys whose best value is the smallest or largest one tried, so that a better one may lie beyond.
    pub edges: Vec<String>,
    /// Number of trials, and of diverged trials.
    pub counts: (usize, usize),
}

/// The best trial of every algorithm; of equal ones the one that settled first, then the one with the smallest gradient, then the
/// first.
pub fn best_of(trials: &[Trial], criterion: Quantity) -> Vec<Best<'_>> {
    let labels = distinct(trials.iter().map(|trial| trial.label.as_str()));
    labels.into_iter().map(|label| best_for(label, trials, criterion)).collect()
}

fn best_for<'a>(label: &'a str, trials: &'a [Trial], criterion: Quantity) -> Best<'a> {
    let mine: Vec<&Trial> = trials.iter().filter(|trial| trial.label == label).collect();
    let mut ranked: Vec<(&Trial, Rank)> = Vec::new();
    let mut counts = (mine.len(), 0);
    for trial in &mine {
        match trial.score(criterion) {
            Score::Value { mean, .. } => ranked.push((trial, Rank::of(mean, &trial.outcomes))),
            Score::Diverged => counts.1 += 1,
        }
    }
    // The sort is stable: equal trials stay in the order of the file.
    ranked.sort_by(|a, b| a.1.order(&b.1));
    let Some((best, rank)) = ranked.first().copied() else {
        return Best { label, trial: None, tied: Vec::new(), close: Vec::new(), edges: Vec::new(), counts };
    };
    let (tied, others): (Vec<_>, Vec<_>) = ranked[1..].iter().partition(|other| other.1.ties(&rank));
    let is_close = |other: &&&(&Trial, Rank)| match best.standard_error(criterion) {
        Some(error) => other.1.mean <= rank.mean + error,
        None => as_good_for_some_seed(&other.0.outcomes, &best.outcomes, criterion),
    };
    let close = others.iter().filter(is_close).map(|other| other.0).collect();
    let tied = tied.into_iter().map(|other| other.0).collect();
    Best { label, trial: Some(best), tied, close, edges: edges(best, &mine), counts }
}

/// By what results are ranked, each number decided by those after it where it is equal; smaller is better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank {
    mean: f64,
    /// The value in the four digits that are shown.
    value: f64,
    /// Mean round after which the loss had settled; infinite where that is not known.
    settled: f64,
    /// Mean `|∇f|²` at the end; infinite where it is not recorded.
    gradient: f64,
}

impl Rank {
    /// The rank of results with a mean value, of which smaller is better.
    pub(crate) fn of(mean: f64, outcomes: &[Outcome]) -> Self {
        let over = |value: &dyn Fn(&Outcome) -> Option<f64>| {
            let values: Option<Vec<f64>> = outcomes.iter().map(value).collect();
            let mean = values.map(|values| values.iter().sum::<f64>() / values.len() as f64);
            mean.filter(|mean| mean.is_finite()).unwrap_or(f64::INFINITY)
        };
        Self {
            mean,
            value: number(mean).parse().unwrap_or(mean),
            settled: over(&|outcome| outcome.ending.settled.map(|round| round as f64)),
            gradient: over(&|outcome| outcome.last.grad_norm_sq),
        }
    }

    /// Whether the values are equal in the digits that are shown.
    pub(crate) fn ties(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// What makes it better than one with the same value; none if nothing does.
    pub(crate) fn ahead_of(&self, other: &Self) -> Option<String> {
        let less = |of: fn(&Self) -> f64| {
            let (this, that) = (of(self), of(other));
            (this < that && that.is_finite()).then(|| (number(this), number(that)))
        };
        let rounds =
            less(|rank| rank.settled).map(|(a, b)| format!("settled after {a} rounds instead of {b}"));
        rounds.or_else(|| {
            let gradients = less(|rank| rank.gradient);
            gradients.map(|(a, b)| format!("ended with |\u{2207}f|\u{b2} = {a} instead of {b}"))
        })
    }

    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let by = |of: fn(&Self) -> f64| of(self).total_cmp(&of(other));
        by(|rank| rank.value).then(by(|rank| rank.settled)).then(by(|rank| rank.gradient))
    }
}

/// The trials that are not at the limit of stability: the next larger step size that was tried with the same other values did not
/// diverge. A step size at the limit can diverge for a seed that was not tried.
pub fn within_stability(trials: &[Trial], criterion: Quantity) -> Vec<Trial> {
    let step_size = |trial: &Trial| {
        let is_step = |key: &str| key == "step_size" || key.ends_with(".step_size");
        let (steps, others): (Vec<_>, Vec<_>) = trial.settings.iter().partition(|(key, _)| is_step(key));
        let step = steps.first().and_then(|(_, value)| value.as_float());
        step.map(|step| (step, others.into_iter().cloned().collect::<Vec<_>>()))
    };
    let at_the_limit = |trial: &Trial| {
        let Some((step, others)) = step_size(trial) else { return false };
        let mine = trials.iter().filter(|other| other.label == trial.label);
        let larger = mine.filter_map(|other| {
            step_size(other)
                .filter(|(size, rest)| *size > step && *rest == others)
                .map(|(size, _)| (size, other))
        });
        let next = larger.min_by(|a, b| a.0.total_cmp(&b.0));
        next.is_some_and(|(_, next)| next.score(criterion) == Score::Diverged)
    };
    trials.iter().filter(|trial| !at_the_limit(trial)).cloned().collect()
}

/// Whether the first outcomes are at least as good as the second for some common seed.
pub(crate) fn as_good_for_some_seed(those: &[Outcome], best: &[Outcome], criterion: Quantity) -> bool {
    let sign = if criterion.larger_is_better() { -1.0 } else { 1.0 };
    let value = |outcome: &Outcome| sign * criterion.of(&outcome.last).unwrap_or(f64::NAN);
    let twin = |outcome: &Outcome| best.iter().find(|other| other.seed == outcome.seed);
    those.iter().any(|outcome| twin(outcome).is_some_and(|other| value(outcome) <= value(other)))
}

/// Keys whose value in the best trial is the smallest or largest of several values tried.
fn edges(best: &Trial, all: &[&Trial]) -> Vec<String> {
    let numeric = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let mut edges = Vec::new();
    for (key, value) in &best.settings {
        let Some(value) = numeric(value) else { continue };
        let tried = all.iter().flat_map(|trial| &trial.settings).filter(|(other, _)| other == key);
        let tried: Vec<f64> = tried.filter_map(|(_, value)| numeric(value)).collect();
        let (low, high) =
            (tried.iter().any(|other| *other < value), tried.iter().any(|other| *other > value));
        if low != high {
            edges.push(key.strip_prefix("algorithm.").unwrap_or(key).to_owned());
        }
    }
    edges
}

/// The table of the best trial of every algorithm.
pub fn best_table(trials: &[Trial], criterion: Quantity) -> TextTable {
    let names = names_of_numbers(trials, criterion);
    let header = ["algorithm", "best"].map(str::to_owned).into_iter().chain(names.clone());
    let header = header.chain(["tried", "diverged", "status"].map(str::to_owned));
    let row = |best: Best| {
        let mut cells = vec![best.label.to_owned()];
        match best.trial {
            Some(trial) => {
                cells.push(trial.description());
                cells.extend(numbers(trial, criterion, names.len()));
            }
            None => {
                cells.push("none".to_owned());
                cells.resize(2 + names.len(), "-".to_owned());
            }
        }
        let status = best.trial.map_or_else(|| JobStatus::Diverged.name().to_owned(), Trial::status);
        cells.extend([best.counts.0.to_string(), best.counts.1.to_string(), status]);
        cells
    };
    let rows = best_of(trials, criterion).into_iter().map(row).collect();
    TextTable { header: header.collect(), rows }
}

/// Remarks on the best trial of each algorithm: whether it is far from converged, what decided between equal ones, and values at the edge
/// of the search range.
pub fn best_remarks(trials: &[Trial], criterion: Quantity) -> Vec<String> {
    let remark = |best: Best| {
        let parts = remarks(&best);
        (!parts.is_empty()).then(|| format!("{}: {}", best.label, parts.join("; ")))
    };
    best_of(trials, criterion).into_iter().filter_map(remark).collect()
}

fn remarks(best: &Best) -> Vec<String> {
    let mut parts = Vec::new();
    if best.trial.is_none() {
        parts.push("all trials diverged".to_owned());
    }
    if let Some(far) = best.trial.and_then(|trial| far_from_converged(trial.outcomes.iter())) {
        parts.push(format!(
            "the best trial is far from converged ({far}), so the choice may depend on the number of rounds"
        ));
    }
    if let (Some(trial), Some(next)) = (best.trial, best.tied.first()) {
        parts.push(decision(trial, next, best.tied.len()));
    }
    match &best.close[..] {
        [] => {}
        close if !close[0].folds.is_empty() => parts.push(within_error(close)),
        [_] => parts.push("another trial is as good for some seed".to_owned()),
        many => parts.push(format!("{} other trials are as good for some seed", many.len())),
    }
    if !best.edges.is_empty() {
        parts.push(format!("at the edge of the search range: {}", best.edges.join(", ")));
    }
    parts
}

/// The trials of a cross-validation that are within one standard error of the best; the first three by name.
fn within_error(close: &[&Trial]) -> String {
    let names: Vec<String> = close.iter().take(3).map(|trial| format!("({})", trial.description())).collect();
    match close.len() - names.len() {
        0 => format!("within one standard error: {}", names.join(" and ")),
        more => format!("within one standard error: {} and {more} more", names.join(", ")),
    }
}

/// What decided between the best trial and the next of those that are equal to it in the digits shown.
fn decision(best: &Trial, next: &Trial, tied: usize) -> String {
    let rank = |trial: &Trial| Rank::of(0.0, &trial.outcomes);
    let decided = rank(best).ahead_of(&rank(next)).map(|what| format!("it {what}"));
    let decided = decided.unwrap_or("it was tried first".into());
    match tied {
        1 => format!("equal to ({}), but {decided}", next.description()),
        many => format!("equal to {many} others, next ({}), but {decided}", next.description()),
    }
}

/// The names of the numbers about a trial: those over folds include a standard error.
fn names_of_numbers(trials: &[Trial], criterion: Quantity) -> Vec<String> {
    let mut names = vec![criterion.symbol(), "smallest".into(), "largest".into()];
    if trials.iter().any(|trial| !trial.folds.is_empty()) {
        names.insert(1, "standard error".into());
    }
    names
}

/// The numbers about a trial, of which there are `count`.
fn numbers(trial: &Trial, criterion: Quantity, count: usize) -> Vec<String> {
    let sign = if criterion.larger_is_better() { -1.0 } else { 1.0 };
    let mut cells = match trial.score(criterion) {
        Score::Value { mean, low, high } => {
            let (low, high) = if sign < 0.0 { (-high, -low) } else { (low, high) };
            [sign * mean, low, high].map(number).to_vec()
        }
        Score::Diverged => vec!["diverged".into(), "-".into(), "-".into()],
    };
    if count > cells.len() {
        cells.insert(1, number(trial.standard_error(criterion).unwrap_or(f64::NAN)));
    }
    cells
}

/// The table of all trials.
pub fn trials_table(trials: &[Trial], criterion: Quantity) -> TextTable {
    let names = names_of_numbers(trials, criterion);
    let header = ["algorithm", "values"].map(str::to_owned).into_iter().chain(names.clone());
    let header = header.chain(["seeds", "seconds", "status"].map(str::to_owned));
    let row = |trial: &Trial| {
        let mut cells = vec![trial.label.clone(), trial.description()];
        cells.extend(numbers(trial, criterion, names.len()));
        let seconds: f64 = trial.outcomes.iter().map(|outcome| outcome.last.wall_s).sum();
        let seeds = trial.of_first_fold().count();
        cells.extend([seeds.to_string(), number((seconds * 10.0).round() / 10.0), trial.status()]);
        cells
    };
    TextTable { header: header.collect(), rows: trials.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::{Ending, Trend};
    use crate::table::tests::outcome;

    #[test]
    fn a_step_size_just_below_one_that_diverges_is_at_the_limit_of_stability() {
        let trial = |label: &str, step: f64, xi: f64, status: JobStatus| {
            let key = |name: &str| format!("algorithm.{label}.{name}");
            let settings = vec![(key("step_size"), step.into()), (key("xi"), xi.into())];
            let outcomes =
                vec![outcome(label, 0, JobStatus::LastRound, step), outcome(label, 1, status, step)];
            Trial { label: label.into(), settings, point: String::new(), outcomes, folds: Vec::new() }
        };
        let trials = [
            trial("a", 0.4, 0.1, JobStatus::Diverged),
            trial("a", 0.1, 0.1, JobStatus::LastRound),
            trial("a", 0.2, 0.1, JobStatus::LastRound),
            trial("a", 0.2, 0.3, JobStatus::LastRound),
            trial("b", 0.2, 0.1, JobStatus::LastRound),
        ];
        let kept = within_stability(&trials, Quantity::Loss);
        let expected = [&trials[0], &trials[1], &trials[3], &trials[4]];
        assert_eq!(kept.iter().collect::<Vec<_>>(), expected);
        let best = best_of(&kept, Quantity::Loss);
        assert_eq!(best[0].trial, Some(&trials[1]));
    }

    #[test]
    fn the_standard_error_is_over_folds_and_trials_within_it_are_close() {
        let trial = |l2: f64, losses: &[f64]| Trial {
            label: "a".into(),
            settings: vec![("problem.l2".into(), l2.into())],
            point: String::new(),
            // Two seeds in each fold.
            outcomes: losses
                .iter()
                .zip(0..)
                .map(|(x, k)| outcome("a", k % 2, JobStatus::LastRound, *x))
                .collect(),
            folds: (0..losses.len() as u64).map(|k| 1 + k / 2).collect(),
        };
        let trials = [
            trial(0.1, &[1.5, 2.5, 3.0, 5.0, 5.0, 7.0]),
            trial(0.2, &[1.0, 3.0, 4.0, 4.0, 6.0, 8.0]),
            trial(0.3, &[2.0, 4.0, 5.0, 5.0, 7.0, 7.0]),
            trial(0.4, &[4.0, 4.0, 6.0, 6.0, 8.0, 8.0]),
        ];
        // The means of the folds are 2, 4 and 6.
        let error = (4.0f64 / 3.0).sqrt();
        assert!((trials[0].standard_error(Quantity::Loss).unwrap() - error).abs() < 1e-15);
        assert_eq!(trial(0.1, &[1.0, 2.0]).standard_error(Quantity::Loss), None, "one fold has none");
        let best = best_of(&trials, Quantity::Loss);
        assert_eq!((best[0].trial, &best[0].close[..]), (Some(&trials[0]), &[&trials[1], &trials[2]][..]));
        let remarks = best_remarks(&trials, Quantity::Loss).join(" ");
        assert!(remarks.contains("(problem.l2=0.2) and (problem.l2=0.3)"), "{remarks}");
        let table = best_table(&trials, Quantity::Loss);
        assert_eq!(table.header[2..4], ["loss", "standard error"]);
        assert_eq!(table.rows[0][2..4], ["4".to_owned(), number(error)]);
        assert_eq!(trials_table(&trials, Quantity::Loss).rows[3][6], "2", "seeds");
    }

    #[test]
    fn a_best_trial_that_has_not_converged_says_so() {
        let trial = |label: &str, step: f64, status: JobStatus, ending: Ending| {
            let ended = |seed| Outcome { ending, ..outcome(label, seed, status, step + 0.1 * seed as f64) };
            Trial {
                label: label.into(),
                settings: vec![("step_size".to_owned(), step.into())],
                point: String::new(),
                outcomes: vec![ended(0), ended(1)],
                folds: Vec::new(),
            }
        };
        let falling = Ending { loss: Some(Trend::Falling), ..Ending::default() };
        let level = Ending { loss: Some(Trend::Level), ..Ending::default() };
        let mut half = trial("half", 1.0, JobStatus::Converged, level);
        half.outcomes[1] =
            Outcome { status: JobStatus::LastRound, ending: falling, ..half.outcomes[1].clone() };
        let trials = [
            trial("slow", 1.0, JobStatus::LastRound, falling),
            trial("slow", 2.0, JobStatus::Converged, level),
            trial("fast", 1.0, JobStatus::Converged, level),
            trial("fast", 2.0, JobStatus::LastRound, falling),
            half,
            trial("lost", 1.0, JobStatus::Diverged, Ending::default()),
        ];
        let status = |table: &TextTable| -> Vec<String> {
            assert_eq!(table.header.last().unwrap(), "status");
            table.rows.iter().map(|row| row.last().unwrap().clone()).collect()
        };
        let (falling, half) = ("last round, loss still falling", "1 of 2 converged, loss still falling");
        let best = best_table(&trials, Quantity::Loss);
        assert_eq!(status(&best), [falling, "converged", half, "diverged"]);
        let all = trials_table(&trials, Quantity::Loss);
        assert_eq!(status(&all), [falling, "converged", "converged", falling, half, "diverged"]);
        let remarks = best_remarks(&trials, Quantity::Loss);
        let warned = |label: &str| {
            let mine = remarks.iter().find(|remark| remark.starts_with(&format!("{label}: ")));
            mine.is_some_and(|remark| remark.contains("loss still falling"))
        };
        assert_eq!(["slow", "fast", "half", "lost"].map(warned), [true, false, true, false], "{remarks:?}");
    }

    #[test]
    fn equal_trials_are_ranked_by_rounds_until_settled_and_then_by_the_gradient() {
        let trial = |step: f64, loss: f64, settled: u64, gradient: f64| {
            let mut ended = outcome("a", 0, JobStatus::LastRound, loss);
            (ended.ending.settled, ended.last.grad_norm_sq) = (Some(settled), Some(gradient));
            let settings = vec![("algorithm.a.step_size".to_owned(), step.into())];
            Trial {
                label: "a".into(),
                settings,
                point: String::new(),
                outcomes: vec![ended],
                folds: Vec::new(),
            }
        };
        let trials = [
            trial(0.1, 0.500_001, 90, 1e-9),
            trial(0.2, 0.5, 60, 1e-5),
            trial(0.3, 0.500_002, 60, 1e-7),
            trial(0.4, 0.51, 10, 1e-12),
        ];
        let best = &best_of(&trials, Quantity::Loss)[0];
        assert_eq!(best.trial, Some(&trials[2]));
        assert_eq!(best.tied, [&trials[1], &trials[0]]);
        let remark = |trials: &[Trial]| best_remarks(trials, Quantity::Loss).join(" ");
        assert!(remark(&trials).contains("1.000e-7 instead of 1.000e-5"), "{}", remark(&trials));
        let rounds = remark(&[trials[0].clone(), trials[1].clone()]);
        assert!(rounds.contains("60 rounds instead of 90"), "{rounds}");
        let same = remark(&[trials[1].clone(), trials[1].clone()]);
        assert!(same.contains("tried first"), "{same}");
        assert_eq!(best_table(&trials, Quantity::GradNormSq).header[2], "|\u{2207}f|\u{b2}");
    }
}
