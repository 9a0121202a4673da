//! Runs experiments, sweeps and the paper's results for Python.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use mile::methods::catalogue::{Catalogue, Entry};
use mile_lab::engines::{Engines, InProcess};
use mile_lab::objectives::{Kinds, Objectives, Setting};
use mile_lab::section::Section;
use mile_lab::spec::Spec;
use mile_lab::sweep::ObserverFactory;
use mile_lab::tensorboard::EventFiles;
use mile_lab::{Lab, LabError, session};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use toml::Table;

use crate::device;
use crate::engines::PyEngines;
use crate::failure::{Raised, RunError, exception, in_python};
use crate::kind;
use crate::memory::Memory;
use crate::method::{self, PyMethod};
use crate::objectives::PyObjectives;
use crate::problem::attribute;
use crate::progress::{Event, Recording, Teller, Work};
use crate::ranks::PyRanks;
use crate::table::TableData;
use crate::values;
use crate::waiting::{Worker, long};

/// The kind of problem in experiments whose objectives are given as Python values.
const GIVEN: &str = "given";

/// The kind of those that a function in a file makes.
const PYTHON: &str = "python";

/// The kind of problem in an experiment.
fn kind_of(experiment: &Table) -> Option<&str> {
    experiment.get("problem")?.get("kind")?.as_str()
}

/// An experiment as Python gives it, with the lab that runs it.
struct Given {
    table: Table,
    base: PathBuf,
    lab: Lab,
    raised: Raised,
    worker: Worker,
}

impl Given {
    fn read(
        experiment: &Bound<'_, PyDict>,
        base: PathBuf,
        problem: Option<&Bound<'_, PyAny>>,
        methods: Vec<OwnMethod<'_>>,
        ranks: Option<&Bound<'_, PyAny>>,
        device: Option<&str>,
    ) -> PyResult<Self> {
        let table = values::table(experiment, "")?;
        let raised = Raised::default();
        let known = Catalogue::default().loading(method::loader(raised.clone()));
        let catalogue = methods.into_iter().try_fold(known, |known, method| method.add_to(known, &raised))?;
        let memory = Memory::default();
        let kinds = Kinds::default().with(PYTHON, kind::python(memory.clone(), raised.clone()));
        let is_made_by_a_function = problem.is_none() && kind_of(&table) == Some(PYTHON);
        let is_in_python =
            is_made_by_a_function || problem.is_some_and(|problem| !problem.is_instance_of::<TableData>());
        if is_in_python && device.is_some() {
            let problem =
                "expected none for objectives in Python, which choose their own device; leave it out";
            return Err(exception(&LabError::config("device", problem)));
        }
        let worker = if is_in_python { Worker::Caller } else { Worker::Threads };
        let lab = match problem {
            None if is_made_by_a_function => {
                let raised = raised.clone();
                let engines = PyEngines { host: None, batch_losses: None, memory, raised, ranks: None };
                Lab::new(kinds, catalogue, Arc::new(engines))
            }
            None => Lab::new(kinds, catalogue, device::engines(device)?),
            Some(problem) if let Ok(data) = problem.cast::<TableData>() => {
                let data = data.clone().unbind();
                let read =
                    move |section: &Section, setting: Setting| data.get().objectives(section, setting.agents);
                Lab::new(kinds.with(GIVEN, read), catalogue, device::engines(device)?)
            }
            Some(problem) => {
                let ranks =
                    ranks.map(|ranks| PyRanks::read(ranks, raised.clone()).map(Arc::new)).transpose()?;
                let host = attribute(problem, "host")?.map(|_| problem.clone().unbind());
                let batch_losses =
                    attribute(problem, "batch_losses")?.map(|losses| Arc::new(losses.unbind()));
                let (object, lent, kept) = (problem.clone().unbind(), memory.clone(), raised.clone());
                let read = move |_: &Section, setting: Setting| {
                    let objectives = kept.call(|py| {
                        PyObjectives::read(object.bind(py), setting.agents, lent.clone(), kept.clone())
                    });
                    match objectives {
                        Ok(objectives) => Ok(Arc::new(objectives) as Arc<dyn Objectives>),
                        Err(error) => Err(LabError::config("problem", error)),
                    }
                };
                let engines = PyEngines { host, batch_losses, memory, raised: raised.clone(), ranks };
                Lab::new(kinds.with(GIVEN, read), catalogue, Arc::new(engines))
            }
        };
        Ok(Self { table, base, lab, raised, worker })
    }

