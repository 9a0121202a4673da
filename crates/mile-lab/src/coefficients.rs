//! `coefficients.csv` in a run directory: the average models of all runs, with the names of their coefficients, in the units of the model and of
//! the data, with standard errors where there are any.

mod covariance;
mod units;

use mile::block;
use mile::problems::Covariance;
use mile::ranks::Together;
use mile::with_precision;

use self::units::{Combination, in_original_units};
use crate::engines::Scalar;
use crate::error::LabError;
use crate::plan::{Job, Plan};
use crate::ranks::{agree, from_first};
use crate::state;
use crate::store::Store;

/// The probability with which an interval is meant to contain the true coefficient.
const CONFIDENCE: f64 = 0.95;

/// The average models of an algorithm's runs that have ended, with their seeds.
type Runs = Vec<(u64, Vec<f64>)>;

/// The models of an algorithm.
struct Estimate<'p> {
    label: &'p str,
    /// The average over its seeds.
    average: Vec<f64>,
    runs: Runs,
    /// How certain the average is.
    covariance: Option<Covariance>,
}

/// Writes a row for each coefficient, and for each algorithm columns with the average over its seeds and with each seed, each the average over
/// the agents; then with the average in the units of the data, its standard error and the ends of its confidence interval. Nothing is written for
/// problems that name no coefficients, or before a run has ended. All ranks call it.
pub(crate) fn write(plan: &Plan, store: &Store) -> Result<(), LabError> {
    let ranks = Together::of(plan.engines.ranks());
    let coefficients = agree(ranks, plan.spec.objectives.coefficients())?;
    if coefficients.is_empty() {
        return Ok(());
    }
    let found = with_precision!(plan.spec.precision, T => estimates::<T>(plan, store, ranks))?;
    let rows = in_original_units(&coefficients);
    from_first(ranks, || match found.is_empty() {
        true => Ok(()),
        false => store.write("coefficients.csv", &table(&rows, &found)),
    })
}

fn estimates<'p, T: Scalar>(
    plan: &'p Plan,
    store: &Store,
    ranks: Together<'_>,
) -> Result<Vec<Estimate<'p>>, LabError> {
    let mut found = Vec::new();
    for (index, algorithm) in plan.spec.algorithms.iter().enumerate() {
        let runs: Runs = from_first(ranks, || average_models::<T>(plan, store, index))?;
        let Some((seed, first)) = runs.first() else { continue };
        let mean = |k: usize| runs.iter().map(|(_, run)| run[k]).sum::<f64>() / runs.len() as f64;
        let average: Vec<f64> = (0..first.len()).map(mean).collect();
        let covariance = covariance::of_model::<T>(plan, ranks, *seed, &average)?;
        found.push(Estimate { label: &algorithm.label, average, runs, covariance });
    }
    Ok(found)
}

fn average_models<T: Scalar>(plan: &Plan, store: &Store, algorithm: usize) -> Result<Runs, LabError> {
    let mut runs = Vec::new();
    for job in plan.jobs().into_iter().filter(|job| job.algorithm == algorithm) {
        runs.extend(average_model::<T>(plan, store, job)?.map(|model| (job.seed, model)));
    }
    Ok(runs)
}

/// The average over the agents, without malicious ones, of the model at the end of a run; `None` if it has not ended.
fn average_model<T: Scalar>(plan: &Plan, store: &Store, job: Job) -> Result<Option<Vec<f64>>, LabError> {
    let path = store.path("final").join(plan.state_file(job));
    let Some(mut found) = state::open(&path)? else { return Ok(None) };
    let layout = plan.method(job)?.layout();
    let Some(name) = layout.state_names().next() else { return Ok(None) };
    let dim = plan.size.dim;
    let members = plan.members(plan.membership.at(found.header.round));
    let rows: Vec<T> = state::vector(&mut found, &path, name, [members.len(), dim])?;
    Ok(Some(block::mean_row(&rows, dim).iter().map(|value| value.wide()).collect()))
}

/// The contents of the file.
fn table(rows: &[Combination], estimates: &[Estimate]) -> Vec<u8> {
    let has_classes = rows.iter().any(|row| row.class.is_some());
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut header: Vec<String> = has_classes.then(|| "class".to_owned()).into_iter().collect();
    header.push("coefficient".to_owned());
    for Estimate { label, runs, covariance, .. } in estimates {
        header.push(format!("{label} average"));
        header.extend(runs.iter().map(|(seed, _)| format!("{label} seed {seed}")));
        header.push(format!("{label} original"));
        if covariance.is_some() {
            header.extend(["std_error", "lower", "upper"].map(|name| format!("{label} {name}")));
        }
    }
    let cells = |row: &Combination| {
        let mut cells: Vec<String> =
            has_classes.then(|| row.class.unwrap_or_default().to_owned()).into_iter().collect();
        cells.push(row.name.to_owned());
        for Estimate { average, runs, covariance, .. } in estimates {
            let models = std::iter::once(average).chain(runs.iter().map(|(_, run)| run));
            cells.extend(models.map(|model| row.place.map_or(String::new(), |k| model[k].to_string())));
            let value = row.value(average);
            cells.push(value.to_string());
            if let Some(covariance) = covariance {
                let error = row.variance(covariance).sqrt();
                let half = covariance::quantile(covariance, CONFIDENCE) * error;
                cells.extend([error, value - half, value + half].map(|number| number.to_string()));
            }
        }
        cells
    };
    for record in std::iter::once(header).chain(rows.iter().map(cells)) {
        let _ = writer.write_record(record);
    }
    writer.into_inner().unwrap_or_default()
}
