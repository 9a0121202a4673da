//! The objectives of an experiment: one problem for each seed.
//!
//! A section `[problem]` names a *kind* of problem. The built-in kinds are `quadratic`, `table`, `images` and `arrays`, and `python`,
//! which the Python package computes; [`Kinds::with`] adds others. A kind reads its section and returns the [`Objectives`].

mod any;
mod arrays;
pub mod digest;
pub mod error;
pub mod form;
mod images;
mod pictures;
pub mod predictions;
mod python;
mod quadratic;
pub mod ranks;
pub mod reading;
pub mod remembering;
pub mod room;
mod samples;
pub mod section;
mod table;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::problems::{Failure, Problem};
use mile::ranks::Together;
use mile::real::{Precision, Real};
use toml::Table;

use crate::reading::ReadingProgress;
use crate::remembering::Remembering;
use crate::section::Section;

pub use self::any::AnyProblem;
pub use self::arrays::{ArrayLook, ArrayNumbers, TrainedNetwork};
pub use self::error::LabError;
pub use self::python::{Factory, PythonFunction};
pub use self::table::{
    ColumnLook, ColumnStatistics, ColumnType, NumberFormat, Statistics, TableForm, TableLook,
};
pub use mile_store::{Fact, Facts};

/// What is known before a run about the curvature of the objectives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curvature {
    /// The largest curvature is this, by construction.
    Known(f64),
    /// An estimate before the run holds for all of it: of a [quadratic bound](Problem::quadratic_bound) where the problem has one,
    /// otherwise at the starting point.
    Steady,
    /// It changes during the run and has no bound, as for neural networks: an estimate at the starting point says little.
    Changing,
}

/// How many rows, each with a number for each element of the variable, gradients read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows of an exact gradient of the agent that has most.
    pub all: u64,
    /// Rows of a gradient of the run, on average over the agents.
    pub run: u64,
    /// The most rows of an agent that [`Objectives::sample`] uses; 0 if it does not sample.
    pub largest_sample: u64,
}

/// Rows that the evaluation of one model reads: for losses those of all agents together, for metrics those of the test data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationRows {
    /// Training rows.
    pub training: u64,
    /// Test rows.
    pub test: u64,
    /// Whether the experiment file says how many; otherwise fewer may be chosen by [`Objectives::evaluating`].
    pub is_given: bool,
}

/// The objectives of an experiment: one problem for each seed, in one precision or both.
pub trait Objectives: Send + Sync {
    /// A short description for reports.
    fn title(&self) -> String;

    /// Builds the problem of a seed, in this precision. Objectives that only have the other precision return the problem in that one, and the
    /// experiment is refused.
    fn problem(&self, seed: u64, precision: Precision) -> Result<AnyProblem, LabError>;

    /// The default precision.
    fn precision(&self) -> Precision {
        Precision::F64
    }

    /// Whether gradients are stochastic.
    fn is_stochastic(&self) -> bool {
        false
    }

    /// Whether the seed of a run changes the data, their division among the agents, or gradients.
    fn depends_on_seed(&self) -> bool {
        true
    }

    /// What is known about their curvature.
    fn curvature(&self) -> Curvature {
        Curvature::Steady
    }

    /// Whether they are neural networks, for which a small gradient does not mean that training has converged.
    fn are_networks(&self) -> bool {
        false
    }

    /// How many rows gradients read, so that an estimate before a run can cost a small fraction of it; `None` if that is not
    /// known, and only gradients can be counted.
    fn rows(&self, seed: u64) -> Result<Option<RowCounts>, LabError> {
        let _ = seed;
        Ok(None)
    }

    /// The same objectives with at most `rows` rows of each agent, drawn at random from the seed of the run, for an
    /// estimate before it; of as many agents, spread evenly, as [`Effort`](mile_theory::smoothness::Effort) uses. A
    /// larger sample contains a smaller one.
    fn sample(&self, rows: u64) -> Option<Arc<dyn Objectives>> {
        let _ = rows;
        None
    }

