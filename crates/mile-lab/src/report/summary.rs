//! The summary of a run, in sentences.

use std::fmt::Write;

use mile::attack::Attack;
use mile::membership::{Change, Event};
use mile::problems::Metric;

use super::folder::RunFolder;
use crate::quantity::Quantity;
use crate::recorded_metrics::{self, Models};
use crate::spec::{GraphSource, MixingSource, VaryingSource};
use crate::store::{JobStatus, Outcome, labels};
use crate::sweep::{Rank, as_good_for_some_seed};
use crate::table::{ending_remarks, number};

/// The final mean of a quantity for one algorithm, over the seeds that all compared algorithms have finished.
struct Standing<'a> {
    label: &'a str,
    mean: f64,
    rank: Rank,
    outcomes: Vec<Outcome>,
}

/// The sentences of the summary, most important first.
pub(super) fn summary(folder: &RunFolder) -> Vec<String> {
    let mut sentences = vec![setup(folder)];
    let labels = labels(&folder.outcomes);
    sentences.extend(ranking(folder, &labels, Quantity::LocalLoss, "the agents' own models"));
    sentences.extend(ranking(folder, &labels, Quantity::Loss, "the average model (which no agent holds)"));
    let own = Metric::ALL.map(|metric| Quantity::Test(metric, Models::Own));
    let recorded = own.into_iter().find_map(|q| ranking(folder, &labels, q, "the agents' own models"));
    sentences.extend(recorded);
    sentences.extend(disagreement(folder, &labels));
    sentences.extend(endings(folder, &labels));
    sentences.extend(failures(folder, &labels));
    sentences
}

/// The network, such as `ring of 10 agents, metropolis weights`, and what happens to its agents.
pub(crate) fn network_name(folder: &RunFolder) -> String {
    let graph = match folder.spec.network.graph {
        GraphSource::Topology(topology) => topology.name(),
        GraphSource::File(_) => "graph from a file",
        GraphSource::Edges(_) => "custom graph",
        GraphSource::InTurn => match folder.spec.network.time_varying {
            Some(VaryingSource::WeightedFiles(_)) => "graphs from files",
            Some(VaryingSource::Weighted(_)) => "custom graphs",
            _ => "finite-time graph",
        },
    };
    let mixing = match folder.spec.network.mixing {
        MixingSource::Rule(rule) => format!("{} weights", rule.name()),
        MixingSource::File(_) => "weights from a file".into(),
        MixingSource::Weights(_) => "custom weights".into(),
        MixingSource::InTurn => "weights of its own".into(),
    };
    let events = folder.spec.events.iter().map(|Event { round, change, .. }| {
        let happens = match change {
            Change::Replace(_) => "is replaced",
            Change::Leave { .. } => "leaves",
            Change::Join { .. } => "joins",
        };
        format!("; agent {} {happens} before round {round}", change.agent())
    });
    let attack = folder.spec.attack.as_ref().map(attack_in_words).unwrap_or_default();
    format!("{graph} of {} agents, {mixing}{}{attack}", folder.network.agents(), events.collect::<String>())
}

fn attack_in_words(Attack { agents, kind, strength }: &Attack) -> String {
    let list = agents.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let who = if agents.len() == 1 { format!("agent {list} is") } else { format!("agents {list} are") };
    format!(
        "; {who} malicious ({}, strength {strength}), and all results are those of the others",
        kind.name()
    )
}

/// The title of the problem: as recorded when the run was started, or else from the experiment file.
pub(crate) fn problem_name(folder: &RunFolder) -> String {
    let recorded = folder.context.as_ref().and_then(|context| context.problem.clone());
    recorded.unwrap_or_else(|| folder.spec.objectives.title())
}

