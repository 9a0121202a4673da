//! Objectives in Python: any object with `loss(agent, x)` and `grad(agent, x, rng)`.

use std::collections::BTreeMap;
use std::sync::Arc;

use mile::agents::Failure;
use mile::problems::{Draw, HeldOut, Metric, NamedTensors, Problem, Tensor, TensorPart};
use mile::real::Real;
use mile_lab::recorded_metrics::{self, Models};
use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::failure::Raised;
use crate::memory::Memory;
use crate::random::Random;

/// What an object says about its objectives, read once before a run.
pub(crate) struct Spec {
    pub(crate) agents: usize,
    pub(crate) dim: usize,
    pub(crate) is_single: bool,
    pub(crate) is_stochastic: bool,
    pub(crate) records_gradient_norm: bool,
    loss: Py<PyAny>,
    grad: Py<PyAny>,
    /// Whether `grad` writes into an argument `out`.
    writes: bool,
    full_grad: Option<Py<PyAny>>,
    initial: Option<Py<PyAny>>,
    measure: Option<Py<PyAny>>,
    measure_of: Option<Py<PyAny>>,
    metrics: Vec<Metric>,
    own_metrics: Vec<String>,
    /// The tensors that the variable consists of.
    pub(crate) parts: Vec<TensorPart>,
    /// What the loss and the gradient of each agent are multiplied by, so that the mean over the agents is the weighted one.
    factors: Option<Vec<f64>>,
    /// Gives all tensors of a model by name, if a model has more than the variable, or names a part of it twice.
    export: Option<Py<PyAny>>,
}

/// A value of an attribute, if the object has it and it is not `None`.
pub(crate) fn attribute<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(object.getattr_opt(name)?.filter(|value| !value.is_none()))
}

fn flag(object: &Bound<'_, PyAny>, name: &str, default: bool) -> PyResult<bool> {
    attribute(object, name)?.map_or(Ok(default), |value| value.extract())
}

impl Spec {
    /// Reads an object that has objectives for this many agents.
    pub(crate) fn read(object: &Bound<'_, PyAny>, agents: usize) -> PyResult<Self> {
        let method = |name: &str, call: &str| {
            attribute(object, name)?.filter(|value| value.is_callable()).ok_or_else(|| {
                let kind = object.get_type();
                PyTypeError::new_err(format!("problem: expected an object with {call}, got {kind}"))
            })
        };
        let (loss, grad) = (method("loss", "loss(agent, x)")?, method("grad", "grad(agent, x, rng)")?);
        let dim: usize = attribute(object, "dim")?
            .ok_or_else(|| PyTypeError::new_err("dim: expected the length of x, got none"))?
            .extract()
            .map_err(|_| PyTypeError::new_err("dim: expected an integer, the length of x"))?;
        let own: Option<usize> = attribute(object, "agents")?.map(|value| value.extract()).transpose()?;
        if let Some(own) = own.filter(|own| *own != agents) {
            return Err(PyValueError::new_err(format!(
                "network.agents: expected {own}, the number of agents that the problem has objectives for, got {agents}"
            )));
        }
        let dtype =
            attribute(object, "dtype")?.map_or(Ok("float64".to_owned()), |value| dtype_name(&value))?;
        if !["float32", "float64"].contains(&dtype.as_str()) {
            return Err(PyTypeError::new_err(format!("dtype: expected float32 or float64, got {dtype}")));
        }
        let full_grad = attribute(object, "full_grad")?;
        let is_stochastic = flag(object, "stochastic", false)?;
        let records = flag(object, "records_gradient_norm", !is_stochastic || full_grad.is_some())?;
        let metrics = match attribute(object, "metrics")? {
            Some(names) => {
                names.extract::<Vec<String>>()?.iter().map(|name| metric(name)).collect::<PyResult<_>>()?
            }
            None => Vec::new(),
        };
        let own_metrics: Vec<String> =
            attribute(object, "own_metrics")?.map_or(Ok(Vec::new()), |names| names.extract())?;
        let measure = attribute(object, "measure")?;
        if measure.is_none() && !(metrics.is_empty() && own_metrics.is_empty()) {
            return Err(PyTypeError::new_err(
                "measure: expected a function of x that returns a number for each of metrics, got none",
            ));
        }
        let factors =
            attribute(object, "agent_weights")?.map(|weights| factors(&weights, agents)).transpose()?;
        let parts = attribute(object, "parts")?.map_or(Ok(Vec::new()), |parts| parts.extract())?;
        let parts = tensor_parts(parts, dim);
        Ok(Self {
            agents,
            dim,
            is_single: dtype == "float32",
            is_stochastic,
            records_gradient_norm: records,
            writes: takes_out(&grad)?,
            loss: loss.unbind(),
            grad: grad.unbind(),
            full_grad: full_grad.map(Bound::unbind),
            initial: attribute(object, "initial")?.map(Bound::unbind),
            measure: measure.map(Bound::unbind),
            measure_of: attribute(object, "measure_of")?.map(Bound::unbind),
            metrics,
            own_metrics,
            factors,
            parts,
            export: attribute(object, "export_model")?.map(Bound::unbind),
        })
    }
}

