//! The section `[problem]` of kind `table`.

use std::path::PathBuf;

use mile::problems::{AgentWeights, Batch, Loss, TableObjective};
use mile_nn::partition::Partition;
use toml::{Table, Value};

use super::words::class;
use super::written::Written;
use crate::error::LabError;
use crate::section::{Section, resolve};
use crate::{Setting, samples};

/// The section `[problem]` of kind `table`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableSpec {
    pub(super) files: TableFiles,
    pub(super) columns: TableColumns,
    pub(super) objective: ObjectiveSpec,
    pub(super) division: RowDivision,
    /// Batch size.
    pub(super) batch: Batch,
}

/// The files that are read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableFiles {
    /// Path of one file for all agents or, with `{agent}` in it, of one file for each agent.
    pub(super) data: PathBuf,
    /// Rows that are held out.
    pub(super) test: HeldOut,
    /// File with the statistics of all agents' data.
    pub(super) statistics: Option<PathBuf>,
    /// How they are written.
    pub(super) written: Written,
}

/// What the columns mean.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableColumns {
    /// Column that assigns each row to an agent.
    pub(super) by: Option<String>,
    /// Column to predict.
    pub(super) target: String,
    /// Columns of the features; `None`: all but the target and `by`.
    pub(super) features: Option<Vec<String>>,
    /// Columns that are not features.
    pub(super) exclude: Vec<String>,
    /// Features that are words.
    pub(super) categorical: Vec<String>,
    /// How missing values are handled.
    pub(super) missing: Missing,
    /// Whether features are scaled to mean 0 and standard deviation 1.
    pub(super) standardise: bool,
    /// The classes of the target, in order; `None`: the sorted classes of the data.
    pub(super) classes: Option<Vec<String>>,
    /// Column with the weights of the rows.
    pub(super) weights: Option<String>,
    /// What is added to the rows' products.
    pub(super) offset: Option<OffsetColumn>,
}

/// The column of an offset.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OffsetColumn {
    pub(super) column: String,
    /// Whether it holds exposures, whose logarithms are the offsets.
    pub(super) is_exposure: bool,
}

impl OffsetColumn {
    /// The key that names it.
    pub(super) fn key(&self) -> &'static str {
        if self.is_exposure { "exposure" } else { "offset" }
    }
}

/// What is minimised.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObjectiveSpec {
    /// Loss function; for [`Loss::Softmax`], the number of classes is that of the data.
    pub(super) loss: Loss,
    /// Name of the loss function.
    pub(super) loss_name: &'static str,
    /// Weight of the regularization.
    pub(super) l2: f64,
    /// Weight of the nonsmooth penalty, common to all agents.
    pub(super) l1: f64,
    /// Whether to add a constant feature, which is not penalised.
    pub(super) intercept: bool,
    /// Whether agents count by their rows, each of which counts 1 or by its weight.
    pub(super) by_rows: bool,
}

/// How the rows of a single file are divided among the agents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowDivision {
    /// By what.
    pub(super) partition: Partition,
    /// Seed of the partition; `None`: the seed of the run.
    pub(super) seed: Option<u64>,
}

/// How missing values are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Refuse,
    /// Features are replaced by the mean of their column over all agents' training rows.
    Mean,
    /// Words, and those that occur in no training row, are a separate category; numbers are replaced by the mean.
    Category,
    /// Rows with missing values are left out.
    Drop,
}

impl Missing {
    /// Whether a missing number becomes the mean of its column.
    pub(super) fn fills_numbers(self) -> bool {
        matches!(self, Self::Mean | Self::Category)
    }
}

/// Rows that are held out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HeldOut {
    None,
    /// This fraction of the rows.
    Share(f64),
    /// One of `of` equal parts of the rows, the folds of a cross-validation.
    Fold {
        /// Its number, from 1.
        number: u32,
        /// How many there are.
        of: u32,
    },
    /// The rows of a file or, with `{agent}` in its path, of one file for each agent.
    File(PathBuf),
}

/// Whether a path stands for one file per agent.
pub(super) fn is_per_agent(path: &std::path::Path) -> bool {
    path.to_string_lossy().contains("{agent}")
}

