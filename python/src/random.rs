//! The random numbers of a stochastic gradient: a function of the seed of the run, the agent and the step.

use std::sync::OnceLock;

use mile::problems::Draw;
use mile::random::{Purpose, stream};
use pyo3::prelude::*;
use rand::RngExt;

/// The random numbers of one gradient, with the methods of a `numpy.random.Generator`, which is created when one of them is first used;
/// they are the same for the same seed, agent and step.
#[pyclass(frozen, module = "mile")]
pub(crate) struct Random {
    agent: usize,
    draw: Draw,
    generator: OnceLock<Py<PyAny>>,
}

impl Random {
    pub(crate) fn new(agent: usize, draw: Draw) -> Self {
        Self { agent, draw, generator: OnceLock::new() }
    }
}

#[pymethods]
impl Random {
    /// The agent whose gradient it is.
    #[getter]
    fn agent(&self) -> usize {
        self.agent
    }

    /// The seed of the run.
    #[getter]
    fn seed(&self) -> u64 {
        self.draw.seed
    }

    /// The number of the draw: 0 during the start-up of a method, t + 1 in its step t.
    #[getter]
    fn draw(&self) -> u64 {
        self.draw.step
    }

    /// The `numpy.random.Generator` itself.
    #[getter]
    fn generator(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(made) = self.generator.get() {
            return Ok(made.clone_ref(py));
        }
        let seed: u64 = stream(self.draw.seed, Purpose::Batch, self.agent as u64, self.draw.step).random();
        let made = py.import("numpy.random")?.call_method1("default_rng", (seed,))?.unbind();
        Ok(self.generator.get_or_init(|| made).clone_ref(py))
    }

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        self.generator(py)?.getattr(py, name)
    }
}
