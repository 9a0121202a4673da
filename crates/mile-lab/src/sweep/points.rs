//! The points of a sweep: the combinations of values, and the algorithms that each applies to.

use mile::methods::catalogue::Catalogue;
use toml::{Table, Value};

use super::{Sweep, SweepMode};
use crate::error::LabError;
use crate::spec::set::{assign, position};

/// Maximal number of points, as a guard against mistakes.
const MAX_POINTS: usize = 10_000;

/// Keys of an experiment file outside `[[algorithm]]`.
const EXPERIMENT_KEYS: [&str; 10] = [
    "seeds",
    "rounds",
    "eval_every",
    "eval_agents",
    "agent_metrics",
    "stop",
    "precision",
    "network",
    "problem",
    "start",
];

/// A point of a sweep: one combination of values, run as an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name of its folder.
    pub name: String,
    /// The fold that it holds out, from 1, in a cross-validation.
    pub fold: Option<u64>,
    /// Its keys and values.
    pub settings: Vec<(String, Value)>,
    /// The experiment with these values and the algorithms they apply to.
    pub table: Table,
}

impl Point {
    /// The name of the combination of values, which all its folds have in common.
    pub(super) fn combination(&self) -> &str {
        let whole = self.name.rsplit_once('/').filter(|_| self.fold.is_some());
        whole.map_or(&self.name, |(combination, _)| combination)
    }
}

/// The folder of a fold.
pub(super) fn fold_folder(combination: &str, fold: u64) -> String {
    format!("{combination}/fold-{fold}")
}

/// Indices of keys, each with the index of one of its values.
type Choice = Vec<(usize, usize)>;

/// What a key applies to.
enum Target {
    /// The whole experiment: path of the key.
    Spec(Vec<String>),
    /// Some algorithms: their indices, and the path of the key in them.
    Algorithms(Vec<usize>, Vec<String>),
}

impl Sweep {
    /// The points of a sweep of an experiment; no algorithm is run twice with the same values.
    pub fn points(&self, table: &Table, catalogue: &Catalogue) -> Result<Vec<Point>, LabError> {
        let expected = "at least one section [[algorithm]]";
        let list = table.get("algorithm").and_then(Value::as_array).filter(|list| !list.is_empty());
        let list =
            list.ok_or_else(|| LabError::config("algorithm", format!("missing; expected {expected}")))?;
        let targets: Vec<Target> =
            self.values.iter().map(|(key, _)| target(key, list, catalogue)).collect::<Result<_, _>>()?;
        let mut groups: Vec<(Choice, Vec<usize>)> = Vec::new();
        for algorithm in 0..list.len() {
            for choice in self.choices(&targets, algorithm)? {
                match groups.iter_mut().find(|(known, _)| *known == choice) {
                    Some((_, algorithms)) => algorithms.push(algorithm),
                    None => groups.push((choice, vec![algorithm])),
                }
            }
        }
        let count = (groups.len() as u64).saturating_mul(self.folds.unwrap_or(1));
        if count > MAX_POINTS as u64 {
            let problem = format!("expected at most {MAX_POINTS} points, got {count}; give fewer values");
            return Err(LabError::config("sweep", problem));
        }
        let mut points: Vec<Point> = Vec::new();
        for (choice, algorithms) in groups {
            let mut point = self.point(table, &targets, &choice, &algorithms)?;
            if points.iter().any(|other| other.name == point.name) {
                point.name = format!("{}-{}", point.name, points.len());
            }
            points.push(point);
        }
        match self.folds {
            None => Ok(points),
            Some(folds) => {
                let all = points.iter().flat_map(|point| (1..=folds).map(|fold| folded(point, fold, folds)));
                all.collect()
            }
        }
    }

    /// The combinations of the values that apply to an algorithm.
    fn choices(&self, targets: &[Target], algorithm: usize) -> Result<Vec<Choice>, LabError> {
        let concerns = |target: &Target| match target {
            Target::Spec(_) => true,
            Target::Algorithms(those, _) => those.contains(&algorithm),
        };
        let keys: Vec<usize> = (0..targets.len()).filter(|k| concerns(&targets[*k])).collect();
        if self.mode == SweepMode::Zip {
            let together = |which: usize| keys.iter().map(|key| (*key, which)).collect::<Vec<_>>();
            let mut choices: Vec<Choice> = (0..self.values[0].1.len()).map(together).collect();
            choices.dedup();
            return Ok(choices);
        }
        let count = keys.iter().map(|key| self.values[*key].1.len()).try_fold(1usize, usize::checked_mul);
        if count.is_none_or(|count| count > MAX_POINTS) {
            return Err(LabError::config(
                "sweep",
                format!("expected at most {MAX_POINTS} points, got more; give fewer values"),
            ));
        }
        let mut choices = vec![Vec::new()];
        for key in keys {
            let with = |choice: &Choice| {
                let choice = choice.clone();
                (0..self.values[key].1.len()).map(move |which| [choice.clone(), vec![(key, which)]].concat())
            };
            choices = choices.iter().flat_map(with).collect();
        }
        Ok(choices)
    }

