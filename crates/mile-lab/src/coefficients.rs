//! `coefficients.csv` in a run directory: the average models of all runs, with the names of their coefficients.

use mile::block;
use mile::with_precision;

use crate::engines::Scalar;
use crate::error::LabError;
use crate::plan::{Job, Plan};
use crate::state;
use crate::store::Store;

/// Writes a row for each coefficient, and for each algorithm a column with the average over its seeds and one for each seed:
/// each the average over the agents. Nothing is written for problems that name no coefficients, or before a run has ended.
pub(crate) fn write(plan: &Plan, store: &Store) -> Result<(), LabError> {
    let names = plan.spec.objectives.coefficients()?;
    let mut columns: Vec<(String, Vec<f64>)> = Vec::new();
    for (index, algorithm) in plan.spec.algorithms.iter().enumerate() {
        let mut runs = Vec::new();
        for job in plan.jobs().into_iter().filter(|job| job.algorithm == index && !names.is_empty()) {
            let model = with_precision!(plan.spec.precision, T => average_model::<T>(plan, store, job))?;
            runs.extend(model.map(|model| (format!("{} seed {}", algorithm.label, job.seed), model)));
        }
        if let Some((_, first)) = runs.first() {
            let mean = |k: usize| runs.iter().map(|(_, run)| run[k]).sum::<f64>() / runs.len() as f64;
            columns.push((format!("{} average", algorithm.label), (0..first.len()).map(mean).collect()));
        }
        columns.extend(runs);
    }
    if columns.is_empty() {
        return Ok(());
    }
    let has_classes = names.iter().any(|name| name.class.is_some());
    let mut writer = csv::Writer::from_writer(Vec::new());
    let class = |text: &str| has_classes.then(|| text.to_owned());
    let header = class("class").into_iter().chain(["coefficient".to_owned()]);
    let mut records = vec![header.chain(columns.iter().map(|(name, _)| name.clone())).collect::<Vec<_>>()];
    for (k, name) in names.iter().enumerate() {
        let named = class(name.class.as_deref().unwrap_or_default()).into_iter().chain([name.name.clone()]);
        records.push(named.chain(columns.iter().map(|(_, model)| model[k].to_string())).collect());
    }
    records.iter().for_each(|record| drop(writer.write_record(record)));
    store.write("coefficients.csv", &writer.into_inner().unwrap_or_default())
}

/// The average over the agents of the model at the end of a run; `None` if it has not ended.
fn average_model<T: Scalar>(plan: &Plan, store: &Store, job: Job) -> Result<Option<Vec<f64>>, LabError> {
    let path = store.path("final").join(plan.state_file(job));
    let Some(mut found) = state::open(&path)? else { return Ok(None) };
    let layout = plan.method(job)?.layout();
    let Some(name) = layout.state_names().next() else { return Ok(None) };
    let dim = plan.size.dim;
    let epoch = &plan.membership.epochs()[plan.membership.at(found.header.round)];
    let rows: Vec<T> = state::vector(&mut found, &path, name, [epoch.members.len(), dim])?;
    Ok(Some(block::mean_row(&rows, dim).iter().map(|value| value.wide()).collect()))
}
