//! Losses relative to those of a reference algorithm, seed by seed. This separates curves that are close together on a
//! logarithmic axis, and removes the variation between seeds that all algorithms share.

use crate::record::Record;

/// Records with losses divided by those of the algorithm `reference` with the same seed and round; records without such a
/// counterpart are left out.
pub fn relative_to(records: &[Record], reference: &str) -> Vec<Record> {
    let divided = |record: &Record| {
        let same = |other: &&Record| {
            other.label == reference && other.seed == record.seed && other.round == record.round
        };
        let base = records.iter().find(same)?;
        Some(Record {
            loss: record.loss / base.loss,
            local_loss: record.local_loss / base.local_loss,
            worst_loss: record.worst_loss / base.worst_loss,
            ..record.clone()
        })
    };
    records.iter().filter_map(divided).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn losses_are_divided_seed_by_seed_and_round_by_round() {
        let records =
            [record("a", 0, 1, 2.0), record("a", 1, 1, 4.0), record("b", 0, 1, 3.0), record("b", 1, 1, 2.0)];
        let losses = |records: &[Record]| records.iter().map(|r| r.loss).collect::<Vec<f64>>();
        assert_eq!(losses(&relative_to(&records, "a")), [1.0, 1.0, 1.5, 0.5]);
        let later = [record("a", 0, 1, 2.0), record("b", 0, 2, 3.0), record("b", 2, 1, 3.0)];
        assert_eq!(losses(&relative_to(&later, "a")), [1.0]);
        assert!(losses(&relative_to(&[record("a", 0, 1, f64::NAN)], "a"))[0].is_nan());
    }
}
