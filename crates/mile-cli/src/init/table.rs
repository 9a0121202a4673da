//! The experiment file of a table: target, loss and agents from a look at the data.

mod choose;
#[cfg(test)]
mod tests;

use std::path::Path;

use mile_lab::error::LabError;
use mile_lab::objectives::{ColumnLook, ColumnType, NumberFormat, TableLook};

use self::choose::{Choices, ColumnUse};
use super::{Understood, line, one_line, quoted, stem};
use crate::reading;

const DATA_COMMENT: &str =
    "CSV, Parquet or Arrow file with named columns; \"agent-{agent}.csv\" for one file per agent";

/// The experiment file of a table; `data` is the path of the data as it is written there.
pub(super) fn experiment(path: &Path, data: &str, target: Option<&str>) -> Result<Understood, LabError> {
    let look = TableLook::at(path, target, &reading::progress())?;
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
    let rounds = line("rounds", &choices.rounds(&look).to_string(), "communication rounds at most");
    let stop = format!("{{ grad_norm = {:?} }}", choices.grad_norm(&look));
    let stop = line("stop", &stop, "when the run has converged: |\u{2207}f| is at most this");
    let (step_size, why) = match choices.step_size(&look) {
        None => ("\"auto\"".to_owned(), "a number, or \"auto\": half of the largest stable one"),
        Some(number) => (
            format!("{number:?}"),
            "a number: the curvature of a Poisson loss has no bound, so there is no \"auto\"",
        ),
    };
    let text = include_str!("table.toml")
        .replace("@SEEN@", &seen(path, &look))
        .replace("@NAME@", &quoted(&stem(path)))
        .replace("@ROUNDS@", &rounds)
        .replace("@STOP@", &stop)
        .replace("@STEP@", &line("step_size", &step_size, why))
        .replace("@SAME@", &step_size)
        .replace("@AGENTS@", &line("agents", &choices.agents.to_string(), &agents))
        .replace("@DATA@", &line("data", data, DATA_COMMENT))
        .replace("@COLUMNS@", &columns(&look, &choices, target.is_some()))
        .replace("@LOSS@", &line("loss", &format!("\"{}\"", choices.loss), &choices.loss_comment(&look)))
        .replace("@TEST@", &test)
        .replace("@DIVISION@", &division);
    let asks = !questions(&look, &choices).is_empty();
    Ok(Understood { text, summary: summary(path, &look, &choices, target.is_some()), asks })
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
    if let Some(exposure) = choices.exposure {
        lines.push(format!("exposure: {}, by its name", one_line(&look.columns[exposure].name)));
    }
    lines.push(match choices.by {
        Some(by) => {
            format!("agents: {}, one per value of {}", choices.agents, one_line(&look.columns[by].name))
        }
        None => format!(
            "agents: {}, with rows assigned at random, because no column name suggests whose rows they are",
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
    if let Some(exposure) = choices.exposure {
        let comment = "expected counts are proportional to it, such as time under observation";
        lines.push(line("exposure", &quoted(&look.columns[exposure].name), comment));
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
        lines.push(line("exclude", &list, "columns not used as features"));
    }
    match choices.missing(look) {
        None => {}
        Some("category") => lines.push(line(
            "missing",
            "\"category\"",
            "missing words become a category, missing numbers the mean; or \"drop\" the row",
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
