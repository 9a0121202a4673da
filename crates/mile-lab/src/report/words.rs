//! What a run found, in sentences.

use std::fmt::Write;

use mile_nn::problem::Evaluation;

use super::folder::RunFolder;
use crate::config::{GraphSource, MixingSource, ProblemConfig};
use crate::plot::Quantity;
use crate::store::{Outcome, Status};
use crate::sweep::not_worse;
use crate::table::number;

/// One algorithm at its end: a quantity over the seeds that were run to the end.
struct Standing<'a> {
    label: &'a str,
    mean: f64,
    outcomes: Vec<Outcome>,
}

/// The findings of a run, most important first.
pub(super) fn summary(folder: &RunFolder) -> Vec<String> {
    let mut said = vec![what_was_run(folder)];
    let labels = labels(&folder.outcomes);
    said.extend(ranking(folder, &labels, Quantity::LocalLoss, "the agents' own models"));
    said.extend(ranking(folder, &labels, Quantity::Loss, "the average model (which no agent has)"));
    said.extend(ranking(folder, &labels, Quantity::LocalAccuracy, "the agents' own models"));
    said.extend(disagreement(folder, &labels));
    said.extend(failures(folder, &labels));
    said
}

/// The labels of outcomes, each once, in order.
pub(crate) fn labels(outcomes: &[Outcome]) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !labels.contains(&outcome.label.as_str()) {
            labels.push(&outcome.label);
        }
    }
    labels
}

pub(super) fn network_name(folder: &RunFolder) -> String {
    let table = folder.experiment.resolved.get("network").and_then(|value| value.as_table());
    let word =
        |key: &str| table.and_then(|t| t.get(key)).and_then(|v| v.as_str()).unwrap_or("graph").to_owned();
    let graph = match folder.experiment.network.graph {
        GraphSource::Topology(_) => word("topology"),
        GraphSource::File(_) => "graph from a file".into(),
    };
    let mixing = match folder.experiment.network.mixing {
        MixingSource::Rule(rule) => format!("{} weights", rule.name()),
        MixingSource::File(_) => "weights from a file".into(),
    };
    format!("{graph} of {} agents, {mixing}", folder.network.agents())
}

pub(super) fn problem_name(folder: &RunFolder) -> String {
    let table = folder.experiment.resolved.get("problem").and_then(|value| value.as_table());
    let shown = |key: &str| match table.and_then(|t| t.get(key)) {
        Some(toml::Value::String(word)) => word.clone(),
        Some(value) => value.to_string(),
        None => "?".into(),
    };
    match &folder.experiment.problem {
        ProblemConfig::Quadratic { dim, condition, heterogeneity, .. } => {
            format!("quadratics of dimension {dim}, condition {condition}, heterogeneity {heterogeneity}")
        }
        ProblemConfig::Table(config) => {
            let file =
                config.data.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            format!("{} on {file}", shown("loss"))
        }
        ProblemConfig::Images(config) => {
            let model = if table.and_then(|t| t.get("model")).is_some_and(toml::Value::is_str) {
                shown("model")
            } else {
                "a custom model".into()
            };
            format!("{model} on {}, batch {}", config.dataset, shown("batch"))
        }
    }
}

fn what_was_run(folder: &RunFolder) -> String {
    let experiment = &folder.experiment;
    let mut text = format!(
        "{} with {} for {} rounds: {}, on a {}.",
        plural(experiment.algorithms.len(), "algorithm"),
        plural(experiment.seeds.len(), "seed"),
        experiment.rounds,
        problem_name(folder),
        network_name(folder)
    );
    if let Some(samples) = evaluated_on(&experiment.problem) {
        let _ = write!(text, " Measured: {samples}.");
    }
    if folder.network.drop_rate() > 0.0 {
        let _ = write!(text, " An edge is down in a round with probability {}.", folder.network.drop_rate());
    }
    text
}