/// The experiment, in a sentence or two.
fn setup(folder: &RunFolder) -> String {
    let spec = &folder.spec;
    let mut text = format!(
        "{} with {} for {} rounds: {}, on a {}.",
        plural(spec.algorithms.len(), "algorithm"),
        plural(spec.seeds.len(), "seed"),
        spec.rounds,
        problem_name(folder),
        network_name(folder)
    );
    if let Some(samples) = spec.objectives.evaluated_on() {
        let _ = write!(text, " Evaluated: {samples}.");
    }
    if folder.network.drop_rate() > 0.0 {
        let _ = write!(text, " An edge is down in a round with probability {}.", folder.network.drop_rate());
    }
    if let Some(bursts) = folder.network.bursts() {
        let (length, share) = (1.0 / bursts.during.end(), bursts.share());
        let _ = write!(
            text,
            " Loss comes in bursts of {} rounds on average, which affect {} of the rounds on an edge.",
            number(length),
            number(share)
        );
    }
    if let Some(absence) = folder.network.absence() {
        let (length, share) = (1.0 / absence.end(), absence.share());
        let _ = write!(
            text,
            " An agent is away for {} of the rounds, {} at a time on average.",
            number(share),
            number(length)
        );
    }
    if let Some(varying) = folder.network.time_varying() {
        let _ = write!(text, " The graph changes from round to round: {varying}.");
    }
    text
}

pub(super) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// The algorithms with no diverged seed and some finished seed, best first, compared over the seeds that all of
/// them have finished.
fn standings<'a>(folder: &'a RunFolder, labels: &[&'a str], quantity: Quantity) -> Vec<Standing<'a>> {
    let finished = |label: &&'a str| {
        let mine = || folder.outcomes.iter().filter(|outcome| outcome.label == **label);
        let done: Vec<Outcome> = mine().filter(|o| o.status.is_done()).cloned().collect();
        let diverged = mine().any(|outcome| outcome.status == JobStatus::Diverged);
        (!diverged && mean(&done, quantity).is_some()).then_some((*label, done))
    };
    let finished: Vec<(&str, Vec<Outcome>)> = labels.iter().filter_map(finished).collect();
    let has = |done: &[Outcome], seed: u64| done.iter().any(|outcome| outcome.seed == seed);
    let sign = if quantity.larger_is_better() { -1.0 } else { 1.0 };
    let shared = |outcome: &&Outcome| finished.iter().all(|(_, done)| has(done, outcome.seed));
    let standing = |(label, done): &(&'a str, Vec<Outcome>)| {
        let outcomes: Vec<Outcome> = done.iter().filter(shared).cloned().collect();
        let mean = mean(&outcomes, quantity)?;
        Some(Standing { label, mean, rank: Rank::of(sign * mean, &outcomes), outcomes })
    };
    let mut standings: Vec<Standing> = finished.iter().filter_map(standing).collect();
    standings.sort_by(|a, b| a.rank.order(&b.rank));
    standings
}

/// The mean of a quantity, if all outcomes have it and it is finite.
fn mean(outcomes: &[Outcome], quantity: Quantity) -> Option<f64> {
    let values: Vec<f64> = outcomes.iter().map(|o| quantity.of(&o.last)).collect::<Option<_>>()?;
    let whole = !values.is_empty() && values.iter().all(|value| value.is_finite());
    whole.then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The first words of a sentence about standings, with the number of seeds if not all are compared.
fn opening(folder: &RunFolder, standings: &[Standing]) -> String {
    let (seeds, all) = (standings.first().map_or(0, |first| first.outcomes.len()), folder.spec.seeds.len());
    if seeds < all { format!("Over {seeds} of {all} seeds, the") } else { "The".into() }
}

fn ranking(folder: &RunFolder, labels: &[&str], quantity: Quantity, whose: &str) -> Option<String> {
    let standings = standings(folder, labels, quantity);
    let (best, rest) = standings.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let noun = match quantity {
        Quantity::Test(metric, _) => recorded_metrics::noun(metric),
        _ => "loss",
    };
    let extreme = if quantity.larger_is_better() { "highest" } else { "lowest" };
    let the = opening(folder, &standings);
    let mut text = format!("{the} {noun} of {whose} is {extreme} for {} ({})", best.label, number(best.mean));
    let (tied, others): (Vec<&Standing>, Vec<&Standing>) = rest.iter().partition(|s| s.rank.ties(&best.rank));
    if let Some(next) = tied.first() {
        let names: Vec<&str> = tied.iter().map(|standing| standing.label).collect();
        let _ = write!(text, ", followed at the same value by {}", in_turn(&names));
        if let Some(what) = best.rank.ahead_of(&next.rank) {
            let _ = write!(text, " (it {what})");
        }
    }
    // With the same seed, algorithms have the same data and batches.
    let name = |other: &&Standing| {
        let close = as_good_for_some_seed(&other.outcomes, &best.outcomes, quantity);
        let seeds = if close { " (as good for some seed)" } else { "" };
        format!("{} {}{seeds}", other.label, number(other.mean))
    };
    if !others.is_empty() {
        let _ = write!(text, "; then {}", others.iter().map(name).collect::<Vec<_>>().join(", "));
    }
    Some(text + ".")
}

/// Names in a row: `a, b and c`.
fn in_turn(names: &[&str]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => names.concat(),
    }
}