    /// Rows that the evaluation of one model reads; `None` if all rows of the agents, and no others.
    fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
        Ok(None)
    }

    /// The same objectives, evaluated on at most these numbers of training samples of each agent and of test samples; `None` if
    /// they cannot be evaluated on samples.
    fn evaluating(&self, per_agent: usize, test: usize) -> Option<Arc<dyn Objectives>> {
        let _ = (per_agent, test);
        None
    }

    /// What agents remember from one gradient to the next besides their vectors; none if gradients are functions of the model and the draw.
    fn remembering(&self) -> Option<&dyn Remembering> {
        None
    }

    /// Bytes of memory for the data of a seed, besides the agents' vectors.
    fn data_bytes(&self, seed: u64) -> Result<u64, LabError> {
        let _ = seed;
        Ok(0)
    }

    /// The samples on which losses and accuracies are measured, if not on all.
    fn evaluated_on(&self) -> Option<String> {
        None
    }

    /// The files that the section refers to, by key, so that they can be copied to other machines. `{agent}` in a path
    /// stands for the number of an agent, which needs only its own file.
    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        Vec::new()
    }

    /// Keys of the section that hold paths. They may differ between machines: their contents are compared by
    /// [`digests`](Self::digests).
    fn path_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Digests of the data. A state can be loaded only with the data it was made with; paths may change.
    fn digests(&self) -> Result<Facts, LabError> {
        Ok(Facts::new())
    }

    /// The facts about one agent's data that must be the same for its neighbours.
    fn shared_facts(&self, agent: usize) -> Result<Facts, LabError> {
        let _ = agent;
        Ok(Facts::new())
    }

    /// Whether one set of data is divided among the agents, so that another number of agents changes the data of all.
    fn are_divided(&self) -> bool {
        false
    }

    /// The same objectives for a process that has only one agent's data, if that is possible.
    fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
        let _ = agent;
        None
    }

    /// The same objectives for a rank that hosts these agents and needs only their data; `None` for objectives that are the
    /// same everywhere. Everything that ranks have to tell each other is communicated here.
    fn for_ranks(
        &self,
        hosted: &[usize],
        ranks: Together<'_>,
    ) -> Result<Option<Arc<dyn Objectives>>, LabError> {
        let _ = (hosted, ranks);
        Ok(None)
    }

    /// What the features of all agents depend on in one agent's data, to be merged with that of the others
    /// ([`Statistics::merge`]); `None` for kinds whose features need nothing.
    fn statistics(&self, agent: usize) -> Result<Option<Statistics>, LabError> {
        let _ = agent;
        Ok(None)
    }

    /// The names of the elements of the variable, in their order; none if they have no names.
    fn coefficients(&self) -> Result<Vec<Coefficient>, LabError> {
        Ok(Vec::new())
    }

    /// What a trained model needs besides its numbers to be used on new data, given the section that describes these objectives;
    /// none for kinds whose models predict nothing. [`ModelForm`](form::ModelForm) is read from it.
    fn form(&self, problem: &Table) -> Result<Option<serde_json::Value>, LabError> {
        let _ = problem;
        Ok(None)
    }

    /// The versions of other software that computes them, by name.
    fn versions(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// What is worth knowing about the data before a run, one line each.
    fn notes(&self) -> Result<Vec<String>, LabError> {
        Ok(Vec::new())
    }

    /// Names and contents of files about the data of a run with these seeds, which are kept in the run directory.
    fn documents(&self, seeds: &[u64]) -> Result<Vec<(&'static str, String)>, LabError> {
        let _ = seeds;
        Ok(Vec::new())
    }
}

/// An element of the variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Coefficient {
    /// The class it belongs to, where every class has its own coefficients.
    pub class: Option<String>,
    /// The name of its feature.
    pub name: String,
    /// What its feature is.
    pub feature: Feature,
}

/// How a feature is made from the user's data.
#[derive(Clone, Debug, PartialEq)]
pub enum Feature {
    /// A number of the data: `(number - shift)/scale`.
    Number {
        /// What is subtracted.
        shift: f64,
        /// What the difference is divided by.
        scale: f64,
    },
    /// Whether a word of the data is this one: 1 or 0.
    Category {
        /// The word that has no feature, to which the coefficient is relative, if there is one.
        reference: Option<String>,
    },
    /// The constant 1.
    Intercept,
}

/// What a kind of problem gets besides its section.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setting<'a> {
    /// Number of agents.
    pub agents: usize,
    /// The folder that relative paths refer to.
    pub folder: &'a Path,
    /// Who is told how much of the data has been read.
    pub progress: &'a ReadingProgress,
}

type Read = dyn Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync;

/// The kinds of problems that experiments may use.
#[derive(Clone)]
pub struct Kinds {
    kinds: Vec<(String, Arc<Read>)>,
    /// Whether unknown kinds are accepted, which is enough to read records.
    any: bool,
    progress: ReadingProgress,
}

impl Default for Kinds {
    /// The built-in kinds. Image data sets and arrays are loaded once for all experiments that are read with the same value.
    fn default() -> Self {
        let library = Arc::new(images::DatasetCache::default());
        let arrays = Arc::new(arrays::ArrayCache::default());
        Self::none()
            .with("quadratic", quadratic::read)
            .with("table", table::read)
            .with("images", move |section, setting| images::read(section, setting, library.clone()))
            .with("arrays", move |section, setting| arrays::read(section, setting, arrays.clone()))
            .with("python", python::read)
    }
}

/// The kind in the folders of runs whose objectives were Python objects.
const GIVEN: &str = "given";

impl Kinds {
    /// No kinds.
    pub fn none() -> Self {
        Self { kinds: Vec::new(), any: false, progress: ReadingProgress::default() }
    }

    /// Adds or replaces a kind. `read` reads its parameters from the section; keys that it does not read are refused as
    /// unknown.
    pub fn with(
        mut self,
        name: &str,
        read: impl Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.retain(|(known, _)| known != name);
        self.kinds.push((name.to_owned(), Arc::new(read)));
        self
    }

