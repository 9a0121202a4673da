//! What is chosen before a run: kept when it is resumed, and the same for all ranks.

use std::path::Path;

use mile::ranks::Ranks;

use crate::config::Experiment;
use crate::error::LabError;
use crate::plan::{Plan, first_auto};
use crate::ranks::from_first;

/// Gives an experiment what was chosen when the run in `folder` began. A call of all ranks together.
pub fn keep_choices(experiment: &mut Experiment, folder: &Path, ranks: &dyn Ranks) -> Result<(), LabError> {
    let earlier: String = from_first(ranks, || Ok(Experiment::of_run(folder)?.to_table().to_string()))?;
    experiment.adopt(&Experiment::of_settings(&earlier)?);
    Ok(())
}

/// Puts numbers in the place of `"auto"` in an experiment that several ranks run: rank 0 chooses them, for which it needs the data
/// of all agents. A call of all ranks together.
pub fn choose_once(experiment: &mut Experiment, ranks: &dyn Ranks) -> Result<(), LabError> {
    if ranks.count() == 1 || first_auto(&experiment.algorithms).is_none() {
        return Ok(());
    }
    let chosen: String =
        from_first(ranks, || Ok(Plan::new(experiment.clone())?.experiment.to_table().to_string()))?;
    experiment.adopt_numbers(&Experiment::of_settings(&chosen)?);
    Ok(())
}
