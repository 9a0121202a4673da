//! The experiment file of a table: target, loss and agents from a look at the data.

use std::path::Path;

use mile_lab::error::LabError;

use super::look::{Column, Look};
use super::{quoted, stem};

/// The most classes of a target that is a class.
const MOST_CLASSES: usize = 20;
/// The most values of a column of text that names agents, or is a category.
const MOST_AGENTS: usize = 50;
/// Agents if no column names them.
const AGENTS: usize = 5;
const DATA_COMMENT: &str = "CSV file with a header; \"agent-{agent}.csv\" for one file per agent";
/// Names of columns that stand for agents.
const AGENT_NAMES: [&str; 14] = [
    "agent", "client", "node", "site", "station", "hospital", "device", "user", "owner", "group", "region",
    "city", "country", "state",
];

/// The text of the experiment file; `data` is the path of the data as it is written there.
pub(super) fn experiment(path: &Path, data: &str, target: Option<&str>) -> Result<String, LabError> {
    let look = Look::at(path)?;
    let is_given = target.is_some();
    let target = find_target(path, &look, target)?;
    let loss = Loss::of(path, &look, &look.columns[target])?;
    let by = agents_column(&look, target);
    let rows = format!("{}{} rows", if look.complete { "" } else { "more than " }, look.rows);
    let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let seen = format!("Seen in {}: {rows}, {} columns.", one_line(&file), look.columns.len());
    let agents = match by {
        Some(by) => {
            let column = &look.columns[by];
            (column.values.len(), format!("one per value of the column {}", one_line(&column.name)))
        }
        None => (AGENTS.min(look.rows).max(1), "number of agents, among which the rows are divided".into()),
    };
    let division = match by {
        Some(by) => {
            let values = look.columns[by].values.len();
            line(
                "by",
                &quoted(&look.columns[by].name),
                &format!("names the agent of each row: this column has {values} values"),
            )
        }
        None => line(
            "partition",
            "{ kind = \"iid\" }",
            "rows at random; or by = \"COLUMN\" that names the agent of a row",
        ),
    };
    Ok(include_str!("table.toml")
        .replace("@SEEN@", &seen)
        .replace("@NAME@", &quoted(&stem(path)))
        .replace("@AGENTS@", &line("agents", &agents.0.to_string(), &agents.1))
        .replace("@DATA@", &line("data", data, DATA_COMMENT))
        .replace("@COLUMNS@", &columns(&look, target, is_given, by))
        .replace("@LOSS@", &line("loss", &format!("\"{}\"", loss.name), &loss.reason(&look.columns[target])))
        .replace("@DIVISION@", &division))
}

/// A key with its comment.
fn line(key: &str, value: &str, comment: &str) -> String {
    format!("{:<29} # {comment}", format!("{key} = {value}"))
}

/// A text for a comment, which ends with its line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The index of the target: the column of this name, or the last.
fn find_target(path: &Path, look: &Look, name: Option<&str>) -> Result<usize, LabError> {
    let Some(name) = name else { return Ok(look.columns.len() - 1) };
    look.columns.iter().position(|column| column.name == name).ok_or_else(|| {
        let names: Vec<&str> = look.columns.iter().map(|column| column.name.as_str()).collect();
        let problem =
            format!("{} has no column '{name}'; its columns are {}", path.display(), names.join(", "));
        LabError::config("--target", problem)
    })
}

/// The loss of a target.
#[derive(Clone, Copy)]
struct Loss {
    name: &'static str,
}

impl Loss {
    const LEAST_SQUARES: Self = Self { name: "least-squares" };
    const LOGISTIC: Self = Self { name: "logistic" };
    const SOFTMAX: Self = Self { name: "softmax" };

