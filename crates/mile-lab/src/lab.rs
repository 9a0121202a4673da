//! The front door: any problem, any engine, everything that `mile run` gives.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mile::problems::Problem;

use crate::config::{Experiment, parse_table};
use crate::engines::{Engines, InProcess, Scalar};
use crate::error::LabError;
use crate::execute::execute;
use crate::objectives::{Given, Kinds, Objectives, Setting};
use crate::observer::{Lines, Observer, Silent};
use crate::plan::Plan;
use crate::report::{finish_run, finish_sweep};
use crate::section::Section;
use crate::store::{Outcome, read_outcomes};
use crate::sweep::SweepPlan;

/// Runs experiments in run directories: several methods and seeds, or a sweep, with records, checkpoints, tables,
/// figures and a report.
pub struct Lab {
    kinds: Kinds,
    engines: Arc<dyn Engines>,
    quiet: bool,
    stop: Arc<AtomicBool>,
}

/// What came of an experiment.
#[derive(Clone, Debug)]
pub struct Results {
    /// The run directory: records, states, figures, `report.html`.
    pub folder: PathBuf,
    /// The table that ends a run, or what a sweep found.
    pub table: String,
    /// How every job ended; empty for a sweep, whose points have directories of their own.
    pub outcomes: Vec<Outcome>,
    /// Whether all of it was done.
    pub is_complete: bool,
}

impl std::fmt::Display for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.table, self.folder.display())
    }
}

impl Default for Lab {
    /// A lab for problems of the kinds that come with it.
    fn default() -> Self {
        Self { kinds: Kinds::default(), engines: Arc::new(InProcess), quiet: false, stop: Arc::default() }
    }
}

impl Lab {
    /// A lab for one problem of your own, which experiments need not name: they have no section `[problem]`.
    pub fn of<T: Scalar>(name: &str, problem: impl Problem<T> + 'static) -> Self
    where
        Given<T>: Objectives,
    {
        let problem: Arc<dyn Problem<T>> = Arc::new(problem);
        let given = Arc::new(Given { name: name.to_owned(), problem });
        Self { kinds: Kinds::none(), ..Self::default() }.with_kind(name, move |_, _| Ok(given.clone()))
    }

    /// The same with one more kind of problem, for experiments with `kind = "NAME"` in their section `[problem]`. `read`
    /// takes the parameters it needs from the section, which makes them parameters of experiments and sweeps.
    pub fn with_kind(
        mut self,
        name: &str,
        read: impl Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync + 'static,
    ) -> Self {
        self.kinds = self.kinds.with(name, read);
        self
    }

    /// The same with agents that live elsewhere than in this process.
    pub fn on(mut self, engines: Arc<dyn Engines>) -> Self {
        self.engines = engines;
        self
    }

    /// The same without lines on standard error.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// The same with a flag that stops a run after its current round when it becomes true. What was stopped goes on when it is
    /// run again.
    pub fn stop_with(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// Runs an experiment, or goes on with it if `folder` holds it already: finished work is kept, and more rounds,
    /// seeds and algorithms may be added. The text is that of an experiment file; relative paths in it start from the
    /// working directory. A section `[sweep]` makes it a sweep.
    ///
    /// # Errors
    /// If the experiment, its data or the folder cannot be used, or if a job failed; what was recorded until then is kept.
    pub fn run(&self, experiment: &str, folder: impl AsRef<Path>) -> Result<Results, LabError> {
        let folder = folder.as_ref();
        let table = parse_table(experiment, &[])?;
        let here = Path::new("");
        match SweepPlan::read_with(&table, here, &self.kinds, self.engines.clone())? {
            Some(sweep) => self.sweep(&sweep, folder),
            None => {
                let experiment = Experiment::read_with(&table, here, &self.kinds)?;
                self.plan(&Plan::new(experiment)?.on(self.engines.clone()), folder)
            }
        }
    }

    fn plan(&self, plan: &Plan, folder: &Path) -> Result<Results, LabError> {
        let resume = folder.join("config.toml").exists();
        let executed = execute(plan, folder, resume, &*self.observer(plan), &self.stop);
        let (outcomes, mut failed) = match executed {
            Ok(outcomes) => (outcomes, Vec::new()),
            Err(LabError::Failed(failed)) => (read_outcomes(folder)?, failed),
            Err(error) => return Err(error),
        };
        let table = finish_run(folder, &outcomes, plan.experiment.seeds.len())?.to_string();
        let name = |outcome: &Outcome| format!("{}, seed {}", outcome.label, outcome.seed);
        failed.extend(outcomes.iter().filter_map(|outcome| Some((name(outcome), outcome.error.clone()?))));
        if !failed.is_empty() {
            return Err(LabError::Failed(failed));
        }
        let is_complete = plan.is_complete(&outcomes);
        Ok(Results { folder: folder.to_owned(), table, outcomes, is_complete })
    }

    fn sweep(&self, sweep: &SweepPlan, folder: &Path) -> Result<Results, LabError> {
        let resume = folder.join("sweep.toml").exists();
        let points = sweep.points.len();
        let found = sweep.execute(
            folder,
            resume,
            &|k, point, plan| {
                if !self.quiet {
                    eprintln!("point {} of {points}: {}", k + 1, point.name);
                }
                self.observer(plan)
            },
            &self.stop,
        )?;
        finish_sweep(&found)?;
        let is_complete = found.is_complete();
        Ok(Results { folder: folder.to_owned(), table: found.found(), outcomes: Vec::new(), is_complete })
    }

    fn observer<'p>(&self, plan: &'p Plan) -> Box<dyn Observer + 'p> {
        if self.quiet { Box::new(Silent) } else { Box::new(Lines::new(plan)) }
    }
}
