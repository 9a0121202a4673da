//! The experiment file of a table: target, loss and agents from a look at the data.

mod choose;

use std::path::Path;

use mile_lab::error::LabError;
use mile_lab::objectives::{ColumnLook, ColumnType, NumberFormat, TableLook};

use self::choose::{Choices, ColumnUse};
use super::{quoted, stem};

const DATA_COMMENT: &str =
    "CSV, Parquet or Arrow file with named columns; \"agent-{agent}.csv\" for one file per agent";

/// An experiment file, and what was understood of the data.
pub(super) struct Understood {
    /// The text of the file.
    pub(super) text: String,
    /// What was understood, and why.
    pub(super) summary: String,
    /// Whether the file has a question that must be answered first.
    pub(super) asks: bool,
}

/// The experiment file of a table; `data` is the path of the data as it is written there.
pub(super) fn experiment(path: &Path, data: &str, target: Option<&str>) -> Result<Understood, LabError> {
    let look = TableLook::at(path, target)?;
    let choices = Choices::of(path, &look, target)?;
    let agents = match choices.by {
        Some(by) => format!("one per value of the column {}", one_line(&look.columns[by].name)),
        None => "number of agents, among which the rows are divided".into(),
    };
    let division = match choices.by {
        Some(by) => {
            let comment = format!("names the agent of each row: this column has {} values", choices.agents);
            line("by", &quoted(&look.columns[by].name), &comment)
        }
        None => line(
            "partition",
            "{ kind = \"iid\" }",
            "rows at random; or by = \"COLUMN\" that names the agent of a row",
        ),
    };
    let test = match choices.holds_out {
        true => line("test", "0.2", "part of each agent's rows to hold out for testing"),
        false => line("# test", "0.2", "part of the rows to hold out for testing; here they are too few"),
    };
    let text = include_str!("table.toml")
        .replace("@SEEN@", &seen(path, &look))
        .replace("@NAME@", &quoted(&stem(path)))
        .replace("@AGENTS@", &line("agents", &choices.agents.to_string(), &agents))
        .replace("@DATA@", &line("data", data, DATA_COMMENT))
        .replace("@COLUMNS@", &columns(&look, &choices, target.is_some()))
        .replace("@LOSS@", &line("loss", &format!("\"{}\"", choices.loss), &choices.loss_comment(&look)))
        .replace("@TEST@", &test)
        .replace("@DIVISION@", &division);
    let asks = !questions(&look, &choices).is_empty();
    Ok(Understood { text, summary: summary(path, &look, &choices, target.is_some()), asks })
}

/// A key with its comment.
fn line(key: &str, value: &str, comment: &str) -> String {
    format!("{:<29} # {comment}", format!("{key} = {value}"))
}

/// A text for a comment or a line of a summary, which ends with its line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// One sentence about the file.
fn seen(path: &Path, look: &TableLook) -> String {
    let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let comments = match look.comments {
        0 => String::new(),
        comments => format!("; {comments} lines that begin with # are comments"),
    };
    let (file, columns) = (one_line(&file), look.columns.len());
    format!("Seen in {file}: {} rows, {columns} columns{comments}.", look.rows)
}

/// What was understood of the data, and why.
fn summary(path: &Path, look: &TableLook, choices: &Choices, is_given: bool) -> String {
    let mut lines = vec![seen(path, look)];
    if let Some(encoding) = look.encoding {
        lines.push(format!("encoding: {encoding}, because the text is not UTF-8"));
    }
    let target = &look.columns[choices.target];
    let which = if is_given { "" } else { ", the last column" };
    let gaps = match target.missing {
        0 => String::new(),
        missing => format!("; rows without it are left out: {missing}{}", choose::odd_words(target)),
    };
    let name = one_line(&target.name);
    lines.push(format!(
        "target: {name}{which}; {}: loss = \"{}\"{gaps}",
        choices.loss_reason(look),
        choices.loss
    ));
    lines.push(match choices.by {
        Some(by) => {
            format!("agents: {}, one per value of {}", choices.agents, one_line(&look.columns[by].name))
        }
        None => format!(
            "agents: {}, with rows at random, because no column is named like an agent",
            choices.agents
        ),
    });
    let width = look.columns.iter().map(|column| column.name.chars().count()).max().unwrap_or(0).min(30);
    let of = |wanted: &dyn Fn(&ColumnUse) -> bool| -> Vec<String> {
        let columns = look.columns.iter().zip(&choices.uses).filter(|(_, used)| wanted(used));
        columns
            .map(|(column, used)| format!("  {:width$}  {}", one_line(&column.name), used.told(column)))
            .collect()
    };
    let features = of(&|used| used.is_feature());
    let left_out = of(&|used| matches!(used, ColumnUse::LeftOut(_)));
    for (title, list) in [("features:", features), ("left out:", left_out)] {
        if !list.is_empty() {
            lines.push(title.into());
            lines.extend(list);
        }
    }
    lines.extend(questions(look, choices));
    lines.join("\n") + "\n"
}

