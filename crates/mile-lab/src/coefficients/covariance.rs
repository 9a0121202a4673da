//! The covariance of a model's coefficients, from sums over the rows of each agent.

use mile::problems::{Covariance, Failure};
use mile::ranks::Together;
use rayon::prelude::*;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::engines::Scalar;
use crate::error::LabError;
use crate::objectives::failed;
use crate::plan::Plan;
use crate::ranks::{agree, lost};

/// The covariance of a model's coefficients on the data of a seed; `None` where the problem has no information about them, or agents have
/// joined or left.
pub(super) fn of_model<T: Scalar>(
    plan: &Plan,
    ranks: Together<'_>,
    seed: u64,
    model: &[f64],
) -> Result<Option<Covariance>, LabError> {
    let problem = agree(ranks, plan.problem::<T>(seed))?;
    let information = problem.information().filter(|_| plan.membership.is_lasting());
    let Some(information) = information.filter(|_| model.iter().all(|x| x.is_finite())) else {
        return Ok(None);
    };
    let x: Vec<T> = model.iter().map(|x| T::of(*x)).collect();
    // The number of the agent, and its sums.
    let own = |agent: &usize| -> Result<Vec<f64>, Failure> {
        Ok(std::iter::once(*agent as f64).chain(information.sums(*agent, &x)?).collect())
    };
    let own: Result<Vec<Vec<f64>>, Failure> = plan.hosted().par_iter().map(own).collect();
    let mut all = together(ranks, agree(ranks, own.map_err(failed))?)?;
    all.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let sums: Vec<Vec<f64>> = all.into_iter().map(|mut one| one.split_off(1)).collect();
    Ok(information.covariance(&sums))
}

/// The numbers of all agents, of which every rank has those of its own; all have equally many.
fn together(ranks: Together<'_>, own: Vec<Vec<f64>>) -> Result<Vec<Vec<f64>>, LabError> {
    if ranks.count() == 1 {
        return Ok(own);
    }
    let width = own.first().map_or(1, Vec::len);
    let bytes: Vec<u8> = own.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    let all = ranks.all_gather(&bytes).map_err(lost)?.concat();
    let numbers: Vec<f64> = all.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    Ok(numbers.chunks_exact(width).map(<[f64]>::to_vec).collect())
}

/// How many standard errors an interval reaches to both sides, to contain the true coefficient with this probability.
pub(super) fn quantile(covariance: &Covariance, confidence: f64) -> f64 {
    let below = 0.5 + 0.5 * confidence;
    let student = covariance.degrees.and_then(|degrees| StudentsT::new(0.0, 1.0, degrees).ok());
    student.map_or_else(|| Normal::standard().inverse_cdf(below), |student| student.inverse_cdf(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From any table of the normal and of Student's distribution.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, expected) in
            [(None, 1.959964), (Some(1.0), 12.706205), (Some(10.0), 2.228139), (Some(120.0), 1.979930)]
        {
            let found = quantile(&Covariance { matrix: Vec::new(), degrees }, 0.95);
            assert!((found - expected).abs() < 1e-5, "{degrees:?}: {found}");
        }
    }
}