/// What each agent's objective is multiplied by: its weight, divided by the mean of all.
fn factors(weights: &Bound<'_, PyAny>, agents: usize) -> PyResult<Vec<f64>> {
    let expected = format!("agent_weights: expected a positive number for each of {agents} agents");
    let given: Vec<f64> =
        weights.try_iter()?.map(|weight| number(&weight?, "agent_weights")).collect::<PyResult<_>>()?;
    if given.len() != agents || !given.iter().all(|w| w.is_finite() && *w > 0.0) {
        return Err(PyValueError::new_err(format!("{expected}, got {given:?}")));
    }
    let mean = given.iter().sum::<f64>() / agents as f64;
    Ok(given.iter().map(|w| w / mean).collect())
}

/// The parts of a variable of this length, in its order, by their names and shapes. Outputs are the first dimension, as in PyTorch.
fn tensor_parts(parts: Vec<(String, Vec<usize>)>, dim: usize) -> Vec<TensorPart> {
    let mut from = 0;
    let part = |(name, shape): (String, Vec<usize>)| {
        let numbers = shape.iter().product::<usize>().min(dim - from);
        let range = from..from + numbers;
        from = range.end;
        let matrix = (shape.len() > 1 && shape[0] > 0).then(|| [shape[0], numbers / shape[0]]);
        TensorPart { name, shape, range, matrix }
    };
    parts.into_iter().map(part).collect()
}

/// The name of a data type of NumPy or PyTorch.
fn dtype_name(dtype: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = match dtype.getattr_opt("__name__")? {
        Some(name) => name.extract::<String>()?,
        None => dtype.str()?.extract()?,
    };
    Ok(text.trim_start_matches("torch.").to_owned())
}

/// Whether a function has a parameter called `out`.
fn takes_out(grad: &Bound<'_, PyAny>) -> PyResult<bool> {
    let inspect = grad.py().import("inspect")?;
    match inspect.call_method1("signature", (grad,)) {
        Ok(signature) => signature.getattr("parameters")?.contains("out"),
        // Functions of compiled modules may have no signature.
        Err(_) => Ok(false),
    }
}

/// The metric of this name in records.
fn metric(name: &str) -> PyResult<Metric> {
    let named = |metric: &Metric| recorded_metrics::name(*metric, Models::Average) == name;
    Metric::ALL.into_iter().find(named).ok_or_else(|| {
        let names: Vec<&str> =
            Metric::ALL.into_iter().map(|m| recorded_metrics::name(m, Models::Average)).collect();
        PyValueError::new_err(format!("metrics: expected one of {}, got {name}", names.join(", ")))
    })
}

/// Objectives in Python as a problem of the library.
pub(crate) struct PyProblem {
    spec: Arc<Spec>,
    memory: Memory,
    raised: Raised,
}

impl PyProblem {
    pub(crate) fn new(spec: Arc<Spec>, memory: Memory, raised: Raised) -> Self {
        Self { spec, memory, raised }
    }

