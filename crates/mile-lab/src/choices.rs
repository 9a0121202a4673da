//! What is chosen before a run: kept when it is resumed, and the same for all ranks.

use std::path::Path;

use mile::ranks::Together;

use crate::error::LabError;
use crate::plan::{Plan, first_auto};
use crate::ranks::from_first;
use crate::spec::Spec;

/// Gives an experiment what was chosen when the run in `folder` began.
pub fn keep_choices(spec: &mut Spec, folder: &Path, ranks: Together<'_>) -> Result<(), LabError> {
    let earlier: String = from_first(ranks, || Ok(Spec::of_run(folder)?.to_table().to_string()))?;
    spec.adopt(&Spec::of_settings(&earlier)?);
    Ok(())
}

/// Replaces `"auto"` by numbers in an experiment that several ranks run: rank 0 chooses them, for which it needs the data
/// of all agents.
pub fn choose_once(spec: &mut Spec, ranks: Together<'_>) -> Result<(), LabError> {
    if ranks.count() == 1 || first_auto(&spec.algorithms).is_none() {
        return Ok(());
    }
    let chosen: String = from_first(ranks, || Ok(Plan::new(spec.clone())?.spec.to_table().to_string()))?;
    spec.adopt_numbers(&Spec::of_settings(&chosen)?);
    Ok(())
}