    fn of(path: &Path, look: &Look, target: &Column) -> Result<Self, LabError> {
        let values = target.values.len();
        // Few whole numbers that occur often are classes; a measured quantity has more values.
        let few = values <= MOST_CLASSES
            && (!target.is_numeric || (target.is_whole && values <= 10 && look.rows >= 5 * values));
        match values {
            2 => Ok(Self::LOGISTIC),
            3.. if few => Ok(Self::SOFTMAX),
            _ if target.is_numeric && values > 0 => Ok(Self::LEAST_SQUARES),
            _ => {
                let numbers: Vec<&str> =
                    look.columns.iter().filter(|c| c.is_numeric).map(|c| c.name.as_str()).collect();
                let problem = format!(
                    "expected numbers or 2 to {MOST_CLASSES} classes in a target, but column '{}' of {} has {values} different texts; \
                     columns of numbers are {}",
                    target.name,
                    path.display(),
                    if numbers.is_empty() { "none".into() } else { numbers.join(", ") }
                );
                Err(LabError::config("--target", problem))
            }
        }
    }

    fn reason(self, target: &Column) -> String {
        let values = target.values.len();
        match self.name {
            "least-squares" => "the target has many values; for two classes: \"logistic\"".into(),
            _ => format!("the target has {values} values; for numbers: \"least-squares\""),
        }
    }
}

/// The column that looks like the name of an agent: text with few values that occur more than once, preferably with a
/// name that says so. All rows must have been seen, since the number of agents is that of the values.
fn agents_column(look: &Look, target: usize) -> Option<usize> {
    let fits = |(k, column): &(usize, &Column)| {
        let few = (2..=MOST_AGENTS).contains(&column.values.len())
            && column.values.values().all(|count| *count > 1);
        *k != target && !column.is_numeric && few && column.missing == 0 && look.complete
    };
    let found: Vec<(usize, &Column)> = look.columns.iter().enumerate().filter(fits).collect();
    let says_so = |column: &Column| {
        let name = column.name.to_ascii_lowercase();
        AGENT_NAMES.iter().any(|known| name.contains(known))
    };
    found.iter().find(|(_, column)| says_so(column)).or(found.first()).map(|(k, _)| *k)
}

