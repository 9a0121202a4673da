//! Methods in Python: a class with `step`, and perhaps `start`, written in the verbs.

use std::sync::{Arc, OnceLock};

use mile::agents::{AgentsError, Step, Vector};
use mile::method::{Layout, Method, Unit};
use mile::methods::catalogue::{Definition, Load};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::apply::PyFunction;
use crate::failure::Raised;
use crate::loan::Loan;

/// How methods are loaded that classes in Python files define: the class is called once, when the method is first needed.
pub(crate) fn loader(raised: Raised) -> impl Fn(Definition) -> Box<Load> + Send + Sync + 'static {
    move |definition| {
        let (raised, made) = (raised.clone(), OnceLock::new());
        Box::new(move || {
            let made: &Result<PyMethod, String> = made.get_or_init(|| {
                let Definition { file, name, arguments } = &definition;
                let made = raised.call(|py| {
                    let module = py.import("mile._factory")?;
                    let object = module.call_method1("make_method", (file, name, arguments))?;
                    PyMethod::read(&object, raised.clone())
                });
                made.map_err(|error| error.to_string())
            });
            match made {
                Ok(method) => Ok(Box::new(method.again())),
                Err(error) => Err(error.as_str().into()),
            }
        })
    }
}

/// A method in Python, with its vectors.
pub(crate) struct PyMethod {
    object: Py<PyAny>,
    names: Arc<Vec<String>>,
    layout: Layout,
    has_start: bool,
    raised: Raised,
}

impl std::fmt::Debug for PyMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PyMethod").field("vectors", &self.names).finish_non_exhaustive()
    }
}

impl PyMethod {
    /// Reads the vectors of a method from its attributes `state`, `scaled` and `scratch`.
    pub(crate) fn read(object: &Bound<'_, PyAny>, raised: Raised) -> PyResult<Self> {
        let list = |name: &str| -> PyResult<Vec<String>> {
            object.getattr_opt(name)?.map_or(Ok(Vec::new()), |value| {
                let takes = || PyTypeError::new_err(format!("{name}: expected a tuple of vector names"));
                value.extract().map_err(|_| takes())
            })
        };
        let (state, scaled, scratch) = (list("state")?, list("scaled")?, list("scratch")?);
        if state.first().is_none_or(|name| name != "x") {
            return Err(PyValueError::new_err("state: expected \"x\", the agents' models, to come first"));
        }
        let names: Vec<String> = state.iter().chain(&scratch).cloned().collect();
        if let Some(k) = (1..names.len()).find(|k| names[..*k].contains(&names[*k])) {
            return Err(PyValueError::new_err(format!(
                "state, scratch: expected distinct names, got {} twice",
                names[k]
            )));
        }
        if let Some(name) = scaled.iter().find(|name| !state.contains(name)) {
            return Err(PyValueError::new_err(format!("scaled: expected names in state, got {name}")));
        }
        let unit = |name: &String| if scaled.contains(name) { Unit::StepSize } else { Unit::Fixed };
        let layout = Layout::new(state.iter().map(|name| (name.clone(), unit(name))), scratch);
        if !object.getattr_opt("step")?.is_some_and(|step| step.is_callable()) {
            return Err(PyTypeError::new_err("step: expected step(self, s), got none; define it"));
        }
        let has_start = object.getattr_opt("start")?.is_some_and(|start| start.is_callable());
        Ok(Self { object: object.clone().unbind(), names: Arc::new(names), layout, has_start, raised })
    }

    /// The same method for another job.
    pub(crate) fn again(&self) -> Self {
        let object = Python::attach(|py| self.object.clone_ref(py));
        Self {
            object,
            names: self.names.clone(),
            layout: self.layout.clone(),
            has_start: self.has_start,
            raised: self.raised.clone(),
        }
    }

    fn call(&self, name: &str, step: &mut Step) -> Result<(), AgentsError> {
        self.raised.verb(|py| {
            Loan::lend(
                py,
                step,
                || self.raised.abort(),
                |loan| {
                    let verbs = StepVerbs {
                        loan: loan.clone(),
                        names: self.names.clone(),
                        raised: self.raised.clone(),
                    };
                    self.object.bind(py).call_method1(name, (verbs,)).map(drop)
                },
            )
        })
    }
}

impl Method for PyMethod {
    fn layout(&self) -> Layout {
        self.layout.clone()
    }

