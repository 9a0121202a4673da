//! The entry point of the library: runs experiments with any problem on any engine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mile::method::InvalidParameter;
use mile::methods::catalogue::{Catalogue, Entry};
use mile::problems::Problem;
use mile::ranks::Together;
use toml::Table;

use crate::choices::{choose_once, keep_choices};
use crate::engines::{Engines, InProcess, Scalar};
use crate::error::LabError;
use crate::objectives::{AnyProblem, FixedProblem, Kinds, Objectives, Setting};
use crate::observer::{Lines, Silent};
use crate::plan::Plan;
use crate::ranks::agree;
use crate::section::Section;
use crate::session::{Results, Session, Work};
use crate::spec::{Spec, parse_table};
use crate::sweep::{ObserverFactory, SweepPlan};

/// Runs experiments in run directories: several methods and seeds, or a sweep, with records, checkpoints, tables,
/// figures and a report.
pub struct Lab {
    kinds: Kinds,
    catalogue: Catalogue,
    engines: Arc<dyn Engines>,
    quiet: bool,
    stop: Arc<AtomicBool>,
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

    /// Runs the agents on engines other than the [`Simulator`](mile::simulator::Simulator).
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
        let begun = if table.contains_key("sweep") { "sweep.toml" } else { "config.toml" };
        let resume = folder.join(begun).exists();
        let session = self.session(&table, Path::new(""), folder, resume)?;
        let points = match session.work() {
            Work::Run(_) => 1,
            Work::Sweep(sweep) => sweep.points.len(),
        };
        let observers: &ObserverFactory = &|point, plan| match (self.quiet, point) {
            (true, _) => Box::new(Silent),
            (false, None) => Box::new(Lines::new(plan)),
            (false, Some((k, point))) => {
                eprintln!("point {} of {points}: {}", k + 1, point.name);
                Box::new(Lines::new(plan))
            }
        };
        let executed = session.execute(observers, &self.stop)?;
        if !self.quiet {
            eprintln!("drawing the figures");
        }
        executed.report(true)?.check()
    }

    /// Reads and checks an experiment that is to be run in a folder, or resumed there; relative paths in it are relative to `base`.
    pub fn session(
        &self,
        table: &Table,
        base: &Path,
        folder: &Path,
        resume: bool,
    ) -> Result<Session, LabError> {
        let (kinds, catalogue, engines) = (&self.kinds, &self.catalogue, self.engines.clone());
        let sweep = SweepPlan::read_with(table, base, kinds, catalogue, engines);
        let work = match agree(Together::of(self.engines.ranks()), sweep)? {
            Some(sweep) => Work::Sweep(Box::new(sweep)),
            None => Work::Run(Box::new(self.plan(table, base, resume.then_some(folder))?)),
        };
        Ok(Session::new(work, folder, resume))
    }

    /// Reads an experiment, and checks everything that can be checked before the first step; relative paths in it are relative to
    /// `base`. With the folder of a run that is resumed, what was chosen when it began is kept.
    pub fn plan(&self, table: &Table, base: &Path, resumed: Option<&Path>) -> Result<Plan, LabError> {
        let ranks = Together::of(self.engines.ranks());
        let mut spec = agree(ranks, Spec::read_with(table, base, &self.kinds, &self.catalogue))?;
        if let Some(folder) = resumed {
            keep_choices(&mut spec, folder, ranks)?;
        }
        choose_once(&mut spec, ranks)?;
        Plan::spread(spec, self.engines.clone())
    }
}
