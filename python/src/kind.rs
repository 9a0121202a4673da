//! `kind = "python"`: objectives that a function in a Python file makes, for experiment files, sweeps and agents on a network.
//!
//! The function is called when the objectives are first needed, so that an agent asks for its own data only.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mile::agents::Failure;
use mile::real::Precision;
use mile_lab::LabError;
use mile_lab::objectives::remembering::Remembering;
use mile_lab::objectives::{
    AnyProblem, Curvature, EvaluationRows, Factory, Facts, Objectives, PythonFunction, RowCounts, Setting,
};
use mile_lab::section::Section;
use pyo3::prelude::*;

use crate::failure::{Raised, refused};
use crate::memory::Memory;
use crate::objectives::PyObjectives;
use crate::waiting::stay_on_this_thread;

/// The kind, with objectives that see this memory and keep their exceptions here.
pub(crate) fn python(
    memory: Memory,
    raised: Raised,
) -> impl Fn(&Section, Setting) -> Result<Arc<dyn Objectives>, LabError> + Send + Sync + 'static {
    move |section, setting| {
        stay_on_this_thread();
        let factory = Factory::read(section, setting)?;
        let (memory, raised) = (memory.clone(), raised.clone());
        Ok(Arc::new(Made { factory, agent: None, memory, raised, made: OnceLock::new() }))
    }
}

/// The objectives that a function makes: of all agents, or of one.
struct Made {
    factory: Factory,
    agent: Option<usize>,
    memory: Memory,
    raised: Raised,
    made: OnceLock<Result<PyObjectives, Failure>>,
}

impl Made {
    fn objectives(&self) -> Result<&PyObjectives, LabError> {
        let made = self.made.get_or_init(|| self.make());
        made.as_ref().map_err(|error| refused("problem.factory", error))
    }

    /// Calls the function.
    fn make(&self) -> Result<PyObjectives, Failure> {
        let Factory { function, agents, samples, .. } = &self.factory;
        self.raised.call(|py| {
            let arguments = serde_json::to_string(&function.arguments).unwrap_or_default();
            let object = self.call(py, "make", (arguments, *agents, self.agent))?;
            let found = PyObjectives::read(&object, *agents, self.memory.clone(), self.raised.clone())?;
            match *samples {
                Some((per_agent, test)) => found.sampled(py, per_agent, test),
                None => Ok(found),
            }
        })
    }

    /// Calls a function of the package with the user's function and these arguments.
    fn call<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        (arguments, agents, agent): (String, usize, Option<usize>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let PythonFunction { file, name: function, .. } = &self.factory.function;
        let module = py.import("mile._factory")?;
        module.call_method1(name, (file, function, arguments, agents, agent))
    }

    /// The same function, for other agents or with what it has made.
    fn again(&self, agent: Option<usize>, made: Option<PyObjectives>) -> Arc<dyn Objectives> {
        let Self { factory, memory, raised, .. } = self;
        let made = made.map_or(OnceLock::new(), |made| OnceLock::from(Ok(made)));
        let (factory, memory, raised) = (factory.clone(), memory.clone(), raised.clone());
        Arc::new(Self { factory, agent, memory, raised, made })
    }
}

impl Objectives for Made {
    fn title(&self) -> String {
        self.objectives().map_or_else(|_| self.factory.function.name.clone(), Objectives::title)
    }

    fn problem(&self, seed: u64, precision: Precision) -> Result<AnyProblem, LabError> {
        self.objectives()?.problem(seed, precision)
    }

    fn precision(&self) -> Precision {
        self.objectives().map_or(Precision::F64, Objectives::precision)
    }

    fn is_stochastic(&self) -> bool {
        self.objectives().is_ok_and(Objectives::is_stochastic)
    }

    fn depends_on_seed(&self) -> bool {
        self.is_stochastic()
    }

    fn curvature(&self) -> Curvature {
        self.objectives().map_or(Curvature::Steady, Objectives::curvature)
    }

    fn are_networks(&self) -> bool {
        self.objectives().is_ok_and(Objectives::are_networks)
    }

    fn remembering(&self) -> Option<&dyn Remembering> {
        self.objectives().ok()?.without_host()
    }

    fn rows(&self, seed: u64) -> Result<Option<RowCounts>, LabError> {
        self.objectives()?.rows(seed)
    }

    fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
        self.objectives()?.evaluation_rows()
    }

    fn evaluating(&self, per_agent: usize, test: usize) -> Option<Arc<dyn Objectives>> {
        let made = self.objectives().ok()?;
        let sampled = self.raised.call(|py| made.sampled(py, per_agent, test)).ok()?;
        Some(self.again(self.agent, Some(sampled)))
    }

    fn evaluated_on(&self) -> Option<String> {
        self.objectives().ok()?.evaluated_on()
    }

    fn versions(&self) -> BTreeMap<String, String> {
        self.objectives().map_or(BTreeMap::new(), Objectives::versions)
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        self.factory.function.files()
    }

    fn path_keys(&self) -> &'static [&'static str] {
        PythonFunction::PATH_KEYS
    }

    fn digests(&self) -> Result<Facts, LabError> {
        let agents = self.agent.map_or(0..self.factory.agents, |agent| agent..agent + 1);
        let mut found = self.factory.digests(agents.clone())?;
        found.extend(self.objectives()?.facts_of(agents)?);
        Ok(found)
    }

    fn shared_facts(&self, _: usize) -> Result<Facts, LabError> {
        let mut found = self.factory.shared_digests()?;
        found.extend(self.objectives()?.shared_facts()?);
        Ok(found)
    }

    fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
        let arguments = || (String::new(), self.factory.agents, Some(agent));
        let takes = self.raised.call(|py| self.call(py, "takes_agent", arguments())?.extract::<bool>());
        // A file that cannot be imported is refused when the objectives are needed.
        takes.is_ok_and(|takes| takes).then(|| self.again(Some(agent), None))
    }
}
