//! The command, with problems and methods besides the built-in ones.

use std::process::ExitCode;
use std::sync::Arc;

use mile::method::InvalidParameter;
use mile::methods::catalogue::{Catalogue, Definition, Entry, Load};
use mile_lab::engines::{Engines, InProcess};
use mile_lab::error::LabError;
use mile_lab::objectives::{Kinds, Objectives, Setting};
use mile_lab::section::Section;

use crate::{Program, reading};

/// The command `mile`, with the kinds of problems and the methods that its experiments may have.
///
/// A program with its own objectives has all commands, and its agents on a network are processes of that program:
///
/// ```no_run
/// # use std::sync::Arc;
/// # use mile::problems::{Problem, Quadratic};
/// use std::process::ExitCode;
///
/// use mile_cli::CommandLine;
/// use mile_lab::objectives::{FixedProblem, Objectives};
///
/// fn main() -> ExitCode {
///     let robots = CommandLine::default().with_kind("robots", |section, setting| {
///         let joints = section.whole_or("joints", "a whole number of at least 1", 6)?;
/// #       let problem = Quadratic::<f64>::hosting(&|_| true, setting.agents, joints as usize, 2.0, 1.0, 0).unwrap();
/// #       let problem: Arc<dyn Problem<f64>> = Arc::new(problem);
///         // ... an `Arc<dyn Problem<f64>>` with an objective for each of `setting.agents`
///         Ok(Arc::new(FixedProblem::new("robots", problem)) as Arc<dyn Objectives>)
///     });
///     robots.main()
/// }
/// ```
///
/// Then `robots run experiment.toml`, `robots swarm experiment.toml` and all others read `kind = "robots"` in `[problem]`.
pub struct CommandLine {
    pub(crate) program: Program,
    kinds: Kinds,
    catalogue: Catalogue,
    engines: Arc<dyn Engines>,
}

impl Default for CommandLine {
    /// The built-in command, as this program.
    fn default() -> Self {
        Self {
            program: Program::this(),
            kinds: Kinds::default(),
            catalogue: Catalogue::default(),
            engines: Arc::new(InProcess),
        }
    }
}

impl CommandLine {
    /// The built-in command, started by another program: agents of a swarm are processes of that program.
    pub fn of(program: Program) -> Self {
        Self { program, ..Self::default() }
    }

    /// Adds a kind of problem, for experiments with `kind = "NAME"` in their section `[problem]`. `read` reads its parameters from the
    /// section, so that experiment files and sweeps can set them.
    pub fn with_kind(
        mut self,
        name: &str,
        read: impl Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync + 'static,
    ) -> Self {
        self.kinds = self.kinds.with(name, read);
        self
    }

    /// Adds a method, for experiments with its name in a section `[[algorithm]]`.
    ///
    /// # Errors
    /// If a built-in method has this name.
    pub fn with_method(mut self, method: Entry) -> Result<Self, InvalidParameter> {
        self.catalogue = self.catalogue.with(method)?;
        Ok(self)
    }

    /// Loads methods that files define, for experiments with a `factory` in a section `[[algorithm]]`.
    pub fn loading_methods(
        mut self,
        loader: impl Fn(Definition) -> Box<Load> + Send + Sync + 'static,
    ) -> Self {
        self.catalogue = self.catalogue.loading(loader);
        self
    }

    /// Runs the agents of `mile run` on these engines, unless `--device` asks for a GPU.
    pub fn on(mut self, engines: Arc<dyn Engines>) -> Self {
        self.engines = engines;
        self
    }

    /// The `main` of a program: runs the command with the arguments of this process.
    pub fn main(&self) -> ExitCode {
        self.run(std::env::args_os().collect()).into()
    }

    /// The kinds of problems; reading much data is shown.
    pub(crate) fn kinds(&self) -> Kinds {
        self.kinds.clone().showing(reading::progress())
    }

    /// The methods.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The engines in this process.
    pub(crate) fn engines(&self) -> Arc<dyn Engines> {
        self.engines.clone()
    }
}
