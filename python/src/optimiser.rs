//! Steps of local optimisers on arrays that Python lends: tensors in this process's memory.

use mile::optimiser::{self, Adam, AdamRows, MatrixPart, OptimiserRule, Stepping};
use mile::real::Real;
use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The numbers of a step, as Python passes them on: (step size, number of the step, factors of what is added before and after), (betas, eps, decay, whether it is
/// AMSGrad), and (momentum, whether it is Nesterov's) of Muon.
pub(crate) type Numbers = ((f64, u64, f64, f64), ([f64; 2], f64, f64, bool), Option<(f64, bool)>);

/// A step in numbers.
pub(crate) fn numbers_of(by: &Stepping) -> Numbers {
    let Adam { betas, eps, decay, amsgrad } = by.rule.elements();
    let muon = match by.rule {
        OptimiserRule::Muon { momentum, nesterov, .. } => Some((momentum, nesterov)),
        _ => None,
    };
    ((by.step_size, by.number, by.inner, by.shift), (betas, eps, decay, amsgrad), muon)
}

fn stepping(((step_size, number, inner, shift), (betas, eps, decay, amsgrad), muon): Numbers) -> Stepping {
    let rest = Adam { betas, eps, decay, amsgrad };
    let rule = match muon {
        Some((momentum, nesterov)) => OptimiserRule::Muon { momentum, nesterov, rest },
        None => OptimiserRule::Adam(rest),
    };
    Stepping { rule, step_size, number, inner, shift }
}

/// A step of an optimiser on rows of `dim` numbers, with the bits of every engine in Rust. `written` are the models and the optimiser's state, `read` the
/// gradients, what is added to them and what is added to models.
#[pyfunction]
pub(crate) fn take_steps(
    py: Python<'_>,
    written: Vec<Bound<'_, PyAny>>,
    read: Vec<Option<Bound<'_, PyAny>>>,
    dim: usize,
    by: Numbers,
    matrices: Vec<[usize; 3]>,
) -> PyResult<()> {
    let part = |[start, rows, columns]: [usize; 3]| MatrixPart {
        range: start..start + rows * columns,
        shape: [rows, columns],
    };
    let matrices: Vec<MatrixPart> = matrices.into_iter().map(part).collect();
    let by = stepping(by);
    match written.first() {
        Some(x) if x.is_instance_of::<PyArray1<f32>>() => {
            steps::<f32>(py, &written, &read, dim, &by, &matrices)
        }
        _ => steps::<f64>(py, &written, &read, dim, &by, &matrices),
    }
}

fn steps<T: Real + Element>(
    py: Python<'_>,
    written: &[Bound<'_, PyAny>],
    read: &[Option<Bound<'_, PyAny>>],
    dim: usize,
    by: &Stepping,
    matrices: &[MatrixPart],
) -> PyResult<()> {
    let mut written: Vec<PyReadwriteArray1<'_, T>> =
        written.iter().map(|one| Ok(one.cast::<PyArray1<T>>()?.try_readwrite()?)).collect::<PyResult<_>>()?;
    let read: Vec<Option<PyReadonlyArray1<'_, T>>> = read
        .iter()
        .map(|one| one.as_ref().map(|one| Ok(one.cast::<PyArray1<T>>()?.try_readonly()?)).transpose())
        .collect::<PyResult<_>>()?;
    let [Some(g), inner, shift] = &read[..] else {
        return Err(PyTypeError::new_err(
            "expected gradients, what is added to them, and what is added to models",
        ));
    };
    let (g, inner, shift) = (
        g.as_slice()?,
        inner.as_ref().map(|row| row.as_slice()).transpose()?,
        shift.as_ref().map(|row| row.as_slice()).transpose()?,
    );
    let [x, m, v, rest @ ..] = &mut written[..] else {
        return Err(PyTypeError::new_err("expected models and the state of the optimiser"));
    };
    let largest = rest.first_mut().map(|row| row.as_slice_mut()).transpose()?;
    let rows = AdamRows {
        x: x.as_slice_mut()?,
        m: m.as_slice_mut()?,
        v: v.as_slice_mut()?,
        largest,
        g,
        inner,
        shift,
    };
    let n = rows.x.len();
    let lengths = [rows.m.len(), rows.v.len(), rows.g.len()];
    if lengths.iter().any(|length| *length != n) || matrices.last().is_some_and(|part| part.range.end > dim) {
        return Err(PyValueError::new_err("expected vectors of one length, and matrices within them"));
    }
    py.detach(|| optimiser::take_steps(rows, dim, by, matrices));
    Ok(())
}

/// Shortens each row of `dim` numbers to the norm `most`.
#[pyfunction]
pub(crate) fn clip_rows(g: &Bound<'_, PyAny>, dim: usize, most: f64) -> PyResult<()> {
    if let Ok(g) = g.cast::<PyArray1<f32>>() {
        g.try_readwrite()?
            .as_slice_mut()?
            .chunks_exact_mut(dim.max(1))
            .for_each(|row| optimiser::clip(row, most));
        return Ok(());
    }
    let g = g.cast::<PyArray1<f64>>()?;
    g.try_readwrite()?
        .as_slice_mut()?
        .chunks_exact_mut(dim.max(1))
        .for_each(|row| optimiser::clip(row, most));
    Ok(())
}
