//! Python values as values of an experiment file.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::{Table, Value};

/// A dictionary as a section; entries that are `None` are left out.
pub(crate) fn table(dict: &Bound<'_, PyDict>, path: &str) -> PyResult<Table> {
    let mut table = Table::new();
    for (key, value) in dict {
        let key: String =
            key.extract().map_err(|_| PyTypeError::new_err(format!("{path}: expected strings as keys")))?;
        if value.is_none() {
            continue;
        }
        let place = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        table.insert(key, of(&value, &place)?);
    }
    Ok(table)
}

/// Any value that a file can hold: numbers, strings, paths, lists, dictionaries, and NumPy's numbers and arrays.
fn of(value: &Bound<'_, PyAny>, path: &str) -> PyResult<Value> {
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Value::Integer(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Value::String(value.extract()?));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(Value::Table(table(dict, path)?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let each = value.try_iter()?.enumerate();
        let list = each.map(|(k, item)| of(&item?, &format!("{path}[{k}]"))).collect::<PyResult<_>>()?;
        return Ok(Value::Array(list));
    }
    if value.hasattr("__fspath__")? {
        return Ok(Value::String(value.call_method0("__fspath__")?.extract()?));
    }
    if value.hasattr("tolist")? {
        return of(&value.call_method0("tolist")?, path);
    }
    let name = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{path}: expected a number, string, path, list or dictionary, got {name}"
    )))
}
