//! Objectives that are given as Python objects, as a kind of problem of the lab.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use mile::real::Precision;
use mile_lab::LabError;
use mile_lab::objectives::remembering::Remembering;
use mile_lab::objectives::{
    AnyProblem, Curvature, EvaluationRows, Fact, Facts, FixedProblem, Objectives, RowCounts,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::{Raised, refused, refused_data};
use crate::memory::Memory;
use crate::problem::{PyProblem, Spec, attribute};

/// The objectives of a Python object, the same for every seed.
pub(crate) struct PyObjectives {
    object: Py<PyAny>,
    spec: Arc<Spec>,
    name: String,
    /// What identifies the objectives, by key; if there is nothing, their values do.
    facts: BTreeMap<String, String>,
    knows_data_of_agents: bool,
    /// Whether agents remember something besides their vectors.
    remembers: bool,
    /// Whether `mile.run` keeps what they remember in a host.
    has_host: bool,
    rows: Option<Rows>,
    /// The samples that models are evaluated on, if not all.
    evaluated_on: Option<String>,
    versions: BTreeMap<String, String>,
    memory: Memory,
    raised: Raised,
}

/// Facts of a problem that follow from the data, which agents may have only a part of.
const OF_DATA: [&str; 5] = ["data", "start", "batch", "weights", "test"];

/// How many rows gradients and losses read.
#[derive(Clone, Copy)]
struct Rows {
    counts: RowCounts,
    training: u64,
    test: u64,
    /// Whether the object says how many are evaluated.
    is_given: bool,
}

impl PyObjectives {
    /// Reads an object with objectives for this many agents.
    pub(crate) fn read(
        object: &Bound<'_, PyAny>,
        agents: usize,
        memory: Memory,
        raised: Raised,
    ) -> PyResult<Self> {
        let spec = Arc::new(Spec::read(object, agents)?);
        let text = |name: &str| attribute(object, name)?.map(|value| value.extract::<String>()).transpose();
        let default =
            || object.get_type().name().map_or_else(|_| "objective".into(), |name| name.to_string());
        // (rows of an exact gradient, of one of the run, of all agents' losses, of the test data)
        let rows: Option<(u64, u64, u64, u64)> =
            attribute(object, "row_counts")?.map(|value| value.extract()).transpose()?;
        let is_given =
            attribute(object, "evaluating")?.is_none() || attribute(object, "eval_rows")?.is_some();
        let rows = rows.map(|(all, run, training, test)| Rows {
            counts: RowCounts { all, run, largest_sample: 0 },
            training,
            test,
            is_given,
        });
        let name = text("name")?.unwrap_or_else(default);
        let facts = match text("version")? {
            Some(version) => BTreeMap::from([("version".to_owned(), version)]),
            None => {
                attribute(object, "facts")?.map_or(Ok(BTreeMap::new()), |facts| facts.call0()?.extract())?
            }
        };
        let knows_data_of_agents = attribute(object, "data_of")?.is_some();
        let (remembers, has_host) = (remembers(object)?, attribute(object, "host")?.is_some());
        let (versions, evaluated_on) = (versions(object)?, text("evaluated_on")?);
        let object = object.clone().unbind();
        Ok(Self {
            object,
            spec,
            name,
            facts,
            knows_data_of_agents,
            remembers,
            has_host,
            rows,
            evaluated_on,
            versions,
            memory,
            raised,
        })
    }

    /// The same objectives, evaluated on this many samples as the experiment says.
    pub(crate) fn sampled(&self, py: Python<'_>, per_agent: usize, test: usize) -> PyResult<Self> {
        let object = self.object.bind(py);
        if attribute(object, "evaluating")?.is_none() {
            let got = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "eval_samples: expected none for objectives without samples, got {per_agent} and {got}; leave it out"
            )));
        }
        let sampled = object.call_method1("evaluating", (per_agent, test))?;
        let found = Self::read(&sampled, self.spec.agents, self.memory.clone(), self.raised.clone())?;
        Ok(Self { rows: found.rows.map(|rows| Rows { is_given: true, ..rows }), ..found })
    }

    /// What identifies the objectives of these agents, each of which may have its own data only: by agent what differs between them, and
    /// what they share.
    pub(crate) fn facts_of(&self, agents: Range<usize>) -> Result<Facts, LabError> {
        let mut found = self.shared_facts()?;
        for agent in agents {
            let (key, value) = match (self.knows_data_of_agents, self.facts.is_empty()) {
                (true, _) => ("data", self.data_of(agent)?),
                (false, true) => {
                    ("values", self.problem().values_at_start(agent..agent + 1).map_err(refused_data)?)
                }
                (false, false) => continue,
            };
            found.insert(format!("problem.{key}[{agent}]"), Fact::from(value).of_agent(agent));
        }
        Ok(found)
    }

    /// What agents share, each of which may have its own data only: the code, and the names and shapes of the tensors that the variable
    /// consists of.
    pub(crate) fn shared_facts(&self) -> Result<Facts, LabError> {
        let is_shared = |key: &str| !self.knows_data_of_agents || !OF_DATA.contains(&key);
        let shared = self.facts.iter().filter(|(key, _)| is_shared(key));
        let mut found: Facts =
            shared.map(|(key, value)| (format!("problem.{key}"), value.as_str().into())).collect();
        let parts = self.spec.parts.iter().map(|part| format!("{} {:?}", part.name, part.shape));
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            found.insert("problem.tensors".to_owned(), parts.join(", ").into());
        }
        Ok(found)
    }

    /// What agents without a host remember, if they do.
    pub(crate) fn without_host(&self) -> Option<&dyn Remembering> {
        self.remembers.then_some(self)
    }

    /// A digest of an agent's data.
    fn data_of(&self, agent: usize) -> Result<String, LabError> {
        let digest = self.raised.call(|py| self.object.bind(py).call_method1("data_of", (agent,))?.extract());
        digest.map_err(|error| refused("problem.factory", &error))
    }

    fn problem(&self) -> AnyProblem {
        let problem = PyProblem::new(self.spec.clone(), self.memory.clone(), self.raised.clone());
        match self.spec.is_single {
            true => AnyProblem::F32(Arc::new(problem)),
            false => AnyProblem::F64(Arc::new(problem)),
        }
    }
}

