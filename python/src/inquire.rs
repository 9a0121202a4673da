//! What the library knows without running anything: methods, graphs, theory, keys of experiments.

use std::path::{Path, PathBuf};

use mile::graph::Topology;
use mile::methods::Momentum;
use mile::methods::catalogue::{self, Entry, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Draw};
use mile_lab::LabError;
use mile_lab::advice::{estimate, inquiry};
use mile_lab::plan::{Plan, first_round_costs};
use mile_lab::plot::graph_svg;
use mile_lab::predictions::NewData;
use mile_lab::reading::ReadingProgress;
use mile_lab::report::{RunFolder, write_report};
use mile_lab::spec::{NetworkSpec, Spec, apply, parse_table};
use mile_lab::sweep::SweepFolder;
use mile_lab::trained::{ModelChoice, TrainedModel};
use mile_lab::{keys, report};
use mile_theory::report::{Inquiry, TheoryReport};
use mile_theory::weights::WeightChoice;
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::failure::exception;
use crate::values;
use crate::waiting::quick;

/// Columns of the reference of keys as text.
const WIDTH: usize = 100;

/// The built-in methods as JSON, with their measured costs.
#[pyfunction]
pub(crate) fn methods(py: Python<'_>) -> PyResult<String> {
    quick(py, || {
        let all: Vec<serde_json::Value> = catalogue::ALL.iter().map(describe).collect::<Result<_, _>>()?;
        Ok(serde_json::Value::Array(all).to_string())
    })
}

/// The names of the built-in methods.
#[pyfunction]
pub(crate) fn method_names() -> Vec<&'static str> {
    catalogue::ALL.iter().map(|entry| &*entry.name).collect()
}

fn describe(entry: &Entry) -> Result<serde_json::Value, LabError> {
    let (topology, rule) = match entry.has_server() {
        true => (Topology::Complete, Rule::Metropolis),
        false => (Topology::Ring, Rule::LazyMetropolis),
    };
    let refuse = |error: mile::network::NetworkError| LabError::config("network", error);
    let graph = topology.build(6, 0).map_err(|error| LabError::config("network", error))?;
    let network = Network::new(graph, rule).map_err(refuse)?;
    let method = entry
        .build(&Parameters::default(), &network, 0)
        .map_err(|error| LabError::config(&*entry.name, error))?;
    let costs = first_round_costs(&*method, &network)?;
    let parameters: serde_json::Map<String, serde_json::Value> = entry
        .parameters
        .iter()
        .map(|p| (p.name.to_owned(), json!({ "expected": p.expected, "default": p.default })))
        .collect();
    Ok(json!({
        "name": entry.name, "title": entry.title, "exact": entry.exact, "vectors_sent": costs.vectors_sent,
        "exchanges": costs.exchanges, "vectors_stored": method.layout().state.len(), "parameters": parameters,
        "reference": entry.reference, "note": entry.note,
    }))
}

/// A network from the section `[network]`: JSON of its edges, weights and eigenvalues, and a drawing.
#[pyfunction]
pub(crate) fn graph(py: Python<'_>, network: &Bound<'_, PyDict>) -> PyResult<(String, String)> {
    let table = values::table(network, "network")?;
    quick(py, || {
        let config = NetworkSpec::read(&table, Path::new(""))?;
        let network = config.build()?;
        let mixing = network.mixing();
        let edges: Vec<_> =
            network.graph().edges().map(|(i, j)| json!([i, j, mixing.weight(i, j)])).collect();
        let own: Vec<f64> = (0..network.agents()).map(|i| mixing.weight(i, i)).collect();
        let lambda = mile::spectrum::eigenvalues(mixing.rows());
        let extremes = network.extremes();
        let largest = extremes.lambda_2.abs().max(extremes.lambda_n.abs());
        let one = network.agents() == 1;
        let document = json!({
            "agents": network.agents(), "edges": edges, "self_weights": own, "lambda": lambda,
            "lambda_2": (!one).then_some(extremes.lambda_2), "lambda_n": extremes.lambda_n,
            "spectral_gap": (!one).then_some(1.0 - largest), "drop_rate": network.drop_rate(),
        });
        Ok((document.to_string(), graph_svg(&network, config.topology())))
    })
}

