//! Reads the user's CSV files into one shard for each agent.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mile::problems::{Batch, Loss, Shard};
use mile::real::Real;
use mile_nn::partition::Partition;

use super::Facts;
use crate::digest;
use crate::error::{DataFileError, LabError};
use crate::section::nearest;

/// The section `[problem]` of kind `table`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableConfig {
    /// Path of one file for all agents or, with `{agent}` in it, of one file for each agent.
    pub(super) data: PathBuf,
    /// Column that assigns each row to an agent.
    pub(super) by: Option<String>,
    /// Column to predict.
    pub(super) target: String,
    /// Loss function.
    pub(super) loss: Loss,
    /// Weight of the regularization.
    pub(super) l2: f64,
    /// Whether to add a constant feature.
    pub(super) intercept: bool,
    /// Batch size.
    pub(super) batch: Batch,
    /// How the rows of a single file are divided among the agents.
    pub(super) partition: Partition,
    /// Seed of the partition; `None`: the seed of the run.
    pub(super) seed: Option<u64>,
    /// The two classes of a logistic loss, -1 first; `None`: the sorted classes of the data.
    pub(super) classes: Option<[String; 2]>,
    /// With one file for each agent: the only agent whose file is available.
    pub(super) only: Option<usize>,
    /// Number of agents.
    pub(super) agents: usize,
    /// Name of the loss function.
    pub(super) loss_name: &'static str,
}

impl TableConfig {
    /// Whether each agent has its own file.
    pub(super) fn is_per_agent(&self) -> bool {
        self.data.to_string_lossy().contains("{agent}")
    }

    /// The agents whose files are available, with one file for each agent.
    pub(super) fn available(&self) -> std::ops::Range<usize> {
        self.only.map_or(0..self.agents, |agent| agent..agent + 1)
    }

    /// The file that holds an agent's rows.
    pub(super) fn file_of(&self, agent: usize) -> PathBuf {
        self.data.to_string_lossy().replace("{agent}", &agent.to_string()).into()
    }
}

/// The rows of one file, before classes are mapped to numbers.
struct File {
    path: PathBuf,
    features: Vec<String>,
    rows: Vec<Row>,
}

/// One row of a file.
struct Row {
    line: u64,
    values: Vec<f64>,
    target: String,
    owner: Option<String>,
}

/// Reads the data of a table problem and divides it among the agents; returns the number of features and the shards.
pub(super) fn load<T: Real>(config: &TableConfig, seed: u64) -> Result<(usize, Vec<Shard<T>>), LabError> {
    let agents = config.agents;
    let per_agent = config.is_per_agent();
    if per_agent && config.by.is_some() {
        return Err(LabError::config(
            "problem.by",
            "needs a single file, but with {agent} in data each agent has its own: leave it out",
        ));
    }
    let own = config.only.filter(|_| per_agent);
    let files: Vec<File> = match own {
        _ if !per_agent => vec![read(&config.data, config)?],
        Some(agent) => vec![read(&config.file_of(agent), config)?],
        None => (0..agents).map(|agent| read(&config.file_of(agent), config)).collect::<Result<_, _>>()?,
    };
    check_columns(&files)?;
    let targets = targets(&files, config)?;
    let owners = if per_agent {
        let first = own.unwrap_or(0);
        files.iter().zip(first..).flat_map(|(file, agent)| vec![agent; file.rows.len()]).collect()
    } else {
        owners(&files[0], &targets, config, agents, config.seed.unwrap_or(seed))?
    };
    let dim = files[0].features.len() + usize::from(config.intercept);
    let mut shards = vec![Shard { features: Vec::new(), targets: Vec::new() }; agents];
    if let Some(own) = own {
        // The objectives of other agents are never evaluated here, but must exist.
        let placeholder = Shard { features: vec![T::zero(); dim], targets: vec![T::one()] };
        let others = shards.iter_mut().enumerate().filter(|(agent, _)| *agent != own);
        others.for_each(|(_, shard)| *shard = placeholder.clone());
    }
    let rows = files.iter().flat_map(|file| &file.rows);
    for ((row, owner), target) in rows.zip(owners).zip(&targets) {
        shards[owner].features.extend(row.values.iter().map(|v| T::of(*v)));
        if config.intercept {
            shards[owner].features.push(T::one());
        }
        shards[owner].targets.push(T::of(*target));
    }
    if let Some(agent) = shards.iter().position(|shard| shard.targets.is_empty()) {
        let file = files.get(agent).filter(|_| per_agent).unwrap_or(&files[0]);
        let problem = format!("agent {agent} has no rows: give it some, or use fewer agents");
        return Err(bad(&file.path, None, None, problem).into());
    }
    Ok((dim, shards))
}

