//! The best trial of a sweep for each algorithm, with ties and values at the edge of the search range.

use serde::{Deserialize, Serialize};
use toml::Value;

use super::points::description;
use crate::quantity::Quantity;
use crate::store::{JobStatus, Outcome, distinct};
use crate::table::{TextTable, number};

/// A trial: one algorithm with one combination of values, with all seeds and folds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Label of the algorithm.
    pub label: String,
    /// The values of the point.
    pub settings: Vec<(String, Value)>,
    /// The name of the point's folder, in which each fold of a cross-validation has one of its own.
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

    /// Its values as text, such as `step_size=0.1, mile.xi=0.05`.
    pub fn description(&self) -> String {
        description(&self.settings)
    }
}

/// The result of a sweep for one algorithm.
#[derive(Clone, Debug)]
pub struct Best<'a> {
    /// Label of the algorithm.
    pub label: &'a str,
    /// The best trial; `None` if all diverged.
    pub trial: Option<&'a Trial>,
    /// Trials tied with the best: at least as good for some seed (with the same seed, trials have the same data and
    /// batches), or equal in the four digits that are shown. In a cross-validation, those within one standard error of the best.
    pub tied: Vec<&'a Trial>,
    /// Numeric keys whose best value is the smallest or largest one tried, so that a better one may lie beyond.
    pub edges: Vec<String>,
    /// Number of trials, and of diverged trials.
    pub counts: (usize, usize),
}

/// The best trial of every algorithm; of equal ones, the first.
pub fn best_of(trials: &[Trial], criterion: Quantity) -> Vec<Best<'_>> {
    let labels = distinct(trials.iter().map(|trial| trial.label.as_str()));
    labels.into_iter().map(|label| best_for(label, trials, criterion)).collect()
}

fn best_for<'a>(label: &'a str, trials: &'a [Trial], criterion: Quantity) -> Best<'a> {
    let mine: Vec<&Trial> = trials.iter().filter(|trial| trial.label == label).collect();
    let mut ranked: Vec<(&Trial, f64)> = Vec::new();
    let mut counts = (mine.len(), 0);
    for trial in &mine {
        match trial.score(criterion) {
            Score::Value { mean, .. } => ranked.push((trial, mean)),
            Score::Diverged => counts.1 += 1,
        }
    }
    // The sort is stable: equal trials stay in the order of the file.
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    let Some((best, mean)) = ranked.first().copied() else {
        return Best { label, trial: None, tied: Vec::new(), edges: Vec::new(), counts };
    };
    let tied = |other: &&(&Trial, f64)| match best.standard_error(criterion) {
        Some(error) => other.1 <= mean + error,
        None => {
            number(other.1) == number(mean)
                || as_good_for_some_seed(&other.0.outcomes, &best.outcomes, criterion)
        }
    };
    let tied = ranked[1..].iter().filter(tied).map(|other| other.0).collect();
    Best { label, trial: Some(best), tied, edges: edges(best, &mine), counts }
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
    let header = ["algorithm", "best"].into_iter().chain(names.clone()).chain(["tried", "diverged"]);
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
        cells.extend([best.counts.0.to_string(), best.counts.1.to_string()]);
        cells
    };
    let rows = best_of(trials, criterion).into_iter().map(row).collect();
    TextTable { header: header.map(str::to_owned).collect(), rows }
}

/// Remarks on the best trial of each algorithm: ties, and values at the edge of the search range.
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
    let names: Vec<String> =
        best.tied.iter().take(3).map(|trial| format!("({})", trial.description())).collect();
    match best.tied.len() {
        0 => {}
        few @ 1..=3 if few <= names.len() => parts.push(format!("tied with {}", names.join(" and "))),
        many => parts.push(format!("tied with {} and {} more", names.join(", "), many - names.len())),
    }
    if !best.edges.is_empty() {
        parts.push(format!("at the edge of the search range: {}", best.edges.join(", ")));
    }
    parts
}

/// The names of the numbers about a trial: those over folds include a standard error.
fn names_of_numbers(trials: &[Trial], criterion: Quantity) -> Vec<&'static str> {
    let mut names = vec![criterion.name(), "smallest", "largest"];
    if trials.iter().any(|trial| !trial.folds.is_empty()) {
        names.insert(1, "standard error");
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
    let header = ["algorithm", "values"].into_iter().chain(names.clone()).chain(["seeds", "seconds"]);
    let row = |trial: &Trial| {
        let mut cells = vec![trial.label.clone(), trial.description()];
        cells.extend(numbers(trial, criterion, names.len()));
        let seconds: f64 = trial.outcomes.iter().map(|outcome| outcome.last.wall_s).sum();
        let seeds = trial.of_first_fold().count();
        cells.extend([seeds.to_string(), number((seconds * 10.0).round() / 10.0)]);
        cells
    };
    TextTable { header: header.map(str::to_owned).collect(), rows: trials.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::outcome;

    #[test]
    fn a_step_size_just_below_one_that_diverges_is_at_the_limit_of_stability() {
        let trial = |label: &str, step: f64, xi: f64, status: JobStatus| {
            let key = |name: &str| format!("algorithm.{label}.{name}");
            let settings = vec![(key("step_size"), step.into()), (key("xi"), xi.into())];
            let outcomes = vec![outcome(label, 0, JobStatus::Done, step), outcome(label, 1, status, step)];
            Trial { label: label.into(), settings, point: String::new(), outcomes, folds: Vec::new() }
        };
        let trials = [
            trial("a", 0.4, 0.1, JobStatus::Diverged),
            trial("a", 0.1, 0.1, JobStatus::Done),
            trial("a", 0.2, 0.1, JobStatus::Done),
            trial("a", 0.2, 0.3, JobStatus::Done),
            trial("b", 0.2, 0.1, JobStatus::Done),
        ];
        let kept = within_stability(&trials, Quantity::Loss);
        let expected = [&trials[0], &trials[1], &trials[3], &trials[4]];
        assert_eq!(kept.iter().collect::<Vec<_>>(), expected);
        let best = best_of(&kept, Quantity::Loss);
        assert_eq!(best[0].trial, Some(&trials[1]));
    }

    #[test]
    fn the_standard_error_is_over_folds_and_trials_within_it_are_tied() {
        let trial = |l2: f64, losses: &[f64]| Trial {
            label: "a".into(),
            settings: vec![("problem.l2".into(), l2.into())],
            point: String::new(),
            // Two seeds in each fold.
            outcomes: losses.iter().zip(0..).map(|(x, k)| outcome("a", k % 2, JobStatus::Done, *x)).collect(),
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
        assert_eq!((best[0].trial, &best[0].tied[..]), (Some(&trials[0]), &[&trials[1], &trials[2]][..]));
        let table = best_table(&trials, Quantity::Loss);
        assert_eq!(table.header[2..4], ["loss", "standard error"]);
        assert_eq!(table.rows[0][2..4], ["4".to_owned(), number(error)]);
        assert_eq!(trials_table(&trials, Quantity::Loss).rows[3][6], "2", "seeds");
    }
}
