//! Regression and classification on NumPy arrays, computed in Rust.

use std::sync::Arc;

use mile::problems::{
    AgentWeights, Batch, Loss, Problem, Shard, Table, TableObjective, has_normal_equations,
};
use mile::real::{Precision, Real};
use mile::with_precision;
use mile_lab::LabError;
use mile_lab::objectives::{AnyProblem, Curvature, EvaluationRows, FixedProblem, Objectives, RowCounts};
use mile_lab::section::Section;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use toml::Value;

/// One agent's rows: features, targets, and weights, none if all rows count the same.
#[derive(Clone)]
struct Arrays {
    features: Vec<f64>,
    targets: Vec<f64>,
    weights: Vec<f64>,
}

/// Features, targets, and perhaps weights, as Python gives them.
type Given<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);
/// The same as Python gets them.
type Returned<'py> =
    (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>, Option<Bound<'py, PyArray1<f64>>>);

/// The rows of all agents, and of their test data: the features and one target for each row.
#[pyclass(frozen, module = "mile._mile")]
pub(crate) struct TableData {
    columns: usize,
    training: Arc<Vec<Arrays>>,
    test: Arc<Vec<Arrays>>,
}

/// Copies pairs of arrays, checked by agent.
fn arrays(given: Vec<Given<'_>>, what: &str) -> PyResult<(usize, Vec<Arrays>)> {
    let mut columns = None;
    let mut found = Vec::with_capacity(given.len());
    for (agent, (features, targets, weights)) in given.iter().enumerate() {
        let refuse = |takes: &str| PyTypeError::new_err(format!("{what}, agent {agent}: expected {takes}"));
        let features: PyReadonlyArray2<f64> =
            features.extract().map_err(|_| refuse("features of shape (rows, columns) and dtype float64"))?;
        let targets: PyReadonlyArray1<f64> =
            targets.extract().map_err(|_| refuse("targets of shape (rows,) and dtype float64"))?;
        let [rows, width] = [features.shape()[0], features.shape()[1]];
        if rows != targets.len() {
            let problem = format!(
                "{what}, agent {agent}: expected {rows} targets, one for each row, got {}",
                targets.len()
            );
            return Err(PyValueError::new_err(problem));
        }
        if *columns.get_or_insert(width) != width {
            let problem = format!(
                "{what}, agent {agent}: expected {} columns, as agent 0 has, got {width}",
                columns.unwrap_or(0)
            );
            return Err(PyValueError::new_err(problem));
        }
        let weights = match weights {
            None => Vec::new(),
            Some(weights) => {
                let weights: PyReadonlyArray1<f64> =
                    weights.extract().map_err(|_| refuse("weights of shape (rows,) and dtype float64"))?;
                if weights.len() != rows {
                    let got = weights.len();
                    return Err(PyValueError::new_err(format!(
                        "{what}, agent {agent}: expected {rows} weights, one for each row, got {got}"
                    )));
                }
                weights.as_array().to_vec()
            }
        };
        let features = features.as_array().iter().copied().collect();
        found.push(Arrays { features, targets: targets.as_array().to_vec(), weights });
    }
    Ok((columns.unwrap_or(0), found))
}

#[pymethods]
impl TableData {
    #[new]
    fn new(training: Vec<Given<'_>>, test: Vec<Given<'_>>) -> PyResult<Self> {
        let (columns, training) = arrays(training, "data")?;
        let (test_columns, test) = arrays(test, "test")?;
        if !test.is_empty() && (test.len() != training.len() || test_columns != columns) {
            return Err(PyValueError::new_err(
                "test: expected arrays for each agent, with the columns of data",
            ));
        }
        Ok(Self { columns, training: Arc::new(training), test: Arc::new(test) })
    }

    #[getter]
    fn agents(&self) -> usize {
        self.training.len()
    }

    #[getter]
    fn columns(&self) -> usize {
        self.columns
    }

    /// The arguments it was made with, for copies and pickles.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Vec<Returned<'py>>, Vec<Returned<'py>>)> {
        let one = |arrays: &Arrays| -> PyResult<Returned<'py>> {
            let features = PyArray1::from_slice(py, &arrays.features);
            let features = features.reshape([arrays.targets.len(), self.columns])?;
            let weights = (!arrays.weights.is_empty()).then(|| PyArray1::from_slice(py, &arrays.weights));
            Ok((features, PyArray1::from_slice(py, &arrays.targets), weights))
        };
        let all = |arrays: &[Arrays]| arrays.iter().map(one).collect::<PyResult<_>>();
        Ok((all(&self.training)?, all(&self.test)?))
    }
}