/// An agent's file.
pub(super) fn file_of(path: &std::path::Path, agent: usize) -> PathBuf {
    path.to_string_lossy().replace("{agent}", &agent.to_string()).into()
}

impl TableSpec {
    /// Whether each agent has its own file.
    pub(super) fn is_per_agent(&self) -> bool {
        is_per_agent(&self.files.data)
    }

    /// Whether the target is a class.
    pub(super) fn has_classes(&self) -> bool {
        matches!(self.objective.loss, Loss::Logistic | Loss::NonconvexLogistic | Loss::Softmax { .. })
    }

    /// The seed by which rows are divided, for a run with this seed: always the same where nothing is divided at random, so
    /// that the files are read once for all runs.
    pub(super) fn data_seed(&self, seed: u64) -> u64 {
        self.division.seed.unwrap_or(if self.is_divided_by_owner() { 0 } else { seed })
    }

    /// Whether the data say which agent has which rows.
    pub(super) fn is_divided_by_owner(&self) -> bool {
        self.columns.by.is_some() || self.is_per_agent()
    }

    /// Whether the objective of one agent depends on the data of the others.
    pub(super) fn needs_statistics(&self) -> bool {
        let TableColumns { standardise, missing, categorical, weights, .. } = &self.columns;
        let features = *standardise || missing.fills_numbers() || !categorical.is_empty();
        features || weights.is_some() || (self.objective.by_rows && self.is_per_agent())
    }
}

impl ObjectiveSpec {
    /// The objective for this number of classes and, where only one agent's rows are available, this number of rows in all, or this sum of
    /// their weights.
    pub(super) fn of(&self, classes: usize, total: Option<f64>) -> TableObjective {
        let loss = match self.loss {
            Loss::Softmax { .. } => Loss::Softmax { classes },
            other => other,
        };
        let weights = if self.by_rows { AgentWeights::Rows { total } } else { AgentWeights::Equal };
        TableObjective { loss, l2: self.l2, l1: self.l1, intercept: self.intercept, weights }
    }
}

/// What the weight of a penalty is.
const PENALTY: &str = "a number of at least 0";

pub(super) fn read(section: &Section, setting: Setting) -> Result<TableSpec, LabError> {
    let expected = "the path of a CSV, Parquet or Arrow file (\"agent-{agent}.csv\": one per agent)";
    let data = section.text("data", expected)?.ok_or_else(|| section.missing("data", expected))?;
    let data = resolve(setting.folder, data);
    section.keep("data", data.display().to_string());
    let expected = "the name of the column to predict";
    let target = section.text("target", expected)?.ok_or_else(|| section.missing("target", expected))?;
    let (loss_name, loss) = loss(section)?;
    let penalty = |key: &'static str, weight: f64| match weight >= 0.0 && weight.is_finite() {
        true => Ok(weight),
        false => Err(section.refuse(key, &Value::from(weight), PENALTY)),
    };
    let l2 = penalty("l2", section.number_or("l2", PENALTY, 0.0)?)?;
    let intercept = section.flag("intercept")?.unwrap_or(false);
    section.keep("intercept", intercept);
    let by = section.text("by", "the name of the column that assigns each row to an agent")?;
    if by.is_some() && is_per_agent(&data) {
        return Err(LabError::config(
            section.path("by"),
            "applies to a single file, but {agent} in data gives each agent its own; leave it out",
        ));
    }
    let features = names(section, "columns")?;
    let exclude = names(section, "exclude")?;
    if features.is_some() && exclude.is_some() {
        let problem = "conflicts with columns, which names all features; leave one of them out";
        return Err(LabError::config(section.path("exclude"), problem));
    }
    let missing = [("mean", Missing::Mean), ("category", Missing::Category), ("drop", Missing::Drop)];
    let expected = "agents, rows, or the name of the column with the rows' weights";
    let weights = section.text("weights", expected)?.unwrap_or("agents");
    let partition = partition(section, by.is_some(), is_per_agent(&data))?;
    let files = TableFiles {
        data,
        test: held_out(section, setting)?,
        statistics: path(section, setting, "statistics", "the path of a file with the agents' statistics")?,
        written: Written::read(section)?,
    };
    let columns = TableColumns {
        by: by.map(str::to_owned),
        target: target.to_owned(),
        features,
        exclude: exclude.unwrap_or_default(),
        categorical: names(section, "categorical")?.unwrap_or_default(),
        missing: section.optional_choice("missing", &missing)?.unwrap_or(Missing::Refuse),
        standardise: section.flag("standardise")?.unwrap_or(false),
        classes: classes(section, loss)?,
        weights: Some(weights.to_owned()).filter(|name| name != "agents" && name != "rows"),
        offset: offset(section, loss)?,
    };
    let objective = ObjectiveSpec {
        loss,
        loss_name,
        l2,
        l1: penalty("l1", section.number("l1", PENALTY)?.unwrap_or(0.0))?,
        intercept,
        by_rows: weights != "agents",
    };
    let division = RowDivision { partition, seed: section.whole("seed", "a whole number")? };
    Ok(TableSpec { files, columns, objective, division, batch: samples::batch(section, Batch::Full)? })
}

