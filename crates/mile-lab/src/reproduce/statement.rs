//! Whether the paper's claim about its figures holds in a run: in words, from the records alone.

use crate::plot::Quantity;
use crate::report::RunFolder;
use crate::store::{Outcome, Status};
use crate::table::number;

/// The methods in the paper's figures, as the plans label them.
const RIVALS: [&str; 3] = ["LED", "K-GT", "DIGing"];
const MILE: &str = "MILE";
const DECOUPLED: &str = "decoupled MILE*";

/// What is said about one data set: the paper's claim, then ours.
pub(super) fn about(folder: &RunFolder, set: &str) -> Vec<String> {
    let mut said = Vec::new();
    for (one, rivals) in
        [(MILE, &RIVALS[..]), (DECOUPLED, &[MILE, "LED", "K-GT", "DIGing", "local DSGD*"][..])]
    {
        for (quantity, what) in
            [(Quantity::Loss, "the average model"), (Quantity::LocalLoss, "the agents' own models")]
        {
            said.extend(compared(
                folder,
                one,
                rivals,
                quantity,
                &format!("{set}, loss of {what} at the end"),
            ));
        }
    }
    said
}

fn compared(
    folder: &RunFolder,
    one: &str,
    rivals: &[&str],
    quantity: Quantity,
    what: &str,
) -> Option<String> {
    let mine = of(folder, one);
    if mine.is_empty() {
        return None;
    }
    if mine.iter().any(|outcome| outcome.status == Status::Diverged) {
        return Some(format!("{what}: {one} diverged."));
    }
    let mut groups: [(&str, Vec<String>); 4] =
        [("ahead of", vec![]), ("level with", vec![]), ("behind", vec![]), ("diverged:", vec![])];
    for rival in rivals {
        let theirs = of(folder, rival);
        if theirs.is_empty() {
            continue;
        }
        if theirs.iter().any(|outcome| outcome.status == Status::Diverged) {
            groups[3].1.push((*rival).to_owned());
            continue;
        }
        let (wins, all) = wins(&mine, &theirs, quantity);
        let group = if wins == all { 0 } else { 1 + usize::from(wins == 0) };
        let seeds = if all > 1 { format!(", lower for {wins} of {all} seeds") } else { String::new() };
        groups[group].1.push(format!("{rival} ({}{seeds})", number(mean(&theirs, quantity))));
    }
    let parts: Vec<String> = groups
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(verdict, names)| format!("{verdict} {}", names.join(", ")))
        .collect();
    (!parts.is_empty())
        .then(|| format!("{what}: {one} ({}) is {}.", number(mean(&mine, quantity)), parts.join("; ")))
}

fn of<'a>(folder: &'a RunFolder, label: &str) -> Vec<&'a Outcome> {
    folder.outcomes.iter().filter(|outcome| outcome.label == label).collect()
}

fn value(outcome: &Outcome, quantity: Quantity) -> f64 {
    quantity.of(&outcome.last).unwrap_or(f64::NAN)
}

fn mean(outcomes: &[&Outcome], quantity: Quantity) -> f64 {
    outcomes.iter().map(|outcome| value(outcome, quantity)).sum::<f64>() / outcomes.len() as f64
}

/// For how many of the shared seeds the first are lower: they share data and batches.
fn wins(those: &[&Outcome], others: &[&Outcome], quantity: Quantity) -> (usize, usize) {
    let twin = |outcome: &Outcome| others.iter().find(|other| other.seed == outcome.seed);
    let pairs: Vec<bool> = those
        .iter()
        .filter_map(|outcome| Some(value(outcome, quantity) < value(twin(outcome)?, quantity)))
        .collect();
    (pairs.iter().filter(|won| **won).count(), pairs.len())
}