/// Checks that all files have the same feature columns.
fn check_columns(files: &[File]) -> Result<(), DataFileError> {
    let Some(other) = files.iter().find(|file| file.features != files[0].features) else { return Ok(()) };
    let problem = format!(
        "has other columns than {}: {} instead of {}",
        files[0].path.display(),
        other.features.join(", "),
        files[0].features.join(", ")
    );
    Err(bad(&other.path, Some(1), None, problem))
}

fn bad(file: &Path, line: Option<u64>, column: Option<&str>, problem: impl ToString) -> DataFileError {
    let (file, column) = (file.to_owned(), column.map(str::to_owned));
    DataFileError { file, line, column, problem: problem.to_string() }
}

fn read(path: &Path, config: &TableConfig) -> Result<File, DataFileError> {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_path(path)
        .map_err(|error| bad(path, None, None, format!("cannot be read: {error}")))?;
    let unreadable = |error: csv::Error| {
        let line = error.position().map(csv::Position::line);
        bad(path, line, None, format!("cannot be read: {error}"))
    };
    let header: Vec<String> = reader.headers().map_err(unreadable)?.iter().map(str::to_owned).collect();
    if header.iter().all(String::is_empty) {
        return Err(bad(path, Some(1), None, "is empty; the first line must name the columns"));
    }
    let find = |name: &str, key: &str| {
        header.iter().position(|column| column == name).ok_or_else(|| {
            let names: Vec<&str> = header.iter().map(String::as_str).collect();
            let hint =
                nearest(name, &names).map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default();
            let problem =
                format!("has no column '{name}', named by problem.{key}{hint}; it has {}", names.join(", "));
            bad(path, Some(1), None, problem)
        })
    };
    let target = find(&config.target, "target")?;
    let by = config.by.as_deref().map(|by| find(by, "by")).transpose()?;
    let is_feature = |k: usize| k != target && Some(k) != by;
    let features = (0..header.len()).filter(|k| is_feature(*k)).map(|k| header[k].clone()).collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != header.len() {
            let problem = format!("has {} fields, the header has {}", record.len(), header.len());
            return Err(bad(path, Some(line), None, problem));
        }
        let number = |k: usize| number(&record[k]).map_err(|p| bad(path, Some(line), Some(&header[k]), p));
        let values = (0..header.len()).filter(|k| is_feature(*k)).map(number).collect::<Result<_, _>>()?;
        let owner = by.map(|k| record[k].to_owned());
        rows.push(Row { line, values, target: record[target].to_owned(), owner });
    }
    if rows.is_empty() {
        return Err(bad(path, None, None, "has no rows below its header"));
    }
    Ok(File { path: path.to_owned(), features, rows })
}

fn number(field: &str) -> Result<f64, String> {
    match field.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(format!("'{field}' is not a finite number")),
        Err(_) if field.is_empty() => Err("is empty where a number belongs".into()),
        Err(_) => Err(format!("'{field}' is not a number")),
    }
}

/// The targets of all rows of all files: numbers, or -1 and 1 for the two classes.
fn targets(files: &[File], config: &TableConfig) -> Result<Vec<f64>, DataFileError> {
    let rows = || files.iter().flat_map(|file| file.rows.iter().map(move |row| (file, row)));
    if config.loss == Loss::LeastSquares {
        let one = |(file, row): (&File, &Row)| {
            number(&row.target).map_err(|p| bad(&file.path, Some(row.line), Some(&config.target), p))
        };
        return rows().map(one).collect();
    }
    let mut classes: BTreeSet<String> = config.classes.iter().flatten().map(|text| class(text)).collect();
    for (file, row) in rows() {
        if row.target.is_empty() {
            return Err(bad(
                &file.path,
                Some(row.line),
                Some(&config.target),
                "is empty where a class belongs",
            ));
        }
        if classes.insert(class(&row.target)) && classes.len() == 3 {
            let seen: Vec<_> = classes.iter().map(String::as_str).collect();
            let problem = format!("is a third class ({}); a logistic loss takes two", seen.join(", "));
            return Err(bad(&file.path, Some(row.line), Some(&config.target), problem));
        }
    }
    let [_, positive] = both_classes(&files[0].path, config, classes)?;
    Ok(rows().map(|(_, row)| if class(&row.target) == positive { 1.0 } else { -1.0 }).collect())
}

