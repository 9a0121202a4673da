//! Reproduces the paper's results, one function for each: runs its experiment files and writes records, tables, figures and
//! a statement of what was found.
//!
//! The experiment files are in this crate's folder `plans/`, and are embedded in the library. An interrupted function can be
//! called again: finished work in its output folder is kept.

mod comparison;
mod fig1;
mod fig2;
mod plans;
mod table1;
mod theorems;
mod when;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use fig1::fig1;
pub use fig2::fig2;
pub use table1::table1;
pub use theorems::theorems;
pub use when::when;

use mile_lab::engines::Engines;
use mile_lab::error::LabError;
use mile_lab::execute::execute;
use mile_lab::plan::Plan;
use mile_lab::report::RunFolder;
use mile_lab::spec::Spec;
use mile_lab::sweep::{ObserverFactory, Point};
use toml::Table;

/// The size of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scale {
    /// At most ten minutes on two cores for each item: fewer rounds, one seed.
    Quick,
    /// The full experiments.
    Paper,
}

impl Scale {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Paper => "paper",
        }
    }
}

/// The options of a reproduction.
pub struct Request<'a> {
    /// The size of the experiments.
    pub scale: Scale,
    /// The data set of a figure; `None`: all.
    pub dataset: Option<&'a str>,
    /// The output folder.
    pub out: &'a Path,
    /// Values to replace in every experiment file, as with `--set` of `mile run`.
    pub set: &'a [String],
    /// Creates the engines of the runs of figures.
    pub engines: &'a Arc<dyn Engines>,
    /// Creates the observers of the runs.
    pub observers: &'a ObserverFactory<'a>,
    /// Announces the next step, where that takes long and has no observer.
    pub say: &'a dyn Fn(&str),
    /// Stops the reproduction, resumably, when it becomes true.
    pub stop: &'a AtomicBool,
}

/// The result of a reproduction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// What was found, as text: the contents of `finding.txt`.
    pub text: String,
    /// The output folder.
    pub folder: PathBuf,
    /// Whether it was interrupted.
    pub stopped: bool,
}

impl Request<'_> {
    /// Runs an experiment in a folder, or resumes it.
    fn run(&self, table: Table, base: &Path, folder: &Path) -> Result<RunFolder, LabError> {
        let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let plan = Plan::new(Spec::read(&table, base)?).map_err(|error| error.in_file(&name))?;
        let plan = plan.on(self.engines.clone());
        let point = Point { name, fold: None, settings: Vec::new(), table };
        let begun = folder.join("config.toml").exists();
        execute(&plan, folder, begun, &*(self.observers)(Some((0, &point)), &plan), self.stop)?;
        RunFolder::read(folder)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The note on a figure about its scale and changed values.
    fn note(&self, folder: &RunFolder) -> String {
        let quick = if self.scale == Scale::Quick { "quick scale, not the full experiment: " } else { "" };
        let set =
            if self.set.is_empty() { String::new() } else { format!("; changed: {}", self.set.join(", ")) };
        let samples = folder.spec.objectives.evaluated_on().map(|text| format!("; {text}"));
        format!("{quick}{} rounds{}{set}", folder.spec.rounds, samples.unwrap_or_default())
    }

    /// Writes `finding.txt`; `stopped` means that it is incomplete.
    fn finish(&self, paragraphs: &[String], stopped: bool) -> Result<Finding, LabError> {
        let mut text = paragraphs.join("\n\n") + "\n";
        if stopped {
            text.insert_str(0, "Interrupted: what follows covers only the work finished so far.\n\n");
        }
        mile_lab::store::write_file(&self.out.join("finding.txt"), text.as_bytes())?;
        Ok(Finding { text, folder: self.out.to_owned(), stopped })
    }
}

/// Checks that all figures have a data set at a scale.
pub fn check_dataset(scale: Scale, dataset: Option<&str>) -> Result<(), LabError> {
    plans::FIG1.at(scale, dataset)?;
    plans::FIG2.at(scale, dataset)?;
    Ok(())
}

fn create_folder(folder: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(folder).map_err(LabError::io(folder, "create"))
}
