//! `model.json`: what the numbers of a run's models mean, so that they can be used without the training data.

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::plan::Plan;

/// Its name, in run directories and exported folders.
pub(crate) const FORM: &str = "model.json";

/// Its contents.
#[derive(Serialize, Deserialize)]
pub(crate) struct FormFile<F> {
    /// The version that wrote it.
    pub(crate) mile: String,
    /// The precision of the training.
    pub(crate) precision: String,
    pub(crate) form: F,
}

/// The file of a run directory; none for problems whose models predict nothing.
pub(crate) fn document(plan: &Plan) -> Result<Option<(&'static str, String)>, LabError> {
    let Some(form) = plan.spec.objectives.form(&plan.spec.problem)? else { return Ok(None) };
    let (mile, precision) = (env!("CARGO_PKG_VERSION").to_owned(), plan.spec.precision.name().to_owned());
    let text = serde_json::to_string_pretty(&FormFile { mile, precision, form }).unwrap_or_default();
    Ok(Some((FORM, text + "\n")))
}
