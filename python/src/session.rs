//! Runs experiments, sweeps and the paper's results for Python.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mile::methods::catalogue::{Catalogue, Entry};
use mile_lab::engines::{Engines, InProcess};
use mile_lab::execute::execute;
use mile_lab::objectives::Kinds;
use mile_lab::plan::Plan;
use mile_lab::ranks::from_first;
use mile_lab::report::{write_run_outputs, write_sweep_outputs};
use mile_lab::store::{Outcome, read_outcomes, write_file};
use mile_lab::sweep::SweepPlan;
use mile_lab::table::outcomes_table;
use mile_lab::{Lab, LabError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use toml::Table;

use crate::device;
use crate::engines::PyEngines;
use crate::failure::{Raised, RunError, exception, in_python};
use crate::memory::Memory;
use crate::method::PyMethod;
use crate::objectives::PyObjectives;
use crate::problem::attribute;
use crate::progress::{Event, Teller, Work};
use crate::ranks::PyRanks;
use crate::table::TableData;
use crate::values;
use crate::waiting::{Worker, long};

/// The kind of problem in experiments whose objectives are given as Python values.
const GIVEN: &str = "given";

/// An experiment with what it is made of.
struct Session {
    table: Table,
    base: PathBuf,
    kinds: Kinds,
    catalogue: Catalogue,
    engines: Arc<dyn Engines>,
    raised: Raised,
    worker: Worker,
}

impl Session {
    fn read(
        experiment: &Bound<'_, PyDict>,
        base: PathBuf,
        problem: Option<&Bound<'_, PyAny>>,
        methods: Vec<OwnMethod<'_>>,
        ranks: Option<&Bound<'_, PyAny>>,
        device: Option<&str>,
    ) -> PyResult<Self> {
        let table = values::table(experiment, "")?;
        let (raised, memory) = (Raised::default(), Memory::default());
        let catalogue = methods
            .into_iter()
            .try_fold(Catalogue::default(), |known, method| method.add_to(known, &raised))?;
        let ranks = ranks.map(|ranks| PyRanks::read(ranks, raised.clone()).map(Arc::new)).transpose()?;
        let mut session = Self {
            table,
            base,
            kinds: Kinds::default(),
            catalogue,
            engines: Arc::new(InProcess),
            raised: raised.clone(),
            worker: Worker::Threads,
        };
        let Some(problem) = problem else {
            session.engines = device::engines(device)?;
            return Ok(session);
        };
        if let Ok(data) = problem.cast::<TableData>() {
            let data = data.clone().unbind();
            session.kinds = session
                .kinds
                .with(GIVEN, move |section, setting| data.get().objectives(section, setting.agents));
            session.engines = device::engines(device)?;
            return Ok(session);
        }
        if device.is_some() {
            let problem = "objectives in Python compute where they compute: leave it out (a mile.torch.Problem has its own device)";
            return Err(exception(&LabError::config("device", problem)));
        }
        let network = session.table.get("network").and_then(|network| network.get("agents"));
        let agents = network.and_then(toml::Value::as_integer).unwrap_or(10);
        let agents = usize::try_from(agents)
            .map_err(|_| PyValueError::new_err("network.agents: takes a whole number"))?;
        let objectives = Arc::new(PyObjectives::read(problem, agents, memory.clone(), raised.clone())?);
        session.kinds = session.kinds.with(GIVEN, move |_, _| Ok(objectives.clone()));
        let host = attribute(problem, "host")?.map(|_| problem.clone().unbind());
        session.worker = Worker::Caller;
        session.engines = Arc::new(PyEngines { host, memory, raised, ranks });
        Ok(session)
    }

    fn plan(&self, folder: &Path) -> Result<Plan, LabError> {
        let resumed = folder.join("config.toml").exists().then_some(folder);
        let lab = Lab::new(self.kinds.clone(), self.catalogue.clone(), self.engines.clone());
        lab.plan(&self.table, &self.base, resumed)
    }

    /// Runs the experiment; returns whether it is complete.
    fn run(&self, folder: &Path, resume: bool, draw: bool, work: &Work) -> Result<bool, LabError> {
        let plan = self.plan(folder)?;
        let teller = Teller::new(&plan, work);
        let executed = execute(&plan, folder, resume, &teller, &work.stop);
        let ranks = self.engines.ranks();
        let (outcomes, mut failed) = match executed {
            Ok(outcomes) => (outcomes, Vec::new()),
            Err(LabError::Failed(failed)) => (read_outcomes(folder)?, failed),
            Err(error) => return Err(error),
        };
        // The other ranks wait until the folder is complete.
        from_first(ranks, || {
            let seeds = plan.spec.seeds.len();
            match (outcomes.is_empty(), draw) {
                (true, _) => Ok(()),
                (false, true) => write_run_outputs(folder, &outcomes, seeds).map(drop),
                // Drawing takes longer than a short run.
                (false, false) => {
                    let table = outcomes_table(&outcomes, seeds);
                    write_file(&folder.join("table.txt"), table.to_string().as_bytes())?;
                    write_file(&folder.join("table.tex"), table.to_latex().as_bytes())
                }
            }
        })?;
        failed.extend(outcomes.iter().filter_map(Outcome::failure));
        if !failed.is_empty() {
            return Err(LabError::Failed(failed));
        }
        Ok(plan.is_complete(&outcomes))
    }

    fn sweep(&self, folder: &Path, resume: bool, draw: bool, work: &Work) -> Result<bool, LabError> {
        let (kinds, catalogue) = (&self.kinds, &self.catalogue);
        let sweep = SweepPlan::read_with(&self.table, &self.base, kinds, catalogue, self.engines.clone())?;
        let sweep =
            sweep.ok_or_else(|| LabError::config("sweep", "is missing, takes lists of values by key"))?;
        let points = sweep.points.len();
        let tell = |k: usize, name: &str| {
            let (name, round, value) = (name.to_owned(), k as u64 + 1, points as f64);
            work.tell(Event { kind: "point", name, round, value, text: String::new() });
        };
        let found = sweep.execute(
            folder,
            resume,
            &|k, point, plan| {
                tell(k, &point.name);
                boxed(plan, work)
            },
            &work.stop,
        )?;
        if draw {
            from_first(self.engines.ranks(), || write_sweep_outputs(&found))?;
        }
        if !found.failed.is_empty() {
            return Err(LabError::Failed(found.failed));
        }
        Ok(found.is_complete())
    }
}

fn boxed<'p>(plan: &'p Plan, work: &Work) -> Box<dyn mile_lab::observer::Observer + 'p> {
    Box::new(Teller::new(plan, work))
}

