//! Sweeps: an experiment run with every combination of lists of values (grid search).
//!
//! ```toml
//! [sweep]
//! mode = "cartesian"                    # or "zip": first values together, second values together, ...
//! criterion = "local_loss"              # smallest is best (largest, for an accuracy)
//! cv = 5                                # compares by the held-out rows of five folds
//! step_size = [0.05, 0.1, 0.2]          # a parameter of every algorithm that takes it
//! "algorithm.mile.xi" = [0.05, 0.1]     # a parameter of one algorithm, by label, name or number
//! "network.topology" = ["ring", "torus"]
//! ```
//!
//! An algorithm is run once for each combination of the values that apply to it: here MILE with 12, the others with 6. Each
//! combination is a *point* of the sweep and has its own run directory, which can be resumed. In a cross-validation each
//! combination is a point once for every fold.

mod best;
mod folder;
mod points;
mod run;

use toml::{Table, Value};

pub use best::{Best, Trial, best_of, best_remarks, best_table, trials_table, within_stability};
pub(crate) use best::{Rank, Score, as_good_for_some_seed};
pub use folder::SweepFolder;
pub use points::Point;
pub use run::{ObserverFactory, SweepPlan};

use crate::error::LabError;
use crate::quantity::Quantity;
use crate::section::Section;

/// How the lists of values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SweepMode {
    /// All combinations.
    Cartesian,
    /// The first values of all lists together, then the second values, and so on.
    Zip,
}

impl SweepMode {
    const NAMES: [(&'static str, Self); 2] = [("cartesian", Self::Cartesian), ("zip", Self::Zip)];
}

/// The contents of a section `[sweep]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sweep {
    /// How values are combined.
    pub mode: SweepMode,
    /// The quantity, at the last record, by which the best values are chosen; `None`: [`SweepPlan::criterion`] decides.
    pub criterion: Option<Quantity>,
    /// Number of folds, in a cross-validation.
    pub folds: Option<u64>,
    /// Keys with their lists of values.
    pub values: Vec<(String, Vec<Value>)>,
}

impl Sweep {
    /// Reads the section of an experiment's table, if it has one.
    pub fn read(table: &Table) -> Result<Option<Self>, LabError> {
        let top = Section::new("", table);
        let Some(value) = top.value("sweep") else { return Ok(None) };
        let section = value.as_table().ok_or_else(|| top.refuse("sweep", value, "a section [sweep]"))?;
        let reader = Section::new("sweep", section);
        let mode = reader.choice("mode", &SweepMode::NAMES, Some("cartesian"))?;
        let recorded = Quantity::ALL.into_iter().filter(|quantity| *quantity != Quantity::LossGap);
        let quantities: Vec<_> = recorded.map(|quantity| (quantity.name(), quantity)).collect();
        let criterion = reader.optional_choice("criterion", &quantities)?;
        let expected = "a whole number of at least 2, the number of folds";
        let folds = reader.whole("cv", expected)?;
        if let Some(folds) = folds.filter(|folds| *folds < 2) {
            return Err(reader.refuse("cv", &Value::from(folds as i64), expected));
        }
        let mut sweep = Self { mode, criterion, folds, values: Vec::new() };
        let is_list = |key: &str| !["mode", "criterion", "cv"].contains(&key);
        for (key, value) in section.iter().filter(|(key, _)| is_list(key)) {
            sweep.values.extend(flattened(key.clone(), value.clone())?);
        }
        if sweep.values.is_empty() {
            return Err(LabError::config(
                "sweep",
                "no values; give a key a list, such as step_size = [0.05, 0.1]",
            ));
        }
        if sweep.mode == SweepMode::Zip {
            sweep.check_lengths()?;
        }
        Ok(Some(sweep))
    }

    /// How it is combined and judged, as it is written; the lists are those of the file.
    pub(crate) fn to_table(&self) -> Table {
        let mode = SweepMode::NAMES.iter().find(|(_, mode)| *mode == self.mode).map_or("", |(name, _)| *name);
        let criterion = self.criterion.map(|criterion| ("criterion".to_owned(), criterion.name().into()));
        let folds = self.folds.map(|folds| ("cv".to_owned(), Value::from(folds as i64)));
        [("mode".to_owned(), mode.into())].into_iter().chain(criterion).chain(folds).collect()
    }

    /// The first key whose values change what is minimised, so that losses at different points are not comparable. Of the keys of
    /// `[problem]` only `batch` does not, and f is a mean over the agents.
    pub(crate) fn objective_key(&self) -> Option<&str> {
        let changes =
            |key: &&str| *key == "network.agents" || *key != "problem.batch" && key.starts_with("problem.");
        self.values.iter().map(|(key, _)| key.as_str()).find(changes)
    }

    fn check_lengths(&self) -> Result<(), LabError> {
        let (first, values) = &self.values[0];
        match self.values.iter().find(|(_, other)| other.len() != values.len()) {
            Some((key, other)) => {
                let (n, m) = (other.len(), values.len());
                let problem = format!("expected {m} values, as many as {first}, for mode = \"zip\", got {n}");
                Err(LabError::config(format!("sweep.{key}"), problem))
            }
            None => Ok(()),
        }
    }
}

/// The lists below a key, by their paths: `network.agents = [5, 10]` without quotes is a table in TOML.
fn flattened(key: String, value: Value) -> Result<Vec<(String, Vec<Value>)>, LabError> {
    let refuse = |problem: &str| Err(LabError::config(format!("sweep.{key}"), problem));
    match value {
        Value::Array(values) if values.is_empty() => refuse("expected a list of values, got an empty list"),
        Value::Array(values) => {
            let twice = values.iter().enumerate().any(|(k, value)| values[..k].contains(value));
            if twice { refuse("expected distinct values, got one twice") } else { Ok(vec![(key, values)]) }
        }
        Value::Table(inner) => {
            let parts = inner.into_iter().map(|(name, value)| flattened(format!("{key}.{name}"), value));
            Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
        }
        other => refuse(&format!("expected a list of values, got {other}")),
    }
}
