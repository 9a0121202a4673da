//! The objectives of an experiment: what is minimised, one problem for each seed.
//!
//! A section `[problem]` names a *kind*. The kinds that come with the lab are `quadratic`, `table` and `images`;
//! [`Kinds::with`] adds others, which then have everything that these have. [`Objectives`] is what a kind makes of its section.

mod csv;
mod images;
mod quadratic;
mod samples;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::problems::{Failure, Problem};
use mile::real::Precision;
use toml::Table;

pub use csv::TableConfig;
pub use images::ImagesConfig;

use crate::error::LabError;
use crate::section::Section;

/// What something depends on, by the names the user gave it.
pub type Facts = BTreeMap<String, String>;

/// What is known of the curvature of objectives before a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curvature {
    /// The largest is this, by construction.
    Known(f64),
    /// It can be estimated at the start, and is not much larger elsewhere.
    Steady,
    /// It grows while a model learns: what it is at the start says little.
    Changing,
}

/// The objectives of an experiment: one problem for each seed, in one precision or both.
pub trait Objectives: Send + Sync {
    /// What is minimised, in a few words, for reports.
    fn title(&self) -> String;

    /// The problem of a seed in single precision.
    fn single(&self, seed: u64) -> Result<Arc<dyn Problem<f32>>, LabError> {
        let _ = seed;
        Err(LabError::config(
            "precision",
            "got f32, takes f64: these objectives are in double precision only",
        ))
    }

    /// The problem of a seed in double precision.
    fn double(&self, seed: u64) -> Result<Arc<dyn Problem<f64>>, LabError> {
        let _ = seed;
        Err(LabError::config(
            "precision",
            "got f64, takes f32: these objectives are in single precision only",
        ))
    }

    /// The precision of an experiment that does not say.
    fn precision(&self) -> Precision {
        Precision::F64
    }

    /// Whether gradients are stochastic.
    fn is_stochastic(&self) -> bool {
        false
    }

    /// What is known of their curvature.
    fn curvature(&self) -> Curvature {
        Curvature::Steady
    }

    /// Which samples losses and accuracies are measured on, where that is not all of them.
    fn evaluated_on(&self) -> Option<String> {
        None
    }

    /// Files that the section names, by key, for whoever takes the experiment to another machine; `{agent}` in a name stands for the
    /// number of an agent, which needs only its own.
    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        Vec::new()
    }

    /// Digests of the data, so that a state is of use only with the data it was made with. Names of files are not
    /// among them.
    fn digests(&self) -> Result<Facts, LabError> {
        Ok(Facts::new())
    }

    /// What one agent's own data must have in common with its neighbours'.
    fn shared_facts(&self, agent: usize) -> Result<Facts, LabError> {
        let _ = agent;
        Ok(Facts::new())
    }

    /// The same objectives for a process that has the data of one agent only, if that is possible.
    fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
        let _ = agent;
        None
    }
}

/// Where a section `[problem]` stands.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Number of agents of the network.
    pub agents: usize,
    /// The folder from which relative paths start.
    pub folder: &'a Path,
}

type Read = dyn Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync;

/// The kinds of problems that an experiment may name.
#[derive(Clone)]
pub struct Kinds {
    kinds: Vec<(String, Arc<Read>)>,
    /// Whether a kind that is not known is passed over: enough to read what was recorded.
    any: bool,
}

impl Default for Kinds {
    /// Those that come with the lab. Data sets that were read are shared by all experiments that are read with these.
    fn default() -> Self {
        let library = Arc::new(images::Library::default());
        Self::none()
            .with("quadratic", quadratic::read)
            .with("table", table::read)
            .with("images", move |section, setting| images::read(section, setting, library.clone()))
    }
}

impl Kinds {
    /// None at all.
    pub fn none() -> Self {
        Self { kinds: Vec::new(), any: false }
    }

    /// The same with one more, or with another one of this name. `read` takes what it needs from the section; a key
    /// that it does not ask for is refused as unknown.
    pub fn with(
        mut self,
        name: &str,
        read: impl Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.retain(|(known, _)| known != name);
        self.kinds.push((name.to_owned(), Arc::new(read)));
        self
    }

    /// The same, with any other kind taken for something whose results can be read but not run.
    pub(crate) fn or_any(mut self) -> Self {
        self.any = true;
        self
    }

    /// Reads a section `[problem]`: the objectives, and the section with its defaults.
    pub(crate) fn read(
        &self,
        table: &Table,
        setting: Setting,
    ) -> Result<(Arc<dyn Objectives>, Table), LabError> {
        let section = Section::new("problem", table);
        let choices: Vec<(&str, &Arc<Read>)> =
            self.kinds.iter().map(|(name, read)| (name.as_str(), read)).collect();
        let named = table.get("kind").and_then(|kind| kind.as_str());
        if let Some(name) = named.filter(|name| self.any && !choices.iter().any(|(known, _)| known == name)) {
            section.keep_all();
            return Ok((Arc::new(Unknown(name.to_owned())), section.finish()?));
        }
        let only = if choices.len() == 1 { Some(choices[0].0) } else { None };
        let objectives = section.choice("kind", &choices, only)?(&section, setting)?;
        Ok((objectives, section.finish()?))
    }
}

/// Objectives of a kind that is not known here.
struct Unknown(String);

impl Objectives for Unknown {
    fn title(&self) -> String {
        self.0.clone()
    }
}

/// One problem, the same for every seed.
pub struct Given<T> {
    /// What it is called.
    pub name: String,
    /// The problem.
    pub problem: Arc<dyn Problem<T>>,
}

impl Objectives for Given<f32> {
    fn title(&self) -> String {
        self.name.clone()
    }

    fn single(&self, _: u64) -> Result<Arc<dyn Problem<f32>>, LabError> {
        Ok(self.problem.clone())
    }

    fn precision(&self) -> Precision {
        Precision::F32
    }
}

impl Objectives for Given<f64> {
    fn title(&self) -> String {
        self.name.clone()
    }

    fn double(&self, _: u64) -> Result<Arc<dyn Problem<f64>>, LabError> {
        Ok(self.problem.clone())
    }
}

/// The error of objectives that could not be made.
pub(crate) fn failed(source: Failure) -> LabError {
    LabError::Agents(mile::agents::AgentsError::Evaluation(source))
}