    /// Calls a function that returns a gradient, or writes it to `out`.
    fn call<'py, T: Real + Element>(
        &self,
        py: Python<'py>,
        function: &Py<PyAny>,
        arguments: impl FnOnce(Bound<'py, PyArray1<T>>) -> PyResult<Bound<'py, PyTuple>>,
        rows: (&[T], &mut [T]),
        call: &str,
    ) -> PyResult<()> {
        let (x, gradient) = rows;
        self.memory.read(py, x, |x| {
            let arguments = arguments(x.clone())?;
            if !self.spec.writes || call.starts_with("full_grad") {
                return copy_gradient(function.bind(py).call1(arguments)?, gradient, call);
            }
            self.memory.write(py, gradient, |out| {
                let named = pyo3::types::PyDict::new(py);
                named.set_item("out", out)?;
                let returned = function.bind(py).call(arguments, Some(&named))?;
                match returned.is_none() || returned.is(out) {
                    true => Ok(()),
                    false => Err(PyTypeError::new_err(format!(
                        "{call} with out: expected it to return None or out, got {}",
                        returned.get_type()
                    ))),
                }
            })
        })
    }
}

/// Copies a gradient that Python returned: an array or a list of any real numbers. An error names what is wrong with it.
fn copy_gradient<T: Real + Element>(
    returned: Bound<'_, PyAny>,
    gradient: &mut [T],
    call: &str,
) -> PyResult<()> {
    let n = gradient.len();
    let array = real_array::<T>(&returned, &[n], &format!("{call}: expected {n} numbers of shape ({n},)"))?;
    let array = array.cast::<PyArray1<T>>()?.try_readonly()?;
    match array.as_slice() {
        Ok(slice) => gradient.copy_from_slice(slice),
        Err(_) => gradient.iter_mut().zip(array.as_array()).for_each(|(to, from)| *to = *from),
    }
    Ok(())
}

/// An array or a list of real numbers in this precision, of this shape; `expected` begins the message if it is something else.
fn real_array<'py, T: Real + Element>(
    value: &Bound<'py, PyAny>,
    shape: &[usize],
    expected: &str,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(array) = value.cast::<PyUntypedArray>()
        && array.shape() == shape
        && array.dtype().is_equiv_to(&numpy::dtype::<T>(value.py()))
    {
        return Ok(value.clone());
    }
    let refuse = |got: String| PyTypeError::new_err(format!("{expected}, got {got}"));
    let kind = value.get_type().to_string();
    let converted = match value.py().import("numpy")?.call_method1("asarray", (value,)) {
        Ok(array) => array.cast_into::<PyUntypedArray>()?,
        Err(error) => return Err(refuse(format!("{kind} ({error})"))),
    };
    let is_real = b"fiu".contains(&converted.dtype().kind());
    if converted.shape() != shape || !is_real {
        let got = match value.is_instance_of::<PyUntypedArray>() || converted.ndim() > 0 {
            true => format!("shape {:?} and dtype {}", converted.shape(), converted.dtype()),
            false => kind,
        };
        return Err(refuse(got));
    }
    converted.call_method1("astype", (numpy::dtype::<T>(value.py()),))
}

/// A number that Python returned: of Python, NumPy or PyTorch.
pub(crate) fn number(value: &Bound<'_, PyAny>, call: &str) -> PyResult<f64> {
    if let Ok(number) = value.extract::<f64>() {
        return Ok(number);
    }
    let item = value.getattr_opt("item")?.map(|item| item.call0());
    let number = item.and_then(Result::ok).and_then(|item| item.extract::<f64>().ok());
    number.ok_or_else(|| PyTypeError::new_err(format!("{call}: expected a number, got {}", value.get_type())))
}

impl PyProblem {
    /// Multiplies a gradient by the agent's factor.
    fn weigh<T: Real>(&self, agent: usize, gradient: &mut [T]) {
        if let Some(factors) = &self.spec.factors {
            let factor = T::of(factors[agent]);
            gradient.iter_mut().for_each(|g| *g *= factor);
        }
    }

    /// The metrics that a function returned.
    fn metrics_from(&self, values: Bound<'_, PyAny>, call: &str) -> PyResult<Vec<f64>> {
        let values: Vec<f64> =
            values.try_iter()?.map(|value| number(&value?, call)).collect::<PyResult<_>>()?;
        let expected = self.spec.metrics.len() + self.spec.own_metrics.len();
        match values.len() == expected {
            true => Ok(values),
            false => Err(PyTypeError::new_err(format!(
                "{call}: expected {expected} numbers, one for each of metrics, got {}",
                values.len()
            ))),
        }
    }
}

impl<T: Real + Element> Problem<T> for PyProblem {
    fn agents(&self) -> usize {
        self.spec.agents
    }