    fn start(&self, step: &mut Step) -> Result<(), AgentsError> {
        if self.has_start { self.call("start", step) } else { Ok(()) }
    }

    fn step(&self, step: &mut Step) -> Result<(), AgentsError> {
        self.call("step", step)
    }
}

/// One step of a method: the verbs on named vectors, the time and the step size.
///
/// It is valid until the call it was passed to returns, and for one thread at a time; any other use raises a `RuntimeError`.
#[pyclass(frozen, module = "mile", name = "Step")]
pub(crate) struct StepVerbs {
    loan: Arc<Loan>,
    names: Arc<Vec<String>>,
    raised: Raised,
}

impl StepVerbs {
    fn vector(&self, name: &str) -> PyResult<Vector> {
        let found = self.names.iter().position(|known| known == name);
        found.map(Vector).ok_or_else(|| {
            PyValueError::new_err(format!("vector: expected one of {}, got {name}", self.names.join(", ")))
        })
    }

    fn pairs(&self, pairs: &[(String, String)]) -> PyResult<Vec<(Vector, Vector)>> {
        pairs.iter().map(|(from, to)| Ok((self.vector(from)?, self.vector(to)?))).collect()
    }

    /// Uses the step with the interpreter released.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Step) -> Result<R, AgentsError> + Send,
    ) -> PyResult<R> {
        // An objective's exception is passed on unchanged. It is taken before the step is put back: one raised later belongs to another use.
        let worked = self.loan.with(py, |step| work(step).map_err(|error| (error, self.raised.take())))?;
        worked.map_err(|(error, raised)| raised.unwrap_or_else(|| PyRuntimeError::new_err(error.to_string())))
    }
}

#[pymethods]
impl StepVerbs {
    /// Updates done since x(0).
    #[getter]
    fn t(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |step| Ok(step.t))
    }

    /// The step size of this step.
    #[getter]
    fn step_size(&self, py: Python<'_>) -> PyResult<f64> {
        self.with(py, |step| Ok(step.step_size))
    }

    /// Communication rounds done.
    #[getter]
    fn round(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |step| Ok(step.round))
    }

    /// `g_i <- grad f_i(x_i)`; two calls in one step use the same mini-batch.
    fn gradient(&self, py: Python<'_>, x: &str, g: &str) -> PyResult<()> {
        let (x, g) = (self.vector(x)?, self.vector(g)?);
        self.with(py, move |step| step.gradient(x, g))
    }

    /// `y <- keep*y + sum_k a_k v_k`, from pairs (a_k, name of v_k).
    fn combine(&self, py: Python<'_>, y: &str, keep: f64, terms: Vec<(f64, String)>) -> PyResult<()> {
        let y = self.vector(y)?;
        let terms: Vec<(f64, Vector)> =
            terms.iter().map(|(a, v)| Ok((*a, self.vector(v)?))).collect::<PyResult<_>>()?;
        self.with(py, move |step| step.combine(y, keep, &terms))
    }

    /// Applies a function to vectors, given as arrays or tensors with a row for each hosted agent. It changes them in place, or returns
    /// the new value of the first, or a tuple with those of the first few.
    #[pyo3(signature = (function, *vectors))]
    fn apply(&self, py: Python<'_>, function: &Bound<'_, PyAny>, vectors: Vec<String>) -> PyResult<()> {
        let vectors: Vec<Vector> = vectors.iter().map(|name| self.vector(name)).collect::<PyResult<_>>()?;
        let function = PyFunction::new(function, self.raised.clone())?;
        self.with(py, move |step| step.apply(&function, &vectors))
    }

    /// `to_i <- sum_j w_ij (from_j - from_i)` for each pair (from, to): one exchange.
    #[pyo3(signature = (*pairs))]
    fn pull(&self, py: Python<'_>, pairs: Vec<(String, String)>) -> PyResult<()> {
        let pairs = self.pairs(&pairs)?;
        self.with(py, move |step| step.pull(&pairs))
    }

    /// `to_i <- sum_j w_ij from_j` for each pair (from, to): one exchange.
    #[pyo3(signature = (*pairs))]
    fn mix(&self, py: Python<'_>, pairs: Vec<(String, String)>) -> PyResult<()> {
        let pairs = self.pairs(&pairs)?;
        self.with(py, move |step| step.mix(&pairs))
    }
}