fn loss(section: &Section) -> Result<(&'static str, Loss), LabError> {
    let losses: Vec<(&'static str, (&'static str, Loss))> = [
        ("least-squares", Loss::LeastSquares),
        ("logistic", Loss::Logistic),
        ("nonconvex-logistic", Loss::NonconvexLogistic),
        ("softmax", Loss::Softmax { classes: 0 }),
        ("poisson", Loss::Poisson),
        ("huber", Loss::Huber { delta: 0.0 }),
        ("welsch", Loss::Welsch { c: 0.0 }),
    ]
    .map(|(name, loss)| (name, (name, loss)))
    .into();
    let (name, loss) = section.choice("loss", &losses, None)?;
    for (key, of) in [("delta", "huber"), ("c", "welsch")] {
        if name != of && section.has(key) {
            let problem = format!("belongs to loss = \"{of}\", and this loss is \"{name}\"; leave it out");
            return Err(LabError::config(section.path(key), problem));
        }
    }
    let positive = |key: &'static str, expected: &str| match section.number(key, expected)? {
        None => Err(section.missing(key, expected)),
        Some(number) if number > 0.0 && number.is_finite() => Ok(number),
        Some(number) => Err(section.refuse(key, &Value::from(number), expected)),
    };
    let loss = match loss {
        Loss::Huber { .. } => Loss::Huber {
            delta: positive("delta", "a number above 0, the error beyond which the loss is linear")?,
        },
        Loss::Welsch { .. } => {
            Loss::Welsch { c: positive("c", "a number above 0, the scale beyond which errors hardly count")? }
        }
        other => other,
    };
    Ok((name, loss))
}

/// The column of an offset, or of an exposure.
fn offset(section: &Section, loss: Loss) -> Result<Option<OffsetColumn>, LabError> {
    let refuse = |key: &str, problem: &str| Err(LabError::config(section.path(key), problem));
    let offset = section.text("offset", "the name of a column of numbers that are added to a'x")?;
    let exposure = section.text("exposure", "the name of a column of numbers above 0 (poisson)")?;
    match (offset, exposure) {
        (Some(_), Some(_)) => {
            refuse("exposure", "conflicts with offset, its logarithm; leave one of them out")
        }
        (None, Some(_)) if loss != Loss::Poisson => {
            refuse("exposure", "applies only to the loss poisson; leave it out, or use offset")
        }
        (Some(_), None) if matches!(loss, Loss::Softmax { .. }) => {
            refuse("offset", "has no effect on the loss softmax; leave it out")
        }
        _ => {
            let column = |name: &str, is_exposure| OffsetColumn { column: name.to_owned(), is_exposure };
            Ok(offset.map(|name| column(name, false)).or(exposure.map(|name| column(name, true))))
        }
    }
}