/// The normalized name of a class: numbers are compared by value, so 1, 1.0 and +1 are the same class.
fn class(text: &str) -> String {
    text.parse::<f64>().map_or(text.to_owned(), |value| value.to_string())
}

/// The classes of -1 and 1, in this order.
fn both_classes(
    path: &Path,
    config: &TableConfig,
    found: BTreeSet<String>,
) -> Result<[String; 2], DataFileError> {
    if let Some(given) = &config.classes {
        return Ok(given.each_ref().map(|text| class(text)));
    }
    let mut classes: Vec<_> = found.into_iter().collect();
    if classes.len() < 2 {
        let remedy = match config.only {
            Some(_) => {
                ", and other agents' files are not available: name both classes in [problem], as in classes = [0, 1]"
            }
            None => "; a logistic loss takes two",
        };
        let problem = format!("has one class only, '{}'{remedy}", classes[0]);
        return Err(bad(path, None, Some(&config.target), problem));
    }
    let value = |text: &String| text.parse::<f64>().ok();
    classes.sort_by(|a, b| match (value(a), value(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    });
    Ok([classes.swap_remove(0), classes.swap_remove(0)])
}

/// The facts about an agent's data that must be the same for its neighbours: columns, classes and, for a single file,
/// its digest.
pub(super) fn shared_facts(config: &TableConfig, agent: usize) -> Result<Facts, LabError> {
    let path = config.file_of(agent);
    let file = read(&path, config)?;
    let mut facts = Facts::from([("problem.columns".to_owned(), file.features.join(","))]);
    if config.loss != Loss::LeastSquares {
        let found = file.rows.iter().map(|row| class(&row.target)).collect();
        facts.insert("problem.classes".to_owned(), both_classes(&path, config, found)?.join(","));
    }
    if !config.is_per_agent() {
        facts.insert("problem.data".to_owned(), digest::of_file(&path)?);
    }
    Ok(facts)
}

/// The agent that each row of a single file belongs to.
fn owners(
    file: &File,
    targets: &[f64],
    config: &TableConfig,
    agents: usize,
    seed: u64,
) -> Result<Vec<usize>, LabError> {
    if let Some(by) = &config.by {
        let name = |row: &Row| row.owner.clone().unwrap_or_default();
        let mut names: Vec<String> =
            file.rows.iter().map(name).collect::<BTreeSet<_>>().into_iter().collect();
        names.sort_by_key(|name| (name.parse::<i64>().ok(), name.clone()));
        if names.len() != agents {
            let problem =
                format!("has {} different values, takes one for each of the {agents} agents", names.len());
            return Err(bad(&file.path, None, Some(by), problem).into());
        }
        let place = |row: &Row| names.iter().position(|n| *n == name(row)).unwrap_or(0);
        return Ok(file.rows.iter().map(place).collect());
    }
    if config.loss == Loss::LeastSquares && !matches!(config.partition, Partition::Iid {}) {
        let problem =
            "divides by class, and least-squares has no classes: use iid, by, or a file for each agent";
        return Err(LabError::config("problem.partition", problem));
    }
    let labels: Vec<u8> = targets.iter().map(|t| u8::from(*t == 1.0)).collect();
    let parts = config
        .partition
        .split(&labels, 2, agents, seed)
        .map_err(|error| LabError::config("problem.partition", error))?;
    let mut owners = vec![0; labels.len()];
    for (agent, part) in parts.iter().enumerate() {
        part.iter().for_each(|row| owners[*row as usize] = agent);
    }
    Ok(owners)
}