/// The algorithms whose agents' own models have a larger loss than their average.
fn disagreement(folder: &RunFolder, labels: &[&str]) -> Option<String> {
    let own = standings(folder, labels, Quantity::LocalLoss);
    let gap = |standing: &Standing| {
        let of_average = mean(&standing.outcomes, Quantity::Loss)?;
        let gap = standing.mean - of_average;
        let worse = gap > 0.02 * of_average.abs().max(f64::MIN_POSITIVE);
        worse
            .then(|| format!("{} ({} against {})", standing.label, number(standing.mean), number(of_average)))
    };
    let gaps: Vec<String> = own.iter().filter_map(gap).collect();
    if gaps.is_empty() && own.is_empty() {
        return None;
    }
    let the = opening(folder, &own);
    let (finished, all) = folder.finished_jobs();
    let compared = if finished < all { " compared" } else { "" };
    Some(if gaps.is_empty() {
        format!(
            "{the} agents' own models are as good as their average for every algorithm{compared} (within 2%)."
        )
    } else {
        format!("{the} agents' own models are worse than their average, by loss, for {}.", gaps.join(", "))
    })
}

/// The algorithms that converged, and those that were far from it at their last round.
fn endings(folder: &RunFolder, labels: &[&str]) -> Vec<String> {
    let converged = |label: &&&str| {
        let mut mine = folder.outcomes.iter().filter(|outcome| outcome.label == ***label).peekable();
        mine.peek().is_some() && mine.all(|outcome| outcome.status == JobStatus::Converged)
    };
    let names: Vec<&str> = labels.iter().filter(converged).copied().collect();
    let mut sentences = ending_remarks(&folder.outcomes);
    if !names.is_empty() {
        sentences.insert(0, format!("{} converged.", in_turn(&names)));
    }
    sentences
}