impl TableData {
    /// The objectives that a section describes on these data.
    pub(crate) fn objectives(
        &self,
        section: &Section,
        agents: usize,
    ) -> Result<Arc<dyn Objectives>, LabError> {
        if agents != self.training.len() {
            let problem =
                format!("expected {}, the number of agents with data, got {agents}", self.training.len());
            return Err(LabError::config("network.agents", problem));
        }
        let losses = [
            ("least-squares", Loss::LeastSquares),
            ("logistic", Loss::Logistic),
            ("nonconvex-logistic", Loss::NonconvexLogistic),
            ("softmax", Loss::Softmax { classes: 2 }),
            ("poisson", Loss::Poisson),
            ("huber", Loss::Huber { delta: 1.0 }),
            ("welsch", Loss::Welsch { c: 1.0 }),
        ];
        let positive = "a positive number";
        let loss = match section.choice("loss", &losses, Some("least-squares"))? {
            Loss::Softmax { .. } => {
                let takes = "the number of classes, a whole number from 2";
                let classes =
                    section.whole("classes", takes)?.ok_or_else(|| section.missing("classes", takes))?;
                section.keep("classes", classes as i64);
                Loss::Softmax { classes: classes as usize }
            }
            Loss::Huber { delta } => Loss::Huber { delta: section.number_or("delta", positive, delta)? },
            Loss::Welsch { c } => Loss::Welsch { c: section.number_or("c", positive, c)? },
            other => other,
        };
        // Weights of rows say how much each counts among the rows of all agents.
        let by_rows = ("rows", AgentWeights::Rows { total: None });
        let both = [("agents", AgentWeights::Equal), by_rows.clone()];
        let is_weighted = self.training.iter().any(|arrays| !arrays.weights.is_empty());
        let choices = if is_weighted { &[by_rows][..] } else { &both[..] };
        let takes = "a number from 0";
        let objective = TableObjective {
            l1: section.number_or("l1", takes, 0.0)?,
            intercept: section.flag("intercept")?.unwrap_or(false),
            weights: section.choice("weights", choices, Some(choices[0].0))?,
            ..TableObjective::new(loss, section.number_or("l2", takes, 0.0)?)
        };
        let takes = "a whole number from 1, or \"full\"";
        let batch = match section.value("batch") {
            None => Batch::Full,
            Some(Value::String(word)) if word == "full" => Batch::Full,
            Some(value) => {
                let size = value.as_integer().filter(|size| *size > 0);
                Batch::Size(size.ok_or_else(|| section.refuse("batch", value, takes))? as usize)
            }
        };
        if let Some(value) = section.value("batch") {
            section.keep("batch", value.clone());
        }
        let columns = self.columns + usize::from(objective.intercept);
        let rows = self.training.iter().map(|arrays| arrays.targets.len()).max().unwrap_or(1);
        let rows = rows_read(columns, &objective, batch, rows);
        let run = match batch {
            Batch::Full => rows,
            Batch::Size(size) | Batch::Epoch(size) => size as u64,
        };
        Ok(Arc::new(TableObjectives {
            data: (self.columns, self.training.clone(), self.test.clone()),
            objective,
            batch,
            counts: RowCounts { all: rows, run, largest_sample: 0 },
        }))
    }
}

/// The rows that a gradient or a loss reads of this many: those of the normal equations where there are some.
fn rows_read(columns: usize, objective: &TableObjective, batch: Batch, rows: usize) -> u64 {
    let pays = has_normal_equations(objective.loss, batch, columns, rows);
    (if pays { columns } else { rows }) as u64
}

struct TableObjectives {
    data: (usize, Arc<Vec<Arrays>>, Arc<Vec<Arrays>>),
    objective: TableObjective,
    batch: Batch,
    counts: RowCounts,
}

impl TableObjectives {
    fn build<T: Real>(&self) -> Result<Arc<dyn Problem<T>>, LabError> {
        let intercept = self.objective.intercept;
        let (columns, training, test) = &self.data;
        let shard = |Arrays { features, targets, weights }: &Arrays| {
            let features = match intercept {
                false => features.iter().map(|value| T::of(*value)).collect(),
                true => {
                    let with_one =
                        |row: &[f64]| row.iter().map(|v| T::of(*v)).chain([T::one()]).collect::<Vec<T>>();
                    features.chunks_exact((*columns).max(1)).flat_map(with_one).collect()
                }
            };
            Shard {
                features,
                targets: targets.iter().map(|value| T::of(*value)).collect(),
                weights: weights.iter().map(|value| T::of(*value)).collect(),
                ..Shard::default()
            }
        };
        let columns = columns + usize::from(intercept);
        let refuse = |error| LabError::config("problem", error);
        let shards = training.iter().map(shard).collect();
        let table = Table::new(columns, shards, self.objective.clone(), self.batch).map_err(refuse)?;
        let table = match test.is_empty() {
            true => table,
            false => table.with_test(test.iter().map(shard).collect()).map_err(refuse)?,
        };
        Ok(Arc::new(table))
    }
}

impl Objectives for TableObjectives {
    fn title(&self) -> String {
        "table".into()
    }

    fn problem(&self, _: u64, precision: Precision) -> Result<AnyProblem, LabError> {
        Ok(with_precision!(precision, T => self.build::<T>()?.into()))
    }

    fn is_stochastic(&self) -> bool {
        self.batch != Batch::Full
    }

    fn curvature(&self) -> Curvature {
        match self.objective.loss.largest_curvature() {
            Some(_) => Curvature::Steady,
            None => Curvature::Changing,
        }
    }

    fn rows(&self, _: u64) -> Result<Option<RowCounts>, LabError> {
        Ok(Some(self.counts))
    }

    fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
        let (columns, training, test) = &self.data;
        let columns = columns + usize::from(self.objective.intercept);
        let read = |arrays: &Arrays| rows_read(columns, &self.objective, self.batch, arrays.targets.len());
        let count = |parts: &[Arrays]| parts.iter().map(read).sum();
        Ok(Some(EvaluationRows { training: count(training), test: count(test), is_given: true }))
    }

    fn digests(&self) -> Result<mile_lab::objectives::Facts, LabError> {
        FixedProblem::new("", self.build::<f64>()?).digests()
    }
}