    /// Runs the experiment or sweep; returns whether it is complete.
    fn run(&self, folder: &Path, wishes: Wishes, work: &Work) -> Result<bool, LabError> {
        let Wishes { resume, draw, tensorboard } = wishes;
        let session = self.lab.session(&self.table, &self.base, folder, resume)?;
        let points = match session.work() {
            session::Work::Run(_) => 1,
            session::Work::Sweep(sweep) => sweep.points.len(),
        };
        let written = Mutex::new(Vec::new());
        let observers: &ObserverFactory = &|point, plan| {
            let mut at = folder.to_owned();
            if let Some((k, point)) = point {
                let (name, round, value) = (point.name.clone(), k as u64 + 1, points as f64);
                at = folder.join("points").join(&name);
                work.tell(Event { kind: "point", name, round, value, text: String::new() });
            }
            let events = tensorboard.then(|| Arc::new(EventFiles::new(&at)));
            written.lock().unwrap_or_else(PoisonError::into_inner).extend(events.clone());
            Box::new(Recording::new(Teller::new(plan, work), events))
        };
        let executed = session.execute(observers, &work.stop)?;
        let written = written.into_inner().unwrap_or_else(PoisonError::into_inner);
        written.into_iter().filter_map(Arc::into_inner).try_for_each(EventFiles::finish)?;
        let results = executed.report(draw)?;
        Ok(results.check()?.is_complete)
    }
}

/// What is wanted of a run besides its results.
#[derive(Clone, Copy)]
struct Wishes {
    resume: bool,
    /// Whether figures and the report are made at the end.
    draw: bool,
    /// Whether records are also written as event files of TensorBoard.
    tensorboard: bool,
}

/// A custom method: the object, its name in the experiment, its title, and the facts that identify it.
#[derive(FromPyObject)]
pub(crate) struct OwnMethod<'py>(Bound<'py, PyAny>, String, String, Vec<(String, String)>);

