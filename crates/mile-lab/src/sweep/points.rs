//! The points of a sweep: which values together, and which algorithms they concern.

use toml::{Table, Value};

use super::{Mode, Sweep};
use crate::config::set::{assign, position};
use crate::error::LabError;
use mile::methods::catalogue;

/// More points than this are a mistake.
const MOST: usize = 10_000;

/// Keys of an experiment file that are not an algorithm's.
const TOP: [&str; 7] = ["seeds", "rounds", "eval_every", "precision", "network", "problem", "start"];

/// One combination of values, to be run as an experiment of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its folder's name.
    pub name: String,
    /// The values that make it.
    pub settings: Vec<(String, Value)>,
    /// The experiment with these values, and with those algorithms only that they concern.
    pub table: Table,
}

/// Whom a key concerns.
enum Target {
    Everyone(Vec<String>),
    Algorithms(Vec<usize>, Vec<String>),
}

impl Sweep {
    /// The points of an experiment; no algorithm is run twice with the same values.
    pub fn points(&self, table: &Table) -> Result<Vec<Point>, LabError> {
        let takes = "at least one section [[algorithm]]";
        let list = table.get("algorithm").and_then(Value::as_array).filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| LabError::config("algorithm", format!("is missing; takes {takes}")))?;
        let targets: Vec<Target> =
            self.values.iter().map(|(key, _)| target(key, list)).collect::<Result<_, _>>()?;
        let mut groups: Vec<(Vec<(usize, usize)>, Vec<usize>)> = Vec::new();
        for algorithm in 0..list.len() {
            for choice in self.choices(&targets, algorithm)? {
                match groups.iter_mut().find(|(known, _)| *known == choice) {
                    Some((_, algorithms)) => algorithms.push(algorithm),
                    None => groups.push((choice, vec![algorithm])),
                }
            }
        }
        if groups.len() > MOST {
            let problem = format!("makes {} points, takes at most {MOST}", groups.len());
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
        Ok(points)
    }

    /// The combinations of the values that concern an algorithm: (key, which of its values).
    fn choices(&self, targets: &[Target], algorithm: usize) -> Result<Vec<Vec<(usize, usize)>>, LabError> {
        let concerns = |target: &Target| match target {
            Target::Everyone(_) => true,
            Target::Algorithms(those, _) => those.contains(&algorithm),
        };
        let keys: Vec<usize> = (0..targets.len()).filter(|k| concerns(&targets[*k])).collect();
        if self.mode == Mode::Zip {
            let together = |which: usize| keys.iter().map(|key| (*key, which)).collect::<Vec<_>>();
            let mut choices: Vec<Vec<(usize, usize)>> = (0..self.values[0].1.len()).map(together).collect();
            choices.dedup();
            return Ok(choices);
        }
        let count = keys.iter().map(|key| self.values[*key].1.len()).try_fold(1usize, usize::checked_mul);
        if count.is_none_or(|count| count > MOST) {
            return Err(LabError::config("sweep", format!("makes more than {MOST} points")));
        }
        let mut choices = vec![Vec::new()];
        for key in keys {
            let with = |choice: &Vec<(usize, usize)>| {
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
                Target::Everyone(path) => put(path, value.clone())?,
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
        Ok(Point { name: folder_name(&settings), settings, table })
    }
}

/// Settings as a person writes them.
pub(super) fn described(settings: &[(String, Value)]) -> String {
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
    let name: String =
        described(settings).replace(", ", "+").chars().map(|c| if c == '+' { c } else { safe(c) }).collect();
    name.chars().take(120).collect()
}

fn target(key: &str, algorithms: &[Value]) -> Result<Target, LabError> {
    let refuse = |problem: String| Err(LabError::config(format!("sweep.{key}"), problem));
    let path: Vec<String> = key.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return refuse("takes a key or a path of keys".into());
    }
    if TOP.contains(&path[0].as_str()) {
        return Ok(Target::Everyone(path));
    }
    if let Some(rest) = key.strip_prefix("algorithm.") {
        // A label may hold dots: the longest that names an algorithm is meant.
        for (at, _) in rest.rmatch_indices('.') {
            if let Some(index) = position(algorithms, &rest[..at]) {
                let inner = rest[at + 1..].split('.').map(str::to_owned).collect();
                return Ok(Target::Algorithms(vec![index], inner));
            }
        }
        return refuse("names no algorithm of this experiment; takes algorithm.NAME.PARAMETER".into());
    }
    let takes = |(_, value): &(usize, &Value)| {
        let name = value.get("name").and_then(Value::as_str).unwrap_or_default();
        let aliases = match path[0].as_str() {
            "tau" | "num_local_steps" => "local_steps",
            other => other,
        };
        matches!(aliases, "step_size" | "lr" | "schedule")
            || catalogue::find(name).is_some_and(|e| e.takes(aliases))
    };
    let those: Vec<usize> = algorithms.iter().enumerate().filter(takes).map(|(index, _)| index).collect();
    if those.is_empty() {
        return refuse(format!(
            "is neither a key of an experiment ({}) nor a parameter of one of its algorithms",
            TOP.join(", ")
        ));
    }
    Ok(Target::Algorithms(those, path))
}