/// Which samples losses and accuracies are measured on, where that is not all of them.
pub(crate) fn evaluated_on(problem: &ProblemConfig) -> Option<String> {
    let ProblemConfig::Images(config) = problem else { return None };
    let losses = match config.evaluation {
        Evaluation::All => None,
        Evaluation::PerAgent(n) => Some(format!("losses over {n} training samples of each agent")),
    };
    let accuracies = config.test_samples.map(|n| format!("accuracies on {n} test images"));
    let said: Vec<String> = losses.into_iter().chain(accuracies).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

pub(super) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn standings<'a>(folder: &'a RunFolder, labels: &[&'a str], quantity: Quantity) -> Vec<Standing<'a>> {
    let standing = |label: &&'a str| {
        let mine: Vec<&Outcome> = folder.outcomes.iter().filter(|o| o.label == **label).collect();
        let whole = !mine.is_empty() && mine.iter().all(|outcome| outcome.status == Status::Done);
        let values: Option<Vec<f64>> = mine.iter().map(|outcome| quantity.of(&outcome.last)).collect();
        let values = values.filter(|values| whole && values.iter().all(|value| value.is_finite()))?;
        Some(Standing {
            label,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            outcomes: mine.into_iter().cloned().collect(),
        })
    };
    let mut standings: Vec<Standing> = labels.iter().filter_map(standing).collect();
    let sign = if quantity.larger_is_better() { -1.0 } else { 1.0 };
    standings.sort_by(|a, b| (sign * a.mean).total_cmp(&(sign * b.mean)));
    standings
}

fn ranking(folder: &RunFolder, labels: &[&str], quantity: Quantity, whose: &str) -> Option<String> {
    let standings = standings(folder, labels, quantity);
    let (best, rest) = standings.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let (noun, extreme) =
        if quantity.larger_is_better() { ("test accuracy", "highest") } else { ("loss", "lowest") };
    // Seeds are shared, and with them data and batches: who is not worse for every seed is level, and so
    // is who agrees in the four digits that are shown.
    let level = |other: &&Standing| {
        number(other.mean) == number(best.mean) || not_worse(&other.outcomes, &best.outcomes, quantity)
    };
    let tied: Vec<&str> = rest.iter().filter(level).map(|standing| standing.label).collect();
    let others: Vec<String> =
        rest.iter().filter(|s| !level(s)).map(|s| format!("{} {}", s.label, number(s.mean))).collect();
    let mut text = format!("The {noun} of {whose} is {extreme} for {} ({})", best.label, number(best.mean));
    if !tied.is_empty() {
        let _ = write!(
            text,
            ", level with {} (the same in four digits, or ahead for some seed)",
            tied.join(", ")
        );
    }
    if !others.is_empty() {
        let _ = write!(text, "; then {}", others.join(", "));
    }
    Some(text + ".")
}

/// Who hides bad models behind a good average.
fn disagreement(folder: &RunFolder, labels: &[&str]) -> Option<String> {
    let own = standings(folder, labels, Quantity::LocalLoss);
    let average = standings(folder, labels, Quantity::Loss);
    let gap = |standing: &Standing| {
        let of_average = average.iter().find(|other| other.label == standing.label)?.mean;
        let gap = standing.mean - of_average;
        let worse = gap > 0.02 * of_average.abs().max(f64::MIN_POSITIVE);
        worse
            .then(|| format!("{} ({} against {})", standing.label, number(standing.mean), number(of_average)))
    };
    let gaps: Vec<String> = own.iter().filter_map(gap).collect();
    if gaps.is_empty() && own.is_empty() {
        return None;
    }
    Some(if gaps.is_empty() {
        "The agents' own models are as good as their average for every algorithm (within 2%).".into()
    } else {
        format!("The agents' own models are worse than their average, by loss, for {}.", gaps.join(", "))
    })
}

fn failures(folder: &RunFolder, labels: &[&str]) -> Vec<String> {
    let mut said = Vec::new();
    for (status, verb) in
        [(Status::Diverged, "diverged"), (Status::Stopped, "stopped before the end, and can be resumed")]
    {
        let mut parts = Vec::new();
        for label in labels {
            let rounds: Vec<u64> = folder
                .outcomes
                .iter()
                .filter(|o| o.label == *label && o.status == status)
                .map(|o| o.round)
                .collect();
            if let (Some(first), Some(last)) = (rounds.iter().min(), rounds.iter().max()) {
                let when = if first == last {
                    format!("round {first}")
                } else {
                    format!("rounds {first} to {last}")
                };
                let all = folder.outcomes.iter().filter(|o| o.label == *label).count();
                let which = if rounds.len() == all {
                    String::new()
                } else {
                    format!("{} of {all} seeds, ", rounds.len())
                };
                parts.push(format!("{label} ({which}{when})"));
            }
        }
        if !parts.is_empty() {
            said.push(format!("{} {verb}.", parts.join(", ")));
        }
    }
    let expected = folder.experiment.algorithms.len() * folder.experiment.seeds.len();
    if folder.outcomes.len() < expected {
        said.push(format!("{} of {expected} runs are over.", folder.outcomes.len()));
    }
    said
}