impl OwnMethod<'_> {
    fn add_to(self, catalogue: Catalogue, raised: &Raised) -> PyResult<Catalogue> {
        let Self(object, name, title, facts) = self;
        let method = PyMethod::read(&object, raised.clone())?;
        let entry = Entry::own(name, move |_, _, _| Ok(Box::new(method.again())));
        catalogue
            .with(entry.with_title(title).with_facts(facts))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// The exception of a run that ended with an error: that of Python if there was one, with a note about what is kept.
fn raise(py: Python<'_>, error: LabError, raised: &Raised, folder: &Path) -> PyErr {
    let note = match &error {
        LabError::Failed(failed) => {
            let jobs: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
            format!(
                "in {}; records and checkpoints are kept in {}; run again with resume=True to continue",
                jobs.join(", "),
                folder.display()
            )
        }
        other => format!("mile: {}", in_python(&other.to_string())),
    };
    let Some(exception_of_python) = raised.take() else {
        return match &error {
            LabError::Failed(_) => RunError::new_err(in_python(&error.to_string())),
            _ => exception(&error),
        };
    };
    let value = exception_of_python.value(py);
    // Since Python 3.11; before that, the exception has no note.
    let _ = value.call_method1("add_note", (note,));
    exception_of_python
}

/// Runs an experiment in a folder. Returns whether it is complete and whether it was interrupted.
#[pyfunction]
#[pyo3(signature = (experiment, base, out, resume, draw, tensorboard, problem, methods, ranks, device, callback))]
#[expect(clippy::too_many_arguments, reason = "called by one function of the package, which names them")]
pub(crate) fn run(
    py: Python<'_>,
    experiment: &Bound<'_, PyDict>,
    base: PathBuf,
    out: PathBuf,
    resume: bool,
    draw: bool,
    tensorboard: bool,
    problem: Option<&Bound<'_, PyAny>>,
    methods: Vec<OwnMethod<'_>>,
    ranks: Option<&Bound<'_, PyAny>>,
    device: Option<&str>,
    callback: &Bound<'_, PyAny>,
) -> PyResult<(bool, bool)> {
    let session = Given::read(experiment, base, problem, methods, ranks, device)?;
    let wishes = Wishes { resume, draw, tensorboard };
    let work = |work: Work| session.run(&out, wishes, &work);
    let (result, stopped) = long(py, session.worker, callback, &session.raised, work)?;
    let complete = result.map_err(|error| raise(py, error, &session.raised, &out))?;
    Ok((complete, stopped))
}

/// Checks an experiment without running it; returns the resolved file.
#[pyfunction]
#[pyo3(signature = (experiment, base, problem, methods, callback))]
pub(crate) fn check(
    py: Python<'_>,
    experiment: &Bound<'_, PyDict>,
    base: PathBuf,
    problem: Option<&Bound<'_, PyAny>>,
    methods: Vec<OwnMethod<'_>>,
    callback: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let session = Given::read(experiment, base, problem, methods, None, None)?;
    let work = |_| Ok(session.lab.plan(&session.table, &session.base, None)?.spec.to_table().to_string());
    let (result, _) = long(py, session.worker, callback, &session.raised, work)?;
    result.map_err(|error| raise(py, error, &session.raised, Path::new("")))
}

/// An experiment as a file for other processes: with its defaults, except for that of the precision, and absolute paths, and with more
/// sections.
#[pyfunction]
pub(crate) fn resolve(
    experiment: &Bound<'_, PyDict>,
    base: PathBuf,
    more: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let raised = Raised::default();
    let kinds = Kinds::default().with(PYTHON, kind::python(Memory::default(), raised));
    let table = values::table(experiment, "")?;
    let spec = Spec::read_with(&table, &base, &kinds, &Catalogue::default());
    let mut resolved = spec.map_err(|error| exception(&error))?.to_table();
    if !table.contains_key("precision") {
        // A function may know it only where the data are.
        resolved.remove("precision");
    }
    resolved.extend(values::table(more, "")?);
    Ok(resolved.to_string())
}

/// Reproduces an item of the paper in a folder. Returns what was found and whether it was interrupted.
#[pyfunction]
pub(crate) fn reproduce(
    py: Python<'_>,
    item: &str,
    paper: bool,
    dataset: Option<String>,
    out: PathBuf,
    set: Vec<String>,
    callback: &Bound<'_, PyAny>,
) -> PyResult<(String, bool)> {
    let reproduce: fn(&mile_reproduce::Request) -> Result<mile_reproduce::Finding, LabError> = match item {
        "table1" => mile_reproduce::table1,
        "theorems" => mile_reproduce::theorems,
        "fig1" => mile_reproduce::fig1,
        "fig2" => mile_reproduce::fig2,
        "when" => mile_reproduce::when,
        other => {
            let takes = "table1, fig1, fig2, theorems or when";
            return Err(PyValueError::new_err(format!("item: expected {takes}, got {other}")));
        }
    };
    let engines: Arc<dyn Engines> = Arc::new(InProcess);
    let work = |work: Work| {
        let stop: &AtomicBool = &work.stop;
        reproduce(&mile_reproduce::Request {
            scale: if paper { mile_reproduce::Scale::Paper } else { mile_reproduce::Scale::Quick },
            dataset: dataset.as_deref(),
            out: &out,
            set: &set,
            engines: &engines,
            observers: &|_, plan| Box::new(Teller::new(plan, &work)),
            say: &|text| eprintln!("{text}"),
            stop,
        })
    };
    let raised = Raised::default();
    let (finding, _) = long(py, Worker::Threads, callback, &raised, work)?;
    let finding = finding.map_err(|error| raised.take().unwrap_or_else(|| exception(&error)))?;
    Ok((finding.text, finding.stopped))
}