/// The versions of Python, of NumPy, and of what the object says it computes with.
fn versions(object: &Bound<'_, PyAny>) -> PyResult<BTreeMap<String, String>> {
    let py = object.py();
    let python = py.version_info();
    let mut found: BTreeMap<String, String> =
        attribute(object, "versions")?.map_or(Ok(BTreeMap::new()), |given| given.extract())?;
    found.insert("Python".into(), format!("{}.{}.{}", python.major, python.minor, python.patch));
    found.insert("numpy".into(), py.import("numpy")?.getattr("__version__")?.extract()?);
    Ok(found)
}

/// Whether agents remember something: the object has `memory(agent)` and `recall(agent, memory)`, and does not deny it.
fn remembers(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let has = |name| Ok::<_, PyErr>(attribute(object, name)?.is_some_and(|value| value.is_callable()));
    let denied =
        attribute(object, "remembers")?.map(|value| value.extract::<bool>()).transpose()? == Some(false);
    Ok(has("memory")? && has("recall")? && !denied)
}

impl Remembering for PyObjectives {
    fn memory(&self, agent: usize) -> Result<Vec<u8>, LabError> {
        let memory = self.raised.call(|py| {
            let found = self.object.bind(py).call_method1("memory", (agent,))?;
            found.cast::<PyBytes>().map(|bytes| bytes.as_bytes().to_vec()).map_err(|_| {
                PyTypeError::new_err(format!("memory(agent): expected bytes, got {}", found.get_type()))
            })
        });
        memory.map_err(|error| LabError::config("problem", error))
    }

    fn recall(&self, agent: usize, memory: Option<&[u8]>) -> Result<(), LabError> {
        let done = self.raised.call(|py| {
            let memory = memory.map(|bytes| PyBytes::new(py, bytes));
            self.object.bind(py).call_method1("recall", (agent, memory)).map(drop)
        });
        done.map_err(|error| LabError::config("problem", error))
    }
}

impl Objectives for PyObjectives {
    fn title(&self) -> String {
        self.name.clone()
    }

    fn problem(&self, _: u64, _: Precision) -> Result<AnyProblem, LabError> {
        Ok(self.problem())
    }

    fn precision(&self) -> Precision {
        if self.spec.is_single { Precision::F32 } else { Precision::F64 }
    }

    fn is_stochastic(&self) -> bool {
        self.spec.is_stochastic
    }

    fn curvature(&self) -> Curvature {
        if self.rows.is_some() { Curvature::Changing } else { Curvature::Steady }
    }

    fn are_networks(&self) -> bool {
        // Only PyTorch modules say how many rows they read.
        self.rows.is_some()
    }

    fn remembering(&self) -> Option<&dyn Remembering> {
        self.without_host().filter(|_| !self.has_host)
    }

    fn rows(&self, _: u64) -> Result<Option<RowCounts>, LabError> {
        Ok(self.rows.map(|rows| rows.counts))
    }

    fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
        let of =
            |rows: Rows| EvaluationRows { training: rows.training, test: rows.test, is_given: rows.is_given };
        Ok(self.rows.map(of))
    }

    fn evaluating(&self, per_agent: usize, test: usize) -> Option<Arc<dyn Objectives>> {
        let sampled = self.raised.call(|py| {
            let sampled = self.object.bind(py).call_method1("evaluating", (per_agent, test))?;
            Self::read(&sampled, self.spec.agents, self.memory.clone(), self.raised.clone())
        });
        sampled.ok().map(|sampled| Arc::new(sampled) as Arc<dyn Objectives>)
    }

    fn evaluated_on(&self) -> Option<String> {
        self.evaluated_on.clone()
    }

    fn versions(&self) -> BTreeMap<String, String> {
        self.versions.clone()
    }

    fn digests(&self) -> Result<Facts, LabError> {
        if !self.facts.is_empty() {
            let fact = |(key, value): (&String, &String)| (format!("problem.{key}"), value.clone().into());
            return Ok(self.facts.iter().map(fact).collect());
        }
        FixedProblem::new("", self.problem()).digests()
    }
}