    fn dim(&self) -> usize {
        self.spec.dim
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        self.raised.call(|py| {
            self.memory.read(py, x, |x| {
                let value = number(&self.spec.loss.bind(py).call1((agent, x))?, "loss(agent, x)")?;
                Ok(self.spec.factors.as_ref().map_or(value, |factors| value * factors[agent]))
            })
        })
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        let Some(full) = &self.spec.full_grad else {
            return self.sample_gradient(agent, x, Draw { seed: 0, step: 0 }, gradient);
        };
        let rows = (x, &mut *gradient);
        self.raised
            .call(|py| self.call(py, full, |x| (agent, x).into_pyobject(py), rows, "full_grad(agent, x)"))?;
        self.weigh(agent, gradient);
        Ok(())
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        let rows = (x, &mut *gradient);
        self.raised.call(|py| {
            let rng = Bound::new(py, Random::new(agent, draw))?;
            self.call(py, &self.spec.grad, |x| (agent, x, rng).into_pyobject(py), rows, "grad(agent, x, rng)")
        })?;
        self.weigh(agent, gradient);
        Ok(())
    }

    fn records_gradient_norm(&self) -> bool {
        self.spec.records_gradient_norm
    }

    fn held_out(&self) -> Option<&dyn HeldOut<T>> {
        let measures = !(self.spec.metrics.is_empty() && self.spec.own_metrics.is_empty());
        measures.then_some(self)
    }

    fn tensors(&self) -> Option<&dyn NamedTensors<T>> {
        (!self.spec.parts.is_empty()).then_some(self)
    }

    fn initial(&self, seed: u64) -> Result<Option<Vec<T>>, Failure> {
        let Some(initial) = &self.spec.initial else { return Ok(None) };
        self.raised.call(|py| {
            let initial = initial.bind(py);
            let point = if initial.is_callable() { initial.call1((seed,))? } else { initial.clone() };
            let (agents, dim) = (self.spec.agents, self.spec.dim);
            let is_one = point.getattr_opt("shape")?.is_none_or(|shape| shape.len().is_ok_and(|n| n < 2));
            let rows = if is_one { 1 } else { agents };
            let point = match is_one {
                true => point,
                false => {
                    let expected = format!("initial: expected shape ({dim},) or ({agents}, {dim})");
                    real_array::<T>(&point, &[agents, dim], &expected)?.call_method1("reshape", (-1,))?
                }
            };
            let mut x = vec![T::zero(); rows * dim];
            copy_gradient(point, &mut x, "initial")?;
            Ok(Some(x))
        })
    }
}

impl<T: Real + Element> HeldOut<T> for PyProblem {
    fn metrics(&self) -> &[Metric] {
        &self.spec.metrics
    }

    fn own_metrics(&self) -> &[String] {
        &self.spec.own_metrics
    }

    fn measure(&self, x: &[T]) -> Result<Vec<f64>, Failure> {
        let Some(measure) = &self.spec.measure else { return Ok(Vec::new()) };
        self.raised.call(|py| {
            self.memory.read(py, x, |x| self.metrics_from(measure.bind(py).call1((x,))?, "measure(x)"))
        })
    }

    fn measure_of(&self, agent: usize, x: &[T]) -> Result<Vec<f64>, Failure> {
        let Some(measure) = &self.spec.measure_of else { return self.measure(x) };
        self.raised.call(|py| {
            self.memory.read(py, x, |x| {
                self.metrics_from(measure.bind(py).call1((agent, x))?, "measure_of(agent, x)")
            })
        })
    }
}

impl<T: Real + Element> NamedTensors<T> for PyProblem {
    fn parts(&self) -> Vec<TensorPart> {
        self.spec.parts.clone()
    }

    fn export_model(&self, agent: Option<usize>, x: &[T]) -> Result<Vec<Tensor>, Failure> {
        let Some(export) = &self.spec.export else { return Ok(self.export(x)) };
        self.raised.call(|py| {
            self.memory.read(py, x, |x| {
                let named: BTreeMap<String, Bound<'_, PyArrayDyn<f32>>> =
                    export.bind(py).call1((agent, x))?.extract()?;
                let tensor = |(name, array): (String, Bound<'_, PyArrayDyn<f32>>)| -> PyResult<Tensor> {
                    let values = array.try_readonly()?.as_slice()?.to_vec();
                    Ok(Tensor { name, shape: array.shape().to_vec(), values })
                };
                named.into_iter().map(tensor).collect()
            })
        })
    }
}
