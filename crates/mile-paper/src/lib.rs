//! The paper's results, one function each: from a committed plan to figures, tables, raw records and a
//! statement of what was found.
//!
//! The plans are the files in this crate's folder `plans/`, embedded. Whatever is finished in the folder is kept: any
//! of them can be interrupted and called again.

mod fig1;
mod fig2;
mod plans;
mod statement;
mod table1;
mod theorems;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use fig1::fig1;
pub use fig2::fig2;
pub use table1::table1;
pub use theorems::theorems;

use mile_lab::config::Experiment;
use mile_lab::error::LabError;
use mile_lab::execute::execute;
use mile_lab::plan::Plan;
use mile_lab::report::RunFolder;
use mile_lab::sweep::{Point, Watch};
use toml::Table;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// At most ten minutes on two cores for each item: fewer rounds, one seed.
    Quick,
    /// The full thing.
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

/// What is asked for.
pub struct Request<'a> {
    /// How much.
    pub scale: Scale,
    /// The only data set of a figure, if not all.
    pub dataset: Option<&'a str>,
    /// Where to.
    pub out: &'a Path,
    /// Replaced values of every experiment, as `--set` of `mile run`.
    pub set: &'a [String],
    /// Who watches the runs.
    pub watch: &'a Watch<'a>,
    /// Stops everything, resumable, when it becomes true.
    pub stop: &'a AtomicBool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was found, for a terminal; also in `finding.txt`.
    pub text: String,
    /// Where everything is.
    pub folder: PathBuf,
    /// Whether it was interrupted.
    pub stopped: bool,
}

impl Request<'_> {
    /// Runs an experiment in a folder, or goes on with it.
    fn run(&self, table: Table, base: &Path, folder: &Path) -> Result<RunFolder, LabError> {
        let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let plan = Plan::new(Experiment::read(&table, base)?).map_err(|error| error.in_file(&name))?;
        let point = Point { name, settings: Vec::new(), table };
        let begun = folder.join("config.toml").exists();
        execute(&plan, folder, begun, &*(self.watch)(0, &point, &plan), self.stop)?;
        RunFolder::read(folder)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What a figure must say about its scale.
    fn note(&self, folder: &RunFolder) -> String {
        let quick = if self.scale == Scale::Quick { "quick scale, not the full experiment: " } else { "" };
        let set =
            if self.set.is_empty() { String::new() } else { format!("; changed: {}", self.set.join(", ")) };
        let samples = folder.experiment.objectives.evaluated_on().map(|text| format!("; {text}"));
        format!("{quick}{} rounds{}{set}", folder.experiment.rounds, samples.unwrap_or_default())
    }

    /// Keeps what was found; `stopped` says that it is not all.
    fn finish(&self, paragraphs: &[String], stopped: bool) -> Result<Finding, LabError> {
        let mut text = paragraphs.join("\n\n") + "\n";
        if stopped {
            text.insert_str(0, "Interrupted: what follows is about what was finished by then.\n\n");
        }
        mile_lab::store::write_file(&self.out.join("finding.txt"), text.as_bytes())?;
        Ok(Finding { text, folder: self.out.to_owned(), stopped })
    }
}

/// Refuses a data set that one of the figures does not have at a scale.
pub fn check_dataset(scale: Scale, dataset: Option<&str>) -> Result<(), LabError> {
    plans::FIG1.at(scale, dataset)?;
    plans::FIG2.at(scale, dataset)?;
    Ok(())
}

fn make(folder: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(folder).map_err(LabError::io(folder, "create"))
}