/// What only the user knows.
fn questions(look: &TableLook, choices: &Choices) -> Vec<String> {
    let columns =
        look.columns.iter().zip(&choices.uses).filter(|(_, used)| !matches!(used, ColumnUse::LeftOut(_)));
    let question = |(column, _): (&ColumnLook, _)| {
        let ColumnType::Unclear([a, b], example) = &column.kind else { return None };
        let meaning = |format: &NumberFormat| match format {
            NumberFormat::DateDayFirst => "with the day first".to_owned(),
            NumberFormat::DateMonthFirst => "with the month first".to_owned(),
            other => other.parse(example).unwrap_or_default().to_string(),
        };
        let (name, example) = (one_line(&column.name), one_line(example));
        Some(format!(
            "question: is {example} in column {name} {} (\"{}\") or {} (\"{}\")? Write the answer in place of \"?\".",
            meaning(a),
            a.name(),
            meaning(b),
            b.name()
        ))
    };
    columns.filter_map(question).collect()
}

/// The keys about the columns of the file.
fn columns(look: &TableLook, choices: &Choices, is_given: bool) -> String {
    let which = match is_given {
        true => "the column to predict",
        false => "the column to predict: the last one, unless you name another",
    };
    let mut lines = vec![line("target", &quoted(&look.columns[choices.target].name), which)];
    if let Some(delimiter) = look.delimiter.filter(|delimiter| *delimiter != ',') {
        lines.push(line("delimiter", &quoted(&delimiter.to_string()), "between fields"));
    }
    if let Some(comment) = look.comment {
        lines.push(line("comment", &quoted(&comment.to_string()), "lines that begin with it are not read"));
    }
    if let Some(encoding) = look.encoding {
        let comment = "of the characters; the text is not UTF-8";
        lines.push(line("encoding", &quoted(&encoding.to_ascii_lowercase()), comment));
    }
    let used = || look.columns.iter().zip(&choices.uses);
    lines.extend(questions(look, choices).iter().map(|question| format!("# {question}")));
    let format = |(column, used): (&ColumnLook, &ColumnUse)| {
        let format = match (used, &column.kind) {
            (ColumnUse::Classes | ColumnUse::Agents | ColumnUse::Category | ColumnUse::LeftOut(_), _) => None,
            (_, ColumnType::Unclear(..)) => Some("?"),
            (_, ColumnType::Numbers(NumberFormat::Plain)) => None,
            (_, ColumnType::Numbers(format)) => Some(format.name()),
            _ => None,
        };
        format.map(|format| format!("{} = \"{format}\"", key(&column.name)))
    };
    let formats: Vec<String> = used().filter_map(format).collect();
    if !formats.is_empty() {
        let value = format!("{{ {} }}", formats.join(", "));
        lines.push(line("formats", &value, "how numbers are written that are not plain"));
    }
    let missing_words = |(column, used): (&ColumnLook, &ColumnUse)| {
        let words = used.missing_words(column);
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        (!words.is_empty()).then(|| format!("{} = [{}]", key(&column.name), words.join(", ")))
    };
    let words: Vec<String> = used().filter_map(missing_words).collect();
    if !words.is_empty() {
        let value = format!("{{ {} }}", words.join(", "));
        lines.push(line("missing_words", &value, "not numbers: taken for missing values"));
    }
    let names = |wanted: &dyn Fn(&ColumnUse) -> bool| -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        for (column, _) in used().filter(|(_, used)| wanted(used)) {
            let name = quoted(&column.name);
            // Several columns may have no name.
            if !names.contains(&name) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| format!("[{}]", names.join(", ")))
    };
    if let Some(list) = names(&|used| matches!(used, ColumnUse::Category)) {
        lines.push(line("categorical", &list, "text with few values: one feature per value"));
    }
    if let Some(list) = names(&|used| matches!(used, ColumnUse::LeftOut(_))) {
        lines.push(line("exclude", &list, "no features"));
    }
    match choices.missing(look) {
        None => {}
        Some("category") => lines.push(line(
            "missing",
            "\"category\"",
            "missing words are a category of their own, missing numbers become the mean; or \"drop\" the row",
        )),
        Some(missing) => lines.push(line(
            "missing",
            &quoted(missing),
            "missing numbers become the mean of their column; or \"drop\" the row",
        )),
    }
    lines.join("\n")
}

