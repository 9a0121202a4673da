//! The agents' memory as NumPy arrays, without a copy.
//!
//! An array that is lent to Python points into an engine's memory. Python may keep it: in a list, or in the frames of a traceback. If it does,
//! the memory of that engine is never freed. Everything else that objectives are called with is copied.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use numpy::ndarray::{ArrayView1, ArrayViewMut1};
use numpy::{Element, PyArray1, PyArrayMethods};
use pyo3::prelude::*;

/// The memory of the engines of a run that arrays may point into.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    lent: Arc<RwLock<Vec<Lent>>>,
}

struct Lent {
    range: Range<usize>,
    kept: Arc<AtomicBool>,
}

impl Memory {
    /// Allows arrays to point into these blocks. The returned flag says whether Python has kept one of them; until it is
    /// read in [`release`](Self::release), the blocks must neither move nor be freed.
    pub(crate) fn lend<'b, T: 'b>(&self, blocks: impl Iterator<Item = &'b [T]>) -> Arc<AtomicBool> {
        let kept = Arc::new(AtomicBool::new(false));
        let mut lent = self.lent.write().unwrap_or_else(PoisonError::into_inner);
        for block in blocks {
            let range = block.as_ptr_range();
            lent.push(Lent { range: range.start as usize..range.end as usize, kept: kept.clone() });
        }
        kept
    }

    /// Ends the loan; true if Python has kept an array, so that the blocks must never be freed.
    pub(crate) fn release(&self, flag: &Arc<AtomicBool>) -> bool {
        self.lent
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|lent| !Arc::ptr_eq(&lent.kept, flag));
        flag.load(Ordering::Relaxed)
    }

    fn flag_of<T>(&self, row: &[T]) -> Option<Arc<AtomicBool>> {
        let at = row.as_ptr() as usize;
        let lent = self.lent.read().unwrap_or_else(PoisonError::into_inner);
        lent.iter().find(|lent| lent.range.contains(&at)).map(|lent| lent.kept.clone())
    }

    /// Calls Python with a row as a read-only array: a view if the memory is lent, otherwise a copy.
    pub(crate) fn read<'py, T: Element + Copy, R>(
        &self,
        py: Python<'py>,
        row: &[T],
        work: impl FnOnce(&Bound<'py, PyArray1<T>>) -> PyResult<R>,
    ) -> PyResult<R> {
        let kept = self.flag_of(row);
        let array = match kept {
            // SAFETY: the memory is lent: it outlives the array (`release`), and nobody writes to it during the call.
            Some(_) => unsafe {
                PyArray1::borrow_from_array(&ArrayView1::from(row), py.None().into_bound(py))
            },
            None => PyArray1::from_slice(py, row),
        };
        drop(array.try_readwrite()?.make_nonwriteable());
        let result = work(&array);
        note(&array, kept);
        result
    }

    /// Calls Python with a row as a writable array.
    pub(crate) fn write<'py, T: Element + Copy, R>(
        &self,
        py: Python<'py>,
        row: &mut [T],
        work: impl FnOnce(&Bound<'py, PyArray1<T>>) -> PyResult<R>,
    ) -> PyResult<R> {
        let kept = self.flag_of(row);
        if kept.is_none() {
            let array = PyArray1::from_slice(py, row);
            let result = work(&array)?;
            // SAFETY: `work` is over, and no other thread runs Python while this one does.
            row.copy_from_slice(unsafe { array.as_slice()? });
            return Ok(result);
        }
        // SAFETY: the memory is lent: it outlives the array (`release`), and it is this caller's to write during the call.
        let array =
            unsafe { PyArray1::borrow_from_array(&ArrayViewMut1::from(row), py.None().into_bound(py)) };
        let result = work(&array);
        note(&array, kept);
        result
    }
}

/// Notes whether anything else refers to the array, such as an array that points into it.
fn note<T>(array: &Bound<'_, PyArray1<T>>, kept: Option<Arc<AtomicBool>>) {
    let Some(kept) = kept else { return };
    // SAFETY: the array is alive and this thread holds the interpreter.
    if unsafe { pyo3::ffi::Py_REFCNT(array.as_ptr()) } > 1 {
        kept.store(true, Ordering::Relaxed);
    }
}
