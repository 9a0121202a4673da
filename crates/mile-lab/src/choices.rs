//! What is chosen before a run that several ranks share, once for all of them.

use std::path::Path;

use mile::methods::catalogue::Catalogue;
use mile::ranks::Ranks;
use toml::Table;

use crate::config::Experiment;
use crate::error::LabError;
use crate::objectives::Kinds;
use crate::plan::{Plan, first_auto};
use crate::ranks::{agree, from_first};
use crate::resume::fill_numbers;

/// Puts numbers in the place of `"auto"` in the table of an experiment that several ranks run: rank 0 chooses them, for
/// which it needs the data of all agents. A call of all ranks together.
pub fn choose_once(
    table: &mut Table,
    base: &Path,
    kinds: &Kinds,
    catalogue: &Catalogue,
    ranks: &dyn Ranks,
) -> Result<(), LabError> {
    if ranks.count() == 1 {
        return Ok(());
    }
    let experiment = agree(ranks, Experiment::read_with(table, base, kinds, catalogue))?;
    if first_auto(&experiment.algorithms).is_none() {
        return Ok(());
    }
    let chosen = from_first(ranks, || Ok(Plan::new(experiment)?.experiment.resolved.to_string()))?;
    let chosen =
        chosen.parse().map_err(|error: toml::de::Error| LabError::config("auto", error.message()))?;
    fill_numbers(table, &chosen);
    Ok(())
}
