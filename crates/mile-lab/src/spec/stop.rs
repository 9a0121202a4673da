//! `stop`: when a run has converged and ends before its last round.

use toml::{Table, Value};

use crate::error::LabError;
use crate::record::Record;
use crate::section::Section;

/// When a run has converged: all tolerances that are given hold at a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopRule {
    /// Largest norm of the gradient of f at the average model.
    pub grad_norm: Option<f64>,
    /// Largest consensus error, as it is recorded: the mean squared distance of the agents' models from their average.
    pub consensus: Option<f64>,
    /// Largest change of the loss of the average model from one record to the next, divided by the larger of 1 and the loss.
    pub loss_change: Option<f64>,
}

impl StopRule {
    pub(super) fn read(top: &Section) -> Result<Option<Self>, LabError> {
        let expected = "a table such as { grad_norm = 1e-6 }, with grad_norm, consensus or loss_change";
        let Some(value) = top.value("stop") else { return Ok(None) };
        let table = value.as_table().filter(|table| !table.is_empty());
        let reader = Section::new("stop", table.ok_or_else(|| top.refuse("stop", value, expected))?);
        let tolerance = |key: &'static str| {
            let expected = "a positive number";
            match reader.number(key, expected)? {
                Some(bad) if !(bad > 0.0 && bad.is_finite()) => {
                    Err(reader.refuse(key, &Value::Float(bad), expected))
                }
                good => Ok(good),
            }
        };
        let rule = Self {
            grad_norm: tolerance("grad_norm")?,
            consensus: tolerance("consensus")?,
            loss_change: tolerance("loss_change")?,
        };
        reader.finish()?;
        Ok(Some(rule))
    }

    pub(super) fn to_table(self) -> Table {
        let Self { grad_norm, consensus, loss_change } = self;
        let entries = [("grad_norm", grad_norm), ("consensus", consensus), ("loss_change", loss_change)];
        super::table(entries.map(|(key, tolerance)| (key, tolerance.map(Value::Float))))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn all_given_tolerances_must_hold() {
        let rule = StopRule { grad_norm: Some(1e-3), consensus: Some(1e-2), loss_change: Some(0.1) };
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
}
