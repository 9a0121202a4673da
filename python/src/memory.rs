//! The agents' memory as NumPy arrays, without a copy.
//!
//! An array that is lent to Python points into an engine's memory. Python may keep it: in a list, or in the frames of a traceback. So every such
//! array refers to a Python object, the owner; if arrays are left when the engine ends, it gives its memory to the owner, and the memory
//! is freed with the last of them. Everything else that objectives are called with is copied.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mile::real::Real;
use numpy::ndarray::{ArrayView1, ArrayViewMut1};
use numpy::{Element, PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The memory of the engines of a run that arrays may point into.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    lent: Arc<RwLock<Vec<Lent>>>,
}

struct Lent {
    range: Range<usize>,
    owner: Arc<Py<Owner>>,
}

/// What arrays that point into an engine's memory keep alive. After the engine has ended it holds the memory itself.
#[pyclass(frozen)]
pub(crate) struct Owner {
    memory: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Memory {
    /// Allows arrays to point into these blocks, which must neither move nor be freed until they are [released](Self::release).
    pub(crate) fn lend<'b, T: 'b>(
        &self,
        blocks: impl Iterator<Item = &'b [T]>,
    ) -> Result<Arc<Py<Owner>>, PyErr> {
        let owner = Arc::new(Python::attach(|py| Py::new(py, Owner { memory: Mutex::new(None) }))?);
        let mut lent = self.lent.write().unwrap_or_else(PoisonError::into_inner);
        for block in blocks {
            let range = block.as_ptr_range();
            lent.push(Lent { range: range.start as usize..range.end as usize, owner: owner.clone() });
        }
        Ok(owner)
    }

    /// Ends the loan of these blocks. If arrays still point into them, they are freed with the last such array, otherwise now.
    pub(crate) fn release<T: Real>(&self, owner: &Arc<Py<Owner>>, blocks: Vec<Vec<T>>) {
        let is_other = |lent: &Lent| !Arc::ptr_eq(&lent.owner, owner);
        self.lent.write().unwrap_or_else(PoisonError::into_inner).retain(is_other);
        Python::attach(|py| {
            let owner = owner.bind(py);
            // SAFETY: the object is alive and this thread holds the interpreter. One reference is that of `owner`.
            if unsafe { pyo3::ffi::Py_REFCNT(owner.as_ptr()) } > 1 {
                let mut memory = owner.get().memory.lock().unwrap_or_else(PoisonError::into_inner);
                *memory = Some(Box::new(blocks));
            }
        });
    }

    fn owner_of<T>(&self, row: &[T]) -> Option<Arc<Py<Owner>>> {
        let at = row.as_ptr() as usize;
        let lent = self.lent.read().unwrap_or_else(PoisonError::into_inner);
        lent.iter().find(|lent| lent.range.contains(&at)).map(|lent| lent.owner.clone())
    }

    /// Calls Python with a row as a read-only array: a view if the memory is lent, otherwise a copy.
    pub(crate) fn read<'py, T: Element + Copy, R>(
        &self,
        py: Python<'py>,
        row: &[T],
        work: impl FnOnce(&Bound<'py, PyArray1<T>>) -> PyResult<R>,
    ) -> PyResult<R> {
        let array = match self.owner_of(row) {
            // SAFETY: the memory is lent: the array refers to its owner, so it outlives the array (`release`), and nobody writes to it
            // during the call.
            Some(owner) => unsafe {
                PyArray1::borrow_from_array(&ArrayView1::from(row), owner.bind(py).clone().into_any())
            },
            None => PyArray1::from_slice(py, row),
        };
        drop(array.try_readwrite()?.make_nonwriteable());
        work(&array)
    }

    /// Calls Python with a row as a writable array.
    pub(crate) fn write<'py, T: Element + Copy, R>(
        &self,
        py: Python<'py>,
        row: &mut [T],
        work: impl FnOnce(&Bound<'py, PyArray1<T>>) -> PyResult<R>,
    ) -> PyResult<R> {
        let Some(owner) = self.owner_of(row) else {
            let array = PyArray1::from_slice(py, row);
            let result = work(&array)?;
            if array.len() != row.len() {
                let (expected, got) = (row.len(), array.len());
                return Err(PyValueError::new_err(format!(
                    "out: expected its shape to stay ({expected},), got ({got},)"
                )));
            }
            // SAFETY: `work` is over, and no other thread runs Python while this one does.
            row.copy_from_slice(unsafe { array.as_slice()? });
            return Ok(result);
        };
        // SAFETY: the memory is lent: the array refers to its owner, so it outlives the array (`release`), and it is this caller's to write
        // during the call.
        let array = unsafe {
            PyArray1::borrow_from_array(&ArrayViewMut1::from(row), owner.bind(py).clone().into_any())
        };
        work(&array)
    }
}
