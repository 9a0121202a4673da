//! What a model is worth on held-out data.

/// A measure of a model on held-out rows that no gradient sees, of which each counts equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The part of the rows whose class is predicted.
    Accuracy,
    /// Area under the ROC curve: the part of the pairs of a row of the one class and a row of the other that are scored in the
    /// right order, a tie counting half. Undefined (NaN) if a class is missing.
    Auc,
    /// Root mean square of the errors of the predictions.
    Rmse,
    /// Coefficient of determination: 1 less the sum of squared errors over the sum of squared distances of the targets from their
    /// mean. Undefined (NaN) if all targets are equal.
    R2,
    /// Mean loss, without penalty.
    TestLoss,
}

impl Metric {
    /// All variants, in display order.
    pub const ALL: [Self; 5] = [Self::Accuracy, Self::Auc, Self::Rmse, Self::R2, Self::TestLoss];

    /// Whether larger values are better.
    pub fn larger_is_better(self) -> bool {
        matches!(self, Self::Accuracy | Self::Auc | Self::R2)
    }
}