/// A key of a TOML table.
fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_bare { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(csv: &str, target: Option<&str>) -> Result<toml::Table, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some data.csv");
        std::fs::write(&path, csv).unwrap();
        let found = experiment(&path, "\"some data.csv\"", target).map_err(|error| error.to_string())?;
        let text = found.text;
        assert!(!text.contains('@'), "{text}");
        assert_eq!(found.asks, text.contains("# question: ") && found.summary.contains("question: "));
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
        // Words without such a name are features.
        let colours = of("colour,x,y", &|k| format!("{},{k},{k}", ["red", "blue"][k % 2]));
        assert!(colours["problem"].get("by").is_none());
        assert_eq!(colours["problem"]["categorical"][0].as_str(), Some("colour"));
        for name in ["siteId", "Site 2", "sites", "site"] {
            let numbered = of(&format!("x,{name},y"), &|k| format!("{k},{},{k}", k % 4));
            assert_eq!(numbered["problem"]["by"].as_str(), Some(name));
        }
        let website = of("website,x,y", &|k| format!("{},{k},{k}", ["p", "q"][k % 2]));
        assert!(website["problem"].get("by").is_none(), "a part of a word says nothing");
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
            // The mean of words is not a word, and a row without a target is left out.
            (&|k| format!("{k},{},{k}.5", gap(k, ["u", "v"][k % 2])) as String, Some("category")),
            (&|k| format!("{k},1,{}", gap(k, ["0.5", "0.7", "1"][k % 3])), Some("mean")),
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
    fn one_odd_cell_leaves_a_column_of_numbers_what_it_is() {
        for (odd, format, word) in [
            ("\"1,234.5\"", Some("thousands"), None),
            ("inf", None, Some("inf")),
            ("1e999", None, Some("1e999")),
            ("\0", None, Some("\0")),
            ("oops", None, Some("oops")),
            ("none", None, None),
        ] {
            let row = |k: usize| format!("{},{k}", if k == 17 { odd.to_owned() } else { format!("{k}.5") });
            let table = written(&rows("x,y", row), None).unwrap();
            let problem = &table["problem"];
            assert!(problem.get("exclude").is_none() && problem.get("categorical").is_none(), "{odd:?}");
            assert_eq!(problem.get("formats").and_then(|f| f["x"].as_str()), format, "{odd:?}");
            assert_eq!(problem.get("missing_words").and_then(|w| w["x"][0].as_str()), word, "{odd:?}");
            let missing = format.is_none().then_some("mean");
            assert_eq!(problem.get("missing").and_then(toml::Value::as_str), missing, "{odd:?}");
        }
        // A word that occurs again beside few numbers makes categories of all.
        let table =
            written(&rows("x,y", |k| format!("{},{k}", ["1", "2", "X"][usize::from(k % 13 == 0) * 2])), None);
        assert_eq!(table.unwrap()["problem"]["categorical"][0].as_str(), Some("x"));
    }

    #[test]
    fn formats_are_understood_or_asked_for() {
        let format = |cells: [&str; 3]| {
            let row = |k: usize| format!("{};{k}.5", cells[k % 3]);
            let table = written(&rows("x;y", row), Some("y")).unwrap();
            table["problem"].get("formats").map(|formats| formats["x"].as_str().unwrap().to_owned())
        };
        for (cells, expected) in [
            (["1", "2.5", "-3e-2"], None),
            (["1,5", "2", "3,25"], Some("decimal-comma")),
            (["1.234,5", "2", "3,25"], Some("decimal-comma")),
            (["0,125", "2", "3"], Some("decimal-comma")),
            (["1,234.5", "2", "3"], Some("thousands")),
            (["1,234,567", "2", "3"], Some("thousands")),
            (["1,234", "2.5", "3"], Some("thousands")),
            (["1,234", "2", "3"], Some("?")),
            (["12%", "2.5 %", "3%"], Some("percent")),
            (["12,5%", "2 %", "3%"], Some("percent-comma")),
            (["yes", "No", "no"], Some("boolean")),
            (["TRUE", "false", "NA"], Some("boolean")),
            (["2026-11-18", "2025-01-01", "2024-02-29"], Some("date")),
            (["2026-11-18 10:00", "2025-01-01T00:00:00Z", "2024-02-29"], Some("date")),
            (["18.11.2026", "1.1.2025", "29.2.2024"], Some("date-day-first")),
            (["11/18/2026", "1/1/2025", "2/29/2024"], Some("date-month-first")),
            (["03/04/2026", "1/1/2025", "2/9/2024"], Some("?")),
            (["10:30", "00:00", "23:59:59"], Some("time")),
            (["t", "f", "n"], None),
        ] {
            assert_eq!(format(cells), expected.map(str::to_owned), "{cells:?}");
        }
        // Another column of the file leaves no doubt.
        let table = written(&rows("a;x;y", |k| format!("{k},5;1,234;{k}.5")), Some("y")).unwrap();
        assert!(
            table["problem"].get("formats").is_some_and(|formats| formats.get("x").is_none()),
            "it is constant"
        );
        let table = written(&rows("a;x;y", |k| format!("{k},5;{},234;{k}", k + 1)), Some("y")).unwrap();
        assert_eq!(table["problem"]["formats"]["x"].as_str(), Some("decimal-comma"));
    }

    #[test]
    fn names_that_toml_must_quote_are_quoted() {
        let table = written(&rows("\"a \"\"b\"\"\",\"c\nd\"", |k| format!("{k},{k}")), None).unwrap();
        assert_eq!(table["problem"]["target"].as_str(), Some("c\nd"));
    }
}
