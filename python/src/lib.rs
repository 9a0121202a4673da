//! mile for Python: the extension module under the package `mile`.
//!
//! Experiments run without the interpreter, on the calling thread or on their own threads ([`session`], [`waiting`], [`interrupt`]).
//! Objectives in Python are problems of the library ([`problem`]), whose arrays point into the agents' memory ([`memory`]);
//! methods in Python are methods of the library ([`method`]), which are lent one step at a time ([`loan`]) and may apply their own
//! functions to vectors ([`apply`]); PyTorch tensors are the
//! vectors of an engine ([`host`]). The command `mile` of the package is here too ([`command`]), with objectives that a function in a file
//! makes ([`kind`]).

mod apply;
mod command;
mod device;
mod engines;
mod failure;
mod host;
mod inquire;
mod interrupt;
mod kind;
mod loan;
mod memory;
mod method;
mod objectives;
mod optimiser;
mod problem;
mod progress;
mod random;
mod ranks;
mod session;
mod table;
mod values;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
fn _mile(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("ExperimentError", py.get_type::<failure::ExperimentError>())?;
    module.add("RunError", py.get_type::<failure::RunError>())?;
    module.add("RUN_CONTENTS", mile_lab::store::CONTENTS)?;
    module.add_class::<method::StepVerbs>()?;
    module.add_class::<random::Random>()?;
    module.add_class::<table::TableData>()?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(session::run, module)?)?;
    module.add_function(wrap_pyfunction!(session::check, module)?)?;
    module.add_function(wrap_pyfunction!(session::resolve, module)?)?;
    module.add_function(wrap_pyfunction!(session::reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::methods, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::method_names, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::graph, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::theory, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::keys_reference, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::read_experiment, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::replace, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::write_page, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::pictures, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::sweep_summary, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::predict, module)?)?;
    module.add_function(wrap_pyfunction!(inquire::samples, module)?)?;
    module.add_function(wrap_pyfunction!(optimiser::take_steps, module)?)?;
    module.add_function(wrap_pyfunction!(optimiser::clip_rows, module)?)?;
    Ok(())
}