/// What the theory is asked, besides the network.
struct Question {
    local_steps: Option<u64>,
    xi: Option<WeightChoice>,
    gamma: Option<WeightChoice>,
    momentum: Option<Momentum>,
    smoothness: Option<f64>,
    step_size: Option<f64>,
}

impl Question {
    fn ask(&self, mut inquiry: Inquiry) -> Result<(String, String), LabError> {
        if let Some(local_steps) = self.local_steps {
            (inquiry.local_steps, inquiry.own_steps) = (local_steps, None);
        }
        if let Some(xi) = self.xi {
            (inquiry.xi, inquiry.gamma) = (xi, None);
        }
        inquiry.gamma = self.gamma.or(inquiry.gamma);
        inquiry.momentum = self.momentum.or(inquiry.momentum);
        if let Some(smoothness) = self.smoothness {
            (inquiry.smoothness, inquiry.estimate, inquiry.sample) = (smoothness, None, None);
        }
        inquiry.step_size = self.step_size.or(inquiry.step_size);
        let report = TheoryReport::new(&inquiry).map_err(|error| LabError::config("theory", error))?;
        let json = serde_json::to_string(&report).unwrap_or_default();
        Ok((json, report.to_string()))
    }
}

fn weight(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<WeightChoice>> {
    let Some(given) = given else { return Ok(None) };
    if let Ok(number) = given.extract::<f64>() {
        return Ok(Some(WeightChoice::Number(number)));
    }
    match given.extract::<String>().unwrap_or_default().as_str() {
        "auto" => Ok(Some(WeightChoice::Auto)),
        "paper" if name == "xi" => Ok(Some(WeightChoice::Paper)),
        "adaptive" if name == "xi" => Ok(Some(WeightChoice::Adaptive)),
        _ => {
            let words = if name == "xi" { "\"paper\", \"auto\" or \"adaptive\"" } else { "or \"auto\"" };
            Err(PyValueError::new_err(format!("{name}: expected a number in (0, 1], {words}, got {given}")))
        }
    }
}

/// What the theory says about a network, or about an experiment: JSON and text.
#[pyfunction]
#[pyo3(signature = (network, experiment, base, local_steps, xi, gamma, momentum, nesterov, smoothness, step_size))]
#[expect(clippy::too_many_arguments, reason = "called by one function of the package, which names them")]
pub(crate) fn theory(
    py: Python<'_>,
    network: Option<&Bound<'_, PyDict>>,
    experiment: Option<&Bound<'_, PyDict>>,
    base: PathBuf,
    local_steps: Option<u64>,
    xi: Option<&Bound<'_, PyAny>>,
    gamma: Option<&Bound<'_, PyAny>>,
    momentum: Option<f64>,
    nesterov: bool,
    smoothness: Option<f64>,
    step_size: Option<f64>,
) -> PyResult<(String, String)> {
    if let Some(mu) = momentum.filter(|mu| !(0.0..1.0).contains(mu)) {
        return Err(PyValueError::new_err(format!("momentum: expected a number in [0, 1), got {mu}")));
    }
    let question = Question {
        local_steps,
        xi: weight("xi", xi)?,
        gamma: weight("gamma", gamma)?,
        momentum: momentum.filter(|mu| *mu > 0.0).map(|mu| Momentum { mu, nesterov }),
        smoothness,
        step_size,
    };
    let network = network.map(|network| values::table(network, "network")).transpose()?;
    let experiment = experiment.map(|experiment| values::table(experiment, "")).transpose()?;
    quick(py, || {
        if let Some(experiment) = experiment {
            let plan = Plan::new(Spec::read(&experiment, &base)?)?;
            let estimate = estimate(&plan)?;
            return question.ask(inquiry(&plan, &estimate)?);
        }
        let network = NetworkSpec::read(&network.unwrap_or_default(), Path::new(""))?.build()?;
        question.ask(Inquiry::new(&network))
    })
}

/// The keys of experiment files, as text, markdown or a JSON schema.
#[pyfunction]
pub(crate) fn keys_reference(form: &str) -> PyResult<String> {
    match form {
        "text" => Ok(keys::text(None, WIDTH)),
        "markdown" => Ok(keys::markdown()),
        "json-schema" => Ok(keys::json_schema()),
        other => {
            Err(PyValueError::new_err(format!("form: expected text, markdown or json-schema, got {other}")))
        }
    }
}

/// The text of an experiment file, with values replaced, as JSON.
#[pyfunction]
pub(crate) fn read_experiment(text: &str, set: Vec<String>) -> PyResult<String> {
    let table = parse_table(text, &set).map_err(|error| exception(&error))?;
    serde_json::to_string(&table).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// An experiment with values replaced, as JSON.
#[pyfunction]
pub(crate) fn replace(experiment: &Bound<'_, PyDict>, set: Vec<String>) -> PyResult<String> {
    let mut table = values::table(experiment, "")?;
    for assignment in &set {
        apply(&mut table, assignment).map_err(|error| exception(&error))?;
    }
    serde_json::to_string(&table).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Writes the page about run directories and sweeps.
#[pyfunction]
pub(crate) fn write_page(py: Python<'_>, folders: Vec<PathBuf>, out: PathBuf) -> PyResult<()> {
    quick(py, || write_report(&folders, &out))
}

/// The figures of a run directory as pairs of a name and SVG.
#[pyfunction]
pub(crate) fn pictures(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<(String, String)>> {
    quick(py, || match SweepFolder::is_at(&folder) {
        true => {
            let files = report::draw_sweep(&SweepFolder::read(&folder)?)?;
            let svg = files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "svg"));
            svg.map(|file| {
                let name =
                    file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
                let text = std::fs::read_to_string(&file).map_err(LabError::io(&file, "read"))?;
                Ok((name, text))
            })
            .collect()
        }
        false => Ok(RunFolder::read(&folder)?.all_pictures()),
    })
}

/// The summary of a sweep: its best values as text.
#[pyfunction]
pub(crate) fn sweep_summary(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    quick(py, || Ok(SweepFolder::read(&folder)?.summary()))
}

/// The predictions of a model of a run for new data, as CSV: that of an algorithm with a seed, the average or an agent's own.
#[pyfunction]
pub(crate) fn predict(
    py: Python<'_>,
    folder: PathBuf,
    data: PathBuf,
    algorithm: String,
    seed: u64,
    agent: Option<usize>,
) -> PyResult<String> {
    let choice = ModelChoice { algorithm: Some(algorithm), seed: Some(seed), agent };
    quick(py, || {
        let model = TrainedModel::open(&folder, &choice)?;
        Ok(model
            .predict(NewData { data: &data, targets: None, progress: &ReadingProgress::default() })?
            .to_csv())
    })
}

/// The samples of an agent's mini-batch, as indices below `all`: a function of the seed, the agent and the draw.
#[pyfunction]
pub(crate) fn samples<'py>(
    py: Python<'py>,
    all: usize,
    size: usize,
    epochs: bool,
    seed: u64,
    agent: usize,
    draw: u64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    if all == 0 || size == 0 {
        return Err(PyValueError::new_err("size: expected at least 1 sample, from at least 1, got 0"));
    }
    let batch = if epochs { Batch::Epoch(size) } else { Batch::Size(size) };
    let chosen = batch.samples(all, agent, Draw { seed, step: draw }).map(|k| k as i64);
    Ok(PyArray1::from_iter(py, chosen))
}
