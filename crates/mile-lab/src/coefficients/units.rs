//! Coefficients in the units of the data: of the columns as they are in the files, not standardised.

use mile::problems::Covariance;

use crate::objectives::{Coefficient, Feature};

/// A coefficient in the units of the data, as a combination of those of the model.
pub(super) struct Combination<'c> {
    pub(super) class: Option<&'c str>,
    pub(super) name: &'c str,
    /// The place of the model's coefficient of this name, if it has one.
    pub(super) place: Option<usize>,
    terms: Vec<(usize, f64)>,
}

impl Combination<'_> {
    /// Its value for a model.
    pub(super) fn value(&self, model: &[f64]) -> f64 {
        self.terms.iter().map(|(k, factor)| factor * model[*k]).sum()
    }

    /// Its variance.
    pub(super) fn variance(&self, covariance: &Covariance) -> f64 {
        let dim = covariance.matrix.len().isqrt();
        let pairs = self.terms.iter().flat_map(|a| self.terms.iter().map(move |b| (a, b)));
        pairs.map(|((i, a), (j, b))| a * b * covariance.matrix[i * dim + j]).sum()
    }
}

/// The coefficients of the model in the units of the data, in its order. A model without an intercept on features that are shifted has one in
/// these units, which comes last.
pub(super) fn in_original_units(coefficients: &[Coefficient]) -> Vec<Combination<'_>> {
    let mut found = Vec::new();
    let mut first = 0;
    for class in coefficients.chunk_by(|a, b| a.class == b.class) {
        let numbered = || class.iter().enumerate().map(|(k, one)| (first + k, one));
        let shift = |(k, one): (usize, &Coefficient)| match one.feature {
            Feature::Number { shift, scale } if shift != 0.0 => Some((k, -shift / scale)),
            _ => None,
        };
        let shifts: Vec<(usize, f64)> = numbered().filter_map(shift).collect();
        let one = |(k, one): (usize, &'_ Coefficient)| match one.feature {
            Feature::Number { scale, .. } => vec![(k, 1.0 / scale)],
            Feature::Category { .. } => vec![(k, 1.0)],
            Feature::Intercept => std::iter::once((k, 1.0)).chain(shifts.iter().copied()).collect(),
        };
        for (k, coefficient) in numbered() {
            let (class, name) = (coefficient.class.as_deref(), coefficient.name.as_str());
            found.push(Combination { class, name, place: Some(k), terms: one((k, coefficient)) });
        }
        if !shifts.is_empty() && class.iter().all(|one| one.feature != Feature::Intercept) {
            let class = class[0].class.as_deref();
            found.push(Combination { class, name: "intercept", place: None, terms: shifts });
        }
        first += class.len();
    }
    found
}
