//! Functions in Python that a method applies to whole vectors.

use mile::agents::{BlockFunction, BlocksMut, Failure};
use numpy::{Element, PyArray1, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::failure::Raised;

/// A function of vectors: it changes them in place, or returns new values of the first ones.
pub(crate) struct PyFunction {
    function: Py<PyAny>,
    raised: Raised,
}

impl PyFunction {
    pub(crate) fn new(function: &Bound<'_, PyAny>, raised: Raised) -> PyResult<Self> {
        match function.is_callable() {
            true => Ok(Self { function: function.clone().unbind(), raised }),
            false => Err(PyTypeError::new_err(format!(
                "apply: expected a function and the names of vectors, got {}",
                function.get_type()
            ))),
        }
    }

    fn call<T: Element + Copy>(&self, rows: usize, mut vectors: Vec<&mut [T]>) -> Result<(), Failure> {
        self.raised.call(|py| {
            let shape = |vector: &[T]| [rows, vector.len() / rows.max(1)];
            let arrays = vectors
                .iter()
                .map(|vector| Ok(PyArray1::from_slice(py, vector).reshape(shape(vector))?.into_any()))
                .collect::<PyResult<Vec<_>>>()?;
            let returned = self.function.bind(py).call1(PyTuple::new(py, &arrays)?)?;
            let results: Vec<Bound<'_, PyAny>> = match returned.cast::<PyTuple>() {
                _ if returned.is_none() => Vec::new(),
                Ok(several) => several.iter().collect(),
                Err(_) => vec![returned],
            };
            if results.len() > arrays.len() {
                return Err(PyValueError::new_err(format!(
                    "apply: expected at most {} arrays, one for each vector, got {}",
                    arrays.len(),
                    results.len()
                )));
            }
            for (k, (vector, array)) in vectors.iter_mut().zip(&arrays).enumerate() {
                let expected = shape(vector);
                copy_block(results.get(k).unwrap_or(array), vector, expected)?;
            }
            Ok(())
        })
    }
}

/// Copies an array of this shape, of any type of numbers.
fn copy_block<T: Element + Copy>(value: &Bound<'_, PyAny>, to: &mut [T], shape: [usize; 2]) -> PyResult<()> {
    let py = value.py();
    let array = py.import("numpy")?.call_method1("asarray", (value, numpy::dtype::<T>(py)))?;
    let array = array.cast::<PyUntypedArray>()?;
    if array.shape() != shape {
        return Err(PyValueError::new_err(format!(
            "apply: expected an array of shape {shape:?}, got shape {:?}",
            array.shape()
        )));
    }
    let array = array.cast::<numpy::PyArray2<T>>()?.try_readonly()?;
    to.iter_mut().zip(array.as_array()).for_each(|(to, from)| *to = *from);
    Ok(())
}

impl BlockFunction for PyFunction {
    fn apply(&self, rows: usize, vectors: BlocksMut<'_>) -> Result<(), Failure> {
        match vectors {
            BlocksMut::F32(vectors) => self.call(rows, vectors),
            BlocksMut::F64(vectors) => self.call(rows, vectors),
        }
    }

    /// To a host whose vectors are in Python.
    fn hand_over(&self) -> bool {
        self.raised.hand_over(&self.function);
        true
    }
}
