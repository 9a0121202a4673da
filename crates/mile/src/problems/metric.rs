//! How good a model is on held-out data.

/// A measure of a model on held-out rows that no gradient sees; all rows count equally, unless they have weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The fraction of rows whose class is predicted correctly.
    Accuracy,
    /// Area under the ROC curve: the fraction of pairs of a row of one class and a row of the other that are scored in the
    /// right order, ties counting half. Undefined (NaN) if a class is missing.
    Auc,
    /// Root mean square of the errors of the predictions.
    Rmse,
    /// Coefficient of determination: 1 minus the sum of squared errors over the sum of squared distances of the targets from their
    /// mean. Undefined (NaN) if all targets are equal.
    R2,
    /// Mean loss, without the penalty.
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
