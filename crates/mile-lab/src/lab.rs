//! The entry point of the library: runs experiments with any problem on any engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mile::method::InvalidParameter;
use mile::methods::catalogue::{Catalogue, Entry};
use mile::problems::Problem;
use toml::Table;

use crate::choices::{choose_once, keep_choices};
use crate::engines::{Engines, InProcess, Scalar};
use crate::error::LabError;
use crate::execute::execute;
use crate::objectives::{AnyProblem, FixedProblem, Kinds, Objectives, Setting};
use crate::observer::{Lines, Observer, Silent};
use crate::plan::Plan;
use crate::ranks::agree;
use crate::report::{write_run_outputs, write_sweep_outputs};
use crate::section::Section;
use crate::spec::{Spec, parse_table};
use crate::store::{Outcome, read_outcomes};
use crate::sweep::SweepPlan;

/// Runs experiments in run directories: several methods and seeds, or a sweep, with records, checkpoints, tables,
/// figures and a report.
pub struct Lab {
    kinds: Kinds,
    catalogue: Catalogue,
    engines: Arc<dyn Engines>,
    quiet: bool,
    stop: Arc<AtomicBool>,
}

/// The results of an experiment.
#[derive(Clone, Debug)]
pub struct Results {
    /// The run directory: records, states, figures, `report.html`.
    pub folder: PathBuf,
    /// The table of results of a run, or the best values found by a sweep.
    pub table: String,
    /// The outcome of every job; empty for a sweep, whose points have their own run directories.
    pub outcomes: Vec<Outcome>,
    /// Whether all jobs are finished; false if the run was stopped.
    pub is_complete: bool,
}

impl std::fmt::Display for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.table, self.folder.display())
    }
}

impl Default for Lab {
    /// A lab for the built-in kinds of problems and the built-in methods, with all agents in this process.
    fn default() -> Self {
        Self {
            kinds: Kinds::default(),
            catalogue: Catalogue::default(),
            engines: Arc::new(InProcess),
            quiet: false,
            stop: Arc::default(),
        }
    }
}

impl Lab {
    /// A lab for these kinds of problems and these methods, with agents on these engines.
    pub fn new(kinds: Kinds, catalogue: Catalogue, engines: Arc<dyn Engines>) -> Self {
        Self { kinds, catalogue, engines, ..Self::default() }
    }

    /// A lab for your own problem. Its experiments need no section `[problem]`; `name` is the problem's name in reports.
    pub fn of<T: Scalar>(name: &str, problem: impl Problem<T> + 'static) -> Self
    where
        AnyProblem: From<Arc<dyn Problem<T>>>,
    {
        let problem: Arc<dyn Problem<T>> = Arc::new(problem);
        let given = Arc::new(FixedProblem::new(name, problem));
        Self { kinds: Kinds::none(), ..Self::default() }.with_kind(name, move |_, _| Ok(given.clone()))
    }

    /// Adds a kind of problem, for experiments with `kind = "NAME"` in their section `[problem]`. `read` reads its
    /// parameters from the section, so that experiment files and sweeps can set them.
    pub fn with_kind(
        mut self,
        name: &str,
        read: impl Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync + 'static,
    ) -> Self {
        self.kinds = self.kinds.with(name, read);
        self
    }

    /// Adds a method of your own, for experiments with its name in a section `[[algorithm]]`.
    ///
    /// # Errors
    /// If a built-in method has this name.
    pub fn with_method(mut self, method: Entry) -> Result<Self, InvalidParameter> {
        self.catalogue = self.catalogue.with(method)?;
        Ok(self)
    }

    /// Runs the agents on other engines than the [`Simulator`](mile::simulator::Simulator).
    pub fn on(mut self, engines: Arc<dyn Engines>) -> Self {
        self.engines = engines;
        self
    }

    /// Prints no progress on standard error.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Sets a flag that, when it becomes true, stops a run after its current round. A stopped run resumes when it is run
    /// again.
    pub fn stop_with(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// Runs an experiment, or resumes it if `folder` already holds it: finished work is kept, and rounds, seeds and
    /// algorithms may be added. `experiment` is the text of an experiment file; relative paths in it are relative to the
    /// working directory. With a section `[sweep]` it runs a sweep.
    ///
    /// # Errors
    /// If the experiment, its data or the folder cannot be used, or if a job failed; its records until then are kept.
    pub fn run(&self, experiment: &str, folder: impl AsRef<Path>) -> Result<Results, LabError> {
        let folder = folder.as_ref();
        let table = parse_table(experiment, &[])?;
        let here = Path::new("");
        match SweepPlan::read_with(&table, here, &self.kinds, &self.catalogue, self.engines.clone())? {
            Some(sweep) => self.run_sweep(&sweep, folder),
            None => {
                let resumed = folder.join("config.toml").exists().then_some(folder);
                self.run_plan(&self.plan(&table, here, resumed)?, folder)
            }
        }
    }

    /// Reads an experiment, and checks everything that can be checked before the first step; relative paths in it are relative to
    /// `base`. With the folder of a run that is resumed, what was chosen when it began is kept. A call of all ranks together.
    pub fn plan(&self, table: &Table, base: &Path, resumed: Option<&Path>) -> Result<Plan, LabError> {
        let ranks = self.engines.ranks();
        let mut experiment = agree(ranks, Spec::read_with(table, base, &self.kinds, &self.catalogue))?;
        if let Some(folder) = resumed {
            keep_choices(&mut experiment, folder, ranks)?;
        }
        choose_once(&mut experiment, ranks)?;
        Plan::spread(experiment, self.engines.clone())
    }

    fn run_plan(&self, plan: &Plan, folder: &Path) -> Result<Results, LabError> {
        let resume = folder.join("config.toml").exists();
        let executed = execute(plan, folder, resume, &*self.observer(plan), &self.stop);
        let (outcomes, mut failed) = match executed {
            Ok(outcomes) => (outcomes, Vec::new()),
            Err(LabError::Failed(failed)) => (read_outcomes(folder)?, failed),
            Err(error) => return Err(error),
        };
        self.say_drawing();
        let table = write_run_outputs(folder, &outcomes, plan.spec.seeds.len())?.to_string();
        failed.extend(outcomes.iter().filter_map(Outcome::failure));
        if !failed.is_empty() {
            return Err(LabError::Failed(failed));
        }
        let is_complete = plan.is_complete(&outcomes);
        Ok(Results { folder: folder.to_owned(), table, outcomes, is_complete })
    }

    fn run_sweep(&self, sweep: &SweepPlan, folder: &Path) -> Result<Results, LabError> {
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
        self.say_drawing();
        write_sweep_outputs(&found)?;
        if !found.failed.is_empty() {
            return Err(LabError::Failed(found.failed));
        }
        let is_complete = found.is_complete();
        Ok(Results { folder: folder.to_owned(), table: found.summary(), outcomes: Vec::new(), is_complete })
    }

    fn say_drawing(&self) {
        if !self.quiet {
            eprintln!("drawing the figures");
        }
    }

    fn observer<'p>(&self, plan: &'p Plan) -> Box<dyn Observer + 'p> {
        if self.quiet { Box::new(Silent) } else { Box::new(Lines::new(plan)) }
    }
}
