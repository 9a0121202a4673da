//! Compares methods in a run, in sentences: whether the paper's claim about its figures holds.

use mile_lab::quantity::Quantity;
use mile_lab::record::Record;
use mile_lab::report::RunFolder;
use mile_lab::store::{JobStatus, Outcome};
use mile_lab::table::number;

/// The methods that the paper compares MILE with, by their labels.
const BASELINES: [&str; 3] = ["LED", "K-GT", "DIGing"];
pub(super) const MILE: &str = "MILE";
const DECOUPLED: &str = "decoupled MILE*";

/// The time at which methods are compared.
#[derive(Clone, Copy)]
enum Moment {
    /// After the last round.
    End,
    /// At the last record with at most this number of bytes sent.
    Sent(u64),
}

/// The comparisons for one data set: of MILE, then of decoupled MILE; at the end and, with methods that send more, for the
/// same number of bytes sent.
pub(super) fn sentences(folder: &RunFolder, set: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    for (one, baselines) in
        [(MILE, &BASELINES[..]), (DECOUPLED, &[MILE, "LED", "K-GT", "DIGing", "local DSGD*"][..])]
    {
        for (quantity, what) in
            [(Quantity::Loss, "the average model"), (Quantity::LocalLoss, "the agents' own models")]
        {
            let what = format!("{set}, loss of {what}");
            let end = Comparison { folder, one, quantity, moment: Moment::End };
            sentences.extend(end.sentence(baselines, &format!("{what} at the end")));
            if let Some((costlier, bytes)) = end.costlier(baselines) {
                let equal = Comparison { moment: Moment::Sent(bytes), ..end };
                let what = format!("{what} when each has sent {} MB", number(bytes as f64 / 1e6));
                sentences.extend(equal.sentence(&costlier, &what));
            }
        }
    }
    sentences
}

/// A comparison of one method with others.
struct Comparison<'a> {
    folder: &'a RunFolder,
    one: &'a str,
    quantity: Quantity,
    moment: Moment,
}

impl Comparison<'_> {
    /// The outcomes of all seeds that were not stopped.
    fn outcomes(&self, label: &str) -> Vec<&Outcome> {
        let ended = |outcome: &&Outcome| outcome.label == label && outcome.status != JobStatus::Stopped;
        self.folder.outcomes.iter().filter(ended).collect()
    }

    /// The number of seeds that diverged or have no finite value.
    fn diverged(&self, label: &str) -> usize {
        let lost = |outcome: &&&Outcome| {
            outcome.status == JobStatus::Diverged || !value(self.quantity, &outcome.last).is_finite()
        };
        self.outcomes(label).iter().filter(lost).count()
    }

    /// The baselines that send more bytes than the method, and the number of bytes at which to compare: that of the last
    /// record of each within the total of the method.
    fn costlier<'r>(&self, baselines: &[&'r str]) -> Option<(Vec<&'r str>, u64)> {
        let alive = |label: &str| -> Vec<&Outcome> {
            let alive = |outcome: &&Outcome| outcome.status.is_done();
            self.outcomes(label).into_iter().filter(alive).collect()
        };
        let sent = |label: &str| alive(label).iter().map(|outcome| outcome.last.bytes_sent).max();
        let mine = sent(self.one)?;
        let costlier: Vec<&str> =
            baselines.iter().copied().filter(|baseline| sent(baseline) > Some(mine)).collect();
        let runs = costlier.iter().flat_map(|baseline| alive(baseline));
        let within = runs.filter_map(|run| self.record(run, mine)).map(|record| record.bytes_sent).min()?;
        (within > 0).then_some((costlier, within))
    }

    /// The last record of a run with at most this number of bytes sent.
    fn record(&self, run: &Outcome, bytes: u64) -> Option<&Record> {
        let its = |record: &&Record| record.label == run.label && record.seed == run.seed;
        let in_time = |record: &&Record| record.bytes_sent <= bytes;
        self.folder.records.iter().filter(its).filter(in_time).max_by_key(|record| record.round)
    }

    /// The quantity by seed, without diverged seeds.
    fn values(&self, label: &str) -> Vec<(u64, f64)> {
        let at = |outcome: &&Outcome| match self.moment {
            Moment::End => Some((outcome.seed, value(self.quantity, &outcome.last))),
            Moment::Sent(bytes) => Some((outcome.seed, value(self.quantity, self.record(outcome, bytes)?))),
        };
        let alive = self.outcomes(label).into_iter().filter(|outcome| outcome.status != JobStatus::Diverged);
        alive.filter_map(|outcome| at(&outcome)).filter(|(_, value)| value.is_finite()).collect()
    }

    /// The comparison with the baselines, as a sentence.
    fn sentence(&self, baselines: &[&str], what: &str) -> Option<String> {
        let mine = self.values(self.one);
        if self.outcomes(self.one).is_empty() || baselines.is_empty() {
            return None;
        }
        if self.diverged(self.one) > 0 {
            return Some(format!("{what}: {} diverged.", self.one));
        }
        let mut groups: [(&str, Vec<String>); 4] =
            [("ahead of", vec![]), ("tied with", vec![]), ("behind", vec![]), ("diverged:", vec![])];
        for baseline in baselines {
            let (theirs, all, lost) =
                (self.values(baseline), self.outcomes(baseline).len(), self.diverged(baseline));
            if all == 0 {
                continue;
            }
            if theirs.is_empty() {
                groups[3].1.push((*baseline).to_owned());
                continue;
            }
            let Some((group, text)) = against(&mine, &theirs) else { continue };
            if lost > 0 {
                groups[3].1.push(format!("{baseline} for {lost} of {all} seeds (of the others: {text})"));
            } else {
                groups[group].1.push(format!("{baseline} ({text})"));
            }
        }
        let parts: Vec<String> = groups
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(verdict, names)| format!("{verdict} {}", names.join(", ")))
            .collect();
        let head = format!("{what}: {} ({})", self.one, number(mean(&mine)));
        (!parts.is_empty()).then(|| format!("{head} is {}.", parts.join("; ")))
    }
}