/// The partition of a single file. Without one to divide, only the default is accepted, which then means nothing.
fn partition(section: &Section, has_by: bool, is_per_agent: bool) -> Result<Partition, LabError> {
    if !has_by && !is_per_agent {
        return samples::partition(section);
    }
    let iid = Table::from_iter([("kind".to_owned(), Value::from("iid"))]);
    if section.value("partition").is_some_and(|value| value.as_table() != Some(&iid)) {
        let problem = if has_by {
            "conflicts with by, which assigns the rows to agents; leave one of them out"
        } else {
            "applies to a single file, but {agent} in data gives each agent its own; leave it out"
        };
        return Err(LabError::config(section.path("partition"), problem));
    }
    Ok(Partition::Iid {})
}

/// A path, if the key is given.
fn path(
    section: &Section,
    setting: Setting,
    key: &'static str,
    expected: &str,
) -> Result<Option<PathBuf>, LabError> {
    let path = section.text(key, expected)?.map(|path| resolve(setting.folder, path));
    path.iter().for_each(|path| section.keep(key, path.display().to_string()));
    Ok(path)
}

/// Names of columns, if the key is given.
fn names(section: &Section, key: &'static str) -> Result<Option<Vec<String>>, LabError> {
    let Some(value) = section.value(key) else { return Ok(None) };
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let names: Option<Vec<String>> = value.as_array().and_then(|list| list.iter().map(name).collect());
    let expected = "a list of distinct column names, such as [\"age\", \"income\"]";
    let distinct = |names: &Vec<String>| !names.is_empty() && all_distinct(names);
    section.keep(key, value.clone());
    names.filter(distinct).map(Some).ok_or_else(|| section.refuse(key, value, expected))
}

fn all_distinct(names: &[String]) -> bool {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

fn held_out(section: &Section, setting: Setting) -> Result<HeldOut, LabError> {
    let expected = "a number between 0 and 1 (the part of each agent's rows to hold out), the path of a file, or a fold, such as { fold = 1, of = 5 }";
    match section.value("test") {
        None => Ok(HeldOut::None),
        Some(Value::String(_)) => {
            let path = path(section, setting, "test", expected)?;
            Ok(path.map_or(HeldOut::None, HeldOut::File))
        }
        Some(value @ Value::Table(table)) => {
            section.keep("test", value.clone());
            let number = |key: &str| table.get(key)?.as_integer().and_then(|n| u32::try_from(n).ok());
            let fold = number("fold").zip(number("of")).filter(|_| table.len() == 2);
            let fold = fold.filter(|(number, of)| (1..=*of).contains(number) && *of >= 2);
            let fold = fold.map(|(number, of)| HeldOut::Fold { number, of });
            fold.ok_or_else(|| section.refuse("test", value, expected))
        }
        Some(value) => {
            let share = section.number("test", expected)?.filter(|share| *share > 0.0 && *share < 1.0);
            share.map(HeldOut::Share).ok_or_else(|| section.refuse("test", value, expected))
        }
    }
}

fn classes(section: &Section, loss: Loss) -> Result<Option<Vec<String>>, LabError> {
    let Some(value) = section.value("classes") else { return Ok(None) };
    let expected = match loss {
        Loss::Logistic | Loss::NonconvexLogistic => {
            "the two classes of the target, -1 first, such as [\"no\", \"yes\"]"
        }
        Loss::Softmax { .. } => "two or more distinct classes of the target, such as [\"a\", \"b\", \"c\"]",
        _ => {
            let problem = "applies only to the losses logistic, nonconvex-logistic and softmax; leave it out";
            return Err(LabError::config(section.path("classes"), problem));
        }
    };
    let word = |value: &Value| match value {
        Value::String(word) => Some(class(word)),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(class(&value.to_string())),
        _ => None,
    };
    let words: Option<Vec<String>> = value.as_array().and_then(|list| list.iter().map(word).collect());
    let fits = |words: &Vec<String>| match loss {
        Loss::Softmax { .. } => words.len() >= 2 && all_distinct(words),
        _ => words.len() == 2 && all_distinct(words),
    };
    section.keep("classes", value.clone());
    words.filter(fits).map(Some).ok_or_else(|| section.refuse("classes", value, expected))
}