/// The keys about the columns of the file.
fn columns(look: &Look, target: usize, is_given: bool, by: Option<usize>) -> String {
    let which = match is_given {
        true => "the column to predict",
        false => "the column to predict: the last one, unless you name another",
    };
    let mut lines = vec![line("target", &quoted(&look.columns[target].name), which)];
    if look.delimiter != b',' {
        let delimiter = quoted(&char::from(look.delimiter).to_string());
        lines.push(line("delimiter", &delimiter, "between fields"));
    }
    let features =
        || look.columns.iter().enumerate().filter(|(k, _)| *k != target && Some(*k) != by).map(|(_, c)| c);
    let names = |wanted: &dyn Fn(&Column) -> bool| -> Option<String> {
        let names: Vec<String> =
            features().filter(|column| wanted(column)).map(|c| quoted(&c.name)).collect();
        (!names.is_empty()).then(|| format!("[{}]", names.join(", ")))
    };
    let is_category = |column: &Column| !column.is_numeric && column.values.len() <= MOST_AGENTS;
    if let Some(list) = names(&is_category) {
        lines.push(line("categorical", &list, "text with few values: one feature per value"));
    }
    let is_excluded = |column: &Column| !column.is_numeric && !is_category(column);
    if let Some(list) = names(&is_excluded) {
        lines.push(line("exclude", &list, "text with many values: no features"));
    }
    let has_gaps = |column: &Column| column.missing > 0;
    if has_gaps(&look.columns[target]) || features().any(|column| has_gaps(column) && is_category(column)) {
        lines.push(line("missing", "\"drop\"", "rows with missing values are left out"));
    } else if features().any(|column| has_gaps(column) && !is_excluded(column)) {
        let why = "missing numbers become the mean of their column; or \"drop\" the row";
        lines.push(line("missing", "\"mean\"", why));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(csv: &str, target: Option<&str>) -> Result<toml::Table, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some data.csv");
        std::fs::write(&path, csv).unwrap();
        let text = experiment(&path, "\"some data.csv\"", target).map_err(|error| error.to_string())?;
        assert!(!text.contains('@'), "{text}");
        Ok(text.parse().unwrap())
    }

    fn rows(header: &str, row: impl Fn(usize) -> String) -> String {
        (0..40).fold(format!("{header}\n"), |text, k| text + &row(k) + "\n")
    }

    #[test]
    fn the_loss_follows_from_the_target() {
        let loss = |row: &dyn Fn(usize) -> String| {
            written(&rows("a,b,y", row), None).unwrap()["problem"]["loss"].as_str().unwrap().to_owned()
        };
        assert_eq!(loss(&|k| format!("{k},1,{}", k % 2)), "logistic");
        assert_eq!(loss(&|k| format!("{k},1,{}", ["yes", "no"][k % 2])), "logistic");
        assert_eq!(loss(&|k| format!("{k},1,{}", ["low", "middle", "high"][k % 3])), "softmax");
        assert_eq!(loss(&|k| format!("{k},1,{}", k % 8)), "softmax");
        assert_eq!(loss(&|k| format!("{k},1,{}", k % 9)), "least-squares", "40 rows are few for 9 classes");
        assert_eq!(loss(&|k| format!("{k},1,{}.5", k % 4)), "least-squares");
        assert_eq!(loss(&|k| format!("{k},1,{k}")), "least-squares");
        let refused = written(&rows("a,y", |k| format!("{k},name {k}")), None).unwrap_err();
        assert!(refused.contains("--target: "), "{refused}");
        let refused = written(&rows("a,y", |k| format!("{k},{k}")), Some("z")).unwrap_err();
        assert!(refused.contains('z'), "{refused}");
    }

    #[test]
    fn agents_come_from_a_column_of_names() {
        let of = |header: &str, row: &dyn Fn(usize) -> String| written(&rows(header, row), None).unwrap();
        let site = of("kind,site,x,y", &|k| format!("{},s{},{k},{k}", ["p", "q"][k % 2], k % 3));
        assert_eq!(site["problem"]["by"].as_str(), Some("site"));
        assert_eq!(site["network"]["agents"].as_integer(), Some(3));
        assert_eq!(site["problem"]["categorical"][0].as_str(), Some("kind"));
        let plain = of("x,y", &|k| format!("{k},{k}"));
        assert!(plain["problem"].get("by").is_none());
        assert_eq!(plain["problem"]["partition"]["kind"].as_str(), Some("iid"));
        let ids = of("id,x,y", &|k| format!("id-{k},{k},{k}"));
        assert!(ids["problem"].get("by").is_none());
    }

    #[test]
    fn delimiters_and_missing_values_are_seen() {
        for (delimiter, written_as) in [(";", Some(";")), ("\t", Some("\t")), ("|", Some("|")), (",", None)] {
            let csv = rows(&["x", "y"].join(delimiter), |k| format!("{k}{delimiter}{k}.25"));
            let table = written(&csv, Some("y")).unwrap();
            assert_eq!(table["problem"].get("delimiter").and_then(toml::Value::as_str), written_as);
        }
        let table = written(&rows("x,z,y", |k| format!("{},{k},{k}", if k == 3 { "NA" } else { "1" })), None)
            .unwrap();
        assert_eq!(table["problem"]["missing"].as_str(), Some("mean"));
        let gap = |k: usize, value: &'static str| if k == 3 { "NA" } else { value };
        for (row, missing) in [
            // The mean of words is not a word, and a target is not made up.
            (&|k| format!("{k},{},{k}.5", gap(k, ["u", "v"][k % 2])) as String, Some("drop")),
            (&|k| format!("{k},1,{}", gap(k, "0.5")), Some("drop")),
        ] as [(&dyn Fn(usize) -> String, Option<&str>); 2]
        {
            let table = written(&rows("x,z,y", row), Some("y")).unwrap();
            assert_eq!(table["problem"].get("missing").and_then(toml::Value::as_str), missing);
        }
        let many = (0..200).map(|k| if k == 3 { "NA,1,1\n".into() } else { format!("name {k},{k},{k}\n") });
        let table = written(&format!("x,z,y\n{}", many.collect::<String>()), None).unwrap();
        assert!(table["problem"].get("exclude").is_some() && table["problem"].get("missing").is_none());
        for wrong in ["", "only\n1\n", "a,b\n", "a,b\n1,2\n3\n"] {
            assert!(written(wrong, None).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_that_toml_must_quote_are_quoted() {
        let table = written(&rows("\"a \"\"b\"\"\",\"c\nd\"", |k| format!("{k},{k}")), None).unwrap();
        assert_eq!(table["problem"]["target"].as_str(), Some("c\nd"));
    }
}
