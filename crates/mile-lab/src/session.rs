//! One experiment in one folder: checked and planned, executed, recorded, reported.
//!
//! The command, [`Lab::run`](crate::Lab::run) and the Python package run experiments as sessions, and add only their own display.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use mile::ranks::Together;

use crate::error::LabError;
use crate::execute::execute;
use crate::plan::Plan;
use crate::ranks::from_first;
use crate::report::{write_run_outputs, write_run_tables, write_sweep_outputs};
use crate::store::{Outcome, read_outcomes};
use crate::sweep::{ObserverFactory, SweepFolder, SweepPlan};
use crate::table::results_text;

/// An experiment that has been checked, in its folder: one run, or a sweep.
pub struct Session {
    work: Work,
    folder: PathBuf,
    resume: bool,
}

/// What a session executes.
pub enum Work {
    /// The jobs of one plan.
    Run(Box<Plan>),
    /// The points of a sweep.
    Sweep(Box<SweepPlan>),
}

impl Session {
    /// A session that executes `work` in a folder; with `resume`, the folder holds what was done before.
    pub(crate) fn new(work: Work, folder: &Path, resume: bool) -> Self {
        Self { work, folder: folder.to_owned(), resume }
    }

    /// What is executed.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Executes everything that is not finished, until `stop` becomes true; `observers` creates the observer of each plan.
    pub fn execute(&self, observers: &ObserverFactory, stop: &AtomicBool) -> Result<Executed<'_>, LabError> {
        let found = match &self.work {
            Work::Sweep(sweep) => {
                Found::Sweep(sweep, sweep.execute(&self.folder, self.resume, observers, stop)?)
            }
            Work::Run(plan) => {
                match execute(plan, &self.folder, self.resume, &*observers(None, plan), stop) {
                    Ok(outcomes) => Found::Run { plan, outcomes, failed: Vec::new() },
                    Err(LabError::Failed(failed)) => {
                        Found::Run { plan, outcomes: read_outcomes(&self.folder)?, failed }
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(Executed { folder: &self.folder, found })
    }
}

/// What was executed and recorded in a folder, to be reported.
pub struct Executed<'s> {
    folder: &'s Path,
    found: Found<'s>,
}

enum Found<'s> {
    Run { plan: &'s Plan, outcomes: Vec<Outcome>, failed: Vec<(String, String)> },
    Sweep(&'s SweepPlan, SweepFolder),
}

impl<'s> Executed<'s> {
    /// The jobs of a plan that agents in separate processes have executed.
    pub fn elsewhere(plan: &'s Plan, folder: &'s Path, outcomes: Vec<Outcome>) -> Self {
        Self { folder, found: Found::Run { plan, outcomes, failed: Vec::new() } }
    }

    /// Writes the tables and, if asked, the figures and the report; ranks other than the first wait until the folder is
    /// complete.
    pub fn report(self, figures: bool) -> Result<Results, LabError> {
        let folder = self.folder.to_owned();
        match self.found {
            Found::Run { plan, outcomes, failed } => {
                let seeds = plan.spec.seeds.len();
                from_first(Together::of(plan.engines.ranks()), || match (outcomes.is_empty(), figures) {
                    (true, _) => Ok(()),
                    (false, true) => write_run_outputs(&folder, &outcomes, seeds),
                    (false, false) => write_run_tables(&folder, &outcomes, seeds),
                })?;
                let is_complete = plan.is_complete(&outcomes);
                let table = match outcomes.is_empty() {
                    true => String::new(),
                    false => results_text(&outcomes, seeds),
                };
                Ok(Results { folder, table, outcomes, failed, is_complete })
            }
            Found::Sweep(sweep, mut found) => {
                if figures {
                    from_first(Together::of(sweep.engines.ranks()), || write_sweep_outputs(&found))?;
                }
                let (table, is_complete) = (found.summary(), found.is_complete());
                let failed = std::mem::take(&mut found.failed);
                Ok(Results { folder, table, outcomes: Vec::new(), failed, is_complete })
            }
        }
    }
}

/// The results of an experiment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Results {
    /// The run directory: records, states, figures, `report.html`.
    pub folder: PathBuf,
    /// The table of results of a run, or the best values found by a sweep; empty if nothing was recorded.
    pub table: String,
    /// The outcome of every job; empty for a sweep, whose points have their own run directories.
    pub outcomes: Vec<Outcome>,
    /// Jobs that failed and have no outcome here: those without a record, and those of a sweep; name and reason.
    pub failed: Vec<(String, String)>,
    /// Whether all jobs are finished; false if the run was stopped.
    pub is_complete: bool,
}

impl Results {
    /// An error if a job failed.
    pub fn check(mut self) -> Result<Self, LabError> {
        self.failed.extend(self.outcomes.iter().filter_map(Outcome::failure));
        if self.failed.is_empty() { Ok(self) } else { Err(LabError::Failed(self.failed)) }
    }
}

impl std::fmt::Display for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.table, self.folder.display())
    }
}