    /// Accepts unknown kinds too; their results can be read, but they cannot be run.
    pub fn or_any(mut self) -> Self {
        self.any = true;
        self
    }

    /// Tells how much of large data files has been read.
    pub fn showing(mut self, progress: ReadingProgress) -> Self {
        self.progress = progress;
        self
    }

    /// Reads a section `[problem]` for this many agents, with relative paths that refer to `folder`; returns the objectives
    /// and the resolved section.
    pub fn read(
        &self,
        table: &Table,
        agents: usize,
        folder: &Path,
    ) -> Result<(Arc<dyn Objectives>, Table), LabError> {
        let setting = Setting { agents, folder, progress: &self.progress };
        let section = Section::new("problem", table);
        let choices: Vec<(&str, &Arc<Read>)> =
            self.kinds.iter().map(|(name, read)| (name.as_str(), read)).collect();
        let named = table.get("kind").and_then(|kind| kind.as_str());
        if let Some(name) = named.filter(|name| self.any && !choices.iter().any(|(known, _)| known == name)) {
            section.keep_all();
            return Ok((Arc::new(Unknown(name.to_owned())), section.finish()?));
        }
        if named == Some(GIVEN) && !choices.iter().any(|(known, _)| *known == GIVEN) {
            let expected = "objectives that every process can make, such as kind = \"python\" with factory = \"train.py:problem\"";
            let got = "\"given\", objectives that one Python process had in memory";
            return Err(LabError::expected("problem.kind", expected, got));
        }
        let only = if choices.len() == 1 { Some(choices[0].0) } else { None };
        let objectives = section.choice("kind", &choices, only)?(&section, setting)?;
        Ok((objectives, section.finish()?))
    }
}

/// Objectives of an unknown kind, which cannot be run.
struct Unknown(String);

impl Objectives for Unknown {
    fn title(&self) -> String {
        self.0.clone()
    }

    fn problem(&self, _: u64, _: Precision) -> Result<AnyProblem, LabError> {
        let problem = format!("unknown kind \"{}\"; its results can be read, but it cannot be run", self.0);
        Err(LabError::config("problem.kind", problem))
    }
}

/// Objectives with the same problem for every seed.
///
/// States belong to the problem by its values: the losses and gradients of all agents at its starting point, which
/// are evaluated once before a run. Where that is too expensive, or not the same twice, give a version instead.
pub struct FixedProblem {
    name: String,
    problem: AnyProblem,
    version: Option<String>,
}

impl FixedProblem {
    /// A problem, as an [`AnyProblem`] or an `Arc<dyn Problem<T>>`, with its name in reports.
    pub fn new(name: impl Into<String>, problem: impl Into<AnyProblem>) -> Self {
        Self { name: name.into(), problem: problem.into(), version: None }
    }

    /// Tells versions of the problem apart by this text, instead of by its values.
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }
}

/// A digest of the losses and gradients of these agents at the problem's starting point, and of the penalty.
fn values<T: Real>(problem: &dyn Problem<T>, agents: Range<usize>) -> Result<String, LabError> {
    let evaluate = || -> Result<String, Failure> {
        let dim = problem.dim();
        let points = problem.initial(0)?.unwrap_or_else(|| vec![T::zero(); dim]);
        let (mut gradient, mut found) = (vec![T::zero(); dim], Vec::new());
        for agent in agents {
            let x = if points.len() == dim { &points[..] } else { &points[agent * dim..(agent + 1) * dim] };
            gradient.fill(T::zero());
            problem.gradient(agent, x, &mut gradient)?;
            found
                .push((problem.loss(agent, x)?.to_bits(), digest::of_bytes(bytemuck::cast_slice(&gradient))));
        }
        let penalty = problem.penalty().map_or(String::new(), |penalty| format!("{penalty:?}"));
        Ok(digest::of_bytes(format!("{found:?}{penalty}").as_bytes()))
    };
    match catch_unwind(AssertUnwindSafe(evaluate)) {
        Ok(found) => found.map_err(failed),
        Err(panic) => Err(LabError::panicked(&*panic)),
    }
}

impl Objectives for FixedProblem {
    fn title(&self) -> String {
        self.name.clone()
    }

    fn problem(&self, _: u64, _: Precision) -> Result<AnyProblem, LabError> {
        Ok(self.problem.clone())
    }

    fn precision(&self) -> Precision {
        self.problem.precision()
    }

    fn digests(&self) -> Result<Facts, LabError> {
        let (key, value) = match (&self.version, &self.problem) {
            (Some(version), _) => ("problem.version", version.clone()),
            (None, problem) => ("problem.values", problem.values_at_start(0..problem.agents())?),
        };
        Ok(Facts::from([(key.to_owned(), value.into())]))
    }
}

/// Converts an error of an objective.
pub fn failed(source: Failure) -> LabError {
    LabError::Agents(mile::agents::AgentsError::Evaluation(source))
}