fn value(quantity: Quantity, record: &Record) -> f64 {
    quantity.of(record).unwrap_or(f64::NAN)
}

fn mean(values: &[(u64, f64)]) -> f64 {
    values.iter().map(|(_, value)| value).sum::<f64>() / values.len() as f64
}

/// Compares a method with a baseline seed by seed, since with the same seed they have the same data and batches. Returns
/// the group (0: ahead for every seed, 2: behind for every seed, 1: neither, or equal means in the digits that are shown)
/// and the margins as text; `None` without a common seed.
fn against(mine: &[(u64, f64)], theirs: &[(u64, f64)]) -> Option<(usize, String)> {
    let twin = |seed: u64| theirs.iter().find(|other| other.0 == seed);
    let margins: Vec<f64> = mine.iter().filter_map(|(seed, value)| Some(twin(*seed)?.1 - value)).collect();
    if margins.is_empty() {
        return None;
    }
    let wins = margins.iter().filter(|margin| **margin > 0.0).count();
    let shared = |values: &[(u64, f64)], others: &[(u64, f64)]| -> Vec<(u64, f64)> {
        values.iter().copied().filter(|(seed, _)| others.iter().any(|other| other.0 == *seed)).collect()
    };
    let tied = number(mean(&shared(mine, theirs))) == number(mean(&shared(theirs, mine)));
    let group = match wins {
        _ if tied => 1,
        0 => 2,
        all if all == margins.len() => 0,
        _ => 1,
    };
    let least = margins.iter().copied().fold(f64::INFINITY, f64::min);
    let most = margins.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut text = number(mean(theirs));
    let seeds = margins.len();
    text += &match wins {
        _ if seeds == 1 && mine.len() == 1 => String::new(),
        _ if seeds == 1 && least > 0.0 => format!("; ahead for the common seed, by {}", number(least)),
        _ if seeds == 1 => format!("; behind for the common seed, by {}", number(-least)),
        0 => format!("; behind for all {seeds} seeds, by {} to {}", number(-most), number(-least)),
        all if all == seeds => {
            format!("; ahead for all {seeds} seeds, by {} to {}", number(least), number(most))
        }
        some => format!(
            "; ahead for {some} of {seeds} seeds, by up to {}, behind by up to {}",
            number(most),
            number(-least)
        ),
    };
    Some((group, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_compared_one_by_one() {
        let mine = [(0, 0.1), (1, 0.2), (2, 0.3)];
        let (group, text) = against(&mine, &[(2, 0.31), (0, 0.15), (1, 0.22)]).unwrap();
        assert_eq!((group, text.as_str()), (0, "0.2267; ahead for all 3 seeds, by 0.01000 to 0.05000"));
        let (group, text) = against(&mine, &[(0, 0.05), (1, 0.25), (2, 0.29)]).unwrap();
        assert_eq!(
            (group, text.as_str()),
            (1, "0.1967; ahead for 1 of 3 seeds, by up to 0.05000, behind by up to 0.05000")
        );
        let (group, text) = against(&mine, &[(0, 0.05), (1, 0.1), (2, 0.2)]).unwrap();
        assert_eq!((group, text.as_str()), (2, "0.1167; behind for all 3 seeds, by 0.05000 to 0.1000"));
        assert_eq!(against(&mine[..1], &[(0, 0.3)]).unwrap().1, "0.3000");
        assert_eq!(against(&mine[..1], &[(1, 0.3)]), None);
        let (group, text) = against(&mine, &[(1, 0.15)]).unwrap();
        assert_eq!((group, text.as_str()), (2, "0.1500; behind for the common seed, by 0.05000"));
        assert_eq!(against(&mine, &[(1, 0.2)]).unwrap().0, 1, "tied for the common seed");
        assert_eq!(against(&mine, &[(0, 0.2)]).unwrap().0, 0, "though the means over all seeds agree");
        assert_eq!(against(&mine[..1], &[(0, 0.100_000_1)]).unwrap().0, 1, "equal in the digits shown");
    }
}