/// A method in Python: the object, the name under which it stands in the experiment, its title, and the facts that it is known by.
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
                "in {}; records and checkpoints are kept in {}: run again with resume=True to go on from there",
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
    // Since Python 3.11; before, the exception stands for itself.
    let _ = value.call_method1("add_note", (note,));
    exception_of_python
}

/// Runs an experiment in a folder. Returns whether it is complete and whether it was interrupted.
#[pyfunction]
#[pyo3(signature = (experiment, base, out, resume, draw, problem, methods, ranks, device, callback))]
#[expect(clippy::too_many_arguments, reason = "called by one function of the package, which names them")]
pub(crate) fn run(
    py: Python<'_>,
    experiment: &Bound<'_, PyDict>,
    base: PathBuf,
    out: PathBuf,
    resume: bool,
    draw: bool,
    problem: Option<&Bound<'_, PyAny>>,
    methods: Vec<OwnMethod<'_>>,
    ranks: Option<&Bound<'_, PyAny>>,
    device: Option<&str>,
    callback: &Bound<'_, PyAny>,
) -> PyResult<(bool, bool)> {
    let session = Session::read(experiment, base, problem, methods, ranks, device)?;
    let work = |work: Work| match session.table.contains_key("sweep") {
        true => session.sweep(&out, resume, draw, &work),
        false => session.run(&out, resume, draw, &work),
    };
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
    let session = Session::read(experiment, base, problem, methods, None, None)?;
    let work = |_| Ok(session.plan(Path::new(""))?.spec.to_table().to_string());
    let (result, _) = long(py, session.worker, callback, &session.raised, work)?;
    result.map_err(|error| raise(py, error, &session.raised, Path::new("")))
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
            return Err(PyValueError::new_err(format!("item: got {other}, takes {takes}")));
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
            observers: &|_, _, plan| boxed(plan, &work),
            say: &|text| eprintln!("{text}"),
            stop,
        })
    };
    let (finding, _) = long(py, Worker::Threads, callback, &Raised::default(), work)?;
    let finding = finding.map_err(|error| exception(&error))?;
    Ok((finding.text, finding.stopped))
}
