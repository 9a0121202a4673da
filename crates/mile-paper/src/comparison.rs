//! Whether the paper's claim about its figures holds in a run: in words, from the records alone.

use mile_lab::quantity::Quantity;
use mile_lab::record::Record;
use mile_lab::report::RunFolder;
use mile_lab::store::{Outcome, Status};
use mile_lab::table::number;

/// The methods in the paper's figures, as the plans label them.
const RIVALS: [&str; 3] = ["LED", "K-GT", "DIGing"];
pub(super) const MILE: &str = "MILE";
const DECOUPLED: &str = "decoupled MILE*";

/// When two methods are compared.
#[derive(Clone, Copy)]
enum Moment {
    /// After the last round.
    End,
    /// At the last record at which no more than so many bytes were sent.
    Sent(u64),
}

/// What is said about one data set: the paper's claim, then ours; at the end, and for the same bytes where
/// methods differ in what they send.
pub(super) fn about(folder: &RunFolder, set: &str) -> Vec<String> {
    let mut said = Vec::new();
    for (one, rivals) in
        [(MILE, &RIVALS[..]), (DECOUPLED, &[MILE, "LED", "K-GT", "DIGing", "local DSGD*"][..])]
    {
        for (quantity, what) in
            [(Quantity::Loss, "the average model"), (Quantity::LocalLoss, "the agents' own models")]
        {
            let what = format!("{set}, loss of {what}");
            let end = Comparison { folder, one, quantity, moment: Moment::End };
            said.extend(end.told(rivals, &format!("{what} at the end")));
            if let Some((dearer, bytes)) = end.dearer(rivals) {
                let equal = Comparison { moment: Moment::Sent(bytes), ..end };
                let what = format!("{what} when each has sent {} MB", number(bytes as f64 / 1e6));
                said.extend(equal.told(&dearer, &what));
            }
        }
    }
    said
}

/// One method against others.
struct Comparison<'a> {
    folder: &'a RunFolder,
    one: &'a str,
    quantity: Quantity,
    moment: Moment,
}

impl Comparison<'_> {
    /// How the seeds ended; those that were interrupted are left out.
    fn outcomes(&self, label: &str) -> Vec<&Outcome> {
        let ended = |outcome: &&Outcome| outcome.label == label && outcome.status != Status::Stopped;
        self.folder.outcomes.iter().filter(ended).collect()
    }

    /// How many seeds diverged, or have no finite value.
    fn diverged(&self, label: &str) -> usize {
        let lost = |outcome: &&&Outcome| {
            outcome.status == Status::Diverged || !value(self.quantity, &outcome.last).is_finite()
        };
        self.outcomes(label).iter().filter(lost).count()
    }

    /// The rivals that send more than the one, and bytes at which they can be compared: those of the last
    /// record that every one of them has within what the one sends in all.
    fn dearer<'r>(&self, rivals: &[&'r str]) -> Option<(Vec<&'r str>, u64)> {
        let alive = |label: &str| -> Vec<&Outcome> {
            let alive = |outcome: &&Outcome| outcome.status == Status::Done;
            self.outcomes(label).into_iter().filter(alive).collect()
        };
        let sent = |label: &str| alive(label).iter().map(|outcome| outcome.last.bytes_sent).max();
        let mine = sent(self.one)?;
        let dearer: Vec<&str> = rivals.iter().copied().filter(|rival| sent(rival) > Some(mine)).collect();
        let runs = dearer.iter().flat_map(|rival| alive(rival));
        let within = runs.filter_map(|run| self.record(run, mine)).map(|record| record.bytes_sent).min()?;
        (within > 0).then_some((dearer, within))
    }

    /// The last record of a run at which it had sent no more than so many bytes.
    fn record(&self, run: &Outcome, bytes: u64) -> Option<&Record> {
        let its = |record: &&Record| record.label == run.label && record.seed == run.seed;
        let in_time = |record: &&Record| record.bytes_sent <= bytes;
        self.folder.records.iter().filter(its).filter(in_time).max_by_key(|record| record.round)
    }

    /// The quantity by seed, for seeds that did not diverge.
    fn values(&self, label: &str) -> Vec<(u64, f64)> {
        let at = |outcome: &&Outcome| match self.moment {
            Moment::End => Some((outcome.seed, value(self.quantity, &outcome.last))),
            Moment::Sent(bytes) => Some((outcome.seed, value(self.quantity, self.record(outcome, bytes)?))),
        };
        let alive = self.outcomes(label).into_iter().filter(|outcome| outcome.status != Status::Diverged);
        alive.filter_map(|outcome| at(&outcome)).filter(|(_, value)| value.is_finite()).collect()
    }

    fn told(&self, rivals: &[&str], what: &str) -> Option<String> {
        let mine = self.values(self.one);
        if self.outcomes(self.one).is_empty() || rivals.is_empty() {
            return None;
        }
        if self.diverged(self.one) > 0 {
            return Some(format!("{what}: {} diverged.", self.one));
        }
        let mut groups: [(&str, Vec<String>); 4] =
            [("ahead of", vec![]), ("level with", vec![]), ("behind", vec![]), ("diverged:", vec![])];
        for rival in rivals {
            let (theirs, all, lost) = (self.values(rival), self.outcomes(rival).len(), self.diverged(rival));
            if all == 0 {
                continue;
            }
            if theirs.is_empty() {
                groups[3].1.push((*rival).to_owned());
                continue;
            }
            let Some((group, text)) = against(&mine, &theirs) else { continue };
            if lost > 0 {
                groups[3].1.push(format!("{rival} for {lost} of {all} seeds (of the others: {text})"));
            } else {
                groups[group].1.push(format!("{rival} ({text})"));
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

/// Which group a rival is in (0 behind us for every seed, 2 ahead for every seed, 1 neither, or the means agree
/// in the digits that are shown), and by how much.
/// Seeds are compared one by one: with a seed they share data and batches. None if they share no seed.
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
    let level = number(mean(&shared(mine, theirs))) == number(mean(&shared(theirs, mine)));
    let group = match wins {
        _ if level => 1,
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
        _ if seeds == 1 && least > 0.0 => format!("; ahead for the seed they share, by {}", number(least)),
        _ if seeds == 1 => format!("; behind for the seed they share, by {}", number(-least)),
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
        assert_eq!((group, text.as_str()), (2, "0.1500; behind for the seed they share, by 0.05000"));
        assert_eq!(against(&mine, &[(1, 0.2)]).unwrap().0, 1, "level for the seed they share");
        assert_eq!(against(&mine, &[(0, 0.2)]).unwrap().0, 0, "though the means over all seeds agree");
        assert_eq!(against(&mine[..1], &[(0, 0.100_000_1)]).unwrap().0, 1, "level to what is shown");
    }
}