    fn point(
        &self,
        table: &Table,
        targets: &[Target],
        choice: &[(usize, usize)],
        algorithms: &[usize],
    ) -> Result<Point, LabError> {
        let mut table = table.clone();
        let mut settings = Vec::new();
        for (key, which) in choice {
            let (name, values) = &self.values[*key];
            let value = values[*which].clone();
            let bad = |problem: &str| LabError::config(format!("sweep.{name}"), problem);
            let mut put = |keys: &[String], value: Value| {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                assign(&mut table, &keys, value, &bad)
            };
            match &targets[*key] {
                Target::Spec(path) => put(path, value.clone())?,
                Target::Algorithms(those, path) => {
                    for index in those.iter().filter(|index| algorithms.contains(index)) {
                        let head = ["algorithm".to_owned(), index.to_string()];
                        put(&[&head[..], &path[..]].concat(), value.clone())?;
                    }
                }
            }
            settings.push((name.clone(), value));
        }
        if let Some(Value::Array(list)) = table.get_mut("algorithm") {
            let mut index = 0..;
            list.retain(|_| index.next().is_some_and(|index| algorithms.contains(&index)));
        }
        Ok(Point { name: folder_name(&settings), fold: None, settings, table })
    }
}

/// A point in which a fold of each agent's rows is held out.
fn folded(point: &Point, fold: u64, folds: u64) -> Result<Point, LabError> {
    let mut table = point.table.clone();
    let problem = table.get_mut("problem").and_then(Value::as_table_mut);
    if let Some(problem) = problem {
        let kind = problem.get("kind").and_then(Value::as_str).unwrap_or("table");
        if kind != "table" {
            let expected = "a problem of kind \"table\", whose rows can be divided into folds";
            return Err(LabError::expected("sweep.cv", expected, format!("kind = \"{kind}\"")));
        }
        if problem.contains_key("test") {
            let problem = "conflicts with problem.test, because each fold holds out its own rows; leave one of them out";
            return Err(LabError::config("sweep.cv", problem));
        }
        let part = [("fold".to_owned(), fold), ("of".to_owned(), folds)];
        let part: Table = part.into_iter().map(|(key, number)| (key, Value::from(number as i64))).collect();
        problem.insert("test".to_owned(), part.into());
    }
    Ok(Point { name: fold_folder(&point.name, fold), fold: Some(fold), table, ..point.clone() })
}

/// Settings as text, such as `step_size=0.1, mile.xi=0.05`.
pub(super) fn description(settings: &[(String, Value)]) -> String {
    let one = |(key, value): &(String, Value)| {
        let key = key.strip_prefix("algorithm.").unwrap_or(key);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{key}={text}")
    };
    settings.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn folder_name(settings: &[(String, Value)]) -> String {
    if settings.is_empty() {
        return "as-is".into();
    }
    let safe = |c: char| if c.is_alphanumeric() || "-_.=".contains(c) { c } else { '_' };
    let name: String = description(settings)
        .replace(", ", "+")
        .chars()
        .map(|c| if c == '+' { c } else { safe(c) })
        .collect();
    name.chars().take(120).collect()
}

fn target(key: &str, algorithms: &[Value], catalogue: &Catalogue) -> Result<Target, LabError> {
    let refuse = |problem: String| Err(LabError::config(format!("sweep.{key}"), problem));
    let path: Vec<String> = key.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return refuse("expected a key or a path of keys".into());
    }
    if EXPERIMENT_KEYS.contains(&path[0].as_str()) {
        return Ok(Target::Spec(path));
    }
    if let Some(rest) = key.strip_prefix("algorithm.") {
        // A label may contain dots: the longest match is taken.
        for (at, _) in rest.rmatch_indices('.') {
            if let Some(index) = position(algorithms, &rest[..at]) {
                let inner = rest[at + 1..].split('.').map(str::to_owned).collect();
                return Ok(Target::Algorithms(vec![index], inner));
            }
        }
        return refuse(
            "expected algorithm.NAME.PARAMETER with the name of an algorithm of this experiment".into(),
        );
    }
    let takes = |(_, value): &(usize, &Value)| {
        let name = value.get("name").and_then(Value::as_str).unwrap_or_default();
        let aliases = match path[0].as_str() {
            "tau" | "num_local_steps" => "local_steps",
            other => other,
        };
        matches!(aliases, "step_size" | "lr" | "schedule")
            || (aliases == "arguments" && value.get("factory").is_some())
            || catalogue.find(name).is_some_and(|e| e.takes(aliases))
    };
    let those: Vec<usize> = algorithms.iter().enumerate().filter(takes).map(|(index, _)| index).collect();
    if those.is_empty() {
        return refuse(format!(
            "neither a key of an experiment ({}) nor a parameter of one of its algorithms",
            EXPERIMENT_KEYS.join(", ")
        ));
    }
    Ok(Target::Algorithms(those, path))
}
