//! `stop`: when a run has converged and ends before its last round. The same keys, in the same units, are in `[agent]`.

use toml::{Table, Value};

use crate::error::LabError;
use crate::record::Record;
use crate::section::Section;

/// When a run has converged: all tolerances that are given hold after a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StopRule {
    /// Largest norm of the gradient of f at the average model.
    pub grad_norm: Option<f64>,
    /// Largest consensus error, as it is recorded: the mean squared distance of the agents' models from their average.
    pub consensus: Option<f64>,
    /// Largest change of the loss of the average model from one record to the next, divided by the larger of 1 and the loss.
    pub loss_change: Option<f64>,
    /// Rounds between checks; none if it is checked at records only, as it is with `loss_change`.
    pub every: Option<u64>,
}

impl StopRule {
    /// Reads the key `stop` of a section.
    pub(super) fn read(section: &Section) -> Result<Option<Self>, LabError> {
        let expected = "a table such as { grad_norm = 1e-6 }, with grad_norm, consensus or loss_change";
        let Some(value) = section.value("stop") else { return Ok(None) };
        let table = value.as_table().filter(|table| table.keys().any(|key| key != "every"));
        let table = table.ok_or_else(|| match value {
            Value::Table(_) => LabError::expected(section.path("stop"), expected, "none of them"),
            _ => section.refuse("stop", value, expected),
        })?;
        let reader = Section::new(section.path("stop"), table);
        let tolerance = |key: &'static str| {
            let expected = "a positive number";
            match reader.number(key, expected)? {
                Some(bad) if !(bad > 0.0 && bad.is_finite()) => {
                    Err(reader.refuse(key, &Value::Float(bad), expected))
                }
                good => Ok(good),
            }
        };
        let expected = "a whole number of rounds, at least 1";
        let rule = Self {
            grad_norm: tolerance("grad_norm")?,
            consensus: tolerance("consensus")?,
            loss_change: tolerance("loss_change")?,
            every: reader.whole("every", expected)?,
        };
        let key = reader.path("every");
        reader.finish()?;
        if rule.every == Some(0) {
            return Err(LabError::expected(key, expected, 0));
        }
        if rule.every.is_some() && rule.loss_change.is_some() {
            let problem = "conflicts with loss_change, the change from one record to the next; leave it out, and set eval_every";
            return Err(LabError::config(key, problem));
        }
        Ok(Some(rule))
    }

    pub(super) fn to_table(self) -> Table {
        let Self { grad_norm, consensus, loss_change, every } = self;
        let tolerance = |tolerance: Option<f64>| tolerance.map(Value::Float);
        super::table([
            ("grad_norm", tolerance(grad_norm)),
            ("consensus", tolerance(consensus)),
            ("loss_change", tolerance(loss_change)),
            ("every", every.map(super::whole)),
        ])
    }

    /// Whether another rule has the same tolerances.
    pub(crate) fn is_as_strict_as(&self, other: &Self) -> bool {
        Self { every: None, ..*self } == Self { every: None, ..*other }
    }

    /// Whether it is checked after a round, besides those that are recorded.
    pub(crate) fn is_checked_after(&self, round: u64) -> bool {
        self.every.is_some_and(|every| round.is_multiple_of(every))
    }

    /// How often it is checked in this many rounds, besides those that are recorded every few rounds.
    pub(crate) fn checks_between_records(&self, rounds: u64, records_every: u64) -> u64 {
        let Some(every) = self.every else { return 0 };
        let both = (every / greatest_common_divisor(every, records_every)).checked_mul(records_every);
        rounds / every - both.map_or(0, |both| rounds / both)
    }

    /// Whether a run has converged at a record, after the one before.
    pub(crate) fn holds(&self, before: Option<&Record>, now: &Record) -> bool {
        let within = |value: Option<f64>, tolerance: Option<f64>| match (value, tolerance) {
            (_, None) => true,
            (value, Some(tolerance)) => value.is_some_and(|value| value <= tolerance),
        };
        let change = before.map(|before| {
            let scale = now.loss.abs().max(before.loss.abs()).max(1.0);
            (now.loss - before.loss).abs() / scale
        });
        within(now.grad_norm_sq.map(f64::sqrt), self.grad_norm)
            && within(Some(now.consensus_error), self.consensus)
            && within(change, self.loss_change)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn all_given_tolerances_must_hold() {
        let rule =
            StopRule { grad_norm: Some(1e-3), consensus: Some(1e-2), loss_change: Some(0.1), every: None };
        let good =
            |loss| Record { grad_norm_sq: Some(1e-6), consensus_error: 1e-2, ..record("m", 0, 1, loss) };
        assert!(rule.holds(Some(&good(2.0)), &good(1.9)));
        assert!(!rule.holds(Some(&good(2.0)), &good(1.7)) && !rule.holds(None, &good(2.0)));
        // The change of a small loss is absolute.
        assert!(rule.holds(Some(&good(0.11)), &good(0.02)));
        let far = Record { consensus_error: 0.02, ..good(2.0) };
        let steep = Record { grad_norm_sq: Some(2e-6), ..good(2.0) };
        let (lost, unknown) = (good(f64::NAN), Record { grad_norm_sq: None, ..good(2.0) });
        for bad in [far, steep, lost, unknown] {
            assert!(!rule.holds(Some(&good(2.0)), &bad), "{bad:?}");
        }
    }

    #[test]
    fn checks_between_records_are_those_that_are_made() {
        for (every, records_every) in [(1, 1), (1, 20), (4, 20), (4, 6), (9, 20), (20, 20), (30, 20)] {
            let rule = StopRule { every: Some(every), ..StopRule::default() };
            for rounds in [0, 1, 19, 20, 59, 60, 61] {
                let checked =
                    |round: &u64| rule.is_checked_after(*round) && !round.is_multiple_of(records_every);
                let count = (1..=rounds).filter(checked).count() as u64;
                assert_eq!(
                    rule.checks_between_records(rounds, records_every),
                    count,
                    "{every} {records_every} {rounds}"
                );
            }
        }
        let endless = StopRule { every: Some(u64::MAX - 1), ..StopRule::default() };
        assert_eq!(endless.checks_between_records(u64::MAX, u64::MAX - 2), 1);
        assert_eq!(StopRule::default().checks_between_records(100, 10), 0);
    }

    #[test]
    fn the_same_keys_are_read_at_the_top_level_and_in_a_section() {
        let read = |section: &'static str, text: &str| {
            let table: Table = format!("stop = {{ {text} }}").parse().unwrap();
            StopRule::read(&Section::new(section, &table)).map_err(|error| match error {
                LabError::Config(error) => error.key.to_string(),
                other => panic!("{other}"),
            })
        };
        let expected = StopRule { grad_norm: Some(1e-3), every: Some(4), ..StopRule::default() };
        for section in ["", "agent"] {
            assert_eq!(read(section, "grad_norm = 1e-3, every = 4"), Ok(Some(expected)));
        }
        let refused = [
            ("every = 4", "agent.stop"),
            ("consensus = 1, every = 0", "agent.stop.every"),
            ("loss_change = 1, every = 4", "agent.stop.every"),
            ("consensus = -1", "agent.stop.consensus"),
            ("grad_norm_sq = 1", "agent.stop.grad_norm_sq"),
        ];
        for (text, key) in refused {
            assert_eq!(read("agent", text), Err(key.to_owned()), "{text}");
        }
    }
}