/// The runs that diverged, stopped or failed.
fn failures(folder: &RunFolder, labels: &[&str]) -> Vec<String> {
    let mut sentences = Vec::new();
    let verbs = [
        (JobStatus::Diverged, "diverged"),
        (JobStatus::Stopped, "stopped early and can be resumed"),
        (JobStatus::Failed, "failed and can be resumed"),
    ];
    for (status, verb) in verbs {
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
                let all = folder.spec.seeds.len();
                let which = if rounds.len() == all {
                    String::new()
                } else {
                    format!("{} of {all} seeds, ", rounds.len())
                };
                parts.push(format!("{label} ({which}{when})"));
            }
        }
        if !parts.is_empty() {
            sentences.push(format!("{} {verb}.", parts.join(", ")));
        }
    }
    for outcome in folder.outcomes.iter().filter(|outcome| outcome.status == JobStatus::Failed) {
        let why = outcome.error.as_deref().unwrap_or("no error message");
        sentences.push(format!("{}, seed {}: {why}.", outcome.label, outcome.seed));
    }
    let (finished, all) = folder.finished_jobs();
    if finished < all {
        sentences.push(format!("{finished} of {all} runs are finished."));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ending::Trend;
    use crate::spec::Spec;
    use crate::table::tests::outcome;

    /// A run of "a", "b" and "c" with four seeds, as far as it has come.
    fn folder(outcomes: Vec<Outcome>) -> RunFolder {
        let algorithm =
            |label: &str| format!("[[algorithm]]\nname = \"mile\"\nlabel = \"{label}\"\nstep_size = 0.1\n");
        let algorithms: String = ["a", "b", "c"].map(algorithm).concat();
        let text = format!(
            "seeds = [0, 1, 2, 3]\nrounds = 3\n[network]\nagents = 3\n[problem]\nkind = \"quadratic\"\ndim = 2\n{algorithms}"
        );
        let spec = Spec::parse(&text, Path::new(""), &[]).unwrap();
        let network = spec.network.build().unwrap();
        RunFolder { path: "run".into(), spec, network, records: Vec::new(), outcomes, context: None }
    }

    fn done(label: &str, seeds: std::ops::Range<u64>, loss: f64) -> Vec<Outcome> {
        // The larger the seed, the larger the loss: so means over other seeds differ.
        seeds.map(|seed| outcome(label, seed, JobStatus::LastRound, loss + seed as f64)).collect()
    }

    #[test]
    fn algorithms_are_compared_over_the_seeds_that_all_of_them_have_finished() {
        let mut outcomes = [done("a", 0..3, 1.0), done("b", 0..1, 1.5)].concat();
        outcomes.push(outcome("b", 1, JobStatus::Stopped, 0.1));
        outcomes.push(outcome("c", 0, JobStatus::Stopped, 0.1));
        let text = summary(&folder(outcomes)).join("\n");
        let expected =
            "Over 1 of 4 seeds, the loss of the agents' own models is lowest for a (1.100); then b 1.650.";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("for a (1.100 against 1), b (1.650 against 1.500)."), "{text}");
        assert!(text.contains("b (1 of 4 seeds, round 3), c (1 of 4 seeds, round 3) stopped"), "{text}");
        assert!(text.contains("4 of 12 runs are finished."), "a stopped run is not finished: {text}");
    }

    #[test]
    fn equal_losses_are_ranked_by_the_rounds_they_took_and_not_listed_as_ties() {
        let settled = |label: &str, round: u64, loss: f64| -> Vec<Outcome> {
            let mut outcomes = done(label, 0..4, loss);
            outcomes.iter_mut().for_each(|outcome| outcome.ending.settled = Some(round));
            outcomes
        };
        let outcomes =
            [settled("a", 90, 1.0), settled("b", 40, 1.000_000_1), settled("c", 60, 1.000_000_2)].concat();
        let text = summary(&folder(outcomes)).join("\n");
        let expected = "is lowest for b (2.750), followed at the same value by c and a (it settled after 40 rounds instead of 60).";
        assert!(text.contains(expected), "{text}");
        let close =
            [done("a", 0..4, 1.0), done("b", 0..3, 1.5), vec![outcome("b", 3, JobStatus::Converged, 3.9)]];
        let text = summary(&folder(close.concat())).join("\n");
        assert!(text.contains("(as good for some seed)."), "{text}");
    }

    #[test]
    fn the_summary_says_who_converged_and_who_did_not() {
        let mut outcomes = [done("a", 0..4, 1.0), done("b", 0..4, 1.5)].concat();
        outcomes[..4].iter_mut().for_each(|outcome| outcome.status = JobStatus::Converged);
        outcomes[4..].iter_mut().for_each(|outcome| outcome.ending.loss = Some(Trend::Falling));
        let text = summary(&folder(outcomes)).join("\n");
        assert!(text.contains("a converged.\nb stopped at the last round, not converged: "), "{text}");
    }

    #[test]
    fn no_shared_seed_is_no_comparison() {
        let text = summary(&folder([done("a", 0..1, 1.0), done("b", 1..2, 1.0)].concat())).join("\n");
        assert!(!text.contains("lowest") && !text.contains("their average"), "{text}");
    }

    #[test]
    fn a_whole_run_is_compared_without_those_that_diverged() {
        let mut outcomes = [done("a", 0..4, 1.0), done("b", 0..4, 2.0), done("c", 0..3, 0.1)].concat();
        outcomes.push(outcome("c", 3, JobStatus::Diverged, 1e30));
        let text = summary(&folder(outcomes)).join("\n");
        assert!(
            text.contains("The loss of the agents' own models is lowest for a (2.750); then b 3.850."),
            "{text}"
        );
        assert!(
            text.contains("The agents' own models are worse than their average, by loss, for a (2.750"),
            "{text}"
        );
        assert!(
            text.contains("c (1 of 4 seeds, round 3) diverged.") && !text.contains("are finished"),
            "{text}"
        );
    }
}
